//! Vectors for the memory of Dalsegno: texts become directions, near where the meaning is.
//!
//! | embedder | feature | what it needs | one text of 200 words | bit-exact |
//! |---|---|---|---|---|
//! | [`StaticTable`] | `table` (default) | a folder, 16 MB | below 1 ms | on every machine |
//! | `Transformer` | `transformer` | a folder, 90 MB | 200 ms | on one machine |
//! | `HttpEmbedder` | `http` | a server | what the server takes | no |
//! | your own | none | [`Embedder`] | | |
//!
//! | word | meaning |
//! |---|---|
//! | embedder | makes vectors out of texts; has an [`EmbedderId`] that says with which weights |
//! | [`Vector`] | int8, of length one before it was quantised; its bytes are all there is |
//! | zero vector | the answer for a text that says nothing to the model; it is near to nothing |
//! | limit | how much of a text is looked at ([`Embedder::limit`]) |
//!
//! Invariants: a vector depends on its text and on the id of the embedder, and not on the other
//! texts of the call. An embedder answers for all texts of a call or for none. Nothing is downloaded.
//!
//! An embedding is an outcome to be recorded, like the answer of any tool: replay reads it and never
//! embeds again. So it does not matter to replay that a server, or a transformer on another
//! machine, would give other bits today.
//!
//! ```no_run
//! # #[cfg(feature = "table")] {
//! use dalsegno_embed::{Embedder, StaticTable};
//!
//! fn nearest<'a>(
//!     embedder: &dyn Embedder,
//!     query: &str,
//!     texts: &[&'a str],
//! ) -> Result<Option<&'a str>, dalsegno_embed::EmbedError> {
//!     let vectors = embedder.embed(texts)?;
//!     let query = embedder.embed(&[query])?.remove(0);
//!     let scored = texts.iter().zip(&vectors).map(|(text, vector)| (vector.dot(&query), *text));
//!     Ok(scored.max().map(|(_, text)| text))
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let embedder = StaticTable::open("models/wordllama-256")?;
//! println!("{} looks at {}", embedder.id(), embedder.limit());
//! println!("{:?}", nearest(&embedder, "fruit", &["an apple", "a car"])?);
//! # Ok(()) }
//! # }
//! ```

#[cfg(feature = "transformer")]
mod bert;
mod error;
mod fixed;
#[cfg(feature = "http")]
mod http;
mod id;
#[cfg(feature = "table")]
mod safetensors;
#[cfg(feature = "table")]
mod table;
mod text;
#[cfg(any(feature = "table", feature = "transformer"))]
mod tokens;
#[cfg(feature = "transformer")]
mod transformer;
mod vector;

pub use error::{EmbedError, LoadError};
#[cfg(feature = "http")]
pub use http::{HttpEmbedder, HttpOptions, HttpOptionsError};
pub use id::EmbedderId;
#[cfg(feature = "table")]
pub use table::{StaticTable, TableOptions};
pub use text::TextLimit;
#[cfg(feature = "transformer")]
pub use transformer::Transformer;
pub use vector::{Quantisation, Vector, VectorError};

/// Makes vectors out of texts.
///
/// [`Embedder::embed`] works on the thread that calls it and may take long: the local embedders
/// compute, and the one over HTTP waits for its server. Async code hands it to a thread that may be
/// blocked:
///
/// ```
/// use std::sync::Arc;
/// use dalsegno_embed::{EmbedError, Embedder, Vector};
///
/// async fn embed(embedder: Arc<dyn Embedder>, text: String) -> Result<Vec<Vector>, EmbedError> {
///     match tokio::task::spawn_blocking(move || embedder.embed(&[&text])).await {
///         Ok(vectors) => vectors,
///         Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
///     }
/// }
/// ```
///
/// It is not async itself because the local ones, which are the most used, would block the runtime
/// all the same, and without saying so.
pub trait Embedder: Send + Sync + std::fmt::Debug {
    /// What to record beside the vectors: vectors of another id cannot be compared with them.
    fn id(&self) -> &EmbedderId;

    /// How many components each vector has.
    fn dimensions(&self) -> usize;

    /// How much of each text is looked at. What is beyond does not change the vector.
    fn limit(&self) -> TextLimit;

    /// The vectors of some texts, in their order; for all of them or for none. A text that is empty,
    /// or blank, or of which the model knows nothing has the zero vector.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vector>, EmbedError>;
}
