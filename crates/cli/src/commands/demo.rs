//! `dalsegno demo`: an agent of 12 steps is killed in the middle of its work, and nothing is lost or
//! done twice.
//!
//! ```text
//! dalsegno demo ── starts, kills ──► worker ── HTTP ──► world, with a ledger of its own
//!      │ reads, answers through          │
//!      │ the mailbox                     │ owns
//!      └───────────────► store ◄─────────┘
//! ```
//!
//! Agent, world and worker are those of the crate `dalsegno-story`, which the tests kill hundreds of
//! times; here they are processes of this same binary ([`parts`]).
//!
//! Invariant: the code is 0 only if all three checks of [`check`] hold.

use std::time::{Duration, Instant};

use dalsegno_story::agent::{self, STEPS};
use dalsegno_story::ledger::now_us;
use dalsegno_story::world::Manner;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::demo::{Demo, Part};
use crate::exit::{Error, Exit, Result};
use crate::output::Out;
use crate::output::text::shown;
use crate::runtime;

mod check;
mod parts;
mod plan;
mod scene;
mod show;
mod told;
mod watch;
mod words;

use plan::{Kills, Random};
use scene::{Folder, Scene};
use show::Show;
use told::{Happening, Line};
use words::Words;

const SCHEMA: &str = "dalsegno.demo/1";

/// Runs the demonstration, or one of its processes.
///
/// # Errors
/// It could not be run, or was interrupted.
pub fn run(args: &Demo, out: &mut Out) -> Result<Exit> {
    match args.part {
        Some(Part::World) => parts::be_the_world(&args.told),
        Some(Part::Worker) => parts::be_the_worker(&args.told),
        None => runtime::block_on(async {
            tokio::select! {
                done = demonstrate(args, out) => done,
                stopped = stopped() => Err(stopped?),
            }
        }),
    }
}

/// Waits for somebody to stop it. What was started goes with the future that is dropped then.
async fn stopped() -> Result<Error> {
    let watch = |kind| signal(kind).map_err(|e| Error::failed(format!("no signals: {e}")));
    let mut interrupt = watch(SignalKind::interrupt())?;
    let mut terminate = watch(SignalKind::terminate())?;
    let mut hangup = watch(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(Error::new(Exit::Interrupted, "interrupted")
        .hint("nothing is left behind but what --keep was to keep"))
}

async fn demonstrate(args: &Demo, out: &mut Out) -> Result<Exit> {
    let started = Instant::now();
    // Dropped last: the processes have files in there.
    let folder = match &args.keep {
        Some(dir) => Folder::kept(dir)?,
        None => Folder::temporary()?,
    };
    let pace = Duration::from_millis(args.pace);
    let seed = args.kills.map(|_| args.seed.unwrap_or_else(now_us));
    let kills = match (args.kills, seed) {
        (Some(left), Some(seed)) => Kills::Random {
            left,
            numbers: Random(seed),
            pace,
        },
        _ => Kills::At(args.at),
    };
    let manner = Manner {
        pace: Some(pace).filter(|pace| !pace.is_zero()),
        holds: kills.holds(),
        notifies_twice: args.broken_world,
    };
    let remove = (!folder.kept).then_some(folder.path.as_path());
    let scene = Scene::open(&folder.path, manner, remove)?;

    let mut words = Words::default();
    let mut tell = |happening: Happening| -> Result<()> {
        match out.is_json() {
            true => out.json(&Line {
                schema: SCHEMA,
                happening: &happening,
            })?,
            false => words.tell(&happening, out)?,
        }
        out.flush()
    };
    tell(Happening::Begun {
        agent: agent::NAME,
        steps: STEPS.len(),
        kills: kills.wanted(),
        at: matches!(kills, Kills::At(_)).then_some(args.at),
        seed,
        probe: !args.no_probe,
        store: scene.store().display().to_string(),
        kept: folder.kept,
        world_pid: scene.world_pid(),
        world: scene.address.clone(),
    })?;
    let show = Show::new(&scene, !args.no_probe, &mut tell);
    let (came, watch) = show.with_kills(kills).await?;
    let calm = folder.path.join("undisturbed");
    let checked = check::check(&scene, watch.as_ref(), &came, &calm, &mut tell).await;
    // It was for comparing only.
    drop(std::fs::remove_dir_all(&calm));
    let wrong = checked?;
    let ok = wrong.is_empty();
    tell(Happening::Summary {
        ok,
        kills: came.kills,
        workers: came.workers,
        runs: came.runs,
        replayed: came.replayed,
        took_us: started.elapsed().as_micros() as u64,
        wrong: wrong.iter().map(|what| shown(what)).collect(),
        store: folder.kept.then(|| scene.store().display().to_string()),
    })?;
    Ok(if ok { Exit::Done } else { Exit::Failed })
}
