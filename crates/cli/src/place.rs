//! A file that a command makes: whole and durable under its name, or not there.
//!
//! Invariants: an existing file is replaced only if that was asked for, also if it came while this
//! one was being written; two commands that write the same file do not disturb each other; what is
//! half made is removed.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::exit::{Error, Result};
use crate::interrupt::{self, HalfMade};
use crate::output::text::shown;

/// A file in the making.
#[derive(Debug)]
pub struct Placing {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    force: bool,
    half_made: HalfMade,
}

impl Placing {
    /// Begins.
    ///
    /// # Errors
    /// It is there and must not be replaced, or cannot be made.
    pub fn begin(path: &Path, force: bool) -> Result<Placing> {
        interrupt::watch();
        if path.is_dir() {
            return Err(
                Error::failed(format!("{} is a folder", named(path))).hint("name a file in it")
            );
        }
        let mut path = path.to_owned();
        match path.metadata() {
            // A rename would put a file in the place of the device.
            Ok(data) if !data.is_file() => {
                let no_file = Error::failed(format!("{} is no regular file", named(&path)));
                return Err(no_file.hint("- is standard output"));
            }
            _ if path.symlink_metadata().is_ok() && !force => return Err(is_there(&path)),
            // The file behind a link is replaced, not the link.
            Ok(_) => path = path.canonicalize().map_err(|e| cannot_write(&path, &e))?,
            Err(_) => {}
        }
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = PathBuf::from(name);
        let half_made = HalfMade::new(&temporary);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(|e| cannot_write(&path, &e))?;
        Ok(Placing {
            path,
            temporary,
            file,
            force,
            half_made,
        })
    }

    /// Gives it its name. It is durable when this returns.
    ///
    /// # Errors
    /// It could not be written, or there is one by now.
    pub fn finish(self) -> Result<()> {
        let failed = |e: io::Error| cannot_write(&self.path, &e);
        self.file.sync_all().map_err(failed)?;
        interrupt::check().map_err(failed)?;
        match self.force {
            true => std::fs::rename(&self.temporary, &self.path).map_err(failed)?,
            // Unlike a rename, a link never replaces.
            false => match std::fs::hard_link(&self.temporary, &self.path) {
                Ok(()) => drop(std::fs::remove_file(&self.temporary)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(is_there(&self.path));
                }
                // A file system without links.
                Err(_) => std::fs::rename(&self.temporary, &self.path).map_err(failed)?,
            },
        }
        let parent = self.path.parent().filter(|p| *p != Path::new(""));
        let parent = parent.unwrap_or(Path::new("."));
        let synced = File::open(parent).and_then(|folder| folder.sync_all());
        // A folder that may be written and not read cannot be synced.
        match synced {
            Err(e) if e.kind() != io::ErrorKind::PermissionDenied => return Err(failed(e)),
            _ => {}
        }
        self.half_made.keep();
        Ok(())
    }
}

impl Write for Placing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        interrupt::check()?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn named(path: &Path) -> String {
    shown(&path.display().to_string())
}

fn is_there(path: &Path) -> Error {
    Error::failed(format!("{} is there already", named(path))).hint("--force replaces it")
}

/// That a file could not be made.
pub fn cannot_write(path: &Path, error: &io::Error) -> Error {
    let failed = Error::failed(format!("cannot write {}: {error}", named(path)));
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            failed.hint("make room, or write it to another disk")
        }
        io::ErrorKind::NotFound => failed.hint("its folder must be there"),
        io::ErrorKind::PermissionDenied => failed.hint("choose a place that you may write to"),
        _ => failed,
    }
}
