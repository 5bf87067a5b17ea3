//! How soon a run is back at work after its process died.
//!
//! The process is made to end in the middle of a step, by dropping it with its runtime, so that the next
//! one finds a run whose worker died. The time is from opening the store to that step.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dalsegno::{Builder, Ctx, Dalsegno, Turn};

use super::{bounded, open, runtime};
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::{Round, median};
use crate::row::{Goal, Row};

const STEPS: u64 = 100_000;
const TURNS: u64 = 1_000;

pub fn rows(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    let rounds = setting.rounds.min(5);
    replay(setting, rounds, emit)?;
    for turns in [100, 10_000, 1_000_000] {
        resume_loop(setting, rounds, turns, emit)?;
    }
    conversation(setting, rounds, emit)
}

/// A conversation of 1,000 turns with 2 KB each: the last hundred turns against the first hundred,
/// and back at its end.
fn conversation(setting: &Setting, rounds: usize, emit: &mut Emit<'_>) -> Result<(), Error> {
    let dir = setting.dir.join("conversation");
    let times: Arc<Mutex<Vec<f64>>> = Arc::default();
    let mut measured = Vec::new();
    let mut back = Vec::new();
    for _ in 0..rounds {
        times.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let agent = |reached| talker(Arc::clone(&times), reached);
        fill(&dir, agent, TURNS)?;
        let spent = times.lock().unwrap_or_else(PoisonError::into_inner).clone();
        measured.push(Round {
            ours: median(&spent[spent.len() - 100..]),
            anchor: median(&spent[..100]),
        });
        let ours = back_at_work(&dir, agent)?;
        back.push(Round { ours, anchor: ours });
        std::fs::remove_dir_all(&dir)?;
    }
    emit(Row {
        name: format!("turns {} to {TURNS} of a conversation", TURNS - 100),
        unit: "us",
        anchor_name: "its first hundred turns",
        goal: Goal::RatioAtMost(1.5),
        rounds: measured,
    });
    emit(Row {
        name: format!("a conversation back at turn {TURNS}"),
        unit: "ms",
        anchor_name: "-",
        goal: Goal::OursBelow(100.0),
        rounds: back,
    });
    Ok(())
}

fn talker(times: Arc<Mutex<Vec<f64>>>, reached: Arc<AtomicU64>) -> Builder {
    Dalsegno::builder().agent("long", move |ctx: Ctx, turns: u64| {
        let (times, reached) = (Arc::clone(&times), Arc::clone(&reached));
        async move {
            let chat = ctx.conversation("chat").await?;
            for turn in 0..turns {
                let began = Instant::now();
                chat.push(&ctx, &format!("{turn} {}", "x".repeat(2048)))
                    .await?;
                let said = ctx.model("reply").conversation(&chat);
                let said: u64 = said.call(|_| async move { Ok(turn) }).await?;
                chat.push(&ctx, &said).await?;
                let micros = began.elapsed().as_secs_f64() * 1e6;
                times
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(micros);
            }
            stop(&ctx, &reached).await
        }
    })
}

/// A step that never ends.
async fn stop(ctx: &Ctx, reached: &Arc<AtomicU64>) -> dalsegno::Result<()> {
    let reached = Arc::clone(reached);
    let step = ctx.tool("last").read_only().call(move |_| {
        reached.store(1, Ordering::SeqCst);
        std::future::pending()
    });
    step.await
}

/// A function of many steps, which stops where it is told and says how long it took to get there.
fn function(stop_at: u64, reached: Arc<AtomicU64>) -> Builder {
    Dalsegno::builder().agent("long", move |ctx: Ctx, steps: u64| {
        let reached = Arc::clone(&reached);
        async move {
            for step in 0..steps {
                if step == stop_at {
                    stop(&ctx, &reached).await?;
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
                stop(&ctx, &reached).await?;
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

/// Runs an agent up to where it stops, and drops it there.
fn fill(dir: &Path, agent: impl Fn(Arc<AtomicU64>) -> Builder, input: u64) -> Result<(), Error> {
    let runtime = runtime()?;
    let reached = Arc::new(AtomicU64::new(0));
    let agent = agent(Arc::clone(&reached)).durability(bounded());
    let app = open(&runtime, dir, agent)?;
    runtime.block_on(app.start("long", "run", &input))?;
    while reached.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // So that all of it is on disk.
    std::thread::sleep(Duration::from_millis(100));
    drop(app);
    runtime.shutdown_timeout(Duration::from_secs(10));
    Ok(())
}

/// Milliseconds from opening the store to the step that was under way.
fn back_at_work(dir: &Path, agent: impl Fn(Arc<AtomicU64>) -> Builder) -> Result<f64, Error> {
    let runtime = runtime()?;
    let reached = Arc::new(AtomicU64::new(0));
    let agent = agent(Arc::clone(&reached)).durability(bounded());
    let began = Instant::now();
    let app = open(&runtime, dir, agent)?;
    while reached.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let millis = began.elapsed().as_secs_f64() * 1e3;
    drop(app);
    runtime.shutdown_timeout(Duration::from_secs(10));
    Ok(millis)
}
