//! Where a store is: a folder, or a database; and how that is said without saying a password.
//!
//! Invariant: whatever a person or a document is told about a store goes through [`named`]. The
//! address itself goes to the database and to the commands that are run for the user.

use std::path::Path;

use crate::output::text::shown;

/// Where a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// In a folder.
    Folder(&'a Path),
    /// In a database, by its address.
    Database(&'a str),
}

impl Place<'_> {
    /// What `--store` names.
    pub fn of(store: &Path) -> Place<'_> {
        let is_database = |text: &&str| {
            let scheme = text.split_once("://").map(|(scheme, _)| scheme);
            scheme.is_some_and(|s| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric()))
        };
        match store.to_str().filter(is_database) {
            Some(address) => Place::Database(address),
            None => Place::Folder(store),
        }
    }

    /// Whether it is a database.
    pub fn is_database(self) -> bool {
        matches!(self, Place::Database(_))
    }
}

/// A store in words, for people: a folder as it was named, an address without its password.
pub fn named(store: &Path) -> String {
    shown(&unescaped(store))
}

/// The same for documents, in which nothing needs to be escaped.
pub fn unescaped(store: &Path) -> String {
    match Place::of(store) {
        Place::Folder(dir) => dir.display().to_string(),
        Place::Database(address) => masked(address),
    }
}

/// An address without its password, wherever that may stand.
fn masked(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let (base, query) = match rest.split_once('?') {
        Some((base, query)) => (base, Some(query)),
        None => (rest, None),
    };
    // A password may have anything in it that should have been escaped. With a ? in it, nobody can
    // tell where it ends.
    if !base.contains('@') && rest.contains('@') {
        return format!("{scheme}://***");
    }
    let base = match base.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((user, _)) => format!("{user}:***@{host}"),
            None => format!("{user}@{host}"),
        },
        None => base.to_owned(),
    };
    let query = query.map(|query| {
        let parts = query.split('&').map(|part| match part.split_once('=') {
            Some((name, _)) if name.eq_ignore_ascii_case("password") => format!("{name}=***"),
            _ => part.to_owned(),
        });
        format!("?{}", parts.collect::<Vec<_>>().join("&"))
    });
    format!("{scheme}://{base}{}", query.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_no_database() {
        for dir in [
            ".dalsegno",
            "/a/b",
            "postgres:/x",
            "a b://c",
            "://x",
            "C:\\x",
        ] {
            assert!(!Place::of(Path::new(dir)).is_database(), "{dir}");
        }
        for url in ["postgres://h/d", "postgresql://h", "mysql://h"] {
            assert!(Place::of(Path::new(url)).is_database(), "{url}");
        }
    }

    #[test]
    fn passwords_are_not_said() {
        for (address, expected) in [
            ("postgres://u:secret@h:1/d", "postgres://u:***@h:1/d"),
            ("postgres://u:se@cr/et@h/d", "postgres://u:***@h/d"),
            ("postgres://u:se?cret@h/d", "postgres://***"),
            ("postgres://h/d?password=s@cret", "postgres://***"),
            ("postgres://u@h/d?schema=x", "postgres://u@h/d?schema=x"),
            (
                "postgres://h/d?user=u&password=secret&schema=x",
                "postgres://h/d?user=u&password=***&schema=x",
            ),
        ] {
            let said = named(Path::new(address));
            assert!(!said.contains("cret"), "{said}");
            assert!(said.starts_with(expected), "{said}");
        }
    }
}
