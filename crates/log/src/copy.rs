//! Copying a log into another folder, also beside its writer.
//!
//! Sealed segments are copied as they are. Of the one that is being written to, what was whole when
//! it was looked at is copied, and zeros behind it: the copy is what a crash at that moment would
//! have left, had nothing been on its way to the disk.
//!
//! Invariant: segments are copied in order. A segment that was rewritten before it was copied was
//! rewritten because of a record that is in the copy, too.

use std::path::Path;

use crate::error::{IoFailure, ReadError};
use crate::fs::{FsFile, place_file};
use crate::segment;
use crate::view::LogView;

/// So much is copied at a time.
const PART_BYTES: usize = 1024 * 1024;

impl LogView {
    /// Copies the log into a folder, which must have no log in it. What the writer adds meanwhile
    /// may be part of it or not. Says how many bytes the copy has.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-copy-{}", std::process::id()));
    /// # let log = dalsegno_log::Log::open(dir.join("log"))?;
    /// # log.wait_durable(log.append(b"one")?)?;
    /// let view = dalsegno_log::LogView::open(dir.join("log"))?;
    /// view.copy_to(dir.join("copy"))?;
    /// let copy = dalsegno_log::Log::open(dir.join("copy"))?;
    /// assert_eq!(copy.last_lsn(), 1);
    /// # drop((log, copy));
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The log is damaged, or a file could not be read or written; one that is gone was dropped
    /// meanwhile, and copying into a new folder goes on from there. What was copied stays.
    pub fn copy_to(&self, dir: impl AsRef<Path>) -> Result<u64, ReadError> {
        let (fs, to) = (self.fs(), dir.as_ref());
        let absolute = fs.absolute(to);
        let to = absolute.map_err(|e| IoFailure::new("find", to, e))?;
        let created = fs.create_dir(&to);
        created.map_err(|e| IoFailure::new("create", &to, e))?;
        let (mut copied, mut bytes) = (0, 0);
        loop {
            self.refresh()?;
            let sealed = self.segments().into_iter();
            let before = copied;
            let sealed = sealed.filter(|info| info.sealed && info.number > before);
            let mut found = false;
            for info in sealed {
                let file = self.open_file(info.number)?;
                let path = segment::path(self.dir(), info.number);
                let length = file.len().map_err(|e| IoFailure::new("read", &path, e))?;
                bytes += self.copy_file(&*file, info.number, length, length, &to)?;
                (copied, found) = (info.number, true);
            }
            // While they were copied, others may have been sealed.
            if found {
                continue;
            }
            let newest = self.with_newest(|header, file, whole_bytes| {
                // As long as it was made: the writer may have sealed and cut it just now.
                self.copy_file(file, header.number, whole_bytes, header.size_bytes, &to)
            });
            return Ok(bytes + newest.transpose()?.unwrap_or(0));
        }
    }

    /// Copies the first bytes of a segment's file, and zeros up to its length.
    fn copy_file(
        &self,
        from: &dyn FsFile,
        number: u64,
        bytes: u64,
        length: u64,
        dir: &Path,
    ) -> Result<u64, ReadError> {
        let path = segment::path(dir, number);
        let placed = place_file(self.fs(), dir, &path, |to| {
            let mut part = vec![0; PART_BYTES];
            let mut offset = 0;
            while offset < length {
                let want = part.len().min((length - offset) as usize);
                let real = want.min(bytes.saturating_sub(offset) as usize);
                part[..want].fill(0);
                from.read_full(&mut part[..real], offset)?;
                to.write_full(&part[..want], offset)?;
                offset += want as u64;
            }
            Ok(())
        });
        placed.map_err(|e| IoFailure::new("copy to", &path, e.into()))?;
        Ok(length)
    }
}
