//! Vectors from a server that speaks the embeddings API of OpenAI, as most do.
//!
//! ```text
//! texts ─► without blank ones, cut ─► batches ─► POST <base>/embeddings ─► checked ─► int8
//! ```
//!
//! Invariants: one request for each batch, and none again: who calls knows whether a second try is
//! wanted. A request ends within its timeout, and its answer is bounded by what vectors of that size
//! can take. The API key is in no error, no debug output and no redirect.

mod answer;
mod options;

use std::fmt;
use std::sync::Arc;

use serde_json::json;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

pub use options::{HttpOptions, HttpOptionsError};

use crate::text::{self, TextLimit};
use crate::{EmbedError, Embedder, EmbedderId, Vector};

/// To be counted up with every change here that changes a vector.
const DEFINITION: &[u8] = b"http 1: length one, int8 scale 512 clamp 127";

/// What is read of an answer that refuses.
const REFUSAL_BYTES_MAX: u64 = 4 << 10;

/// What is shown of what a server says.
const SHOWN_CHARS_MAX: usize = 300;

/// An embedder that asks a server, over `http` or `https`.
///
/// Blank texts are not sent; their vector is zero. Vectors are given the length one here, whatever
/// the server does. Nothing is tried again: see [`EmbedError::is_temporary`].
///
/// Its id has the name of the model, the dimensions and [`HttpOptions::revision`]. It cannot know
/// what weights the server has behind that name: if they change, change the revision.
///
/// ```no_run
/// use dalsegno_embed::{Embedder, HttpEmbedder, HttpOptions};
///
/// let options = HttpOptions::new("http://localhost:11434/v1", "nomic-embed-text", 768);
/// let vectors = HttpEmbedder::new(options)?.embed(&["an apple a day"])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HttpEmbedder {
    id: EmbedderId,
    options: HttpOptions,
    url: String,
    agent: ureq::Agent,
}

impl HttpEmbedder {
    /// Checks the options. The server is not asked yet.
    pub fn new(options: HttpOptions) -> Result<HttpEmbedder, HttpOptionsError> {
        let url = options.check()?;
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            // A redirect could lead the key and the texts elsewhere: it is reported instead.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(options.timeout))
            .user_agent(concat!("dalsegno/", env!("CARGO_PKG_VERSION")));
        let config = if url.starts_with("https:") {
            config.tls_config(tls()?)
        } else {
            config
        };
        let decisive = [
            DEFINITION,
            options.model.as_bytes(),
            &(options.dimensions as u64).to_le_bytes(),
            options.revision.as_bytes(),
        ];
        Ok(HttpEmbedder {
            id: EmbedderId::new(&options.model, decisive),
            agent: config.build().new_agent(),
            options,
            url,
        })
    }

    /// The vectors of one batch. `places` are those of the texts in the call.
    fn batch(&self, places: &[usize], texts: &[&str]) -> Result<Vec<Vector>, EmbedError> {
        let input: Vec<&str> = places
            .iter()
            .map(|place| text::cut(texts[*place], self.options.text_bytes_max))
            .collect();
        let mut request = json!({
            "model": self.options.model, "input": input, "encoding_format": "float",
        });
        if self.options.send_dimensions {
            request["dimensions"] = self.options.dimensions.into();
        }
        let body = self.post(&request.to_string(), places.len())?;
        answer::vectors(&body, places, self.options.dimensions)
            .map_err(|wrong| wrong.into_error(&self.url, |said| self.shown(said)))
    }

    /// Sends a request and takes the whole answer.
    fn post(&self, request: &str, texts: usize) -> Result<Vec<u8>, EmbedError> {
        let mut post = self
            .agent
            .post(&self.url)
            .header("content-type", "application/json");
        if let Some(key) = &self.options.api_key {
            post = post.header("authorization", format!("Bearer {key}"));
        }
        let mut response = post.send(request).map_err(|error| self.failed(error, 0))?;
        let status = response.status().as_u16();
        if status != 200 {
            let header = response.headers().get("retry-after");
            let retry_after_s = header.and_then(|value| value.to_str().ok()?.trim().parse().ok());
            let mut start = Vec::new();
            let reader = response.body_mut().as_reader();
            // The status says enough if the rest of it does not come.
            std::io::Read::read_to_end(
                &mut std::io::Read::take(reader, REFUSAL_BYTES_MAX),
                &mut start,
            )
            .ok();
            let body = self.shown(&String::from_utf8_lossy(&start));
            return Err(EmbedError::Status {
                url: self.url.clone(),
                status,
                body,
                retry_after_s,
            });
        }
        let limit_bytes = answer::bytes_max(texts, self.options.dimensions);
        let body = response
            .body_mut()
            .with_config()
            .limit(limit_bytes)
            .read_to_vec();
        body.map_err(|error| self.failed(error, limit_bytes))
    }

    fn failed(&self, error: ureq::Error, limit_bytes: u64) -> EmbedError {
        let url = self.url.clone();
        match error {
            ureq::Error::Timeout(_) => EmbedError::Timeout {
                url,
                timeout: self.options.timeout,
            },
            ureq::Error::BodyExceedsLimit(_) => EmbedError::AnswerTooLarge { url, limit_bytes },
            other => EmbedError::Unreachable {
                url,
                why: self.shown(&other.to_string()),
            },
        }
    }

    /// What a server says, fit to be shown: in one line, not too long, and without the key.
    fn shown(&self, said: &str) -> String {
        let mut said = said.to_owned();
        if let Some(key) = &self.options.api_key {
            said = said.replace(key.as_str(), "[API key]");
        }
        let words: Vec<&str> = said
            .split(|c: char| c.is_whitespace() || c.is_control())
            .collect();
        let line: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let line = line.join(" ");
        match line.char_indices().nth(SHOWN_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None if line.is_empty() => "(nothing more)".into(),
            None => line,
        }
    }
}

impl Embedder for HttpEmbedder {
    fn id(&self) -> &EmbedderId {
        &self.id
    }

    fn dimensions(&self) -> usize {
        self.options.dimensions
    }

    fn limit(&self) -> TextLimit {
        TextLimit {
            bytes: self.options.text_bytes_max,
            tokens: None,
        }
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vector>, EmbedError> {
        let mut vectors = vec![Vector::zero(self.options.dimensions); texts.len()];
        let cut = |place: &usize| text::cut(texts[*place], self.options.text_bytes_max);
        let places: Vec<usize> = (0..texts.len())
            .filter(|place| !text::is_blank(cut(place)))
            .collect();
        for batch in places.chunks(self.options.batch_texts) {
            for (place, vector) in batch.iter().zip(self.batch(batch, texts)?) {
                vectors[*place] = vector;
            }
        }
        Ok(vectors)
    }
}

impl fmt::Debug for HttpEmbedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpEmbedder")
            .field("id", &self.id.to_string())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// TLS with the certificates that this machine trusts, or those of `SSL_CERT_FILE`.
fn tls() -> Result<TlsConfig, HttpOptionsError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found
            .errors
            .first()
            .map_or("there are none".into(), ToString::to_string);
        return Err(HttpOptionsError::Certificates { why });
    }
    let roots = found
        .certs
        .iter()
        .map(|der| Certificate::from_der(der).to_owned());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::from(roots))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}
