//! Fingerprints of files and folders.
//!
//! Invariant: two folders have the same fingerprint exactly if the same names lead to the same
//! contents, in whatever order the file system lists them.

use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// More than this is no workspace that can be read at every resume.
const FILES_LIMIT: usize = 20_000;
const BYTES_LIMIT: u64 = 1 << 30;

/// Length and hash of a file; `None` if there is none.
pub(super) fn file(path: &Path) -> Result<Option<String>, String> {
    match hash_file(path) {
        Ok((bytes, hash)) => Ok(Some(format!("{bytes} bytes, blake3 {hash}"))),
        Err(e) if is_missing(&e) => Ok(None),
        Err(e) => Err(cannot_read(path, &e)),
    }
}

/// A hash over all files of a folder, by name; `None` if there is no such folder.
pub(super) fn folder(root: &Path) -> Result<Option<String>, String> {
    match std::fs::metadata(root) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(format!("{} is no folder", root.display())),
        Err(e) if is_missing(&e) => return Ok(None),
        Err(e) => return Err(cannot_read(root, &e)),
    }
    let mut files = Vec::new();
    list(root, &mut files)?;
    // By their bytes, so that every machine comes to the same order.
    files.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    let mut hasher = blake3::Hasher::new();
    let mut total: u64 = 0;
    for path in &files {
        let name = path.strip_prefix(root).unwrap_or(path);
        let name = name.as_os_str().as_encoded_bytes();
        let content = content(path).map_err(|e| cannot_read(path, &e))?;
        total = total.saturating_add(content.0);
        if total > BYTES_LIMIT {
            return Err(format!(
                "{} has more than {BYTES_LIMIT} bytes: note a part of it",
                root.display()
            ));
        }
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update(&content.0.to_le_bytes());
        hasher.update(content.1.as_bytes());
    }
    let (count, hash) = (files.len(), hasher.finalize().to_hex());
    Ok(Some(format!("{count} files, {total} bytes, blake3 {hash}")))
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|e| cannot_read(&folder, &e))?;
        for entry in entries {
            let entry = entry.map_err(|e| cannot_read(&folder, &e))?;
            let kind = entry.file_type().map_err(|e| cannot_read(&folder, &e))?;
            match kind.is_dir() {
                // It changes with every look of git's; the branch is noted by its own kind.
                true if entry.file_name() == ".git" => {}
                true => folders.push(entry.path()),
                false => files.push(entry.path()),
            }
            if files.len() > FILES_LIMIT {
                return Err(format!(
                    "{} has more than {FILES_LIMIT} files: note a part of it",
                    folder.display()
                ));
            }
        }
    }
    Ok(())
}

/// What is under a name: a file's content, or where a link leads.
fn content(path: &Path) -> io::Result<(u64, String)> {
    let kind = std::fs::symlink_metadata(path)?.file_type();
    if kind.is_symlink() {
        let to = std::fs::read_link(path)?;
        let to = to.to_string_lossy().into_owned();
        let hash = blake3::hash(format!("link {to}").as_bytes()).to_hex();
        return Ok((to.len() as u64, hash.to_string()));
    }
    if !kind.is_file() {
        // A pipe or a socket has no content to depend on.
        return Ok((0, "no file".to_owned()));
    }
    hash_file(path)
}

fn hash_file(path: &Path) -> io::Result<(u64, String)> {
    // To open a pipe would wait for somebody to write to it.
    if !std::fs::metadata(path)?.is_file() {
        let why = "it is no file; a folder is noted with Resource::folder";
        return Err(io::Error::other(why));
    }
    let mut file = std::fs::File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 64 << 10];
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                bytes += read as u64;
                hasher.update(&buffer[..read]);
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok((bytes, hasher.finalize().to_hex().to_string()))
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn cannot_read(path: &Path, error: &io::Error) -> String {
    format!("{} cannot be read: {error}", path.display())
}
