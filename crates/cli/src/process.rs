//! Commands that are run: they die with us, their signals go through us, and what they print is kept.
//!
//! Invariants: a command that we started is killed by the kernel if we are. Nothing that it prints is
//! kept beyond [`OUTPUT_LIMIT_BYTES`]; it is passed on all the same.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::signal::unix::{SignalKind, signal};

/// How much of what a command prints is kept: what a store takes as one payload.
pub const OUTPUT_LIMIT_BYTES: usize = 64 << 20;
/// A command whose time is up is killed so long after it was asked to end.
const KILL_AFTER: Duration = Duration::from_secs(5);
/// Processes that a command leaves behind may hold its output open for so long.
const OPEN_OUTPUT: Duration = Duration::from_secs(1);

/// Makes a command die with us, and gives it a lock to hold while it lives. To be spawned by the main
/// thread: the kernel looks at the thread.
#[allow(unsafe_code)]
pub fn dies_with_us(command: &mut Command, lock: Option<&File>) {
    let us = rustix::process::getpid();
    let lock = lock.map(AsRawFd::as_raw_fd);
    // SAFETY: between fork and exec only system calls are made, which are safe after a fork; nothing
    // is allocated and no lock is taken. The file is open in the child as it is in us.
    unsafe {
        command.pre_exec(move || {
            #[cfg(target_os = "linux")]
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // We may have died before that was said.
            if rustix::process::getppid() != Some(us) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if let Some(lock) = lock {
                let lock = std::os::fd::BorrowedFd::borrow_raw(lock);
                rustix::io::fcntl_setfd(lock, rustix::io::FdFlags::empty())?;
            }
            Ok(())
        });
    }
}

/// The code that a shell would have.
pub fn exit_code(status: ExitStatus) -> u8 {
    let by_signal = || status.signal().map_or(255, |signal| 128 + signal);
    u8::try_from(status.code().unwrap_or_else(by_signal)).unwrap_or(255)
}

/// How a command ended, in words.
pub fn words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with code {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => "it ended".to_owned(),
    }
}

/// Sends a signal to a process that has not been waited for.
pub fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // One that has ended needs no signal.
        let _ended = rustix::process::kill_process(pid, signal);
    }
}

/// The signals that are passed on, from when it is made.
pub struct Signals {
    listeners: Vec<(Signal, tokio::signal::unix::Signal)>,
    /// The terminal sends Ctrl-C to the command, too.
    shares_terminal: bool,
}

impl Signals {
    /// Takes them over: none of them ends us any more.
    ///
    /// # Errors
    /// The system does not let us.
    pub fn take_over() -> io::Result<Signals> {
        let all = [
            (Signal::INT, SignalKind::interrupt()),
            (Signal::TERM, SignalKind::terminate()),
            (Signal::HUP, SignalKind::hangup()),
            (Signal::QUIT, SignalKind::quit()),
            (Signal::USR1, SignalKind::user_defined1()),
            (Signal::USR2, SignalKind::user_defined2()),
        ];
        let listeners = all.into_iter();
        let listeners = listeners.map(|(name, kind)| Ok((name, signal(kind)?)));
        Ok(Signals {
            listeners: listeners.collect::<io::Result<_>>()?,
            shares_terminal: is_in_the_foreground(),
        })
    }

    /// The next one that comes.
    pub async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            for (name, listener) in &mut self.listeners {
                if listener.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*name);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// Passes one on, unless the terminal has sent it to the command already.
    pub fn pass_on(&self, signal: Signal, pid: u32) {
        let by_terminal = matches!(signal, Signal::INT | Signal::QUIT) && self.shares_terminal;
        if !by_terminal {
            send(pid, signal);
        }
    }
}

/// Whether keys such as Ctrl-C reach us, and with us the commands that we run.
fn is_in_the_foreground() -> bool {
    let Ok(terminal) = File::open("/dev/tty") else {
        return false;
    };
    let group = rustix::termios::tcgetpgrp(&terminal);
    group.is_ok_and(|group| group == rustix::process::getpgrp())
}

