//! One life of a command: from its start to its end, with all that its steps ask for.
//!
//! Invariant: if the life is dropped, because its run is not this worker's any more, its process group
//! ends; the connections of its steps stay open until then, so that none of them is cut off before it was
//! asked to end.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use dalsegno::Stopped;
use dalsegno::script::ScriptRun;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::task::JoinSet;

use super::agent::{AgentCommand, Shared};
use super::groups::Groups;
use super::socket::{Said, Service, Socket};
use crate::{line, process};

/// So many connections are served at a time; others wait.
const CONNECTIONS: usize = 64;
/// Processes that a command leaves behind may hold its output open for so long.
const OPEN_OUTPUT: Duration = Duration::from_secs(1);
/// A command whose run needs a person has so long to end by itself, and say so.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// So much of what a command complained about last is kept.
const COMPLAINT_BYTES: usize = 1000;
/// The longest input that is also put into the environment: a system takes 128 kB.
const ENVIRONMENT_BYTES: usize = 100_000;

/// A command that is running.
pub struct Life {
    pub group: u32,
    child: Option<Child>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    groups: Arc<Groups>,
    run: ScriptRun,
    service: Arc<Service>,
    socket: Socket,
    tasks: JoinSet<()>,
    limit_bytes: u64,
}

/// How it ended.
pub struct Ended {
    pub status: ExitStatus,
    /// What it printed, but for what is too much.
    pub stdout: Vec<u8>,
    /// How much it printed in all, if that was too much.
    pub too_much: Option<u64>,
    /// The last line that it complained with.
    pub complaint: String,
    /// A step was finished.
    pub progress: bool,
    /// What it has said that the run comes to.
    pub said: Option<Said>,
}

impl Life {
    /// Starts the command of an agent.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn begin(
        shared: &Shared,
        agent: &AgentCommand,
        run: &ScriptRun,
        input: &[u8],
    ) -> io::Result<Life> {
        let socket = shared.sockets.socket()?;
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(in_place_of_the_shell(&agent.command))
            .env("DALSEGNO_RUN", run.name())
            .env("DALSEGNO_STORE", &shared.place)
            .env("DALSEGNO_AGENT", &agent.name)
            .env(line::SOCKET, socket.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        match std::str::from_utf8(input) {
            Ok(text) if text.len() <= ENVIRONMENT_BYTES => command.env("DALSEGNO_INPUT", text),
            _ => command.env_remove("DALSEGNO_INPUT"),
        };
        process::dies_with_us(&mut command, None);
        let mut child = tokio::process::Command::from(command).spawn()?;
        let group = child.id().unwrap_or_default();
        shared.groups.started(group);
        let mut tasks = JoinSet::new();
        if let Some(mut stdin) = child.stdin.take() {
            let input = input.to_vec();
            // Who does not read it does not want it.
            tasks.spawn(async move { drop(stdin.write_all(&input).await) });
        }
        let service = Service::new(run.clone(), Arc::clone(&shared.store), group);
        Ok(Life {
            group,
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            child: Some(child),
            groups: Arc::clone(&shared.groups),
            run: run.clone(),
            service: Arc::new(service),
            socket,
            tasks,
            limit_bytes: shared.store.limits().payload_bytes,
        })
    }

    /// Serves its steps until it has ended, and none of them is under way.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub async fn until_ended(mut self) -> io::Result<Ended> {
        let Some(child) = &mut self.child else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut printed = Printed {
            limit_bytes: self.limit_bytes,
            ..Printed::default()
        };
        let (mut out_buffer, mut err_buffer) = (vec![0; 16 << 10], vec![0; 16 << 10]);
        let mut status = None;
        let far = Duration::from_secs(u64::from(u32::MAX));
        let closed = tokio::time::sleep(far);
        tokio::pin!(closed);
        while status.is_none() || self.stdout.is_some() || self.stderr.is_some() {
            tokio::select! {
                stream = self.socket.next(), if self.tasks.len() < CONNECTIONS => match stream {
                    Ok(Some(stream)) => {
                        drop(self.tasks.spawn(Arc::clone(&self.service).serve(stream)));
                    }
                    Ok(None) => {}
                    // There are too many open files: some are closed in a moment.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                },
                Some(_) = self.tasks.join_next() => {}
                got = process::read(&mut self.stdout, &mut out_buffer) => printed.out(&out_buffer[..got]),
                got = process::read(&mut self.stderr, &mut err_buffer) => printed.complains(&err_buffer[..got]),
                ended = child.wait(), if status.is_none() => {
                    status = Some(ended?);
                    closed.as_mut().reset(tokio::time::Instant::now() + OPEN_OUTPUT);
                }
                () = &mut closed => break,
            }
        }
        let status = match status {
            Some(status) => status,
            None => child.wait().await?,
        };
        // What it has left in the background may be in the middle of a step.
        let service = Arc::clone(&self.service);
        let quiet = service.is_quiet();
        tokio::pin!(quiet);
        loop {
            tokio::select! {
                () = &mut quiet => break,
                got = process::read(&mut self.stdout, &mut out_buffer) => printed.out(&out_buffer[..got]),
                got = process::read(&mut self.stderr, &mut err_buffer) => {
                    printed.complains(&err_buffer[..got]);
                }
            }
        }
        self.child = None;
        self.groups.ended(self.group);
        let Printed { stdout, bytes, .. } = printed;
        Ok(Ended {
            status,
            stdout,
            too_much: (bytes > self.limit_bytes).then_some(bytes),
            complaint: last_line(&printed.complaint),
            progress: self.service.finished() > 0,
            said: self.service.said(),
        })
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else {
            return;
        };
        let moment = match self.run.stopped() {
            Some(Stopped::Attention(_)) => LAST_WORDS,
            _ => Duration::ZERO,
        };
        let tasks = std::mem::take(&mut self.tasks);
        let (mut stdout, mut stderr) = (self.stdout.take(), self.stderr.take());
        self.groups.leave(self.group, child, moment, async move {
            let _connections = tasks;
            // What it still says is heard, or it would die of saying it.
            let (mut out_buffer, mut err_buffer) = (vec![0; 16 << 10], vec![0; 16 << 10]);
            loop {
                tokio::select! {
                    _ = process::read(&mut stdout, &mut out_buffer) => {}
                    got = process::read(&mut stderr, &mut err_buffer) => pass_on(&err_buffer[..got]),
                }
            }
        });
    }
}

