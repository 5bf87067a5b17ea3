//! Runs: what a step costs, how soon a run is back at work, what waiting costs.
//!
//! | file | rows |
//! |---|---|
//! | `steps.rs` | one run's steps, by effect |
//! | `together.rs` | durable steps of many runs at a time |
//! | `resume.rs` | replaying a long run, resuming a long loop, growing conversations |

use std::path::Path;
use std::time::Duration;

use dalsegno::{Builder, Dalsegno, Durability};
use tokio::runtime::Runtime;

use super::{Emit, Group, Setting};
use crate::Error;

mod resume;
mod steps;
mod together;

/// The group.
pub const GROUP: Group = Group {
    name: "runs",
    about: "steps of agents by effect, many runs at a time, resuming",
    run,
};

fn run(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    steps::rows(setting, emit)?;
    together::rows(setting, emit)?;
    resume::rows(setting, emit)
}

fn runtime() -> Result<Runtime, Error> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_time().build()?)
}

fn bounded() -> Durability {
    Durability::Bounded(Duration::from_millis(20))
}

/// Opens a folder with these agents.
fn open(runtime: &Runtime, dir: &Path, agents: Builder) -> Result<Dalsegno, Error> {
    Ok(runtime.block_on(agents.open(dir))?)
}
