//! Vectors of texts, as recorded outcomes.
//!
//! Invariant: an embedder is asked once for a step; ever after its answer is from the record. So it
//! does not matter that a server, or another machine, would give other bits today.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use dalsegno_embed::Embedder;
use dalsegno_memory::Vector;
use serde_json::json;

use super::memory::{vector_hex, vector_of};
use super::{Ctx, misuse};
use crate::failure::{Certainty, Failure, FailureKind, Result};

/// So many texts are embedded by one step, at most.
pub const EMBED_LIMIT_TEXTS: usize = 1000;
/// So many bytes all texts of a step may have together.
pub const EMBED_LIMIT_BYTES: usize = 16 << 20;

impl Ctx {
    /// The vectors of some texts, in their order. A step like the call of a model: what the embedder
    /// says is recorded under its id, and replay never embeds again.
    ///
    /// Of the texts only a hash is recorded, so that they can be forgotten elsewhere; the vectors
    /// are recorded whole, and tell something about them.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use dalsegno::memory::{Embedder, Query};
    ///
    /// # async fn agent(ctx: dalsegno::Ctx, embedder: Arc<dyn Embedder>) -> dalsegno::Result<()> {
    /// let vectors = ctx.embed(&embedder, ["how hot is the oven"]).await?;
    /// let query = Query::hybrid("how hot is the oven", vectors[0].clone());
    /// # Ok(()) }
    /// ```
    pub fn embed<I>(
        &self,
        embedder: &Arc<dyn Embedder>,
        texts: I,
    ) -> impl Future<Output = Result<Vec<Vector>>> + Send + use<I>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let texts: Arc<[String]> = texts.into_iter().map(Into::into).collect();
        let bytes = texts.iter().map(String::len).sum::<usize>();
        let mut hasher = blake3::Hasher::new();
        for text in texts.iter() {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        let input = json!({
            "embedder": embedder.id().to_string(),
            "dimensions": embedder.dimensions(),
            "texts": texts.len(),
            "bytes": bytes,
            "hash": hasher.finalize().to_hex().as_str(),
        });
        let (count, runtime) = (texts.len(), Arc::clone(&self.run.runtime));
        let embedder = Arc::clone(embedder);
        let called = self.model("embed").input(&input).call(move |_| {
            let (embedder, texts) = (Arc::clone(&embedder), Arc::clone(&texts));
            let runtime = Arc::clone(&runtime);
            async move {
                within("texts", texts.len(), EMBED_LIMIT_TEXTS)?;
                within("bytes of text", bytes, EMBED_LIMIT_BYTES)?;
                let answer = Arc::new(Mutex::new(None));
                let slot = Arc::clone(&answer);
                // It computes, or waits for a server: not where others want to go on.
                let work = Box::new(move || {
                    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                    let made = embedder.embed(&texts);
                    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
                });
                runtime.blocking(work).await;
                let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
                match answer {
                    None => Err(Failure::terminal("the embedder panicked")),
                    Some(Err(e)) if e.is_temporary() => Err(Failure::not_done(e)),
                    Some(Err(e)) => Err(Failure::terminal(e)),
                    Some(Ok(vectors)) => {
                        let made = vectors.into_iter().map(|vector| {
                            let vector = Vector::from_i8(vector.into_vec());
                            Ok(vector_hex(&vector.map_err(Failure::terminal)?))
                        });
                        made.collect::<Result<Vec<String>>>()
                    }
                }
            }
        });
        async move {
            let made: Vec<String> = called.await?;
            let vectors = made.iter().map(|hex| vector_of(hex));
            let vectors: Option<Vec<Vector>> = vectors.collect();
            let vectors = vectors.filter(|vectors| vectors.len() == count);
            vectors
                .ok_or_else(|| misuse("the embedder gave no vector for some of the texts".into()))
        }
    }
}

fn within(what: &str, size: usize, limit: usize) -> Result<()> {
    match size <= limit {
        true => Ok(()),
        false => {
            let why = format!("{size} {what}, the limit is {limit}: embed them in several steps");
            Err(Failure::of(FailureKind::TooLarge, Certainty::Terminal, why))
        }
    }
}
