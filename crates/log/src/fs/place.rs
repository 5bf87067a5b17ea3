//! How a whole file gets into a folder: the one implementation, for segments and for everybody
//! above.
//!
//! Invariant: under a file's name there is, whenever the power goes, what was there before or all
//! of the new file, never a part of it. It is written under another name and synced; then renamed;
//! then the folder is synced; only then does anybody rely on it.

use std::io;
use std::path::{Path, PathBuf};

use super::{Fs, FsFile, OpenMode};
use crate::rules::{Mutant, Rule};

const TEMPORARY_SUFFIX: &str = ".tmp";
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Why [`place_file`] did not put a file into its folder. Either way there is, under the file's
/// name, what was there before or the whole new file.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The file could not be written or named, or there was no handle left to sync its folder
    /// with. Nothing is lost, and it can be tried again.
    #[error("the file was not put in place: {0}: it can be tried again")]
    NotPlaced(io::Error),
    /// A sync failed. What a crash would leave is not known, and another sync that succeeds proves
    /// nothing: only a file written anew does.
    #[error(
        "the file was written, but a sync failed: {0}: a crash may bring back what was there \
         before; look to the disk, then write the file anew"
    )]
    Sync(io::Error),
}

impl From<PlaceError> for io::Error {
    /// With the kind of what the file system said, and the whole text.
    fn from(error: PlaceError) -> io::Error {
        let (PlaceError::NotPlaced(cause) | PlaceError::Sync(cause)) = &error;
        io::Error::new(cause.kind(), error)
    }
}

/// Puts a whole file under the name `path` into the folder `dir`, durably, replacing what had the
/// name. `fill` writes its content; it need not sync.
///
/// When this returns `Ok`, the file and its name survive a power cut. When it does not, or the
/// power goes before it returns, there is under that name what was there before or the whole new
/// file, never a part of it, and never nothing where something was. The content is written under
/// the same name with `.tmp` at its end, synced, renamed, and then the folder is synced.
///
/// What an interrupted attempt leaves is that `.tmp` file, which the next attempt at the same path
/// replaces. So at most one caller may place a file at one path at a time.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-place-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// use dalsegno_log::fs::{RealFs, place_file};
///
/// let path = dir.join("settings");
/// place_file(&RealFs, &dir, &path, |file| file.write_full(b"all of it", 0))?;
/// assert_eq!(std::fs::read(&path)?, b"all of it");
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn place_file(
    fs: &dyn Fs,
    dir: &Path,
    path: &Path,
    fill: impl FnOnce(&dyn FsFile) -> io::Result<()>,
) -> Result<(), PlaceError> {
    place(fs, dir, path, Mutant::default(), fill).map(drop)
}

/// [`place_file`], with the open file as its answer, and with rules that the simulator may break.
pub(crate) fn place(
    fs: &dyn Fs,
    dir: &Path,
    path: &Path,
    mutant: Mutant,
    fill: impl FnOnce(&dyn FsFile) -> io::Result<()>,
) -> Result<Box<dyn FsFile>, PlaceError> {
    let file = write_file(fs, path, mutant, fill)?;
    name_file(fs, dir, path, mutant)?;
    Ok(file)
}

/// The first half of [`place`]: a whole file under a temporary name.
pub(crate) fn write_file(
    fs: &dyn Fs,
    path: &Path,
    mutant: Mutant,
    fill: impl FnOnce(&dyn FsFile) -> io::Result<()>,
) -> Result<Box<dyn FsFile>, PlaceError> {
    let temporary = temporary(path);
    let open = || fs.open(&temporary, OpenMode::CreateNew);
    let file = match open() {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            // Left by an attempt that ran out of space or by a crash.
            fs.remove(&temporary).and_then(|()| open())
        }
        other => other,
    }
    .map_err(PlaceError::NotPlaced)?;
    if let Err(e) = fill(file.as_ref()) {
        // Best effort: what stays behind is removed by the next attempt or the next open.
        drop(fs.remove(&temporary));
        return Err(PlaceError::NotPlaced(e));
    }
    if !mutant.breaks(Rule::SyncBeforeRename) {
        file.sync().map_err(PlaceError::Sync)?;
    }
    Ok(file)
}

/// The second half: the file gets its name, which another one may have had.
pub(crate) fn name_file(
    fs: &dyn Fs,
    dir: &Path,
    path: &Path,
    mutant: Mutant,
) -> Result<(), PlaceError> {
    let temporary = temporary(path);
    fs.rename(&temporary, path).map_err(PlaceError::NotPlaced)?;
    if !mutant.breaks(Rule::SyncFolder) {
        fs.sync_dir(dir).map_err(|e| match e.raw_os_error() {
            // The folder could not even be opened: nothing was synced, and nothing lost.
            Some(ENFILE | EMFILE) => PlaceError::NotPlaced(e),
            _ => PlaceError::Sync(e),
        })?;
    }
    Ok(())
}

/// The name under which a file is made before it gets its own.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY_SUFFIX);
    PathBuf::from(name)
}

/// The name that a file would have got, if its name is one that [`temporary`] gives.
pub(crate) fn without_temporary(name: &str) -> Option<&str> {
    name.strip_suffix(TEMPORARY_SUFFIX)
}
