//! The folder and the processes of the demonstration.
//!
//! Invariants: what was started is dead and waited for when its value is dropped; the folder is gone
//! then, unless it is to be kept. If this process is killed itself, the others end with their input
//! ([`super::parts`]).

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use dalsegno_story::http::Request;
use dalsegno_story::ledger::{self, Entry};
use dalsegno_story::world::Manner;
use tokio::sync::mpsc::UnboundedSender;

use super::parts::WorldOptions;
use crate::exit::{Error, Result};
use crate::output::text::shown;

const SIGKILL: i32 = 9;

/// Where everything of a demonstration is.
#[derive(Debug)]
pub struct Folder {
    pub path: PathBuf,
    pub kept: bool,
}

impl Folder {
    /// A new one among the temporary files, for this user only.
    pub fn temporary() -> Result<Folder> {
        let place = std::env::temp_dir();
        let name = |count: u32| format!("dalsegno-demo-{}-{count}", std::process::id());
        for count in 0..100 {
            let path = place.join(name(count));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Folder { path, kept: false }),
                // Of somebody who was killed, and had this number.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(no_place(&place, &e)),
            }
        }
        let full = ErrorKind::AlreadyExists.into();
        Err(no_place(&place, &full))
    }

    /// One that the user wants to keep.
    pub fn kept(path: &Path) -> Result<Folder> {
        let place = shown(&path.display().to_string());
        let cannot = |e| {
            Error::failed(format!("cannot use the folder {place}: {e}"))
                .hint("--keep needs a folder that you can write to")
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(cannot)?;
        let mut inside = std::fs::read_dir(path).map_err(cannot)?;
        if inside.next().is_some() {
            return Err(Error::failed(format!("the folder {place} is not empty"))
                .hint("--keep needs a new folder, nothing is ever overwritten"));
        }
        // The processes may be elsewhere one day.
        let path = std::path::absolute(path).map_err(cannot)?;
        Ok(Folder { path, kept: true })
    }
}

fn no_place(place: &Path, error: &std::io::Error) -> Error {
    let place = shown(&place.display().to_string());
    Error::failed(format!("cannot make a folder in {place}: {error}"))
        .hint("set TMPDIR to a folder that you can write to, or give one with --keep DIR")
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.kept {
            drop(std::fs::remove_dir_all(&self.path));
        }
    }
}

/// A process of our own.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    fn start(part: &str, told: Vec<OsString>) -> Result<Process> {
        let started = std::env::current_exe().and_then(|this| {
            Command::new(this)
                .args(["demo", "--part", part, "--"])
                .args(told)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                // Ctrl-C is for the demonstration: it takes the others down in its own order.
                .process_group(0)
                .spawn()
        });
        let started = started.map_err(|e| Error::failed(format!("cannot start the {part}: {e}")));
        Ok(Process(started?))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    fn stdout(&mut self) -> Result<BufReader<ChildStdout>> {
        let stdout = self.0.stdout.take();
        let stdout = stdout.ok_or_else(|| Error::failed("a process has no output"))?;
        Ok(BufReader::new(stdout))
    }

    /// Kills it, and says whether that is what it died of.
    pub fn kill(&mut self) -> bool {
        drop(self.0.kill());
        let status = self.0.wait();
        status.is_ok_and(|status| status.signal() == Some(SIGKILL))
    }

    /// Waits for its end, and says whether it was a good one.
    pub fn ended_well(&mut self) -> bool {
        self.0.wait().is_ok_and(|status| status.success())
    }

    /// Hears what it says until it ends.
    pub fn listen(&mut self, worker: u32, heard: UnboundedSender<News>) -> Result<()> {
        let stdout = self.stdout()?;
        let stderr = self.0.stderr.take();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(|line| line.ok()) {
                drop(heard.send(News::Line(line)));
            }
            let mut error = String::new();
            if let Some(mut stderr) = stderr {
                drop(stderr.read_to_string(&mut error));
            }
            drop(heard.send(News::Ended(worker, error)));
        });
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What is heard of a worker.
#[derive(Debug)]
pub enum News {
    Line(String),
    /// It closed its output, and said this on its error output.
    Ended(u32, String),
    /// The world has had as many requests as it was to be told of.
    Requests(u32),
}

/// A world with its ledger, and the place of a store.
#[derive(Debug)]
pub struct Scene {
    pub place: PathBuf,
    pub address: String,
    world: Process,
}

impl Scene {
    /// Starts a world that has its files in a folder; another folder goes with it.
    pub fn open(place: &Path, manner: Manner, remove: Option<&Path>) -> Result<Scene> {
        let options = WorldOptions {
            ledger: place.join("ledger.jsonl"),
            manner,
            remove: remove.map(Path::to_owned),
        };
        let mut world = Process::start("world", options.to_args())?;
        let mut address = String::new();
        let read = world.stdout()?.read_line(&mut address);
        let address = address.trim().to_owned();
        if read.is_err() || address.is_empty() {
            let mut error = String::new();
            if let Some(mut stderr) = world.0.stderr.take() {
                drop(stderr.read_to_string(&mut error));
            }
            let error = shown(error.trim());
            return Err(Error::failed(format!("the world did not start: {error}")));
        }
        Ok(Scene {
            place: place.to_owned(),
            address,
            world,
        })
    }

    pub fn store(&self) -> PathBuf {
        self.place.join("store")
    }

    pub fn files(&self) -> PathBuf {
        self.place.join("files")
    }

    pub fn world_pid(&self) -> u32 {
        self.world.pid()
    }

    /// Starts a worker.
    pub fn worker(&self, told: Vec<OsString>) -> Result<Process> {
        Process::start("worker", told)
    }

    /// Asks the world something; `None` if it says that there is no such thing.
    pub fn ask(&self, path: &str) -> Result<Option<String>> {
        match Request::get(path).send(&self.address) {
            Ok(reply) if reply.status == 200 => Ok(Some(reply.text())),
            Ok(reply) if reply.status == 404 => Ok(None),
            Ok(reply) => Err(lost(&format!("{}: {}", reply.status, reply.text()))),
            Err(e) => Err(lost(&e.to_string())),
        }
    }

    /// How many requests it has had, from processes that are dead or have their reply.
    pub fn requests(&self) -> Result<u64> {
        let count = self.ask("/arrivals")?.unwrap_or_default();
        count.parse().map_err(|_| lost("it cannot count"))
    }

    /// Its ledger.
    pub fn ledger(&self) -> Result<Vec<Entry>> {
        let lines = self.ask("/ledger")?.unwrap_or_default();
        ledger::parse(&lines).map_err(|e| lost(&e.to_string()))
    }
}

fn lost(why: &str) -> Error {
    Error::failed(format!("the world does not answer: {}", shown(why)))
}
