//! How the command ends: its codes, its errors, and what is said about them.
//!
//! | code | means |
//! |---|---|
//! | 0 | done |
//! | 1 | failed: nothing was done, or the words say what |
//! | 2 | used wrongly: what was asked for makes no sense |
//! | 3 | a person is needed |
//! | 4 | something on disk is damaged |
//! | 130 | stopped by Ctrl-C or another signal before it was done |
//! | any | of `step` and `exec`: that of the command; 75 and 124 to 127 as docs/cli.md says |
//!
//! Invariant: which error has which code is decided here and nowhere else. An error is `error: what
//! happened, where` and `hint: what to do next`, never a stack trace.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use dalsegno_log::{OpenError, ReadError};
use dalsegno_memory::{HowEnded, MemoryError};
use dalsegno_store::StoreError;
use dalsegno_store::portable::PortableError;
use serde::Serialize;

use crate::output::text::{quoted, shown};
use crate::output::{Out, json, time};

/// How the command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// Failed.
    Failed,
    /// Used wrongly.
    Usage,
    /// A person is needed.
    NeedsPerson,
    /// Something on disk is damaged.
    Damaged,
    /// Stopped by a signal, as shells say it of Ctrl-C.
    Interrupted,
    /// With the code of a command that was run, or one that says why there is none.
    Command(u8),
}

impl Exit {
    /// The number that the shell sees.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::NeedsPerson => 3,
            Exit::Damaged => 4,
            Exit::Interrupted => 130,
            Exit::Command(code) => code,
        }
    }
}

/// Why a command did not do what was asked.
#[derive(Debug)]
pub struct Error {
    /// With which code it ends.
    pub exit: Exit,
    /// What happened, and where.
    pub what: String,
    /// What to do next.
    pub hint: Option<String>,
}

/// What a command comes to.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// That ends with a code.
    pub fn new(exit: Exit, what: impl Into<String>) -> Error {
        let what = what.into();
        Error {
            exit,
            what,
            hint: None,
        }
    }

    /// That something did not work.
    pub fn failed(what: impl Into<String>) -> Error {
        Error::new(Exit::Failed, what)
    }

    /// That what was asked makes no sense.
    pub fn usage(what: impl Into<String>) -> Error {
        Error::new(Exit::Usage, what)
    }

    /// With what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// What to do where nothing can be written.
pub const READ_ONLY: &str =
    "what only looks works here (ls, show, why, verify, export, …); for the rest mount it writable";

const VERIFY: &str =
    "see all damage with `dalsegno verify`, then restore a copy or `dalsegno repair`";

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Error {
        let what = shown(&error.to_string());
        match error {
            StoreError::Damaged { .. }
            | StoreError::Open(OpenError::Damage { .. } | OpenError::Unrepairable { .. })
            | StoreError::Read(ReadError::Damage(_)) => {
                Error::new(Exit::Damaged, what).hint(VERIFY)
            }
            StoreError::Portable(PortableError::Damaged { .. }) => Error::new(Exit::Damaged, what),
            StoreError::Name(_) | StoreError::TooLarge { .. } => Error::usage(what),
            StoreError::NotFound { .. } => Error::failed(what).hint("`dalsegno ls` lists the runs"),
            StoreError::Version { .. } | StoreError::Open(OpenError::Version { .. }) => {
                Error::failed(what).hint("a newer dalsegno wrote it: install that one")
            }
            // What happened and, behind the last colon, what to do.
            StoreError::Backend(words) => match words.rsplit_once(": ") {
                Some((what, hint)) => Error::failed(shown(what)).hint(shown(hint)),
                None => Error::failed(what),
            },
            StoreError::Io(failure) | StoreError::Open(OpenError::Io(failure))
                if failure.error.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                Error::failed(what).hint("run this as the user that the store belongs to")
            }
            StoreError::Io(failure) | StoreError::Open(OpenError::Io(failure))
                if failure.error.kind() == std::io::ErrorKind::ReadOnlyFilesystem =>
            {
                Error::failed(what).hint(READ_ONLY)
            }
            _ => Error::failed(what),
        }
    }
}

impl From<dalsegno::Error> for Error {
    fn from(error: dalsegno::Error) -> Error {
        let what = shown(&error.to_string());
        match error {
            dalsegno::Error::Store(error) => error.into(),
            dalsegno::Error::Name(_) | dalsegno::Error::StepName(_) => Error::usage(what),
            dalsegno::Error::RunNotFound(_) => {
                Error::failed(what).hint("`dalsegno ls` lists the runs")
            }
            dalsegno::Error::NeedsAttention { run, .. } => Error::new(Exit::NeedsPerson, what)
                .hint(format!("`dalsegno why {}` says what to do", quoted(&run))),
            _ => Error::failed(what),
        }
    }
}

