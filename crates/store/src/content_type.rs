//! What a payload is, as in `application/json`.
//!
//! Invariant: it behaves like the text it stands for. The few that nearly every event has are
//! known, and take no memory of their own: there is one with each payload of a long run.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

const KNOWN: [&str; 3] = ["application/json", "text/plain", "application/octet-stream"];

/// The type of a payload: any text.
///
/// ```
/// use dalsegno_store::ContentType;
///
/// let json = ContentType::from("application/json");
/// assert_eq!(json, "application/json");
/// assert!(json.as_str().ends_with("json"));
/// assert_eq!(ContentType::from(String::from("x/y")).to_string(), "x/y");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentType(Cow<'static, str>);

impl ContentType {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// One of those that are known, from its bytes.
    pub(crate) fn known(bytes: &[u8]) -> Option<ContentType> {
        let found = KNOWN.into_iter().find(|known| known.as_bytes() == bytes)?;
        Some(ContentType(Cow::Borrowed(found)))
    }
}

impl From<&str> for ContentType {
    fn from(text: &str) -> ContentType {
        let known = ContentType::known(text.as_bytes());
        known.unwrap_or_else(|| ContentType(Cow::Owned(text.to_owned())))
    }
}

impl From<String> for ContentType {
    fn from(text: String) -> ContentType {
        let known = ContentType::known(text.as_bytes());
        known.unwrap_or(ContentType(Cow::Owned(text)))
    }
}

impl From<ContentType> for String {
    fn from(content_type: ContentType) -> String {
        content_type.0.into_owned()
    }
}

impl Deref for ContentType {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for ContentType {
    fn eq(&self, text: &str) -> bool {
        self.as_str() == text
    }
}

impl PartialEq<&str> for ContentType {
    fn eq(&self, text: &&str) -> bool {
        self.as_str() == *text
    }
}

impl fmt::Display for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
