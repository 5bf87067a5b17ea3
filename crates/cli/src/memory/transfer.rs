//! `dalsegno memory export` and `import`: one memory as a portable file.
//!
//! It is the file that `dalsegno export` writes, with one stream in it. A document's id is the
//! sequence of its event, and a version is a sequence and the hash of all events up to it, so only
//! what moves events and payloads byte for byte keeps both; a list of texts would not.

use std::collections::BTreeSet;

use dalsegno_store::portable::PortableReport;
use dalsegno_store::{Export as What, StreamId, StreamKind};

use super::opening::must_be_there;
use crate::args::Global;
use crate::args::memory::transfer::{Export, Import};
use crate::commands::{export as write, import as read};
use crate::exit::{Error, Exit, Result};
use crate::output::Out;
use crate::output::text::shown;
use crate::runtime;

/// Exports.
///
/// # Errors
/// There is no such memory, the file is there, or it cannot be written.
pub fn export(args: &Export, global: &Global, out: &mut Out) -> Result<Exit> {
    write::write(&args.file, args.force, global, out, |store| {
        runtime::block_on(async {
            let id = must_be_there(store, &args.memory).await?;
            Ok(What::Streams(BTreeSet::from([id])))
        })
    })
}

/// Imports.
///
/// # Errors
/// The file is no memory, the file or the store cannot be read, or they contradict each other.
pub fn import(args: &Import, global: &Global, out: &mut Out) -> Result<Exit> {
    let from = &args.from;
    let name = from.name.as_deref().map(StreamId::memory).transpose()?;
    read::read(from, name.as_ref(), global, out, only_memories)
}

fn only_memories(file: &PortableReport) -> Result<()> {
    let other = file.streams.keys();
    let mut other = other.filter(|id| id.kind() != StreamKind::Memory);
    match other.next() {
        None => Ok(()),
        Some(id) => {
            let id = shown(&id.to_string());
            Err(
                Error::failed(format!("the file has {id} in it, which is no memory"))
                    .hint("`dalsegno import` takes everything"),
            )
        }
    }
}