impl From<MemoryError> for Error {
    fn from(error: MemoryError) -> Error {
        let what = shown(&error.to_string());
        match error {
            MemoryError::Store(error) => error.into(),
            MemoryError::Ended { id, ended } => {
                let by = shown(ended.by.as_deref().unwrap_or("somebody without a name"));
                let at = time::utc(ended.at_us);
                let reason = ended.reason.as_deref().filter(|reason| !reason.is_empty());
                let why = reason.map_or(String::new(), |why| format!(": {}", shown(why)));
                let error = Error::failed(format!(
                    "document {id} was {} by {by} at {at}{why}",
                    ended.how
                ));
                match ended.how {
                    HowEnded::Forgotten => error,
                    _ => error.hint(format!("see it with `dalsegno memory history MEMORY {id}`")),
                }
            }
            // What happened and, behind the last colon, what to do.
            MemoryError::NotFound { .. }
            | MemoryError::NoVersion { .. }
            | MemoryError::OtherHistory { .. }
            | MemoryError::Model { .. }
            | MemoryError::Dimension { .. } => match what.rsplit_once(": ") {
                Some((what, hint)) => Error::failed(what).hint(hint),
                None => Error::failed(what),
            },
            MemoryError::TooLarge { what, size, limit } => {
                let unit = unit_of(what);
                Error::usage(format!(
                    "{what} has {size}{unit}, the limit is {limit}{unit}: give less at a time"
                ))
            }
            MemoryError::Moved { .. } | MemoryError::Random(_) => Error::failed(what),
            _ => Error::usage(what),
        }
    }
}

/// In what the size of something in a memory is counted.
fn unit_of(what: &str) -> &'static str {
    match what {
        "what a search is to find" => " hits",
        "a list of documents to forget" => " documents",
        "the sources of a document" => " sources",
        "the tags of a document" => " tags",
        what if what.contains("dimensions") => "",
        _ => " bytes",
    }
}

impl From<dalsegno_store::NameError> for Error {
    fn from(error: dalsegno_store::NameError) -> Error {
        Error::usage(shown(&error.to_string()))
    }
}

/// Output that could not be written. A reader that has gone away is not among these, see
/// [`crate::output::Out`].
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::failed(format!("cannot write the output: {error}"))
    }
}

/// An error in JSON, on stderr.
#[derive(Serialize)]
struct ErrorDocument<'a> {
    schema: &'static str,
    error: &'a str,
    hint: Option<&'a str>,
    exit: u8,
}

/// Says what was wrong on stderr, and gives the code to end with.
fn report(error: &Error, as_json: bool, color: bool) -> ExitCode {
    let text = if as_json {
        let document = ErrorDocument {
            schema: "dalsegno.error/1",
            error: &error.what,
            hint: error.hint.as_deref(),
            exit: error.exit.code(),
        };
        json::line(&document)
    } else {
        let (red, cyan, end) = match color {
            true => ("\x1b[1;31m", "\x1b[1;36m", "\x1b[0m"),
            false => ("", "", ""),
        };
        let hint = error.hint.as_ref();
        let hint = hint.map_or(String::new(), |hint| format!("{cyan}hint{end}: {hint}\n"));
        format!("{red}error{end}: {}\n{hint}", error.what)
    };
    // Who does not listen is no reason for another code.
    drop(std::io::stderr().lock().write_all(text.as_bytes()));
    ExitCode::from(error.exit.code())
}

/// Ends the command: everything is written, or that is the error.
pub fn end(done: Result<Exit>, mut out: Out) -> ExitCode {
    let flushed = out.flush();
    let done = done.and_then(|exit| flushed.map(|()| exit));
    match done {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(error) => report(&error, out.is_json(), out.colors_errors()),
    }
}

/// Prints help, or what was wrong with the arguments, and gives the code to end with.
pub fn usage(error: &clap::Error, as_json: bool) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            drop(error.print());
            ExitCode::from(Exit::Done.code())
        }
        _ if as_json => {
            let text = error.render().to_string();
            let text = text.trim_start_matches("error: ").trim_end();
            let error = Error::usage(shown(text)).hint("see --help");
            report(&error, true, false)
        }
        _ => {
            drop(error.print());
            ExitCode::from(Exit::Usage.code())
        }
    }
}

/// A fault of the command itself is two lines for its user, not a stack trace.
pub fn without_stack_traces() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let place = place.unwrap_or_default();
        let payload = panic.payload();
        let what = payload.downcast_ref::<String>().map(String::as_str);
        let what = what.or_else(|| payload.downcast_ref::<&str>().copied());
        let what = what.unwrap_or("no words");
        let what = format!("a fault of dalsegno itself at {place}: {}", shown(what));
        let hint = "nothing that was recorded is lost; please report this line";
        let _ = report(&Error::failed(what).hint(hint), false, false);
        std::process::exit(i32::from(Exit::Failed.code()));
    }));
}
