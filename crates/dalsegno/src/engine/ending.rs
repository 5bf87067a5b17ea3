//! What is written down when the code of a run is left: its end, what it waits for, or why only a
//! person can move it on.
//!
//! Invariants: a run's end and its parent's step are one append. Who waits for the end is told when
//! it is durable. On any doubt one event says so, and nothing else is appended.

use std::sync::Arc;

use dalsegno_store::{Append, Fields, Kind, NewEvent, NewPayload, StreamId};

use super::Engine;
use super::drive::Left;
use crate::attention::{Attention, AttentionKind};
use crate::budget::Usage;
use crate::failure::{Certainty, Failure, FailureKind};
use crate::journal;
use crate::record;
use crate::rules::Rule;
use crate::run::{NotRecorded, Run, Stopped};
use crate::step::{StepId, StepKind};

/// What a run does that is let go of.
#[derive(Clone, Copy)]
enum After {
    /// It waits for something that comes, or for a timer.
    Waits,
    /// It can go on at once.
    GoesOn,
}

fn next_process() -> NewEvent {
    record::run_checkpointed(&["the next process".to_owned()])
}

impl Engine {
    /// Writes down why a run was left. An error says why it does not move.
    pub(super) async fn end(&self, run: &Arc<Run>, left: Left) -> Result<(), String> {
        let ended = self.write_down(run, left).await;
        match (ended, run.stopped()) {
            // Another process has it, and says what comes of it.
            (Err(_), Some(Stopped::Fenced(_))) if self.claims.is_some() => Ok(()),
            (ended, _) => ended,
        }
    }

    async fn write_down(&self, run: &Arc<Run>, left: Left) -> Result<(), String> {
        match left {
            Left::Astray(attention) => self.attention(run, attention).await,
            Left::Returned(Ok(output)) => self.completed(run, output).await,
            Left::Returned(Err(failure)) => self.failed(run, failure).await,
            Left::Panicked(panic) => {
                let reason = format!(
                    "the agent's code panicked: {panic}: mend it, then clear the attention to go on"
                );
                self.attention(run, Attention::new(AttentionKind::Panic, reason))
                    .await
            }
            Left::Waiting(waits) => self.suspend(run, waits).await,
            Left::Arrived | Left::Late => self.hand_over(run).await,
            Left::Stopped(stopped) => self.stopped(run, stopped).await,
        }
    }

    async fn stopped(&self, run: &Arc<Run>, stopped: Stopped) -> Result<(), String> {
        match stopped {
            Stopped::Attention(attention) => self.attention(run, attention).await,
            Stopped::Cancelled(why) => {
                self.cancel_children(run).await;
                let fields = Fields::new().with(record::cancel::REASON, why.as_str());
                let event = NewEvent::new(Kind::RunCancelled).with_fields(fields);
                let why = format!("the child run was cancelled: {why}");
                let failure = Failure::of(FailureKind::ChildFailed, Certainty::Terminal, why);
                self.ended(run, event, Err(failure)).await
            }
            Stopped::Failed(why) => self.failed(run, Failure::terminal(why)).await,
            Stopped::Closing => self.hand_over(run).await,
            Stopped::Fenced(why) | Stopped::Store(why) => Err(why),
            Stopped::EndOfRecord => Ok(()),
        }
    }

    async fn completed(&self, run: &Arc<Run>, output: NewPayload) -> Result<(), String> {
        let event = NewEvent::new(Kind::RunCompleted).with_output(output.clone());
        self.ended(run, event, Ok(output)).await
    }

    async fn failed(&self, run: &Arc<Run>, failure: Failure) -> Result<(), String> {
        let fields = record::failure_fields(&failure, None);
        let event = NewEvent::new(Kind::RunFailed).with_fields(fields);
        let why = format!("the child run failed: {failure}");
        let failure = Failure::of(FailureKind::ChildFailed, Certainty::Terminal, why);
        self.ended(run, event, Err(failure)).await
    }

    /// Records the end of a run, and tells its parent.
    async fn ended(
        &self,
        run: &Arc<Run>,
        event: NewEvent,
        result: Result<NewPayload, Failure>,
    ) -> Result<(), String> {
        let parent = run.state().journal.created.parent.clone();
        self.is_ending(run.id(), true);
        let recorded = match parent.clone() {
            None => run.record(vec![event.clone()]).await.map(drop),
            Some((parent, step)) => {
                let usage = run.state().journal.usage;
                let told = Append::to(parent, vec![child_ended(&step, result, &usage)]);
                if self.settings.mutant.breaks(Rule::OneEnd) {
                    drop(run.record(vec![event.clone()]).await);
                    drop(run.durable().await);
                    drop(self.store.append(vec![told.clone()]).await);
                    self.is_ending(run.id(), false);
                    self.ring_end(run.id());
                    self.launch(&told.stream);
                    return Ok(());
                }
                match run.send(vec![event.clone()], told).await {
                    // The parent is no more: the end is the child's alone.
                    Err(NotRecorded::Refused(_)) => run.record(vec![event]).await.map(drop),
                    sent => sent,
                }
            }
        };
        if recorded.is_err() {
            self.is_ending(run.id(), false);
        }
        match recorded {
            Ok(()) => {}
            Err(NotRecorded::Stopped(stopped)) => return Err(stopped.to_string()),
            Err(NotRecorded::Refused(why)) => {
                let why = format!("the run was done, but its result cannot be recorded: {why}");
                let failure = Failure::of(FailureKind::TooLarge, Certainty::Terminal, why);
                // A failure is small.
                return Box::pin(self.failed(run, failure)).await;
            }
        }
        if !self.settings.mutant.breaks(Rule::TellWhenDurable) {
            run.durable().await.map_err(|stopped| stopped.to_string())?;
        }
        self.is_ending(run.id(), false);
        self.ring_end(run.id());
        if let Some((parent, _)) = parent {
            self.launch(&parent);
        }
        Ok(())
    }

