//! Durable steps of many runs at a time, which share their syncs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dalsegno::{Ctx, Dalsegno};
use tokio::runtime::Runtime;

use super::{bounded, open, runtime};
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::{alternate, per_second};
use crate::raw::{self, RawLoop};
use crate::row::{Goal, Row};

/// The frames of an outcome and an intent with 100 bytes of payload each.
const FRAMES_BYTES: usize = 480;

pub fn rows(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    let runtime = runtime()?;
    for (runs, steps, goal) in [
        (1, 400, Goal::Shown),
        (8, 400, Goal::Shown),
        (64, 400, Goal::RatioAtLeast(10.0)),
        (512, 50, Goal::Shown),
    ] {
        let dir = setting.dir.join("together");
        let agents = Dalsegno::builder().agent("steps", |ctx: Ctx, steps: u64| async move {
            let input = "x".repeat(60);
            for step in 0..steps {
                ctx.tool("step")
                    .idempotent()
                    .input(&input)
                    .call(|_| async move { Ok(step) })
                    .await?;
            }
            Ok(())
        });
        let app = open(&runtime, &dir, agents.durability(bounded()))?;
        let count = AtomicU64::new(0);
        let mut raw = RawLoop::new(&setting.dir, FRAMES_BYTES)?;
        let rounds = alternate(
            setting.rounds,
            || many(&runtime, &app, &count, runs, steps),
            || per_second(|| raw.append()),
        )?;
        emit(Row {
            name: format!("idempotent steps of {runs} runs at a time"),
            unit: "steps/s",
            anchor_name: raw::NAME,
            goal,
            rounds,
        });
        runtime.block_on(app.close())?;
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}

/// Steps per second of so many runs.
fn many(
    runtime: &Runtime,
    app: &Dalsegno,
    count: &AtomicU64,
    runs: u64,
    steps: u64,
) -> Result<f64, Error> {
    let round = count.fetch_add(1, Ordering::Relaxed);
    runtime.block_on(async {
        let mut tasks = Vec::new();
        let began = Instant::now();
        for run in 0..runs {
            let app = app.clone();
            tasks.push(tokio::spawn(async move {
                let name = format!("run-{round}-{run}");
                app.run::<_, ()>("steps", &name, &steps).await
            }));
        }
        for task in tasks {
            task.await??;
        }
        Ok((runs * steps) as f64 / began.elapsed().as_secs_f64())
    })
}
