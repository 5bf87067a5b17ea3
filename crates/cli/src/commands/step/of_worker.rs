//! Steps of a script that a worker has started: the worker holds the run, and is asked over its socket
//! (see `line.rs`). The store is not opened.
//!
//! Invariant: a command does not outlive the connection to its worker. A worker that is gone, or has lost
//! the run, cannot record what it comes to, and another one may begin it again.

use std::ffi::OsStr;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dalsegno::script::{Ask, Ended};
use dalsegno::{Certainty, Failure};
use dalsegno_store::NewPayload;
use rustix::process::{Signal, getpgrp, kill_process_group};
use tokio::net::UnixStream;

use super::turn::{Asks, Right, Turn};
use super::words;
use crate::args::Global;
use crate::exit::{Error, Result};
use crate::line::{CameTo, FromWorker, Line, SOCKET, ToWorker};
use crate::output::text::shown;
use crate::process::OUTPUT_LIMIT_BYTES;

/// The socket of the worker that has a run, if this process is of a script that it has started.
pub fn socket_of(global: &Global, run: &str) -> Option<PathBuf> {
    let is_same = |name: &str, value: &OsStr| std::env::var_os(name).is_some_and(|is| is == value);
    let socket = std::env::var_os(SOCKET).filter(|path| !path.is_empty())?;
    let ours = is_same("DALSEGNO_RUN", OsStr::new(run))
        && is_same("DALSEGNO_STORE", global.store.as_os_str());
    ours.then(|| socket.into())
}

/// Reaches the worker.
///
/// # Errors
/// It is not there any more.
pub async fn reach(socket: &Path, run: &str) -> Result<Line> {
    let reached = UnixStream::connect(socket).await;
    reached.map(Line::new).map_err(|_| words::gone(run))
}

/// Says something, and waits for the answer.
///
/// # Errors
/// There is none.
async fn said(line: &mut Line, what: &ToWorker, gone: impl Fn() -> Error) -> Result<FromWorker> {
    line.say(what).await.map_err(|_| gone())?;
    let heard = line.hear().await;
    heard.ok().flatten().ok_or_else(gone)
}

fn refused(said: FromWorker) -> Error {
    match said {
        FromWorker::Refused { what, hint } => {
            let error = Error::failed(shown(&what));
            hint.into_iter().fold(error, |error, hint| error.hint(hint))
        }
        _ => Error::failed("the worker has said something that is no answer"),
    }
}

/// Asks for a step.
///
/// # Errors
/// There is no answer, or it is that nothing was done.
pub async fn ask(mut line: Line, ask: &Ask<'_>, wait: Duration) -> Result<Turn> {
    let what = ToWorker::Ask {
        run: ask.run.to_owned(),
        name: ask.name.to_owned(),
        effect: ask.effect.into(),
        input: String::from_utf8_lossy(&ask.input.bytes).into_owned(),
        wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
    };
    let answer = said(&mut line, &what, || words::gone(ask.run)).await?;
    Turn::of_worker(answer, line).map_err(refused)
}

/// Waits for something to be done by a command; not any longer than the worker has the run.
///
/// # Errors
/// The worker has let go of it, or is gone: the command is killed.
pub async fn keeping<T>(
    line: &mut Line,
    group: u32,
    step: &str,
    done: impl Future<Output = T>,
) -> Result<T> {
    tokio::select! {
        done = done => Ok(done),
        _ = line.hear::<FromWorker>() => {
            // With all that the script has started. The worker would do that; it may have been killed.
            if i64::from(group) == i64::from(getpgrp().as_raw_nonzero().get()) {
                let _ended = kill_process_group(getpgrp(), Signal::KILL);
            }
            Err(words::not_recorded(step))
        }
    }
}

/// Says what a step came to; what was recorded instead, if it could not be recorded as it is.
///
/// # Errors
/// It is not known to be recorded.
pub async fn finish(
    mut line: Line,
    step: &str,
    ended: Ended,
    output: Option<NewPayload>,
) -> Result<Option<String>> {
    let (came_to, output) = match output {
        // It would not fit into a line.
        Some(output) if output.bytes.len() > OUTPUT_LIMIT_BYTES => {
            let why = words::too_much(output.bytes.len() as u64);
            (CameTo::Failed(why), None)
        }
        output => (came_to(ended), text(output)),
    };
    let instead = match &came_to {
        CameTo::Failed(why) if output.is_none() => Some(why.clone()),
        _ => None,
    };
    let what = ToWorker::Outcome { came_to, output };
    match said(&mut line, &what, || words::not_recorded(step)).await? {
        FromWorker::Finished { instead: of_worker } => Ok(of_worker.or(instead)),
        other => Err(refused(other)),
    }
}

fn came_to(ended: Ended) -> CameTo {
    let words = |failure: &Failure| failure.to_string();
    match ended {
        Ended::Done => CameTo::Done,
        Ended::Failed(failure) => CameTo::Failed(words(&failure)),
        Ended::FailedForNow(failure) => match failure.certainty() {
            Certainty::NotDone => CameTo::NotDone(words(&failure)),
            _ => CameTo::FailedForNow(words(&failure)),
        },
    }
}

fn text(output: Option<NewPayload>) -> Option<String> {
    output.map(|output| String::from_utf8_lossy(&output.bytes).into_owned())
}

/// Says that a step in doubt happened.
///
/// # Errors
/// As [`finish`].
pub async fn happened(mut line: Line, step: &str, output: Option<NewPayload>) -> Result<()> {
    let output = text(output);
    let what = ToWorker::Happened { output };
    match said(&mut line, &what, || words::not_recorded(step)).await? {
        FromWorker::Finished { .. } => Ok(()),
        other => Err(refused(other)),
    }
}

/// Says that it did not; the right to do it, if that is wanted.
///
/// # Errors
/// As [`finish`].
pub async fn did_not_happen(mut line: Line, step: &str, again: bool) -> Result<Option<Right>> {
    let what = ToWorker::DidNotHappen { again };
    match said(&mut line, &what, || words::not_recorded(step)).await? {
        FromWorker::Finished { .. } => Ok(None),
        FromWorker::Execute(granted) => Ok(Some(Right::of_worker(granted, line))),
        other => Err(refused(other)),
    }
}

/// Hands it to a person.
///
/// # Errors
/// As [`finish`].
pub async fn escalate(mut line: Line, step: &str, why: &str) -> Result<Asks> {
    let what = ToWorker::Unknown {
        why: why.to_owned(),
    };
    match said(&mut line, &what, || words::not_recorded(step)).await? {
        FromWorker::NeedsPerson { reason, in_doubt } => Ok(Asks { reason, in_doubt }),
        other => Err(refused(other)),
    }
}

/// Ends the run, when its command has ended.
///
/// # Errors
/// There is no answer, or it is that nothing was done.
pub async fn end(socket: &Path, run: &str, result: Result<Option<&str>, &str>) -> Result<String> {
    let mut line = reach(socket, run).await?;
    let (result, fail) = match result {
        Ok(result) => (result.map(str::to_owned), None),
        Err(why) => (None, Some(why.to_owned())),
    };
    let what = ToWorker::End {
        run: run.to_owned(),
        result,
        fail,
    };
    match said(&mut line, &what, || words::gone(run)).await? {
        FromWorker::Ended(status) => Ok(status),
        FromWorker::NeedsPerson { reason, in_doubt } => {
            Err(words::needs_person(run, &Asks { reason, in_doubt }))
        }
        FromWorker::Stopping => Err(words::stopping(run)),
        other => Err(refused(other)),
    }
}
