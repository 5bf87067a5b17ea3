//! What the processes of the demonstration do that it starts: the world, and the worker that is
//! killed.
//!
//! Invariant: they end when their input does, so none of them outlives the demonstration, however
//! that one ended. The world then takes the folder with it, if it was told so.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dalsegno_story::worker::{self, Options};
use dalsegno_story::world::{Manner, World};

use crate::exit::{Error, Exit, Result};

/// What the world is told, as its arguments.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// The file of the ledger.
    pub ledger: PathBuf,
    /// How it behaves.
    pub manner: Manner,
    /// The folder that goes with it.
    pub remove: Option<PathBuf>,
}

impl WorldOptions {
    pub fn to_args(&self) -> Vec<OsString> {
        let pace = self.manner.pace.unwrap_or_default().as_millis();
        let twice = u8::from(self.manner.notifies_twice);
        let holds = self.manner.holds.unwrap_or(0);
        let mut args = vec![
            self.ledger.clone().into_os_string(),
            pace.to_string().into(),
            holds.to_string().into(),
            twice.to_string().into(),
        ];
        args.extend(self.remove.clone().map(PathBuf::into_os_string));
        args
    }

    fn from_args(args: &[OsString]) -> Option<WorldOptions> {
        let [ledger, pace, holds, twice, remove @ ..] = args else {
            return None;
        };
        let pace = pace.to_str()?.parse().ok()?;
        let holds = holds.to_str()?.parse().ok()?;
        let manner = Manner {
            holds: (holds > 0).then_some(holds),
            pace: (pace > 0).then(|| Duration::from_millis(pace)),
            notifies_twice: twice == "1",
        };
        Some(WorldOptions {
            ledger: ledger.into(),
            manner,
            remove: remove.first().map(PathBuf::from),
        })
    }
}

fn not_alone() -> Error {
    Error::usage("this is a part of `dalsegno demo`, which starts it by itself")
}

/// The world: says its address, and lives until its input ends.
pub fn be_the_world(told: &[OsString]) -> Result<Exit> {
    let options = WorldOptions::from_args(told).ok_or_else(not_alone)?;
    let listening = || -> std::io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        World::with(&options.ledger, options.manner)?.serve(listener);
        say(&address.to_string());
        Ok(())
    };
    listening().map_err(|e| Error::failed(format!("the world cannot be: {e}")))?;
    wait_for_the_end_of_input();
    if let Some(folder) = &options.remove {
        remove_when_left(folder);
    }
    Ok(Exit::Done)
}

/// The worker: executes the agent until its run has ended, or its input.
pub fn be_the_worker(told: &[OsString]) -> Result<Exit> {
    if told.is_empty() {
        return Err(not_alone());
    }
    let options = Options::from_args(told.iter().cloned()).map_err(|_| not_alone())?;
    std::thread::spawn(|| {
        wait_for_the_end_of_input();
        std::process::exit(1);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .map_err(|e| Error::failed(format!("cannot start: {e}")))?;
    runtime.block_on(worker::execute(options, say))?;
    Ok(Exit::Done)
}

/// In one write, so that a kill cannot halve a line. Who does not listen is no reason to stop. Past
/// the lock of the standard output, which belongs to the main thread.
fn say(text: &str) {
    let line = format!("{text}\n");
    let output = std::io::stdout().as_fd().try_clone_to_owned();
    drop(output.map(|output| File::from(output).write_all(line.as_bytes())));
}

fn wait_for_the_end_of_input() {
    drop(std::io::stdin().lock().read_to_end(&mut Vec::new()));
}

/// Mostly it is gone already. Else the demonstration was killed, and the worker, which has files in
/// there, ends at the same time as this.
fn remove_when_left(folder: &Path) {
    for _ in 0..100 {
        if !folder.exists() || std::fs::remove_dir_all(folder).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
