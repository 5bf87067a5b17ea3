//! Events and streams: what happened, in order, tamper-evident.
//!
//! An [`Event`] is the record of something that happened. Events stand in streams, one per run and
//! one per memory; each stream is a chain of hashes, so that a [`Version`] names exactly one
//! history. [`State`] is what follows from the events of everything that has not ended.
//!
//! ```
//! use dalsegno_store::{Event, Kind, State, StreamId, Version};
//!
//! let run = StreamId::run("order-42")?;
//! let event = Event::new(run.clone(), 1, 1, 0, Kind::RunCreated);
//! let bytes = event.encode();
//! assert_eq!(Event::decode(&bytes)?, event);
//!
//! let mut state = State::default();
//! state.apply(&event, &bytes);
//! assert_eq!(state.streams[&run].head, Version::START.after(&bytes));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod engine;
pub mod mailbox;
pub mod payload;
pub mod portable;
pub mod transfer;

mod content_type;
mod error;
mod event;
mod fields;
mod follow;
mod forgotten;
mod hash;
mod helper;
mod index;
mod judge;
mod kind;
mod local;
mod name;
mod over;
mod rules;
mod state;
mod store;
mod strict;

pub use content_type::ContentType;
pub use dalsegno_log::may_block;
pub use error::StoreError;
pub use event::{Body, Event, EventRef, INLINE_LIMIT_BYTES, LetterRef, Payload, Version};
pub use fields::{Fields, Malformed, Value};
pub use follow::Follow;
pub use hash::{Hash, ParseHashError};
pub use helper::NewHelper;
pub use kind::{Kind, MUST_UNDERSTAND};
pub use local::{
    FORMAT, LocalStore, Opened, Options, Problem, Retention, Retired, SnapshotInfo, SnapshotRole,
    StoreCopy, StoreRepair, StoreReport, WouldRetire,
};
pub use name::{NAME_LIMIT_BYTES, NameError, StreamId, StreamKind};
pub use over::Over;
#[cfg(feature = "mutants")]
pub use rules::Rule;
pub use state::{Applied, Lease, State, Status, StreamState, field};
pub use store::{
    Answer, Append, Appended, Claim, Foreign, LettersTaken, Limits, NewEvent, NewPayload, Position,
    Recorded, RunInfo, RunQuery, Store, Timer,
};
pub use transfer::{Export, ImportReport};
