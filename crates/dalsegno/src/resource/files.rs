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
    match hash_file(path, BYTES_LIMIT) {
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
        let content = match content(path, BYTES_LIMIT - total) {
            Ok(content) => content,
            Err(e) if e.kind() == ErrorKind::FileTooLarge => {
                return Err(format!(
                    "{} has more than {BYTES_LIMIT} bytes: note a part of it",
                    root.display()
                ));
            }
            Err(e) => return Err(cannot_read(path, &e)),
        };
        total += content.0;
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update(&content.0.to_le_bytes());
        hasher.update(content.1.as_bytes());
    }
    let (count, hash) = (files.len(), hasher.finalize().to_hex());
    Ok(Some(format!("{count} files, {total} bytes, blake3 {hash}")))
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let root = folder;
    let mut folders = vec![folder.to_owned()];
    let mut seen = 0;
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
            seen += 1;
            if seen > FILES_LIMIT {
                return Err(format!(
                    "{} has more than {FILES_LIMIT} files and folders: note a part of it",
                    root.display()
                ));
            }
        }
    }
    Ok(())
}

/// What is under a name: a file's content, or where a link leads.
fn content(path: &Path, limit: u64) -> io::Result<(u64, String)> {
    let kind = std::fs::symlink_metadata(path)?.file_type();
    if kind.is_symlink() {
        let to = std::fs::read_link(path)?;
        let to = to.as_os_str().as_encoded_bytes();
        let hash = blake3::hash(&[b"link ", to].concat()).to_hex();
        return Ok(((to.len() as u64).min(limit), hash.to_string()));
    }
    if !kind.is_file() {
        // A pipe or a socket has no content to depend on.
        return Ok((0, "no file".to_owned()));
    }
    hash_file(path, limit)
}

fn hash_file(path: &Path, limit: u64) -> io::Result<(u64, String)> {
    let too_large = || {
        let why =
            format!("it has more than {limit} bytes: note a part of it, or a custom resource");
        io::Error::new(ErrorKind::FileTooLarge, why)
    };
    // To open a pipe would wait for somebody to write to it.
    let found = std::fs::metadata(path)?;
    if !found.is_file() {
        let why = "it is no file; a folder is noted with Resource::folder";
        return Err(io::Error::other(why));
    }
    if found.len() > limit {
        return Err(too_large());
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
                // Somebody may be writing to it.
                if bytes > limit {
                    return Err(too_large());
                }
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
