//! `dalsegno exec`: runs a process and starts it again when it crashes.
//!
//! Invariants: there is one process at a time, and it dies with us. After SIGTERM or SIGINT none is
//! started. Every process that ends as our child is waited for, also those that others have left to
//! us, so that there are no zombies if we are the first process of a container.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitOptions, waitpid};
use serde::Serialize;
use tokio::signal::unix::SignalKind;

use crate::args::Global;
use crate::args::exec::{Exec, Restart};
use crate::exit::{Error, Exit, Result};
use crate::output::text::shown;
use crate::output::{Out, json, time};
use crate::process::{self, Signals};
use crate::{open, runtime};

/// A process that has run for so long begins a new row of restarts.
const STEADY: Duration = Duration::from_secs(60);
/// A process that ends so asks for a person, and would only ask again.
const NEEDS_PERSON: u8 = 3;

/// `dalsegno.exec/1`, a line of the log.
#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    time_us: u64,
    event: &'a str,
    message: &'a str,
    pid: Option<u32>,
    exit: Option<u8>,
    restarts: u32,
}

/// Runs a process until it is not to be started again.
///
/// # Errors
/// It could not be started at all.
pub fn run(args: &Exec, global: &Global, out: &mut Out) -> Result<Exit> {
    let json = out.is_json();
    let done = runtime::block_on(async {
        let signals = Signals::take_over().map_err(|e| cannot("take over signals", &e))?;
        let children = tokio::signal::unix::signal(SignalKind::child());
        let children = children.map_err(|e| cannot("hear of children", &e))?;
        let supervisor = Supervisor {
            args,
            global,
            json,
            signals,
            children,
            restarts: 0,
            draining: false,
        };
        supervisor.all().await
    });
    done.map(Exit::Command)
}

fn cannot(what: &str, error: &io::Error) -> Error {
    Error::new(Exit::Command(125), format!("cannot {what}: {error}"))
}

struct Supervisor<'a> {
    args: &'a Exec,
    global: &'a Global,
    json: bool,
    signals: Signals,
    /// Tells that a child has ended.
    children: tokio::signal::unix::Signal,
    restarts: u32,
    /// It is not started again.
    draining: bool,
}

impl Supervisor<'_> {
    async fn all(mut self) -> Result<u8> {
        let mut in_a_row = 0;
        loop {
            let begun = Instant::now();
            let pid = self.start()?;
            let status = self.until_ended(pid).await?;
            let code = process::exit_code(status);
            let how = process::words(status);
            self.say(
                "ended",
                &format!("process {pid}: {how}"),
                Some(pid),
                Some(code),
            );
            if begun.elapsed() >= STEADY {
                in_a_row = 0;
            }
            if let Some(why) = self.is_over(code, in_a_row) {
                self.say("stopped", why, None, Some(code));
                return Ok(code);
            }
            let doubled = self.args.backoff.saturating_mul(1 << in_a_row.min(20));
            let pause = doubled.min(self.args.max_backoff);
            in_a_row += 1;
            self.restarts += 1;
            let message = format!("starting it again in {pause:?}");
            self.say("restarting", &message, None, Some(code));
            if self.told_to_end_within(pause).await {
                self.say("stopped", "told to end", None, Some(code));
                return Ok(code);
            }
        }
    }

    /// Why it is not started again, if it is not.
    fn is_over(&self, code: u8, in_a_row: u32) -> Option<&'static str> {
        let limit = self.args.max_restarts;
        match self.args.restart {
            _ if self.draining => Some("told to end"),
            Restart::Never => Some("it is not to be started again"),
            Restart::OnFailure if code == 0 => Some("done"),
            _ if code == NEEDS_PERSON => Some("a person is needed: see `dalsegno ls --waiting`"),
            _ if limit > 0 && in_a_row >= limit => Some("it has crashed too often in a row"),
            _ => None,
        }
    }

    fn start(&mut self) -> Result<u32> {
        let Some((program, arguments)) = self.args.command.split_first() else {
            return Err(Error::usage("there is no command"));
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("DALSEGNO_STORE", open::absolute(self.global))
            .env("DALSEGNO_RESTARTS", self.restarts.to_string());
        if let Some(run) = &self.args.run {
            command.env("DALSEGNO_RUN", run);
        }
        process::dies_with_us(&mut command, None);
        // It is waited for by its id, with all others.
        let pid = command.spawn().map(|child| child.id()).map_err(|e| {
            let code = match e.kind() {
                io::ErrorKind::NotFound => 127,
                _ => 126,
            };
            let program = shown(&program.to_string_lossy());
            Error::new(Exit::Command(code), format!("cannot run {program}: {e}"))
        })?;
        self.say("started", &format!("process {pid}"), Some(pid), None);
        Ok(pid)
    }

    /// Waits for the end of the process, and passes signals on meanwhile.
    async fn until_ended(&mut self, pid: u32) -> Result<ExitStatus> {
        let far = Duration::from_secs(u64::from(u32::MAX));
        let grace = tokio::time::sleep(far);
        tokio::pin!(grace);
        loop {
            if let Some(status) = reap(pid).map_err(|e| cannot("wait", &e))? {
                return Ok(status);
            }
            tokio::select! {
                _ = self.children.recv() => {}
                signal = self.signals.next() => {
                    let ends = matches!(signal, Signal::TERM | Signal::INT);
                    if ends && self.draining {
                        self.say("killing", "told to end a second time", Some(pid), None);
                        process::send(pid, Signal::KILL);
                        continue;
                    }
                    self.signals.pass_on(signal, pid);
                    if ends {
                        self.draining = true;
                        let message = format!("told to end, it has {:?}", self.args.grace);
                        self.say("draining", &message, Some(pid), None);
                        let until = tokio::time::Instant::now() + self.args.grace;
                        grace.as_mut().reset(until);
                    }
                }
                () = &mut grace => {
                    self.say("killing", "it has not ended in time", Some(pid), None);
                    process::send(pid, Signal::KILL);
                    grace.as_mut().reset(tokio::time::Instant::now() + far);
                }
            }
        }
    }

    /// Waits before a restart. Whether it was told to end meanwhile.
    async fn told_to_end_within(&mut self, pause: Duration) -> bool {
        let pause = tokio::time::sleep(pause);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return false,
                // What others have left to us has ended.
                _ = self.children.recv() => drop(reap(0)),
                signal = self.signals.next() => {
                    if matches!(signal, Signal::TERM | Signal::INT) {
                        return true;
                    }
                }
            }
        }
    }

    fn say(&self, event: &str, message: &str, pid: Option<u32>, exit: Option<u8>) {
        let line = match self.json {
            true => json::line(&Line {
                schema: "dalsegno.exec/1",
                time_us: time::now_us(),
                event,
                message,
                pid,
                exit,
                restarts: self.restarts,
            }),
            false => format!(
                "{} dalsegno exec: {event}: {message}\n",
                time::utc(time::now_us())
            ),
        };
        // Who does not listen is no reason to stop.
        drop(io::stderr().lock().write_all(line.as_bytes()));
    }
}

/// Waits for every child that has ended; how the one that was asked for did, if it has.
fn reap(pid: u32) -> io::Result<Option<ExitStatus>> {
    let mut found = None;
    loop {
        match waitpid(None, WaitOptions::NOHANG) {
            Ok(Some((ended, status))) => {
                if u32::try_from(ended.as_raw_nonzero().get()) == Ok(pid) {
                    found = Some(ExitStatus::from_raw(status.as_raw()));
                }
            }
            Ok(None) => return Ok(found),
            // There are no children any more.
            Err(rustix::io::Errno::CHILD) => return Ok(found),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
