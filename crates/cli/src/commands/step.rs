//! `dalsegno step`: a command as a durable step of a script.
//!
//! ```text
//! lock the run    no other process works on it
//! open, ask       recorded? print it, done. Else the intent is durable; let go of the store
//!   the command   the store is free for others meanwhile
//! open, finish    the outcome is durable; let go of the store
//! ```
//!
//! What is recorded can be had beside whoever has the run or the store: it is read then. A script that
//! a worker has started asks that worker instead of opening the store (`step/of_worker.rs`).
//!
//! Invariant: the command runs only when its intent is durable, and what it came to is durable
//! before we end with its code.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use dalsegno::script::{self, Ask, Ended};
use dalsegno::{Effect, Failure};
use dalsegno_store::NewPayload;
use serde::Serialize;

use crate::address::Place;
use crate::args::Global;
use crate::args::step::{FailedMeans, StepArgs};
use crate::exit::{Error, Exit, Result};
use crate::output::Out;
use crate::process::{self, Ran, Signals, Task};
use crate::run_lock::RunLock;
use crate::{line, open, runtime};

mod access;
pub mod of_worker;
mod result;
mod turn;
mod words;

pub use access::Access;
pub use turn::Asks;
use turn::{Came, Right, Turn};

/// The agent that runs of scripts are of.
pub const AGENT: &str = "shell";
/// How long a probe may take if the step has no time limit of its own.
const PROBE_LIMIT: Duration = Duration::from_secs(60);
/// The first wait before another attempt, and the longest.
const RETRY_WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The worker hands the run over: nothing is begun. What `sysexits.h` calls a failure for now.
const STOPPING: u8 = 75;
/// Its time was up.
const TIMED_OUT: u8 = 124;
/// We failed.
const FAILED: u8 = 125;
/// The command cannot be run.
const NOT_RUN: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;

/// `dalsegno.step/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    run: &'a str,
    step: &'a str,
    /// It was not run: this is what is recorded.
    recorded: bool,
    attempt: u64,
    #[serde(flatten)]
    result: result::Document,
}

/// Runs a step.
///
/// # Errors
/// There is no exit code of the command to end with.
pub fn run(args: &StepArgs, global: &Global, out: &mut Out) -> Result<Exit> {
    let done = runtime::block_on(async {
        // Names that cannot be one make no store.
        script::check(&ask(args, ""))?;
        let access = Access::of_run(global, &args.run, args.wait)?;
        let step = StepRun {
            args,
            global,
            access,
            out,
        };
        step.all().await
    });
    // That it failed is the command's word.
    done.map_err(|error| match error.exit {
        Exit::Failed => Error {
            exit: Exit::Command(FAILED),
            ..error
        },
        _ => error,
    })
}

/// Whether there is a store that somebody has finished making.
fn is_made(global: &Global) -> bool {
    if Place::of(&global.store).is_database() {
        return true;
    }
    let Ok(files) = std::fs::read_dir(global.store.join("log")) else {
        return false;
    };
    let mut names = files.flatten().map(|file| file.file_name());
    names.any(|name| name.as_bytes().ends_with(b".seg"))
}

/// How the names of those begin who work on runs of scripts.
pub const WORKER: &str = "dalsegno step, process ";

/// Who works on a run, for its record.
pub fn worker() -> String {
    format!("{WORKER}{}", std::process::id())
}

struct StepRun<'a> {
    args: &'a StepArgs,
    global: &'a Global,
    access: Access<'a>,
    out: &'a mut Out,
}

fn ask<'a>(args: &'a StepArgs, worker: &'a str) -> Ask<'a> {
    Ask {
        run: &args.run,
        agent: AGENT,
        worker,
        name: &args.name,
        effect: args.effect.effect(),
        input: input(args),
    }
}

/// What to do when a command has ended.
enum Next {
    /// End with this code.
    End(u8),
    /// The same, unless there are attempts left.
    Again(u8),
}

