//! With `bounded`, a power cut takes what was recorded in that span, and nothing older; and never an
//! effect.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use dalsegno::testkit::{CrashEverywhere, World};
use dalsegno::{Builder, Ctx, Durability};

const BOUND: Duration = Duration::from_millis(20);

/// Reads that take up to a millisecond each, with an effect in between now and then.
fn agent(builder: Builder, world: World) -> Builder {
    builder.agent("reads", move |ctx: Ctx, steps: u64| {
        let world = world.clone();
        async move {
            let began_us = world.now_us();
            for step in 0..steps {
                let seen = world.clone();
                ctx.tool("read")
                    .read_only()
                    .call(move |_| {
                        let world = seen.clone();
                        async move {
                            world.read("read").await;
                            let now_us = world.now_us();
                            let first_us = world.note(&format!("step {step}"), now_us);
                            // Done before, and done again: then its outcome was lost.
                            if first_us + (BOUND.as_micros() as u64) < began_us {
                                world.complain(format!(
                                    "step {step} was recorded {} us before the crash, and lost",
                                    began_us - first_us
                                ));
                            }
                            Ok(step)
                        }
                    })
                    .await?;
                if step % 40 == 39 {
                    let seen = world.clone();
                    ctx.tool("write")
                        .once()
                        .call(move |call| {
                            let world = seen.clone();
                            async move {
                                world.once("write", call.key()).await;
                                Ok(())
                            }
                        })
                        .await?;
                }
            }
            Ok(())
        }
    })
}

#[test]
fn a_power_cut_takes_no_more_than_the_bound() {
    let test = CrashEverywhere::new("reads", &90, agent)
        .durability(Durability::Bounded(BOUND))
        .shuffled();
    match test.run() {
        Ok(report) => println!("{report}"),
        Err(broken) => panic!("{broken}"),
    }
}

#[test]
fn without_anybody_who_syncs_it_would_take_more() {
    // The bound is a year: then only effects sync, and the test above has to notice.
    let test = CrashEverywhere::new("reads", &90, agent)
        .durability(Durability::Bounded(Duration::from_secs(31_536_000)))
        .shuffled();
    let broken = test.run().unwrap_err();
    assert!(broken.what.contains("and lost"), "{broken}");
}
