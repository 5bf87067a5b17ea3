//! The command: what `dalsegno step` adds to a command.
//!
//! The anchor is the bare command, started in the same way; the goal is what is added. What cannot be
//! saved is two syncs of a log, so the row below shows the same against the command and two of those.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Emit, Group, Setting};
use crate::Error;
use crate::measure::{alternate, median_micros};
use crate::raw::RawLoop;
use crate::row::{Goal, Row};

/// The group.
pub const GROUP: Group = Group {
    name: "cli",
    about: "what `dalsegno step` adds to a command",
    run,
};

/// What a step may add, in microseconds.
const LIMIT_US: f64 = 15_000.0;
/// The frames of a lease, a start and an intent.
const FRAMES_BYTES: usize = 380;
const BARE: &str = "the bare command";

fn run(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    let dalsegno = binary()?;
    let store = setting.dir.join("steps");
    let mut count = 0_u64;
    let mut new_step = || {
        count += 1;
        step(&dalsegno, &store, &count.to_string())
    };
    new_step()?;
    let rounds = alternate(
        setting.rounds,
        || median_micros(&mut new_step),
        || median_micros(bare),
    )?;
    emit(Row {
        name: "a new `once` step of `true`".into(),
        unit: "us",
        anchor_name: BARE,
        goal: Goal::GrowthBelow(LIMIT_US),
        rounds,
    });
    let mut raw = RawLoop::new(&setting.dir, FRAMES_BYTES)?;
    let rounds = alternate(
        setting.rounds,
        || median_micros(&mut new_step),
        || {
            median_micros(|| {
                bare()?;
                raw.append()?;
                raw.append()
            })
        },
    )?;
    emit(Row {
        name: "the same".into(),
        unit: "us",
        anchor_name: "the bare command and two raw fdatasyncs",
        goal: Goal::Shown,
        rounds,
    });
    let rounds = alternate(
        setting.rounds,
        || median_micros(|| step(&dalsegno, &store, "1")),
        || median_micros(bare),
    )?;
    emit(Row {
        name: "a recorded step".into(),
        unit: "us",
        anchor_name: BARE,
        goal: Goal::GrowthBelow(LIMIT_US),
        rounds,
    });
    Ok(())
}

/// The command, built beside this program.
fn binary() -> Result<PathBuf, Error> {
    let path = std::env::current_exe()?.with_file_name("dalsegno");
    match path.is_file() {
        true => Ok(path),
        false => Err(format!(
            "there is no {}: cargo build --release -p dalsegno-cli",
            path.display()
        )
        .into()),
    }
}

fn step(dalsegno: &Path, store: &Path, name: &str) -> Result<(), Error> {
    let mut command = Command::new(dalsegno);
    command.arg("--store").arg(store).args([
        "step",
        "--run",
        "bench",
        "--name",
        name,
        "--",
        "/bin/true",
    ]);
    succeed(command)
}

fn bare() -> Result<(), Error> {
    succeed(Command::new("/bin/true"))
}

fn succeed(mut command: Command) -> Result<(), Error> {
    let status = command.stdin(Stdio::null()).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?} ended with {status}").into()),
    }
}