impl StepRun<'_> {
    async fn all(mut self) -> Result<Exit> {
        let worker = worker();
        let ask = ask(self.args, &worker);
        if !is_made(self.global) {
            self.access.with(true, async |_| Ok(())).await?;
        }
        let what = format!("for its step {}", self.args.name);
        let (run, wait, store) = (&self.args.run, self.args.wait, &self.global.store);
        let tried = RunLock::try_take(store, run, &what);
        let (lock, not_taken) = match tried {
            Ok(lock) => (lock, None),
            // A disk that takes nothing can be read all the same.
            Err(e) => (None, Some(e)),
        };
        if lock.is_none() || open::owner_now(self.global).is_some() {
            // What is recorded can be read beside whoever is at work.
            let store = open::reader_if_made(self.global)?;
            if let Some(store) = store
                && let Some(known) = script::look(&store, &ask).await?
            {
                if let Some(lock) = lock {
                    lock.release();
                }
                return self.known(known.into()).map(Exit::Command);
            }
        }
        if let Some(e) = not_taken {
            return Err(e);
        }
        let lock = match lock {
            Some(lock) => lock,
            None => RunLock::take(store, run, &what, wait).await?,
        };
        let done = self.under(&lock, &ask).await;
        lock.release();
        done.map(Exit::Command)
    }

    /// With the lock of the run.
    async fn under(&mut self, lock: &RunLock, ask: &Ask<'_>) -> Result<u8> {
        let mut taken_over = None;
        let mut left = self.args.retry;
        let mut pause = RETRY_WAIT.0;
        loop {
            // Who waits for the store can be told to end; who has recorded an intent has to record
            // what became of it.
            let take_over = || taken_over.take().map_or_else(Signals::take_over, Ok);
            let (turn, listening) = self.access.ask(ask, take_over).await?;
            let signals = taken_over.insert(listening?);
            let right = match turn {
                Turn::Execute(right) => right,
                Turn::InDoubt(right, why) => {
                    match self.settle(right, &why, lock, signals, true).await? {
                        Settled::Happened => return Ok(0),
                        Settled::NotDone(Some(right)) => right,
                        Settled::NotDone(None) => continue,
                    }
                }
                known => return self.known(known),
            };
            let code = match self.execute(right, lock, signals).await? {
                Next::Again(code) if left > 0 => code,
                Next::End(code) | Next::Again(code) => return Ok(code),
            };
            left -= 1;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = signals.next() => return Ok(code),
            }
            pause = RETRY_WAIT.1.min(pause * 2);
        }
    }

    /// Says what there is to say about a step that is not executed.
    fn known(&mut self, turn: Turn) -> Result<u8> {
        let run = &self.args.run;
        match turn {
            Turn::Recorded(came) => self.print(&came),
            Turn::Mismatch(then, now) => Err(words::mismatch(run, &self.args.name, &then, &now)),
            Turn::NeedsPerson(asks) => Err(words::needs_person(run, &asks)),
            Turn::Ended(status) => Err(words::ended(run, &status)),
            Turn::Stopping => Err(words::stopping(run)),
            // Both come with a right, and who has one acts on it.
            Turn::Execute(_) | Turn::InDoubt(..) => Err(Error::failed("nothing was done")),
        }
    }

    fn print(&mut self, came: &Came) -> Result<u8> {
        if let (Some(failure), None) = (&came.failure, &came.output) {
            return Err(words::failed_for_good(&self.args.run, failure));
        }
        let result = result::Result::read(came.output.as_deref());
        self.tell(&result, &came.step, came.attempts, true)?;
        if !self.out.is_json() {
            self.out.raw(&result.stdout)?;
            self.out.flush()?;
            to_stderr(&result.stderr);
        }
        Ok(result.exit)
    }

    /// The document, if that was asked for.
    fn tell(
        &mut self,
        result: &result::Result,
        step: &str,
        attempt: u64,
        recorded: bool,
    ) -> Result<()> {
        if self.out.is_json() {
            self.out.json(&Document {
                schema: "dalsegno.step/1",
                run: &self.args.run,
                step,
                recorded,
                attempt,
                result: result.document(),
            })?;
        }
        Ok(())
    }

    /// Runs the command, and records what it came to.
    async fn execute(
        &mut self,
        mut right: Right,
        lock: &RunLock,
        signals: &mut Signals,
    ) -> Result<Next> {
        let task = Task {
            command: &self.args.command,
            environment: self.environment(&right),
            lock: lock.file(),
            timeout: self.args.timeout,
            reads_stdin: true,
        };
        let (json, out) = (self.out.is_json(), &mut self.out);
        let mut not_written = None;
        let ran = process::run(&task, signals, |is_error, bytes| match is_error {
            _ if json => {}
            true => to_stderr(bytes),
            false => {
                let written = out.raw(bytes).map_err(Error::from);
                let written = written.and_then(|()| out.flush());
                not_written = not_written.take().or(written.err());
            }
        });
        let ran = match self.access.keeping(&mut right, ran).await? {
            Ok(ran) => ran,
            Err(e) => return self.not_started(right, &e).await,
        };
        let done = self.conclude(right, ran, lock, signals).await?;
        // It is recorded, and that it could not be printed is said all the same.
        not_written.map_or(Ok(done), Err)
    }

    fn environment(&self, right: &Right) -> Vec<(&'static str, OsString)> {
        let mut all = vec![
            ("DALSEGNO_IDEMPOTENCY_KEY", right.key.clone().into()),
            ("DALSEGNO_RUN", self.args.run.clone().into()),
            ("DALSEGNO_STEP", self.args.name.clone().into()),
            ("DALSEGNO_ATTEMPT", right.attempt.to_string().into()),
            ("DALSEGNO_STORE", open::absolute(self.global).into()),
        ];
        if !self.access.is_worker() {
            // One that has another run is not to be asked for this one.
            all.push((line::SOCKET, OsString::new()));
        }
        all
    }

    /// What could not be started has done nothing.
    async fn not_started(&mut self, right: Right, error: &std::io::Error) -> Result<Next> {
        let (error, code) = words::not_started(&self.args.command[0], error);
        let ended = Ended::FailedForNow(Failure::not_done(&error));
        self.access.finish(right, ended, None).await?;
        Err(Error {
            exit: Exit::Command(code),
            ..error
        })
    }

    async fn conclude(
        &mut self,
        right: Right,
        ran: Ran,
        lock: &RunLock,
        signals: &mut Signals,
    ) -> Result<Next> {
        let code = match ran.timed_out {
            true => TIMED_OUT,
            false => process::exit_code(ran.status),
        };
        let result = result::Result {
            exit: code,
            stdout: ran.stdout,
            stderr: ran.stderr,
        };
        let (step, attempt) = (right.step.clone(), right.attempt);
        let why = match (ran.timed_out, self.args.timeout) {
            (true, Some(limit)) => format!("it took longer than {limit:?}"),
            _ => process::words(ran.status),
        };
        let why = words::with_last_words(why, &result.stderr);
        let done = ran.status.success() && !ran.timed_out;
        // A command that a signal has ended said nothing.
        let said = ran.status.code().is_some() && !ran.timed_out;
        let ended = match (done, self.args.failed_means) {
            (true, _) => match ran.too_much {
                None => Ended::Done,
                Some(bytes) => Ended::Failed(Failure::terminal(words::too_much(bytes))),
            },
            (false, FailedMeans::Final) if said => Ended::Failed(Failure::terminal(why)),
            (false, FailedMeans::NotDone) if said => Ended::FailedForNow(Failure::not_done(why)),
            _ if right.effect != Effect::Once => Ended::FailedForNow(Failure::new(why)),
            _ => {
                if ran.interrupted.is_some() && self.args.probe.is_some() {
                    // Who has interrupted it does not want to wait for a probe; the next call asks.
                    return Err(words::interrupted(&self.args.name, code));
                }
                let settled = self.settle(right, &why, lock, signals, false).await?;
                return Ok(match settled {
                    Settled::Happened => Next::End(0),
                    Settled::NotDone(_) => Next::Again(code),
                });
            }
        };
        let tried_again = matches!(ended, Ended::FailedForNow(_)) && ran.interrupted.is_none();
        let output = ran.too_much.is_none().then(|| result.payload());
        let run = &self.args.run;
        if let Some(failure) = self.access.finish(right, ended, output).await? {
            return Err(words::failed_for_good(run, &failure));
        }
        self.tell(&result, &step, attempt, false)?;
        Ok(match tried_again {
            true => Next::Again(code),
            false => Next::End(code),
        })
    }

    /// Finds out whether a step in doubt happened: by its probe, or by a person.
    async fn settle(
        &mut self,
        mut right: Right,
        why: &str,
        lock: &RunLock,
        signals: &mut Signals,
        again: bool,
    ) -> Result<Settled> {
        let mut why = why.to_owned();
        if let Some(probe) = &self.args.probe {
            let command = ["sh", "-c", probe].map(OsString::from);
            let task = Task {
                command: &command,
                environment: self.environment(&right),
                lock: lock.file(),
                timeout: Some(self.args.timeout.unwrap_or(PROBE_LIMIT)),
                reads_stdin: false,
            };
            let asked = process::run(&task, signals, |_, _| {});
            let asked = self.access.keeping(&mut right, asked).await?;
            match asked {
                Ok(ran) if ran.status.success() && ran.too_much.is_none() => {
                    return self.happened(right, ran).await;
                }
                Ok(ran) if ran.status.code() == Some(1) && !ran.timed_out => {
                    let right = self.access.did_not_happen(right, again).await?;
                    return Ok(Settled::NotDone(right));
                }
                Ok(ran) if ran.interrupted.is_some() => {
                    let code = process::exit_code(ran.status);
                    return Err(words::interrupted(&self.args.name, code));
                }
                Ok(ran) => why = words::unclear(&why, &ran),
                Err(e) => why = format!("{why}; the probe cannot be run: {e}"),
            }
        }
        let asks = self.access.escalate(right, &why).await?;
        Err(words::needs_person(&self.args.run, &asks))
    }

    async fn happened(&mut self, right: Right, ran: Ran) -> Result<Settled> {
        let result = result::Result {
            exit: 0,
            stdout: ran.stdout,
            stderr: ran.stderr,
        };
        let (step, attempt) = (right.step.clone(), right.attempt);
        let payload = Some(result.payload());
        self.access.happened(right, payload).await?;
        self.tell(&result, &step, attempt, true)?;
        if !self.out.is_json() {
            self.out.raw(&result.stdout)?;
            self.out.flush()?;
            to_stderr(&result.stderr);
        }
        Ok(Settled::Happened)
    }
}

enum Settled {
    /// It happened; its result was printed.
    Happened,
    /// It did not; to be executed, if that was wanted.
    NotDone(Option<Right>),
}

/// What is compared with the record.
fn input(args: &StepArgs) -> NewPayload {
    let value = match &args.input {
        Some(text) => serde_json::json!({ "input": text }),
        None => {
            let words: Vec<_> = args.command.iter().map(|word| text(word)).collect();
            serde_json::json!({ "command": words })
        }
    };
    NewPayload::json(value.to_string())
}

/// A word of a command as text. What is no text has a form of its own, which no text can have.
fn text(word: &OsStr) -> String {
    match word.to_str() {
        Some(text) => text.to_owned(),
        None => {
            let hex = word.as_bytes().iter().map(|byte| format!("{byte:02x}"));
            format!("\0{}", hex.collect::<String>())
        }
    }
}

fn to_stderr(bytes: &[u8]) {
    use std::io::Write;
    // Who does not listen is no reason for another code.
    drop(std::io::stderr().lock().write_all(bytes));
}
