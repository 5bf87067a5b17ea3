//! Whether a connection is encrypted, and what is checked: the parameters `sslmode` and `sslrootcert`
//! of an address, with the words and meanings that PostgreSQL's own programs give them.
//!
//! | `sslmode` | encrypted | the server's certificate |
//! |---|---|---|
//! | `disable` | no | |
//! | `prefer` | if the server can | is not looked at |
//! | `require` | yes | is not looked at, or as `verify-ca` if there is an `sslrootcert` |
//! | `verify-ca` | yes | must be signed by one that is trusted |
//! | `verify-full` | yes | and be that of the host in the address |
//!
//! Trusted are the certificates of the file `sslrootcert`, or else those that the system trusts.

use std::path::PathBuf;

use dalsegno_store::StoreError;
use tokio_postgres::config::SslMode;

/// What an address says about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Security {
    mode: Option<Mode>,
    root: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// What has to hold of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
pub(crate) enum Check {
    Nothing,
    /// It is signed by one of this file, or one that the system trusts; and is the host's, if so.
    Signed {
        root: Option<PathBuf>,
        is_host: bool,
    },
}

impl Security {
    /// Takes a parameter of the address, if it is about this; an error says what is wrong with it.
    pub fn take(&mut self, part: &str) -> Result<bool, String> {
        match part.split_once('=') {
            Some(("sslmode", mode)) => {
                self.mode = Some(match mode {
                    "disable" => Mode::Disable,
                    "prefer" => Mode::Prefer,
                    "require" => Mode::Require,
                    "verify-ca" => Mode::VerifyCa,
                    "verify-full" => Mode::VerifyFull,
                    _ => {
                        return Err(
                            "its sslmode must be disable, prefer, require, verify-ca or \
                                    verify-full"
                                .into(),
                        );
                    }
                });
            }
            Some(("sslrootcert", path)) => {
                let path = decoded(path).ok_or("its sslrootcert is no path")?;
                self.root = Some(path.into());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The mode for the client.
    pub fn ssl_mode(&self) -> SslMode {
        match self.mode {
            Some(Mode::Disable) => SslMode::Disable,
            None | Some(Mode::Prefer) => SslMode::Prefer,
            Some(Mode::Require | Mode::VerifyCa | Mode::VerifyFull) => SslMode::Require,
        }
    }

    /// What has to hold of the server's certificate.
    #[cfg_attr(not(feature = "tls"), allow(dead_code))]
    pub fn check(&self) -> Check {
        let root = self.root.clone();
        match self.mode {
            Some(Mode::VerifyFull) => Check::Signed {
                root,
                is_host: true,
            },
            Some(Mode::VerifyCa) => Check::Signed {
                root,
                is_host: false,
            },
            Some(Mode::Require) if root.is_some() => Check::Signed {
                root,
                is_host: false,
            },
            _ => Check::Nothing,
        }
    }
}

/// A part of an address without its percent signs.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = tail.get(2..)?;
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|text| !text.is_empty())
}

/// Without the feature `tls`, nothing is encrypted.
#[cfg(not(feature = "tls"))]
pub(crate) type Connector = tokio_postgres::NoTls;

/// What makes connections.
#[cfg(not(feature = "tls"))]
pub(crate) fn connector(security: &Security) -> Result<Connector, StoreError> {
    match security.ssl_mode() {
        SslMode::Disable | SslMode::Prefer => Ok(tokio_postgres::NoTls),
        _ => Err(StoreError::Backend(
            "the address asks for an encrypted connection (sslmode), which this program was built \
             without: build it with the feature `tls`, use a tunnel, or leave it out"
                .into(),
        )),
    }
}

#[cfg(feature = "tls")]
pub(crate) use crate::tls::Connector;

/// What makes connections.
#[cfg(feature = "tls")]
pub(crate) fn connector(security: &Security) -> Result<Connector, StoreError> {
    Connector::new(&security.check()).map_err(StoreError::Backend)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn percent_signs_are_decoded() {
        assert_eq!(decoded("/a%20b/c.pem").unwrap(), "/a b/c.pem");
        for wrong in ["", "%", "%2", "%zz", "%ff"] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_root_makes_require_check_the_signature() {
        let mut security = Security::default();
        assert_eq!(security.check(), Check::Nothing);
        assert!(security.take("sslmode=require").unwrap());
        assert_eq!(security.check(), Check::Nothing);
        assert!(security.take("sslrootcert=/ca.pem").unwrap());
        let signed = |is_host| Check::Signed {
            root: Some("/ca.pem".into()),
            is_host,
        };
        assert_eq!(security.check(), signed(false));
        assert!(security.take("sslmode=verify-full").unwrap());
        assert_eq!(security.check(), signed(true));
        assert!(!security.take("schema=x").unwrap());
        assert!(security.take("sslmode=perhaps").is_err());
    }
}
