//! What agents know, inside of runs and outside.
//!
//! Inside of a run a memory is [`Ctx::memory`](crate::Ctx::memory): what it is asked is recorded, and
//! what it is given happens exactly once. Outside it is [`Dalsegno::memory`](crate::Dalsegno::memory).
//!
//! ```
//! use dalsegno::memory::{NewDocument, Query, RankingConfig};
//! use dalsegno::{Ctx, Dalsegno, Result};
//!
//! async fn cook(ctx: Ctx, minutes: u64) -> Result<String> {
//!     let kitchen = ctx.memory("kitchen");
//!     let oven = NewDocument::fact(format!("The oven heats up in {minutes} minutes.")).source("manual");
//!     let oven = kitchen.add(oven).await?; // once, whatever crashes
//!     let found = kitchen.search(&Query::words("heating the oven"), &RankingConfig::default()).await?;
//!     assert_eq!(found.hits[0].id, oven); // the same ids, scores and order at every replay
//!     Ok(found.hits[0].text().to_owned())
//! }
//!
//! # let dir = std::env::temp_dir().join(format!("dalsegno-doc-run-memory-{}", std::process::id()));
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let app = Dalsegno::builder().agent("cook", cook).open(&dir).await?;
//! let said: String = app.run("cook", "monday", &12).await?;
//! assert_eq!(said, "The oven heats up in 12 minutes.");
//! assert_eq!(app.memory("kitchen").await?.version().await?.sequence, 1);
//! assert!(app.replay("monday").await?.is_same()); // searches again, and compares
//! # app.close().await?;
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use dalsegno_embed::{EmbedError, Embedder, EmbedderId};
pub use dalsegno_memory::{
    AsOf, CERTAIN, Content, DocId, DocKind, Document, Ended, Filter, Hits, HowEnded, Language,
    LeftOut, Memory, MemoryError, NewDocument, Query, RankingConfig, Scope, Vector,
};

use std::sync::Arc;

use crate::run::Unbroken;

pub use crate::ctx::{
    EMBED_LIMIT_BYTES, EMBED_LIMIT_TEXTS, Found, FoundDocument, FoundHit, RunMemory,
};

impl crate::Dalsegno {
    /// A memory of this store, outside of runs: nothing is recorded of what it is asked, and what it
    /// is given is no step. Inside of a run use [`crate::Ctx::memory`].
    ///
    /// # Errors
    /// The name cannot be one, or the memory could not be read.
    pub async fn memory(&self, name: &str) -> Result<Memory, crate::Error> {
        // Runs wait for who opens it, also if that one does not look any more.
        let (memories, name) = (Arc::clone(&self.engine.memories), name.to_owned());
        let opening = async move { memories.get(&name).await };
        Ok(Unbroken::new(&self.engine.runtime, opening).await?)
    }
}
