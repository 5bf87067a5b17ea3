//! Where futures run: one thread is enough for a command, and starts in microseconds.

use std::future::Future;

use crate::exit::{Error, Result};
use crate::interrupt;

/// Runs a command's future to its end.
///
/// # Errors
/// The future's own, or there is no runtime to be had.
pub fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::failed(format!("cannot start: {e}")))?;
    runtime.block_on(async {
        interrupt::let_writes_fail();
        future.await
    })
}