fn pass_on(bytes: &[u8]) {
    // Who does not listen is no reason to stop.
    drop(io::stderr().lock().write_all(bytes));
}

/// Built into shells, and no programs.
const BUILT_IN: [&str; 30] = [
    ".", ":", "alias", "break", "builtin", "cd", "command", "continue", "declare", "eval", "exec",
    "exit", "export", "hash", "jobs", "local", "read", "readonly", "return", "set", "shift",
    "source", "time", "times", "trap", "type", "ulimit", "umask", "unset", "wait",
];

/// A command for `sh -c`. A single one takes the place of the shell, so that it is the process which the
/// kernel kills with the worker.
fn in_place_of_the_shell(command: &str) -> String {
    let first = command.split_whitespace().next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "./_+-".contains(c);
    let is_program = first.chars().all(is_plain) && !BUILT_IN.contains(&first);
    let is_single = !command.contains([';', '&', '|', '<', '>', '(', ')', '{', '}', '\n', '#']);
    match is_program && is_single {
        true => format!("exec {command}"),
        false => command.to_owned(),
    }
}

#[derive(Default)]
struct Printed {
    stdout: Vec<u8>,
    bytes: u64,
    limit_bytes: u64,
    complaint: Vec<u8>,
}

impl Printed {
    fn out(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if self.bytes <= self.limit_bytes {
            self.stdout.extend_from_slice(bytes);
        }
    }

    /// Passed on as it comes; the last of it is kept.
    fn complains(&mut self, bytes: &[u8]) {
        pass_on(bytes);
        self.complaint.extend_from_slice(bytes);
        let too_many = self.complaint.len().saturating_sub(COMPLAINT_BYTES);
        self.complaint.drain(..too_many);
    }
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines().rev().map(str::trim);
    let last = lines.find(|line| !line.is_empty());
    last.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::in_place_of_the_shell;

    #[test]
    fn only_a_single_program_takes_the_place_of_the_shell() {
        for single in [
            "./agent.sh arg",
            "python3 -m agent 'two words'",
            "sh x.sh $HOME ",
        ] {
            assert_eq!(in_place_of_the_shell(single), format!("exec {single}"));
        }
        for other in [
            "./a && ./b",
            "cd x",
            "A=1 ./a",
            "./a > log",
            "$AGENT arg",
            "if true; then ./a; fi",
            "exec ./a",
        ] {
            assert_eq!(in_place_of_the_shell(other), other);
        }
    }
}
