//! What agents know: facts, constraints, decisions, plans and documents, with their history, and
//! retrieval that gives the same answer every time.
//!
//! A memory is a stream of a store. Its state is a fold over its events, and a version of it is a
//! sequence and a hash over everything up to there. A [search](Memory::search) is a pure function of
//! version, query and ranking: bit for bit the same on every machine, at every old version, on every
//! store.
//!
//! ```
//! # let dir = std::env::temp_dir().join(format!("dalsegno-doc-memory-{}", std::process::id()));
//! use std::sync::Arc;
//! use dalsegno_memory::{Memory, NewDocument, Query, RankingConfig};
//! use dalsegno_store::LocalStore;
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let store = Arc::new(LocalStore::open(&dir)?);
//! let memory = Memory::open(store, "kitchen").await?.by("cook");
//! let oven = NewDocument::fact("The oven takes 12 minutes to heat up.").source("manual.pdf");
//! let oven = memory.add(oven).await?;
//! memory.add(NewDocument::constraint("No nuts: a guest is allergic.").tag("menu")).await?;
//! let then = memory.version().await?;
//!
//! // A correction takes the place of what it corrects, which stays in the history.
//! memory.correct(oven, NewDocument::fact("The new oven heats up in 7 minutes.")).await?;
//!
//! let ranking = RankingConfig::default();
//! let now = memory.search(&Query::words("heating the oven"), &ranking).await?;
//! assert_eq!(now.hits[0].content.text, "The new oven heats up in 7 minutes.");
//! let before = Query::words("heating the oven").as_of(then);
//! let before = memory.search(&before, &ranking).await?;
//! assert_eq!(before.hits[0].id, oven);
//! assert_eq!(before.hits[0].content.sources, ["manual.pdf"]);
//!
//! // What is forgotten is gone from disk and from every version; the chain of hashes stays whole.
//! memory.forget(&[oven], "the owner of the manual asked for it").await?;
//! let gone = memory.search(&Query::words("oven").as_of(then), &ranking).await?;
//! assert!(gone.hits.is_empty());
//! assert_eq!(gone.forgotten_since, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Absent on purpose: embedders, which are elsewhere and give [`Vector`]s; a query language; floating
//! point in anything that decides an order; approximate indexes of vectors.

mod analyser;
mod bm25;
mod complete;
mod config;
mod content;
mod document;
mod dot;
mod draft;
mod error;
mod history;
mod index;
mod keep;
mod lookup;
mod memory;
mod query;
mod record;
mod search;
mod state;
mod top;
mod vector;

pub use analyser::{Analyser, Language};
pub use config::RankingConfig;
pub use document::{
    CERTAIN, Content, DocId, DocKind, Document, Ended, HowEnded, LABEL_LIMIT_BYTES, LABELS_LIMIT,
    NewDocument, Scope, TEXT_LIMIT_BYTES,
};
pub use draft::Draft;
pub use error::MemoryError;
pub use history::{Change, Changed, Revision};
pub use memory::{Forgotten, Memory, MemoryOptions};
pub use query::{
    AsOf, ByVector, ByWords, Explanation, Filter, HITS_LIMIT, Hit, Hits, LeftOut,
    QUERY_LIMIT_BYTES, QUERY_LIMIT_WORDS, Query, Term,
};
pub use vector::{CLAMP, DIMENSION_LIMIT, SCALE, Vector};