    /// Writes down that a run waits, and lets go of it.
    async fn suspend(&self, run: &Arc<Run>, waits: Vec<(String, StepId)>) -> Result<(), String> {
        let events = vec![record::code_waits(&waits)];
        self.let_go(run, events, After::Waits).await
    }

    /// Writes down that a run can go on in another process, and lets go of it.
    async fn hand_over(&self, run: &Arc<Run>) -> Result<(), String> {
        let events = vec![next_process()];
        self.let_go(run, events, After::GoesOn).await
    }

    async fn attention(&self, run: &Arc<Run>, attention: Attention) -> Result<(), String> {
        // What was kept back must not be recorded behind a mismatch. A run that used up its budget
        // has paid for it.
        if attention.kind != AttentionKind::Budget {
            run.drop_kept_back();
        }
        let waits = vec!["a person".to_owned()];
        let events = vec![record::run_checkpointed(&waits), attention.event()];
        let let_go = self.let_go(run, events, After::Waits).await;
        self.ring_end(run.id());
        let_go
    }

    async fn let_go(
        &self,
        run: &Arc<Run>,
        events: Vec<NewEvent>,
        mut after: After,
    ) -> Result<(), String> {
        let why = |not_recorded| match not_recorded {
            NotRecorded::Stopped(stopped) => stopped.to_string(),
            NotRecorded::Refused(why) => why,
        };
        if !run.record_if_all_known(events).await.map_err(why)? {
            // Something was recorded for the run meanwhile, and may change what comes of it. It is
            // taken up again; by the next process, if this one dies before.
            self.launch(run.id());
            run.record(vec![next_process()]).await.map_err(why)?;
            after = After::GoesOn;
        }
        run.durable().await.map_err(|stopped| stopped.to_string())?;
        let Some(token) = run.token else {
            return Ok(());
        };
        let released = match after {
            After::Waits => self.store.release_lease(run.id(), token),
            After::GoesOn => self.store.hand_over_lease(run.id(), token),
        };
        released.await.map_err(|e| e.to_string())
    }

    /// If what a run may use was changed: those below it that wait for just that look again.
    pub(super) async fn tell_children(&self, run: &Run) {
        let mut below: Vec<StreamId> = {
            let mut state = run.state();
            match std::mem::take(&mut state.journal.raised) {
                true => state.journal.children.iter().cloned().collect(),
                false => return,
            }
        };
        while let Some(child) = below.pop() {
            // One that cannot be read is stopped for that.
            let Ok(journal) = journal::load(&*self.store, &child, None).await else {
                continue;
            };
            below.extend(journal.children);
            let attention = journal.attention.map(|attention| attention.kind);
            if attention == Some(AttentionKind::Budget) {
                let cleared = NewEvent::new(Kind::AttentionCleared);
                let cleared = Append::to(child.clone(), vec![cleared]);
                if self.store.append(vec![cleared]).await.is_ok() {
                    self.launch(&child);
                }
            }
        }
    }

    /// Asks the children of a run to end, too.
    async fn cancel_children(&self, run: &Arc<Run>) {
        let children: Vec<StreamId> = {
            let state = run.state();
            let open = state
                .journal
                .steps
                .values()
                .filter(|step| step.outcome.is_none());
            open.filter_map(|step| step.child.clone()).collect()
        };
        for child in children {
            let reason = format!("its parent {} was cancelled", run.id().name());
            let fields = Fields::new().with(record::cancel::REASON, reason);
            let event = NewEvent::new(Kind::CancelRequested).with_fields(fields);
            // A child that has ended meanwhile needs no asking.
            if self
                .store
                .append(vec![Append::to(child.clone(), vec![event])])
                .await
                .is_ok()
            {
                self.launch(&child);
            }
        }
    }
}

/// What a parent is told when its child has ended.
fn child_ended(step: &StepId, result: Result<NewPayload, Failure>, usage: &Usage) -> NewEvent {
    let event = match result {
        Ok(output) => record::succeeded(step, StepKind::Child, Some(output)),
        Err(failure) => record::failed(step, StepKind::Child, &failure, None),
    };
    record::with_usage(event, usage)
}
