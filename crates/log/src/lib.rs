//! A durable, ordered log of bytes.
//!
//! Records are appended in batches, get consecutive numbers (LSNs), and are on disk when
//! [`Log::wait_durable`] or [`Log::durable`] say so. Any number of threads and tasks share one
//! `fdatasync`. After a crash, everything acknowledged is there, in order, byte for byte; a batch
//! is whole or absent; a write that the crash interrupted is cut off and reported; and any other
//! change to the bytes is refused by name, never skipped.
//!
//! ```
//! # let dir = std::env::temp_dir().join(format!("dalsegno-doc-lib-{}", std::process::id()));
//! use dalsegno_log::Log;
//!
//! let log = Log::open(&dir)?;
//! if let Some(torn) = &log.recovery().torn {
//!     eprintln!("a crash left {} unfinished bytes", torn.bytes);
//! }
//! let lsns = log.append_batch(&[b"intent".as_slice(), b"outcome"])?;
//! log.wait_durable(*lsns.end())?;
//! # drop(log);
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | word | meaning |
//! |---|---|
//! | record | bytes that the user appended |
//! | LSN | a record's number: from 1, counting every record ever appended |
//! | batch | records that are there together or not at all |
//! | group | the batches that one sync makes durable |
//! | frame | a record as bytes on disk, with its checksums |
//! | mark | a frame of the log's own: a segment's start or seal, opening, closing |
//! | gap | a frame that stands where records were: removed on purpose, or lost to damage |
//! | segment | a file of frames; *sealed* once nothing is ever added to it |
//! | epoch | rises with every opening after which something was written |
//! | poisoned | stopped for good, because a write or a sync failed |

pub mod fs;

mod commit;
mod copy;
mod cursor;
mod error;
mod filling;
mod frame;
mod handover;
mod layout;
mod log;
mod marks;
mod open;
mod options;
mod owner;
mod park;
mod reader;
mod rebuild;
mod recovery;
mod repair;
mod rewrite;
mod rules;
mod salvage;
mod segment;
mod segments;
mod spare;
mod stats;
mod sync;
mod tail;
mod verify;
mod view;
mod walk;
mod writer;

pub use error::{
    AppendError, Damage, DropError, IoFailure, OpenError, Poisoned, ReadError, RewriteError,
    SyncError,
};
pub use log::Log;
pub use open::FoundRecords;
pub use options::Options;
pub use owner::owner_of;
pub use park::{Durable, may_block};
pub use reader::{Follower, Reader, Record};
pub use recovery::{Recovery, TornTail};
pub use repair::{RepairAction, RepairReport, repair, repair_on};
pub use rewrite::Rewritten;
#[cfg(feature = "mutants")]
pub use rules::Rule;
pub use segments::{SegmentInfo, SegmentReader};
pub use stats::{Lag, SyncTimes};
pub use verify::{Report, SegmentReport, verify, verify_on};
pub use view::LogView;

/// A record's number in the log: from 1, counting every record ever appended. 0 stands for "before the first".
pub type Lsn = u64;
