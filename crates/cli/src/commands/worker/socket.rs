//! The socket of a command: its steps ask here, and what they came to is recorded under the lease that
//! the worker holds (see `line.rs` for what is said).
//!
//! Invariants: only processes of the worker's own user get an answer. One step of a run is under way at a
//! time. A connection that ends before the outcome has come leaves the step as a killed process does: it
//! is judged when it is asked for again.

use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dalsegno::script::{Asked, Ended, Permit, ScriptRun};
use dalsegno::{Effect, Failure};
use dalsegno_store::{NewPayload, Store};
use tokio::net::{UnixListener, UnixStream};

use super::super::step::Asks;
use crate::line::{CameTo, FromWorker, Granted, Line, ToWorker};

/// A folder for sockets that nobody else can look into; it goes with the value.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    count: AtomicU64,
}

impl Folder {
    /// Makes one.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make() -> io::Result<Folder> {
        let (dir, pid) = (std::env::temp_dir(), std::process::id());
        let mut tries = 0_u32;
        loop {
            let path = dir.join(format!("dalsegno-worker-{pid}-{tries}"));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let count = AtomicU64::new(0);
                    return Ok(Folder { path, count });
                }
                // Of a worker that was killed.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries < 1000 => tries += 1,
                Err(e) => return Err(e),
            }
        }
    }

    /// A socket in it.
    ///
    /// # Errors
    /// It cannot be made: the name may be too long.
    pub fn socket(&self) -> io::Result<Socket> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(format!("{number}.sock"));
        let listener = UnixListener::bind(&path)?;
        let socket = Socket { listener, path };
        std::fs::set_permissions(socket.path(), std::fs::Permissions::from_mode(0o600))?;
        Ok(socket)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.path));
    }
}

