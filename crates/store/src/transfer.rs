//! Streams from one store into another: through a portable file, or directly.
//!
//! | what | where |
//! |---|---|
//! | streams of any store into a portable file | [`export`] |
//! | a portable file into any store | [`import`] |
//! | all streams of any store into any other | [`copy`] |
//!
//! Invariants: events arrive with the bytes and hashes that they had. The store's own stream stays
//! where it is: it is about that store, and records there what was taken over.

mod copy;
mod export;
mod import;
mod pieces;
mod unwanted;

pub use copy::{CopyError, CopyReport, Copying, Difference, copy};
pub use export::{Export, export};
pub use import::{ImportReport, Importing, import};

use crate::error::StoreError;
use crate::kind::Kind;
use crate::name::StreamId;

/// So many events are read at a time.
const PAGE_EVENTS: usize = 500;

fn refused(stream: &StreamId, why: impl Into<String>) -> StoreError {
    StoreError::Refused {
        stream: stream.clone(),
        kind: Kind::Imported,
        why: why.into(),
    }
}

/// The answer of a store that has it at once, without a runtime.
///
/// # Errors
/// The store's; or it had to wait, which none does that this is asked of.
pub(crate) fn at_once<T>(
    future: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(answer) => answer,
        std::task::Poll::Pending => Err(StoreError::Closed),
    }
}
