//! Files that are to be added: found in an order that does not depend on the file system, and read as
//! text.
//!
//! Invariant: a file is text as a whole, or named as bad; nothing is guessed about what is no UTF-8.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use dalsegno_memory::LABEL_LIMIT_BYTES;

use super::slots::Origin;
use crate::exit::{Error, Result};
use crate::output::text::shown;

/// Files are read into memory; what is larger is no text that somebody wrote.
const FILE_LIMIT_BYTES: u64 = 256 << 20;
/// The number of a chunk comes behind it.
const NAME_LIMIT_BYTES: usize = LABEL_LIMIT_BYTES - 20;

/// What is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where it is; `None` for standard input.
    pub path: Option<PathBuf>,
    /// What it is called in the memory.
    pub name: String,
    /// Its length, for showing how far it is.
    pub bytes: u64,
}

impl Found {
    /// As what a memory knows it.
    pub fn origin(&self) -> Origin<'_> {
        Origin {
            name: &self.name,
            is_input: self.path.is_none(),
        }
    }
}

/// The files that were named, and those in the folders that were. Each once, in the order given, and
/// in folders by name.
///
/// # Errors
/// One of them is not there, or a folder cannot be read.
pub fn find(paths: &[PathBuf], endings: &[String], stdin: &str) -> Result<Vec<Found>> {
    let mut all: Vec<Found> = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            all.push(Found {
                path: None,
                name: stdin.to_owned(),
                bytes: 0,
            });
            continue;
        }
        let data = fs::metadata(path).map_err(|e| cannot_read(path, &e))?;
        match data.is_dir() {
            true => walk(path, endings, &mut all)?,
            false => all.push(found(path, data.len())),
        }
    }
    let mut seen = HashSet::new();
    all.retain(|file| seen.insert(file.path.as_deref().map(plain)));
    Ok(all)
}

fn found(path: &Path, bytes: u64) -> Found {
    Found {
        path: Some(path.to_owned()),
        name: name_of(path),
        bytes,
    }
}

/// A path as it was given, but for `./` and double slashes: `./docs//a.md` is `docs/a.md`.
pub fn name_of(path: &Path) -> String {
    let path = plain(path);
    match path.as_os_str().is_empty() {
        true => ".".to_owned(),
        false => path.to_string_lossy().into_owned(),
    }
}

fn plain(path: &Path) -> PathBuf {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.collect()
}

fn walk(dir: &Path, endings: &[String], all: &mut Vec<Found>) -> Result<()> {
    let failed = |e: io::Error| cannot_read(dir, &e);
    let mut entries = fs::read_dir(dir)
        .map_err(failed)?
        .collect::<io::Result<Vec<_>>>()
        .map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let (path, kind) = (entry.path(), entry.file_type().map_err(failed)?);
        if kind.is_dir() {
            walk(&path, endings, all)?;
        } else if kind.is_file() && is_wanted(&path, endings) {
            let bytes = entry.metadata().map_err(failed)?.len();
            all.push(found(&path, bytes));
        }
    }
    Ok(())
}

fn is_wanted(path: &Path, endings: &[String]) -> bool {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    let mut wanted = endings.iter().map(|wanted| wanted.trim_start_matches('.'));
    endings.is_empty() || wanted.any(|wanted| wanted.eq_ignore_ascii_case(&ending))
}

/// Whether a name is that of a Markdown file.
pub fn is_markdown(name: &str) -> bool {
    let ending = Path::new(name).extension().unwrap_or_default();
    let ending = ending.to_string_lossy().to_ascii_lowercase();
    matches!(&*ending, "md" | "markdown" | "mdown" | "mkd")
}

/// The text of a file; `Err` with what is wrong if it is none.
pub fn read(file: &Found) -> Result<String, String> {
    if file
        .path
        .as_ref()
        .is_some_and(|path| path.to_str().is_none())
    {
        return Err("has a name that is no text".to_owned());
    }
    if file.name.len() > NAME_LIMIT_BYTES {
        let long = file.name.len();
        return Err(format!(
            "has a name of {long} bytes, the limit is {NAME_LIMIT_BYTES}"
        ));
    }
    let mut bytes = Vec::new();
    let limited = |reader: &mut dyn Read, bytes: &mut Vec<u8>| {
        // One byte more than is allowed, so that one that grows or has no length is bounded, too.
        reader.take(FILE_LIMIT_BYTES + 1).read_to_end(bytes)
    };
    let read = match &file.path {
        None => limited(&mut io::stdin().lock(), &mut bytes),
        Some(path) => match File::open(path) {
            Ok(mut opened) => limited(&mut opened, &mut bytes),
            Err(e) => Err(e),
        },
    };
    read.map_err(|e| format!("cannot be read: {e}"))?;
    if bytes.len() as u64 > FILE_LIMIT_BYTES {
        return Err(format!("is larger than {} MiB", FILE_LIMIT_BYTES >> 20));
    }
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(format!("is no text: byte {at} is zero"));
    }
    match String::from_utf8(bytes) {
        // Some editors put a mark in front that is no part of the text.
        Ok(text) => Ok(match text.strip_prefix('\u{feff}') {
            Some(rest) => rest.to_owned(),
            None => text,
        }),
        Err(e) => {
            let at = e.utf8_error().valid_up_to();
            Err(format!("is no text: byte {at} is not UTF-8"))
        }
    }
}

fn cannot_read(path: &Path, error: &io::Error) -> Error {
    let path = shown(&path.display().to_string());
    Error::failed(format!("cannot read {path}: {error}"))
}
