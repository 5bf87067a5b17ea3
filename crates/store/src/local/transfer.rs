//! Export and import of a local store, and what it takes over from others.
//!
//! Invariant: pieces are stored under the same lock as the events that need them, or while no
//! retention can begin: none is taken for garbage in between.

use std::io::{self, Write};
use std::path::Path;

use dalsegno_log::IoFailure;
use dalsegno_log::fs::{OpenMode, place_file};

use super::{Inner, LocalStore, lock};
use crate::engine;
use crate::error::StoreError;
use crate::hash::Hash;
use crate::kind::Kind;
use crate::name::StreamId;
use crate::over::Over;
use crate::payload::Piece;
use crate::portable::{FsReader, FsWriter, PortableReport};
use crate::store::{Answer, Foreign, Position, Store};
use crate::transfer::{self, Export, ImportReport, Importing, at_once};

impl LocalStore {
    /// Writes streams into a portable file at `path`: complete and durable when it returns, or
    /// absent.
    ///
    /// # Errors
    /// A stream is not there or damaged, or the file could not be written.
    pub fn export(&self, what: &Export, path: &Path) -> Result<PortableReport, StoreError> {
        let fs = &self.inner.folder.fs;
        let path = fs
            .absolute(path)
            .map_err(|e| IoFailure::new("find", path, e))?;
        self.export_file(what, &path)
    }

    /// Writes streams to anything that takes bytes.
    ///
    /// # Errors
    /// A stream is not there or damaged, or the bytes were not taken.
    pub fn export_to(&self, what: &Export, to: impl Write) -> Result<PortableReport, StoreError> {
        let now_us = self.inner.options.clock.now_us();
        at_once(transfer::export(self, what, now_us, to))
    }

    /// Reads a portable file into this store. With `rename`, its only stream gets another name
    /// here.
    ///
    /// # Errors
    /// The file is damaged, a stream of it is here with another history, or it is too large for
    /// this store. Streams that were imported before the error are complete, but for a memory that is
    /// taken in parts; importing the file again goes on.
    pub fn import(
        &self,
        path: &Path,
        rename: Option<&StreamId>,
    ) -> Result<ImportReport, StoreError> {
        let log = self.inner.disk.log()?;
        // Pieces of which the events are still to come must not be taken for garbage.
        let _no_retention = lock(&self.inner.retiring);
        let how = Importing {
            rename,
            stream_limit_bytes: Some(self.inner.options.batch_bytes()),
        };
        let open = || {
            let file = self.inner.folder.fs.open(path, OpenMode::Read);
            let file = file.map_err(|e| IoFailure::new("open", path, e))?;
            Ok(FsReader::new(file))
        };
        let report = at_once(transfer::import(&WithoutRetention(self), &how, open))?;
        let position = lock(&self.inner.core).applied;
        log.wait_durable(position)?;
        Ok(report)
    }

    /// As [`LocalStore::export`], with a path that is absolute.
    pub(super) fn export_file(
        &self,
        what: &Export,
        path: &Path,
    ) -> Result<PortableReport, StoreError> {
        let dir = path.parent().unwrap_or(path);
        let mut result = None;
        let placed = place_file(self.inner.folder.fs.as_ref(), dir, path, |file| {
            let mut writer = FsWriter::new(file);
            let report = self.export_to(what, &mut writer);
            let written = writer.flush();
            let failed = report.is_err();
            result = Some(report);
            written?;
            match failed {
                true => Err(io::ErrorKind::Other.into()),
                false => Ok(()),
            }
        });
        match (result, placed) {
            (Some(Err(e)), _) => Err(e),
            (Some(Ok(report)), Ok(())) => Ok(report),
            (_, Err(e)) => Err(IoFailure::new("write", path, e.into()).into()),
            (None, Ok(())) => Err(StoreError::damaged("an export", "a report", "none")),
        }
    }
}

/// A store of which no retention can begin, because who has this sees to it.
#[derive(Debug)]
struct WithoutRetention<'a>(&'a LocalStore);

impl Over for WithoutRetention<'_> {
    fn below(&self) -> &dyn Store {
        self.0
    }

    fn take_over(&self, pieces: Vec<Piece>, streams: Vec<Foreign>) -> Answer<'_, Position> {
        Box::pin(async move { self.0.inner.take_over(&pieces, &streams) })
    }

    fn erase_forgotten<'a>(&'a self, stream: &'a StreamId, said_at: u64) -> Answer<'a, u64> {
        Box::pin(async move { self.0.inner.erase_while_importing(stream, said_at) })
    }
}

impl Inner {
    /// Pieces as they are stored.
    pub fn pieces(&self, hashes: &[Hash]) -> Result<Vec<Vec<u8>>, StoreError> {
        let read = hashes.iter().map(|hash| {
            let bytes = self.looking_again(|| self.piece(hash))?;
            Ok(bytes.to_vec())
        });
        read.collect()
    }

    /// As [`Store::take_over`].
    pub fn take_over_alone(
        &self,
        pieces: &[Piece],
        streams: &[Foreign],
    ) -> Result<Position, StoreError> {
        let _no_retention = lock(&self.retiring);
        self.take_over(pieces, streams)
    }

    /// The same; no retention can begin meanwhile.
    fn take_over(&self, pieces: &[Piece], streams: &[Foreign]) -> Result<Position, StoreError> {
        let log = self.disk.log()?;
        let from = lock(&self.core).pieces_from();
        let mut new = Vec::new();
        for piece in pieces {
            if !self.is_stored(&piece.hash, from)? {
                new.push(piece.clone());
            }
        }
        let mut core = lock(&self.core);
        if core.closed {
            return Err(StoreError::Closed);
        }
        let mut events = Vec::new();
        let mut notes = Vec::new();
        for foreign in streams {
            let stream = &foreign.stream;
            let refused = |why: &str| StoreError::Refused {
                stream: stream.clone(),
                kind: Kind::Imported,
                why: why.into(),
            };
            if core.state.retiring.contains(stream) {
                let why = "it is being removed: finish that with retention, then import again";
                return Err(refused(why));
            }
            let found = core.state.streams.get(stream);
            if found.is_none() && self.ended(&core, stream)?.is_some() {
                return Err(refused("it was changed at the same time"));
            }
            let (_, placed) = engine::place_foreign(foreign, found)?;
            events.extend(placed);
            notes.push(engine::imported(foreign));
        }
        self.log_pieces(&mut core, log, &new)?;
        if events.is_empty() {
            return Ok(core.applied);
        }
        let position = self.append_foreign(&mut core, events, notes)?;
        let written = core.written;
        drop(core);
        self.watch.reached(position);
        self.keeper.appended(self, written);
        Ok(position)
    }
}
