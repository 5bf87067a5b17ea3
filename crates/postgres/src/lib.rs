//! The store of Dalsegno in PostgreSQL: the same streams, bytes and hashes as in a folder, for many
//! processes on many machines.
//!
//! ```text
//! append ─► held by this handle? ─► judged in memory, answered ─► flusher: many runs, one statement
//!                                └► else: rows locked, judged, written, committed, answered
//! ```
//!
//! | word | meaning |
//! |---|---|
//! | handle | an open store in one process: it holds leases, and others can tell it from themselves |
//! | held | a run whose lease a handle has: only that handle gives places in the run's stream |
//! | claimable | when an unfinished run may go on: now, at its next timer, or when its lease ends |
//!
//! Invariants: what `durable` has answered for is committed with `synchronous_commit`. A handle that
//! was overtaken cannot write: every write names the sequence and the token that it expects, and the
//! database compares them. The events are judged by the code that judges them for the local store
//! ([`dalsegno_store::engine`]).
//!
//! Absent on purpose: extensions, triggers, stored procedures and advisory locks, which relatives of
//! PostgreSQL and managed servers do not have; and notifications inside of transactions.

mod about;
mod append;
mod claim;
mod doubt;
mod error;
mod flush;
mod forgetting;
mod helpers;
mod here;
mod inner;
mod leases;
mod letters;
mod lists;
mod locked;
mod memory;
mod options;
mod pool;
mod read;
mod retention;
mod save;
mod schema;
mod security;
mod store;
#[cfg(feature = "tls")]
mod tls;
mod transfer;
mod tx;
mod verify;
mod wake;

pub use about::AboutDatabase;
pub use options::PostgresOptions;
pub use store::PostgresStore;
pub use verify::PostgresReport;