/// What a command did.
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it complained about.
    pub stderr: Vec<u8>,
    /// How much it printed in all, if that was more than is kept.
    pub too_much: Option<u64>,
    /// Its time was up.
    pub timed_out: bool,
    /// We were told to end meanwhile.
    pub interrupted: Option<Signal>,
}

/// How a command is to be run.
pub struct Task<'a> {
    /// The command and its arguments.
    pub command: &'a [OsString],
    /// What it finds in its environment beside ours.
    pub environment: Vec<(&'static str, OsString)>,
    /// What it holds while it lives.
    pub lock: Option<&'a File>,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// It reads what we are given.
    pub reads_stdin: bool,
}

/// Runs a command to its end. What it prints goes to `pass_on` as it comes: whether it is an error
/// output, and the bytes.
///
/// # Errors
/// It could not be started.
pub async fn run(
    task: &Task<'_>,
    signals: &mut Signals,
    mut pass_on: impl FnMut(bool, &[u8]),
) -> io::Result<Ran> {
    let Some((program, arguments)) = task.command.split_first() else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(task.environment.iter().map(|(name, value)| (name, value)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if !task.reads_stdin {
        command.stdin(Stdio::null());
    }
    dies_with_us(&mut command, task.lock);
    let mut command = tokio::process::Command::from(command);
    // Who does not wait for it any more does not want it.
    let mut child = command.kill_on_drop(true).spawn()?;
    let pid = child.id().unwrap_or_default();
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let mut kept = Kept::default();
    let (mut out_buffer, mut err_buffer) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut ended = None;
    let (mut timed_out, mut interrupted) = (false, None);
    let far = Duration::from_secs(u64::from(u32::MAX));
    // First its time, then the time to be killed, then the time for its output to be closed.
    let timer = tokio::time::sleep(task.timeout.unwrap_or(far));
    tokio::pin!(timer);
    while ended.is_none() || stdout.is_some() || stderr.is_some() {
        tokio::select! {
            got = read(&mut stdout, &mut out_buffer) => {
                pass_on(false, &out_buffer[..got]);
                kept.take(false, &out_buffer[..got]);
            }
            got = read(&mut stderr, &mut err_buffer) => {
                pass_on(true, &err_buffer[..got]);
                kept.take(true, &err_buffer[..got]);
            }
            status = child.wait(), if ended.is_none() => {
                ended = Some(status?);
                timer.as_mut().reset(tokio::time::Instant::now() + OPEN_OUTPUT);
            }
            signal = signals.next(), if ended.is_none() => {
                interrupted = Some(signal);
                signals.pass_on(signal, pid);
            }
            () = &mut timer => match (ended, timed_out) {
                (Some(_), _) => break,
                (None, false) => {
                    timed_out = true;
                    send(pid, Signal::TERM);
                    timer.as_mut().reset(tokio::time::Instant::now() + KILL_AFTER);
                }
                (None, true) => {
                    send(pid, Signal::KILL);
                    timer.as_mut().reset(tokio::time::Instant::now() + far);
                }
            }
        }
    }
    let status = match ended {
        Some(status) => status,
        None => child.wait().await?,
    };
    Ok(Ran {
        status,
        stdout: kept.stdout,
        stderr: kept.stderr,
        too_much: (kept.bytes > OUTPUT_LIMIT_BYTES as u64).then_some(kept.bytes),
        timed_out,
        interrupted,
    })
}

/// The next piece of an output; when it has ended it is gone, and nothing comes any more.
pub async fn read<R: AsyncRead + Unpin>(from: &mut Option<R>, buffer: &mut [u8]) -> usize {
    let Some(reader) = from else {
        return std::future::pending().await;
    };
    match reader.read(buffer).await {
        Ok(got) if got > 0 => got,
        // An output that cannot be read any more has ended.
        _ => {
            *from = None;
            0
        }
    }
}

#[derive(Default)]
struct Kept {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    bytes: u64,
}

impl Kept {
    fn take(&mut self, is_error: bool, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if self.bytes > OUTPUT_LIMIT_BYTES as u64 {
            return;
        }
        match is_error {
            false => self.stdout.extend_from_slice(bytes),
            true => self.stderr.extend_from_slice(bytes),
        }
    }
}
