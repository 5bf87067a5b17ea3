//! What there is to say about a server.
//!
//! Invariant: the API key is never shown.

use std::fmt;
use std::time::Duration;

/// The address of a server, and how to ask it.
#[derive(Clone)]
pub struct HttpOptions {
    pub(super) base_url: String,
    pub(super) model: String,
    pub(super) dimensions: usize,
    pub(super) api_key: Option<String>,
    pub(super) timeout: Duration,
    pub(super) batch_texts: usize,
    pub(super) text_bytes_max: usize,
    pub(super) send_dimensions: bool,
    pub(super) revision: String,
}

impl HttpOptions {
    /// An address, which mostly ends with `/v1`; a model of the server; and how many components its
    /// vectors have.
    pub fn new(
        base_url: impl Into<String>,
        model: impl Into<String>,
        dimensions: usize,
    ) -> HttpOptions {
        HttpOptions {
            base_url: base_url.into(),
            model: model.into(),
            dimensions,
            api_key: None,
            timeout: Duration::from_secs(60),
            batch_texts: 64,
            text_bytes_max: 16 << 10,
            send_dimensions: false,
            revision: String::new(),
        }
    }

    /// Sent as a bearer token, also over plain `http`. Never shown.
    pub fn api_key(mut self, key: impl Into<String>) -> HttpOptions {
        self.api_key = Some(key.into());
        self
    }

    /// For one request, from the connection to the last byte of the answer. 60 s without this.
    pub fn timeout(mut self, timeout: Duration) -> HttpOptions {
        self.timeout = timeout;
        self
    }

    /// How many texts are sent in one request. 64 without this. With 1, a vector does not depend on
    /// the texts beside it on any server.
    pub fn batch_texts(mut self, texts: usize) -> HttpOptions {
        self.batch_texts = texts;
        self
    }

    /// How many bytes of a text are sent. 16 KiB without this, which is mostly below the 8,191 tokens
    /// that OpenAI takes. Servers refuse what is too long for their model, or cut it.
    pub fn text_bytes_max(mut self, bytes: usize) -> HttpOptions {
        self.text_bytes_max = bytes;
        self
    }

    /// Asks the server to cut its vectors to the dimensions. Not every model can.
    pub fn send_dimensions(mut self) -> HttpOptions {
        self.send_dimensions = true;
        self
    }

    /// Part of the id: to be changed when the model behind its name changes, or to tell two servers
    /// apart that have one name for two models.
    pub fn revision(mut self, revision: impl Into<String>) -> HttpOptions {
        self.revision = revision.into();
        self
    }

    /// The address to post to, if all is well.
    pub(super) fn check(&self) -> Result<String, HttpOptionsError> {
        let url = format!("{}/embeddings", self.base_url.trim_end_matches('/'));
        let bad_url = |why: &str| HttpOptionsError::Address { why: why.into() };
        let uri: ureq::http::Uri = url.parse().map_err(|_| bad_url("it cannot be read"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(bad_url("it does not start with http:// or https://"));
        }
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.is_empty() || authority.contains('@') {
            return Err(bad_url(
                "it has no host, or a user: give a key as the API key",
            ));
        }
        if uri.query().is_some() {
            return Err(bad_url("it has a query"));
        }
        let key = self.api_key.as_deref().unwrap_or("none");
        let limits = [
            (self.model.is_empty(), "the model has no name"),
            (
                !(1..=65_536).contains(&self.dimensions),
                "the dimensions are not from 1 to 65,536",
            ),
            (self.batch_texts == 0, "the batch has no texts"),
            (self.text_bytes_max == 0, "the texts have no bytes"),
            (self.timeout.is_zero(), "the timeout is zero"),
            (
                key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()),
                "the API key is empty, or has spaces or what is not ASCII",
            ),
        ];
        match limits.into_iter().find(|(broken, _)| *broken) {
            Some((_, why)) => Err(HttpOptionsError::Value { why }),
            None => Ok(url),
        }
    }
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("base_url", &self.base_url)
            .field("model", &self.model)
            .field("dimensions", &self.dimensions)
            .field("api_key", &self.api_key.as_ref().map(|_| "[API key]"))
            .field("timeout", &self.timeout)
            .field("batch_texts", &self.batch_texts)
            .field("text_bytes_max", &self.text_bytes_max)
            .field("send_dimensions", &self.send_dimensions)
            .field("revision", &self.revision)
            .finish()
    }
}

/// Why no server can be asked this way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpOptionsError {
    /// The address is none. It is not repeated, as it may hold a secret.
    #[error(
        "the address of the embeddings server is wrong: {why}: give one like http://localhost:11434/v1"
    )]
    Address {
        /// What is wrong with it.
        why: String,
    },
    /// A value makes no sense.
    #[error("the embeddings server cannot be asked: {why}: correct the options")]
    Value {
        /// Which one.
        why: &'static str,
    },
    /// There are no certificates to check a server with.
    #[error(
        "no certificates to check the embeddings server with: {why}: install ca-certificates, or set SSL_CERT_FILE"
    )]
    Certificates {
        /// What happened.
        why: String,
    },
}
