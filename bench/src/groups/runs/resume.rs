//! How soon a run is back at work after its process died.
//!
//! A process is made to die by never closing the store: its engine is dropped with the runtime. The
//! time is from opening the store to the first step that was not recorded.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dalsegno::{Builder, Ctx, Dalsegno, Turn};

use super::{bounded, open, runtime};
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::Round;
use crate::row::{Goal, Row};

const STEPS: u64 = 100_000;

pub fn rows(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    let rounds = setting.rounds.min(5);
    replay(setting, rounds, emit)?;
    for turns in [100, 10_000, 1_000_000] {
        resume_loop(setting, rounds, turns, emit)?;
    }
    Ok(())
}

/// A function of many steps, which stops where it is told and says how long it took to get there.
fn function(stop_at: u64, reached: Arc<AtomicU64>) -> Builder {
    Dalsegno::builder().agent("long", move |ctx: Ctx, steps: u64| {
        let reached = Arc::clone(&reached);
        async move {
            for step in 0..steps {
                if step == stop_at {
                    reached.store(1, Ordering::SeqCst);
                    ctx.signal::<()>("never").await?;
                }
                ctx.model("step")
                    .input(&step)
                    .call(|_| async move { Ok(step) })
                    .await?;
            }
            Ok(())
        }
    })
}

fn replay(setting: &Setting, rounds: usize, emit: &mut Emit<'_>) -> Result<(), Error> {
    let dir = setting.dir.join("replay");
    fill(&dir, |reached| function(STEPS, reached), STEPS + 1)?;
    let mut measured = Vec::new();
    for _ in 0..rounds {
        let ours = back_at_work(&dir, |reached| function(STEPS, reached))?;
        measured.push(Round { ours, anchor: ours });
    }
    emit(Row {
        name: format!("a function back at step {STEPS}"),
        unit: "ms",
        anchor_name: "-",
        goal: Goal::OursBelow(500.0),
        rounds: measured,
    });
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

/// A loop of many turns with one step each, which stops where it is told.
fn a_loop(stop_at: u64, reached: Arc<AtomicU64>) -> Builder {
    let turn = move |ctx: Ctx, (done, turns): (u64, u64)| {
        let reached = Arc::clone(&reached);
        async move {
            if done == stop_at {
                reached.store(1, Ordering::SeqCst);
                ctx.signal::<()>("never").await?;
            }
            ctx.model("step")
                .input(&done)
                .call(|_| async move { Ok(done) })
                .await?;
            Ok(match done + 1 == turns {
                true => Turn::Done(()),
                false => Turn::Continue((done + 1, turns)),
            })
        }
    };
    Dalsegno::builder().loop_agent("long", |turns: u64| (0, turns), turn)
}

fn resume_loop(
    setting: &Setting,
    rounds: usize,
    turns: u64,
    emit: &mut Emit<'_>,
) -> Result<(), Error> {
    let dir = setting.dir.join("loop");
    fill(&dir, |reached| a_loop(turns, reached), turns + 1)?;
    let mut measured = Vec::new();
    for _ in 0..rounds {
        let ours = back_at_work(&dir, |reached| a_loop(turns, reached))?;
        measured.push(Round { ours, anchor: ours });
    }
    emit(Row {
        name: format!("a loop back at turn {turns}"),
        unit: "ms",
        anchor_name: "-",
        goal: Goal::OursBelow(150.0),
        rounds: measured,
    });
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

/// Runs an agent up to where it stops.
fn fill(dir: &Path, agent: impl Fn(Arc<AtomicU64>) -> Builder, input: u64) -> Result<(), Error> {
    let runtime = runtime()?;
    let reached = Arc::new(AtomicU64::new(0));
    let app = open(
        &runtime,
        dir,
        agent(Arc::clone(&reached)).durability(bounded()),
    )?;
    runtime.block_on(app.start("long", "run", &input))?;
    while reached.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    runtime.block_on(app.close())?;
    Ok(())
}

/// Milliseconds from opening the store to the step that was not recorded.
fn back_at_work(dir: &Path, agent: impl Fn(Arc<AtomicU64>) -> Builder) -> Result<f64, Error> {
    let runtime = runtime()?;
    let reached = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let app = open(
        &runtime,
        dir,
        agent(Arc::clone(&reached)).durability(bounded()),
    )?;
    // It waits for a signal that never comes; any signal makes the code run again.
    runtime.block_on(app.signal("run", "other", &()))?;
    while reached.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let millis = began.elapsed().as_secs_f64() * 1e3;
    runtime.block_on(app.close())?;
    Ok(millis)
}
