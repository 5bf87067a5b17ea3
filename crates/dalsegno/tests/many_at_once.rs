//! So many steps at the same time that what is noted of them is more than an append takes.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/machine.rs"]
mod machine;
#[path = "common/slow.rs"]
mod slow;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dalsegno::{Builder, Ctx, Effect, Result, Runtime};
use dalsegno_store::{Limits, Options};
use machine::{Machine, Outside, agent, tool};
use slow::Slow;

const STEPS: usize = 300;

type Step = Pin<Box<dyn Future<Output = Result<String>> + Send>>;

/// What all of them come to.
async fn all(mut steps: Vec<Step>) -> Result<usize> {
    let mut done = 0;
    std::future::poll_fn(|context| {
        steps.retain_mut(|step| match step.as_mut().poll(context) {
            Poll::Ready(outcome) => {
                done += usize::from(outcome.is_ok());
                false
            }
            Poll::Pending => true,
        });
        match steps.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    Ok(done)
}

#[test]
fn all_that_overtake_each_other_are_noted_and_the_run_ends() {
    let limits = Limits {
        batch_events: 100,
        ..Limits::default()
    };
    let machine = Machine::new().with_options(Options::new().limits(limits));
    let outside = Outside::default();
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        let steps = (0..STEPS)
            .map(|_| -> Step { Box::pin(tool(&ctx, &outside, Effect::Once, "pay", "it")) });
        all(steps.collect()).await
    };
    let store = Slow::new(Arc::new(machine.open_store()), &machine.runtime, 1);
    let builder = agent(Builder::new(), "a", &outside, code);
    let process = machine.start_on(builder, store.clone(), "a process");
    store.takes(40);
    let app = process.app.clone();
    machine.runtime.spawn(Box::pin(async move {
        app.start("a", "r", &"").await.unwrap();
    }));
    process.pass(Duration::from_secs(60));
    store.takes(0);
    assert_eq!(process.end::<usize>("r").unwrap(), STEPS);
}
