//! Ctrl-C in the middle of making something: what is half made goes, and the command ends with 130.
//!
//! A command that leaves nothing behind when it is killed does not need this. One that makes files
//! calls [`watch`] first, names what is half made ([`HalfMade`]), and looks at [`check`] while it
//! works; the failure of its work then cleans up as any other does.
//!
//! Invariant: whatever is named as half made is gone when the command ends by a signal (but for
//! `kill -9`), also if the work does not look.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError, mpsc};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Error, Exit};

/// So long the work has to notice and to clean up by itself.
const GRACE: Duration = Duration::from_secs(1);

static REQUESTED: AtomicBool = AtomicBool::new(false);
static HALF_MADE: Mutex<Vec<What>> = Mutex::new(Vec::new());

fn half_made() -> MutexGuard<'static, Vec<What>> {
    HALF_MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is half made.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// A file or folder.
    Path(PathBuf),
    /// Files in a folder that end like this, but for those that were there before.
    Ending {
        dir: PathBuf,
        ending: &'static str,
        before: Vec<PathBuf>,
    },
}

impl What {
    fn remove(&self) {
        match self {
            What::Path(path) => remove(path),
            What::Ending {
                dir,
                ending,
                before,
            } => {
                let there = files(dir, ending);
                let new = there.iter().filter(|path| !before.contains(path));
                new.for_each(|path| remove(path));
            }
        }
    }
}

fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect()
}

/// From now on signals that end the command are noticed. Returns when they are.
pub fn watch() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let (ready, is_ready) = mpsc::channel();
        let spawned = std::thread::Builder::new().spawn(move || wait(ready));
        if spawned.is_ok() {
            // An error means that there is no handler: then the signal just ends the command.
            let _ = is_ready.recv();
        }
    });
}

/// A file that may not grow (`ulimit -f`) is an error of the write from now on, and not the end of the
/// process without a word. Inside of a runtime.
pub fn let_writes_fail() {
    let file_limit = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // The handler stays when nobody listens. Without one the signal just ends the command.
    drop(signal(file_limit));
}

fn wait(ready: mpsc::Sender<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    let Ok(runtime) = runtime else { return };
    let came = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let _ = ready.send(());
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        Ok::<(), io::Error>(())
    });
    if came.is_err() {
        return;
    }
    REQUESTED.store(true, Ordering::SeqCst);
    std::thread::sleep(GRACE);
    half_made().iter().for_each(What::remove);
    std::process::exit(i32::from(Exit::Interrupted.code()));
}

/// Whether the command is to end.
pub fn is_requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// An error if the command is to end.
///
/// # Errors
/// It is. The kind is one that nobody tries again for.
pub fn check() -> io::Result<()> {
    match is_requested() {
        true => Err(io::Error::other("interrupted")),
        false => Ok(()),
    }
}

/// The error, or if that came of a signal, that.
pub fn or(error: Error) -> Error {
    match is_requested() {
        true => Error::new(Exit::Interrupted, "interrupted: nothing was left behind"),
        false => error,
    }
}

/// A file or folder that is not whole. It goes, unless it is [kept](HalfMade::keep).
#[derive(Debug)]
pub struct HalfMade {
    what: What,
    kept: bool,
}

impl HalfMade {
    /// That is about to be made.
    pub fn new(path: &Path) -> HalfMade {
        HalfMade::of(What::Path(path.to_owned()))
    }

    /// Files that are about to be made in a folder, under names with this ending.
    pub fn in_folder(dir: &Path, ending: &'static str) -> HalfMade {
        HalfMade::of(What::Ending {
            dir: dir.to_owned(),
            ending,
            before: files(dir, ending),
        })
    }

    fn of(what: What) -> HalfMade {
        half_made().push(what.clone());
        HalfMade { what, kept: false }
    }

    /// It is whole, or has another name by now.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for HalfMade {
    fn drop(&mut self) {
        let mut all = half_made();
        if !self.kept {
            self.what.remove();
        }
        all.retain(|what| *what != self.what);
    }
}

fn remove(path: &Path) {
    // What cannot be removed stays, under a name that says what it is.
    drop(match path.is_dir() {
        true => std::fs::remove_dir_all(path),
        false => std::fs::remove_file(path),
    });
}
