//! Stores in folders: who may open them, and what is said if they cannot be.
//!
//! Invariant: none of these makes a store where there is none, and looking changes nothing on disk.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use dalsegno_log::OpenError;
use dalsegno_store::{LocalStore, Options, StoreError};

use crate::address::Place;
use crate::args::Global;
use crate::exit::{Error, Exit, Result};
use crate::output::text::shown;

/// How often it is looked again whether a store is free.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Opens the store for reading.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn reader(global: &Global) -> Result<LocalStore> {
    let opened = Options::new().existing_only().open_read_only(&global.store);
    let store = opened.map_err(|e| not_opened(&global.store, e))?;
    // The process ends with the command. Taking apart what was read would take longer than most
    // commands do.
    std::mem::forget(store.clone());
    Ok(store)
}

/// The same; `None` if there is none, or its owner has only begun to make it.
///
/// # Errors
/// It cannot be read.
pub fn reader_if_made(global: &Global) -> Result<Option<LocalStore>> {
    match Options::new().existing_only().open_read_only(&global.store) {
        Err(StoreError::Open(OpenError::Missing { .. })) => Ok(None),
        Err(StoreError::Io(ref failure)) if is_missing(&failure.error) => Ok(None),
        opened => opened.map(Some).map_err(|e| not_opened(&global.store, e)),
    }
}

/// Opens the store as its owner.
///
/// # Errors
/// As [`reader`]; or another process owns it, which is named.
pub fn owner(global: &Global) -> Result<LocalStore> {
    let opened = Options::new().existing_only().open(&global.store);
    opened.map_err(|e| not_opened(&global.store, e))
}

/// The same, made if there is none and `create` says so; waits for an owner that is about to let go.
///
/// # Errors
/// As [`owner`].
pub async fn owner_within(
    global: &Global,
    options: Options,
    create: bool,
    wait: Duration,
) -> Result<LocalStore> {
    let options = match create {
        true => options,
        false => options.existing_only(),
    };
    let until = Instant::now() + wait;
    loop {
        match options.open(&global.store) {
            Err(StoreError::Open(OpenError::Locked { .. })) if Instant::now() < until => {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            // Somebody else makes one at the same moment, and was faster.
            Err(StoreError::Io(ref failure))
                if create && is_missing(&failure.error) && Instant::now() < until =>
            {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            opened if create => return opened.map_err(|e| not_made(&global.store, e)),
            opened => return opened.map_err(|e| not_opened(&global.store, e)),
        }
    }
}

/// The folder, for a process that may go to another one; an address as it is.
pub fn absolute(global: &Global) -> PathBuf {
    if Place::of(&global.store).is_database() {
        return global.store.clone();
    }
    std::path::absolute(&global.store).unwrap_or_else(|_| global.store.clone())
}

/// Who owns the store now, as in `process 4711`; `None` if nobody does, as nobody does a database.
/// The lock is the kernel's, so an owner that was killed is none.
pub fn owner_now(global: &Global) -> Option<String> {
    match Place::of(&global.store) {
        Place::Folder(dir) => LocalStore::owner_of(dir),
        Place::Database(_) => None,
    }
}

/// Why there is no store although one was to be made, with what to do.
pub fn not_made(dir: &Path, error: StoreError) -> Error {
    match error {
        StoreError::Io(ref failure) if is_missing(&failure.error) => {
            let place = shown(&dir.display().to_string());
            let what = format!("cannot make a store in {place}: {}", failure.error);
            Error::failed(what).hint("name another folder with --store")
        }
        other => not_opened(dir, other),
    }
}

/// Why a store could not be opened, with what to do.
pub fn not_opened(dir: &Path, error: StoreError) -> Error {
    match error {
        StoreError::Io(ref failure) if is_missing(&failure.error) => no_store(dir, "there is none"),
        StoreError::Open(OpenError::Missing { .. }) => no_store(dir, "there is none"),
        StoreError::NotAStore { ref why, .. } if has_segments(dir) => damaged_marker(dir, why),
        StoreError::NotAStore { ref why, .. } => no_store(dir, why),
        StoreError::Open(OpenError::Locked { ref owner, .. }) => Error::failed(format!(
            "the store {} is in use by {}",
            shown(&dir.display().to_string()),
            with_program(owner)
        ))
        .hint(
            "stop that process first, or use a command that works beside it (ls, show, approve, …)",
        ),
        other => other.into(),
    }
}

/// As in `process 4711 (my-agent)`.
fn with_program(owner: &str) -> String {
    let pid = owner.strip_prefix("process ").unwrap_or_default();
    let is_pid = !pid.is_empty() && pid.bytes().all(|digit| digit.is_ascii_digit());
    let program = is_pid.then(|| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
    match program.flatten() {
        Some(program) => format!("{} ({})", shown(owner), shown(program.trim())),
        None => shown(owner),
    }
}

fn is_missing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

/// Whether a folder has the log of a store in it.
fn has_segments(dir: &Path) -> bool {
    let Ok(files) = std::fs::read_dir(dir.join("log")) else {
        return false;
    };
    let mut names = files.flatten().map(|file| file.file_name());
    names.any(|name| name.as_encoded_bytes().ends_with(b".seg"))
}

/// What is in it is there, and what it is cannot be read.
fn damaged_marker(dir: &Path, why: &str) -> Error {
    let place = shown(&dir.display().to_string());
    let what = format!("the store in {place} is damaged: {}", shown(why));
    Error::new(Exit::Damaged, what)
        .hint("its log is there: bring the file `store` back from a copy, then `dalsegno verify`")
}

/// With what may have been meant: stores that are near.
fn no_store(dir: &Path, why: &str) -> Error {
    let place = shown(&dir.display().to_string());
    let why = match () {
        () if dir.is_file() => "that is a file, and a store is a folder",
        () if !dir.exists() => "there is no such folder",
        () => why,
    };
    let error = Error::failed(format!("no store in {place}: {}", shown(why)));
    let near = stores_near(dir);
    error.hint(match near.first() {
        Some(near) => format!(
            "did you mean --store {}?",
            shown(&near.display().to_string())
        ),
        None => "name the store with --store, or in the variable DALSEGNO_STORE".to_owned(),
    })
}

/// Folders beside, in, or around the one that was named, which look like stores.
fn stores_near(dir: &Path) -> Vec<PathBuf> {
    let parent = match dir.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let places = [dir, parent];
    let entries = places
        .iter()
        .filter_map(|place| std::fs::read_dir(place).ok());
    let folders = entries.flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = folders.filter(|path| looks_like_a_store(path)).collect();
    found.sort();
    found
}

fn looks_like_a_store(path: &Path) -> bool {
    path.join("log").is_dir() && path.join("store").is_file()
}

/// What is in the mailbox.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mailbox {
    /// Letters that wait.
    pub waiting: u64,
    /// How long the first of them has waited.
    pub oldest_us: u64,
    /// Files that were set aside.
    pub bad: u64,
}

/// Looks into the mailbox of a store, by the names of its files only.
pub fn letters(dir: &Path) -> Mailbox {
    let mut found = Mailbox::default();
    let entries = std::fs::read_dir(dir.join("mailbox"));
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        match () {
            () if name.ends_with(".letter") => {
                found.waiting += 1;
                let written = entry.metadata().and_then(|data| data.modified());
                let age = written.map(|at| SystemTime::now().duration_since(at));
                if let Ok(Ok(age)) = age {
                    found.oldest_us = found.oldest_us.max(age.as_micros() as u64);
                }
            }
            () if name.ends_with(".bad") => found.bad += 1,
            () => {}
        }
    }
    found
}
