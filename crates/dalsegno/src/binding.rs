//! For the layers of other languages, whose agents are not futures.
//!
//! Such an agent runs on a thread or an event loop of its own, *outside* of the future that its run is
//! driven by, and has the steps of its [`Ctx`] polled there. All rules stay where they are: a layer
//! makes the same steps as an agent in Rust, and only brings the code of the step to where it runs.
//! What it has to tell the run is here.
//!
//! Invariant: while an [`Outside`] is held, the run is not taken for idle, and nothing is shown to the
//! code out of order: code that runs outside may come to anything next.

use std::sync::Arc;
use std::task::Waker;

use crate::attention::{Attention, AttentionKind};
use crate::ctx::Ctx;
use crate::failure::{Certainty, Failure, FailureKind};
use crate::run::{Run, Stopped};

/// Lets steps that are polled inside keep this thread while they wait for the disk.
pub use dalsegno_store::may_block;

/// The agent's code is running outside of its future, until this is dropped.
///
/// Unlike a step that is being executed it does not hold up a run that stops: between steps nothing
/// happens that could not be left.
#[derive(Debug)]
pub struct Outside(Arc<Run>);

impl Outside {
    /// The code of this run is running.
    pub fn new(ctx: &Ctx) -> Outside {
        ctx.run.state().outside += 1;
        Outside(Arc::clone(&ctx.run))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.outside = state.outside.saturating_sub(1);
        // Who decides whether the run is idle has to look again; and who waits for its turn.
        if !state.polling || state.journal.order.wants_more {
            state.wake();
        }
    }
}

/// The code outside has said something: the future of the run is to be polled.
///
/// To be used instead of a clone of the future's waker, which would tell the engine that the code waits
/// for something of its own.
pub fn wake(ctx: &Ctx) {
    ctx.run.state().wake();
}

/// Whether who was polled with this waker waits for something to come to the run, or for its turn, and
/// not just for the disk: then the run's own future has to poll it, which decides whether it is idle.
pub fn waits_for_run(ctx: &Ctx, waker: &Waker) -> bool {
    // A replay never waits for the disk, and is over when its code can do nothing.
    ctx.run.is_replay() || ctx.run.state().kept(waker) > 0
}

/// Whether a run is only read, to be replayed.
pub fn is_replay(ctx: &Ctx) -> bool {
    ctx.run.is_replay()
}

/// Leaves the run as a crash of the process would: nothing is recorded, and it goes on from its
/// record when it is taken up again.
pub fn interrupt(ctx: &Ctx, why: &str) {
    drop(ctx.run.stop(Stopped::Store(why.to_owned())));
}

/// The agent's code is broken, as one in Rust that panics: a person has to mend it, and the run goes on
/// from its record then.
pub fn broken(ctx: &Ctx, what: &str) {
    let reason =
        format!("the agent's code raised {what}: mend it, then clear the attention to go on");
    let attention = Attention::new(AttentionKind::Panic, reason);
    drop(ctx.run.stop(Stopped::Attention(attention)));
}

/// A failure of any sort, at a step if one is given: as it was, when it has been through a language
/// that has its own way to carry failures.
pub fn failure(
    kind: FailureKind,
    certainty: Certainty,
    message: &str,
    step: Option<&str>,
) -> Failure {
    let failure = Failure::of(kind, certainty, message);
    match step {
        Some(step) => failure.at(step),
        None => failure,
    }
}