/// The socket of one command; its file goes with the value.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// For the environment of the command.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next process that wants something, if it may.
    ///
    /// # Errors
    /// There are too many open files.
    pub async fn next(&self) -> io::Result<Option<UnixStream>> {
        let (stream, _) = self.listener.accept().await?;
        let ours = rustix::process::geteuid().as_raw();
        let is_ours = stream.peer_cred().is_ok_and(|who| who.uid() == ours);
        Ok(is_ours.then_some(stream))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

/// What a script has said that its run comes to.
pub type Said = Result<Option<String>, String>;

/// Answers the steps of one life of a command.
#[derive(Debug)]
pub struct Service {
    run: ScriptRun,
    store: Arc<dyn Store>,
    group: u32,
    /// Held while a step is under way.
    turn: tokio::sync::Mutex<()>,
    /// The name of the step that is.
    doing: Mutex<String>,
    said: Mutex<Option<Said>>,
    finished: AtomicU64,
}

impl Service {
    pub fn new(run: ScriptRun, store: Arc<dyn Store>, group: u32) -> Service {
        Service {
            run,
            store,
            group,
            turn: tokio::sync::Mutex::default(),
            doing: Mutex::default(),
            said: Mutex::default(),
            finished: AtomicU64::new(0),
        }
    }

    /// How many steps were finished.
    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    /// What the script has said that the run comes to.
    pub fn said(&self) -> Option<Said> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.clone()
    }

    /// Waits until no step is under way.
    pub async fn is_quiet(&self) {
        drop(self.turn.lock().await);
    }

    /// Answers one connection.
    pub async fn serve(self: Arc<Self>, stream: UnixStream) {
        let mut line = Line::new(stream);
        // Who says something that is nothing is not answered.
        let Ok(Some(first)) = line.hear::<ToWorker>().await else {
            return;
        };
        match first {
            ToWorker::Ask {
                run,
                name,
                effect,
                input,
                wait_ms,
            } => {
                if let Some(refused) = self.is_of_another(&run) {
                    drop(line.say(&refused).await);
                    return;
                }
                let wait = Duration::from_millis(wait_ms);
                let Ok(_turn) = tokio::time::timeout(wait, self.turn.lock()).await else {
                    drop(line.say(&self.is_busy(&name)).await);
                    return;
                };
                self.doing(&name);
                self.step(&mut line, &name, effect.into(), input).await;
            }
            ToWorker::End { run, result, fail } => {
                let answer = match self.is_of_another(&run) {
                    Some(refused) => refused,
                    None => self.end(fail.map_or(Ok(result), Err)).await,
                };
                drop(line.say(&answer).await);
            }
            // What is not asked for cannot be answered.
            _ => {}
        }
    }

    fn doing(&self, name: &str) {
        let mut doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
        name.clone_into(&mut doing);
    }

    fn is_of_another(&self, run: &str) -> Option<FromWorker> {
        let ours = self.run.name();
        (run != ours).then(|| FromWorker::Refused {
            what: format!("this script was started for run {ours:?}, not for {run:?}"),
            hint: Some("leave --run out: the run is in DALSEGNO_RUN".to_owned()),
        })
    }

    fn is_busy(&self, name: &str) -> FromWorker {
        let doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
        let run = self.run.name();
        FromWorker::Refused {
            what: format!("step {name:?} of run {run:?} waited for step {doing:?}, under way"),
            hint: Some("a run has one step at a time: wait longer with --wait".to_owned()),
        }
    }

    async fn end(&self, said: Said) -> FromWorker {
        let _busy = self.run.busy();
        let status = match &said {
            Err(_) => "failed",
            Ok(_) => match self.run.unfinished().await {
                Ok(None) => "completed",
                Ok(Some(step)) => {
                    let reason = format!("{step} is not finished: nobody knows how it ended");
                    let in_doubt = None;
                    return FromWorker::NeedsPerson { reason, in_doubt };
                }
                Err(e) => return refused(&e),
            },
        };
        let mut known = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert(said);
        FromWorker::Ended(status.to_owned())
    }

    /// Has the turn.
    async fn step(&self, line: &mut Line, name: &str, effect: Effect, input: String) {
        let ended = match self.said() {
            Some(Ok(_)) => Some("completed"),
            Some(Err(_)) => Some("failed"),
            None => None,
        };
        if let Some(status) = ended {
            drop(line.say(&FromWorker::Ended(status.to_owned())).await);
            return;
        }
        // The answer is given before the run is let go of.
        let busy = self.run.busy();
        let asked = self.run.ask(name, effect, NewPayload::json(input)).await;
        let (mut answer, mut permit) = match asked {
            Ok(asked) => self.answer(asked),
            Err(e) => (refused(&e), None),
        };
        let mut busy = Some(busy);
        loop {
            let told = line.say(&answer).await;
            drop(busy.take());
            let (Ok(()), Some(right)) = (told, permit.take()) else {
                return;
            };
            let Ok(Some(outcome)) = line.hear::<ToWorker>().await else {
                // It is judged when it is asked for again.
                return;
            };
            busy = Some(self.run.busy());
            (answer, permit) = self.came_to(right, outcome).await;
        }
    }

    fn answer(&self, asked: Asked) -> (FromWorker, Option<Permit>) {
        let answer = match asked {
            Asked::Execute(permit) => {
                return (FromWorker::Execute(self.granted(&permit)), Some(permit));
            }
            Asked::InDoubt(permit, why) => {
                let granted = self.granted(&permit);
                return (FromWorker::InDoubt(granted, why), Some(permit));
            }
            Asked::Recorded(came) => FromWorker::Recorded {
                step: came.step.to_string(),
                attempts: came.attempts,
                failure: came.failure.map(|failure| failure.to_string()),
                output: came
                    .output
                    .map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            },
            Asked::Mismatch(then, now) => FromWorker::Mismatch { then, now },
            Asked::NeedsPerson(attention) => needs_person(Asks::from(&attention)),
            Asked::Ended(status) => FromWorker::Ended(status.to_string()),
            Asked::Stopping => FromWorker::Stopping,
        };
        (answer, None)
    }

    fn granted(&self, permit: &Permit) -> Granted {
        Granted {
            step: permit.step().to_string(),
            effect: permit.effect().into(),
            attempt: permit.attempt(),
            key: permit.key().to_owned(),
            group: self.group,
        }
    }

    /// Records what a step came to.
    async fn came_to(&self, permit: Permit, outcome: ToWorker) -> (FromWorker, Option<Permit>) {
        let store = &self.store;
        let payload = |output: Option<String>| output.map(NewPayload::json);
        let recorded = match outcome {
            ToWorker::Outcome { came_to, output } => {
                let is_final = matches!(came_to, CameTo::Done | CameTo::Failed(_));
                let ended = match came_to {
                    CameTo::Done => Ended::Done,
                    CameTo::NotDone(why) => Ended::FailedForNow(Failure::not_done(why)),
                    CameTo::FailedForNow(why) => Ended::FailedForNow(Failure::new(why)),
                    CameTo::Failed(why) => Ended::Failed(Failure::terminal(why)),
                };
                let finished = permit.finish(store, ended, payload(output)).await;
                finished.map(|instead| (is_final, instead.map(|failure| failure.to_string())))
            }
            ToWorker::Happened { output } => {
                let happened = permit.happened(store, payload(output)).await;
                happened.map(|()| (true, None))
            }
            ToWorker::DidNotHappen { again } => match permit.did_not_happen(store, again).await {
                Ok(Some(permit)) => {
                    return (FromWorker::Execute(self.granted(&permit)), Some(permit));
                }
                Ok(None) => Ok((false, None)),
                Err(e) => Err(e),
            },
            ToWorker::Unknown { why } => match permit.escalate(store, &why).await {
                Ok(attention) => return (needs_person(Asks::from(&attention)), None),
                Err(e) => Err(e),
            },
            ToWorker::Ask { .. } | ToWorker::End { .. } => {
                let what = "another step was asked for on the connection of this one".to_owned();
                return (FromWorker::Refused { what, hint: None }, None);
            }
        };
        let answer = match recorded {
            Ok((is_final, instead)) => {
                let count = u64::from(is_final || instead.is_some());
                self.finished.fetch_add(count, Ordering::Relaxed);
                FromWorker::Finished { instead }
            }
            Err(e) => refused(&e),
        };
        (answer, None)
    }
}

fn needs_person(asks: Asks) -> FromWorker {
    let Asks { reason, in_doubt } = asks;
    FromWorker::NeedsPerson { reason, in_doubt }
}

fn refused(error: &dalsegno::Error) -> FromWorker {
    FromWorker::Refused {
        what: error.to_string(),
        hint: None,
    }
}
