//! Opening a memory: to look at it, or to write to it.

use std::sync::Arc;
use std::time::Duration;

use dalsegno_memory::Memory;
use dalsegno_store::{Options, Store, StreamId, StreamKind};

use crate::address::Place;
use crate::args::Global;
use crate::exit::{Error, Exit, Result};
use crate::open::{self, Opened};
use crate::output::text::shown;
use crate::{find, interrupt, runtime};

/// So long is waited for an owner that is about to let go, such as another command.
const PATIENCE: Duration = Duration::from_secs(2);

/// Hands a memory that there is to `look`. No lock is taken.
///
/// # Errors
/// There is no such store or memory, or it cannot be read.
pub fn read<T>(
    global: &Global,
    name: &str,
    look: impl AsyncFnOnce(Memory) -> Result<T>,
) -> Result<T> {
    let store = open::reader(global)?;
    runtime::block_on(async {
        must_be_there(&*store, name).await?;
        look(Memory::open(store, name).await?).await
    })
}

/// Whether a memory that is to be written to must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    /// It must.
    Fail,
    /// It is made, and so is the store.
    Make,
}

/// Hands a memory to `write`: a folder's as its owner, a database's beside others.
///
/// # Errors
/// As [`read`]; or another process owns the folder, which is named.
pub fn write<T>(
    global: &Global,
    name: &str,
    missing: IfMissing,
    by: &str,
    write: impl AsyncFnOnce(Memory) -> Result<T>,
) -> Result<T> {
    write_in(global, name, missing, by, async |memory, _| {
        write(memory).await
    })
}

/// The same, with the store.
///
/// # Errors
/// As [`write`].
pub fn write_in<T>(
    global: &Global,
    name: &str,
    missing: IfMissing,
    by: &str,
    write: impl AsyncFnOnce(Memory, Arc<dyn Store>) -> Result<T>,
) -> Result<T> {
    // Before a store is made for it.
    StreamId::memory(name)?;
    runtime::block_on(async {
        let opened = writer(global, missing).await?;
        let done = async {
            if missing == IfMissing::Fail {
                must_be_there(&*opened.store(), name).await?;
            }
            opened.check_writable().await?;
            let memory = Memory::open(opened.store(), name).await?.by(by);
            let written = write(memory.clone(), opened.store()).await?;
            if opened.store().is_shared() {
                // It is written. Indexes that cannot be kept are made again.
                memory.keep_if_due().await.ok();
            }
            Ok::<_, Error>(written)
        };
        let done = done.await;
        // The memory is gone by now, and has kept its indexes.
        let closed = opened.close();
        let done = done?;
        closed?;
        Ok(done)
    })
}

async fn writer(global: &Global, missing: IfMissing) -> Result<Opened> {
    let create = missing == IfMissing::Make;
    match Place::of(&global.store) {
        Place::Folder(_) => {
            let opened = open::owner_within(global, Options::new(), create, PATIENCE).await;
            opened
                .map(Opened::Folder)
                .map_err(|error| owned(error, global))
        }
        Place::Database(_) if create => open::writer_or_new(&global.store),
        Place::Database(_) => open::writer(global),
    }
}

/// With what can be done beside an owner.
fn owned(error: Error, global: &Global) -> Error {
    match open::owner_now(global) {
        Some(_) => error.hint(
            "stop that process first, or let it write; what only looks works beside it (ls, get, \
             search, history, at, diff, export)",
        ),
        None => error,
    }
}

/// Fails if there is no such memory: the nearest one is named.
///
/// # Errors
/// That; or the store cannot be read.
pub async fn must_be_there(store: &dyn Store, name: &str) -> Result<StreamId> {
    let id = StreamId::memory(name)?;
    if store.head(&id).await?.is_some() {
        return Ok(id);
    }
    let all = store.streams(StreamKind::Memory, None, 0).await?;
    let names = all.iter().map(|(id, _)| id.name());
    let error = Error::failed(format!("there is no memory {name:?}"));
    Err(match find::nearest(name, names) {
        Some(near) => error.hint(format!("did you mean {:?}?", shown(near))),
        None if all.is_empty() => {
            error.hint("the store has no memories yet: `dalsegno memory add` makes one")
        }
        None => error.hint("`dalsegno memory ls` lists the memories"),
    })
}

/// What was written before a signal came stays.
pub fn interrupted(error: Error) -> Error {
    match interrupt::is_requested() {
        true => Error::new(
            Exit::Interrupted,
            "interrupted: what was added so far is there",
        )
        .hint("the same command goes on from there"),
        false => error,
    }
}
