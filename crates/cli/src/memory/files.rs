//! Files that are to be added: found in an order that does not depend on the file system, and read as
//! text.
//!
//! Invariant: a file is text as a whole, or named as bad; nothing is guessed about what is no UTF-8.
//! Standard input is read before anything is opened: who writes it may take their time.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use dalsegno_memory::LABEL_LIMIT_BYTES;
use serde::Serialize;

use super::slots::{Origin, go_on};
use crate::exit::{Error, Exit, Result};
use crate::interrupt;
use crate::output::text::shown;

/// Files are read into memory; what is larger is no text that somebody wrote.
const FILE_LIMIT_BYTES: u64 = 256 << 20;
/// So often it is looked whether the command is to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The number of a chunk comes behind it.
const NAME_LIMIT_BYTES: usize = LABEL_LIMIT_BYTES - 20;

/// What is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    from: From,
    /// What it is called in the memory.
    pub name: String,
    /// Its length, for showing how far it is.
    pub bytes: u64,
}

/// Where a text is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum From {
    File(PathBuf),
    /// What standard input had, or why that is no text.
    Input(Result<String, String>),
}

/// What is no text, or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bad {
    /// What it would be called in the memory.
    pub file: String,
    /// What is wrong with it.
    pub why: String,
}

impl Found {
    /// As what a memory knows it.
    pub fn origin(&self) -> Origin<'_> {
        Origin {
            name: &self.name,
            is_input: matches!(self.from, From::Input(_)),
        }
    }
}

/// The files that were named, and those in the folders that were. Each once, in the order given, and
/// in folders by name; and what in folders cannot be read. Standard input is read to its end.
///
/// # Errors
/// One that was named is not there or cannot be read, or the command is to end.
pub fn find(paths: &[PathBuf], endings: &[String], stdin: &str) -> Result<(Vec<Found>, Vec<Bad>)> {
    let mut walk = Walk {
        endings,
        seen: HashSet::new(),
        found: Vec::new(),
        bad: Vec::new(),
    };
    let mut input_at = None;
    for path in paths {
        if path == Path::new("-") {
            input_at.get_or_insert(walk.found.len());
            continue;
        }
        let data = fs::metadata(path).map_err(|e| cannot_read(path, &e))?;
        match data.is_dir() {
            true => walk.folder(path).map_err(|e| cannot_read(path, &e))?,
            false => walk.file(path, data.len()),
        }
    }
    go_on()?;
    // Last, when nothing else can be wrong: somebody may have to write it.
    if let Some(at) = input_at {
        let text = read_input()?;
        let found = Found {
            bytes: text.as_ref().map_or(0, |text| text.len() as u64),
            from: From::Input(text),
            name: stdin.to_owned(),
        };
        walk.found.insert(at, found);
    }
    Ok((walk.found, walk.bad))
}

/// Finds files.
struct Walk<'a> {
    endings: &'a [String],
    /// Where they really are.
    seen: HashSet<PathBuf>,
    found: Vec<Found>,
    bad: Vec<Bad>,
}

impl Walk<'_> {
    fn file(&mut self, path: &Path, bytes: u64) {
        let real = fs::canonicalize(path).unwrap_or_else(|_| plain(path));
        if self.seen.insert(real) {
            self.found.push(Found {
                from: From::File(path.to_owned()),
                name: name_of(path),
                bytes,
            });
        }
    }

    /// Fails if the folder itself cannot be read; what cannot be in it is bad.
    fn folder(&mut self, dir: &Path) -> io::Result<()> {
        interrupt::check()?;
        let mut entries = fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            if let Err(e) = self.entry(&entry) {
                self.bad.push(Bad {
                    file: name_of(&entry.path()),
                    why: format!("cannot be read: {e}"),
                });
            }
        }
        Ok(())
    }

    fn entry(&mut self, entry: &fs::DirEntry) -> io::Result<()> {
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            self.folder(&path)?;
        } else if kind.is_file() && is_wanted(&path, self.endings) {
            self.file(&path, entry.metadata()?.len());
        }
        Ok(())
    }
}

/// Whether a file is not there any more. One in a folder that cannot be read may be.
pub fn is_gone(name: &str) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    let data = fs::metadata(name);
    data.is_err_and(|e| matches!(e.kind(), NotFound | NotADirectory))
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
pub fn read(file: &Found) -> Result<Cow<'_, str>, String> {
    if file.name.len() > NAME_LIMIT_BYTES {
        let long = file.name.len();
        return Err(format!(
            "has a name of {long} bytes, the limit is {NAME_LIMIT_BYTES} bytes"
        ));
    }
    let path = match &file.from {
        From::Input(text) => return text.as_deref().map(Cow::from).map_err(String::clone),
        From::File(path) => path,
    };
    if path.to_str().is_none() {
        return Err("has a name that is no text".to_owned());
    }
    let bytes = File::open(path).and_then(limited);
    text(bytes).map(Cow::from)
}

/// What standard input has, when it has ended. A signal ends the waiting.
fn read_input() -> Result<Result<String, String>> {
    let (done, is_done) = mpsc::channel();
    let reader = std::thread::Builder::new().spawn(move || {
        // Nobody listens any more if the command has ended.
        let _ = done.send(limited(io::stdin().lock()));
    });
    reader.map_err(|e| Error::failed(format!("cannot start: {e}")))?;
    loop {
        match is_done.recv_timeout(LOOK_EVERY) {
            Ok(bytes) => return Ok(text(bytes)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::failed("cannot read standard input"));
            }
        }
        if interrupt::is_requested() {
            let what = "interrupted: standard input had not ended, and nothing was added";
            return Err(Error::new(Exit::Interrupted, what));
        }
    }
}

/// One byte more than is allowed, so that what grows or has no length is bounded, too.
fn limited(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(FILE_LIMIT_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn text(bytes: io::Result<Vec<u8>>) -> Result<String, String> {
    let bytes = bytes.map_err(|e| format!("cannot be read: {e}"))?;
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
