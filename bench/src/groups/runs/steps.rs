//! What one step costs, in one run, by effect.
//!
//! The anchor of durable steps is the raw loop with the bytes of an outcome and the next intent:
//! nobody who keeps both can do less than one write and one sync.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dalsegno::{Builder, Ctx, Dalsegno, Durability, Effect};
use tokio::runtime::Runtime;

use super::{bounded, open, runtime};
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::{alternate, median_micros};
use crate::raw::{self, RawLoop};
use crate::row::{Goal, Row};

/// Steps of a run that is measured: as many as fill a slice.
const FREE_STEPS: u64 = 20_000;
const SYNCED_STEPS: u64 = 200;
/// The frames of an outcome and an intent with 100 bytes of payload each.
const FRAMES_BYTES: usize = 480;

pub fn rows(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    for (name, effect, durability, steps, goal) in [
        (
            "read_only step, bounded",
            Effect::ReadOnly,
            bounded(),
            FREE_STEPS,
            Goal::OursBelow(10.0),
        ),
        (
            "idempotent step, bounded",
            Effect::Idempotent,
            bounded(),
            SYNCED_STEPS,
            Goal::RatioAtMost(1.6),
        ),
        (
            "once step, bounded",
            Effect::Once,
            bounded(),
            SYNCED_STEPS,
            Goal::RatioAtMost(3.2),
        ),
        (
            "read_only step, strict",
            Effect::ReadOnly,
            Durability::Strict,
            SYNCED_STEPS,
            Goal::RatioAtMost(1.6),
        ),
    ] {
        let runtime = runtime()?;
        let dir = setting.dir.join("steps");
        let app = open(&runtime, &dir, agent(effect).durability(durability))?;
        let count = AtomicU64::new(0);
        let mut raw = RawLoop::new(&setting.dir, FRAMES_BYTES)?;
        let rounds = alternate(
            setting.rounds,
            || one_run(&runtime, &app, &count, steps),
            || median_micros(|| raw.append()),
        )?;
        emit(Row {
            name: name.into(),
            unit: "us",
            anchor_name: raw::NAME,
            goal,
            rounds,
        });
        runtime.block_on(app.close())?;
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}

/// An agent that makes as many steps as it is told.
fn agent(effect: Effect) -> Builder {
    Dalsegno::builder().agent("steps", move |ctx: Ctx, steps: u64| async move {
        let input = "x".repeat(60);
        let began = Instant::now();
        for step in 0..steps {
            ctx.tool("step")
                .effect(effect)
                .input(&input)
                .call(|_| async move { Ok(step) })
                .await?;
        }
        Ok(began.elapsed().as_secs_f64() * 1e6)
    })
}

/// Microseconds per step.
fn one_run(runtime: &Runtime, app: &Dalsegno, count: &AtomicU64, steps: u64) -> Result<f64, Error> {
    let name = format!("run-{}", count.fetch_add(1, Ordering::Relaxed));
    let app = app.clone();
    let spent = Arc::new(name);
    let micros: f64 = runtime.block_on(async move { app.run("steps", &spent, &steps).await })?;
    Ok(micros / steps as f64)
}
