//! The way down of a step: from its identity to *recorded*, *execute* or *in doubt*.
//!
//! | recorded | effect | begin gives |
//! |---|---|---|
//! | an outcome | any | `Recorded` |
//! | a failure that is tried again | any | waits for its time, then `Execute` |
//! | "did not happen", said by a probe or a person | any | `Execute`, with the same key |
//! | an intent only | `read_only`, `idempotent` | `Execute`, with the same key |
//! | an intent only | `once` | `InDoubt` |
//! | nothing | any | `Execute`, when the code has come to everything that is recorded |
//! | another kind or other inputs | any | the run stops, in attention |
//!
//! Invariant: `Execute` is given only when the intent is recorded and, for an effect that can be
//! seen from outside, durable.

use std::sync::Arc;

use dalsegno_store::{Body, NewPayload, Payload, Version, payload};
use serde_json::json;

use super::append::NotRecorded;
use super::{Active, Run, Stopped, Wait};
use crate::attention::{Attention, AttentionKind};
use crate::budget::Usage;
use crate::effect::{Effect, Moment, may_be_kept_back};
use crate::failure::{Certainty, Failure, FailureKind};
use crate::journal::{Outcome, StepRecord};
use crate::record;
use crate::rules::Rule;
use crate::step::{StepId, StepKind};

/// After so many deaths of the process in one step a person is asked.
const CRASHES_LIMIT: u64 = 10;
/// So much of an input is shown to a person.
const SHOWN_BYTES: usize = 2000;

/// A step that the code has come to.
#[derive(Clone, Debug)]
pub struct Step {
    /// Which.
    pub id: StepId,
    /// What it does.
    pub kind: StepKind,
    /// What it does to the world.
    pub effect: Effect,
    /// What goes in; compared with the record.
    pub input: Option<NewPayload>,
    /// The event of the approval that it uses up.
    pub approval: Option<u64>,
    /// It is inside a plan step.
    pub in_plan: bool,
}

impl Step {
    /// A step with nothing but its identity, kind and effect.
    pub fn new(id: StepId, kind: StepKind, effect: Effect) -> Step {
        Step {
            id,
            kind,
            effect,
            input: None,
            approval: None,
            in_plan: false,
        }
    }
}

/// What to do about a step.
#[derive(Debug)]
pub enum Begun {
    /// Nothing: this is what it came to.
    Recorded(Outcome),
    /// Do it, and call [`Run::finish`].
    Execute(Ticket),
    /// Find out whether it happened, and call [`Run::resolve`].
    InDoubt(Doubt),
}

/// What the record says is to be done about a step.
#[derive(Debug)]
pub(crate) enum Ahead {
    /// Nothing: this is what it came to.
    Recorded(Outcome),
    /// To find out whether it happened.
    InDoubt(Doubt),
    /// To begin it, as this attempt.
    Intend(Step, u64),
}

/// The right to execute a step, once.
#[derive(Debug)]
pub struct Ticket {
    /// The step.
    pub step: Step,
    /// Which attempt, from 1.
    pub attempt: u64,
    /// The same on every attempt, process and machine.
    pub key: String,
    /// The outcome may be recorded later or never.
    pub(crate) kept_back: bool,
    /// What its code used, whatever came of it.
    pub(crate) used: Usage,
    /// The event of the intent, if one was recorded.
    pub(crate) intent: Option<u64>,
    /// The version of a memory that its code saw.
    pub(crate) seen: Option<Version>,
    /// What was asked and what came of it, in words for people.
    pub(crate) summary: Option<String>,
    /// It counts for a budget until its outcome does.
    pub(super) counted: Option<Counted>,
    /// The run is busy until the step is finished.
    pub(crate) active: Option<Active>,
}

/// A step under way that counts for a budget.
#[derive(Debug)]
pub(super) struct Counted(Arc<Run>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.state().under_way -= 1;
    }
}

/// A `once` step that was begun, and whose outcome nobody knows.
#[derive(Debug)]
pub struct Doubt {
    /// The step.
    pub step: Step,
    /// Which attempt it was.
    pub attempt: u64,
    /// The key that it was sent with.
    pub key: String,
    /// When it was begun, in microseconds since 1970.
    pub begun_us: u64,
    /// What is known about why.
    pub why: String,
    /// The run is busy until it is settled.
    pub(crate) _active: Option<Active>,
}

/// What the record says about a step.
enum Found {
    Nothing,
    Done(Outcome),
    /// To be executed, as this attempt, not before a time.
    Again {
        attempt: u64,
        not_before_us: u64,
    },
    Doubt {
        attempt: u64,
        begun_us: u64,
    },
    Mismatch(Attention),
    CrashLoop(Attention),
}

impl Run {
    /// Begins a step.
    ///
    /// # Errors
    /// The run does not go on here: nothing may be executed.
    pub async fn begin(self: &Arc<Self>, step: Step) -> Result<Begun, Stopped> {
        self.come_to(&step).await?;
        if self.is_replay() && step.kind == StepKind::PlanStep && self.is_open_plan(&step) {
            // Its own outcome is behind the end of the record; what is inside may not be.
            return Ok(Begun::Execute(self.ticket(step, 1, String::new(), false)));
        }
        match self.ahead(step).await? {
            Ahead::Recorded(outcome) => Ok(Begun::Recorded(outcome)),
            Ahead::InDoubt(doubt) => Ok(Begun::InDoubt(doubt)),
            Ahead::Intend(step, attempt) => self.intend(step, attempt).await,
        }
    }

    /// The same up to the intent, for who brings all behind that to its end.
    ///
    /// # Errors
    /// The run does not go on here: nothing may be executed.
    #[cfg(feature = "memory")]
    pub(crate) async fn before_intent(self: &Arc<Self>, step: Step) -> Result<Ahead, Stopped> {
        self.come_to(&step).await?;
        self.ahead(step).await
    }

    async fn come_to(self: &Arc<Self>, step: &Step) -> Result<(), Stopped> {
        if let Some(stopped) = self.stopped() {
            return Err(stopped);
        }
        if self.is_replay() {
            self.at_step(&step.id, step.kind, step.input.as_ref()).await;
        }
        Ok(())
    }

    async fn ahead(self: &Arc<Self>, step: Step) -> Result<Ahead, Stopped> {
        self.in_turn(&step.id).await;
        match self.find(&step) {
            Found::Done(outcome) => Ok(Ahead::Recorded(outcome)),
            Found::Mismatch(attention) | Found::CrashLoop(attention) => {
                Err(self.stop(Stopped::Attention(attention)))
            }
            Found::Doubt { .. } if self.is_replay() => Err(self.stop(Stopped::EndOfRecord)),
            Found::Doubt { attempt, begun_us } => {
                self.replayed(|| format!("{} {}", step.kind, step.id)).await;
                Ok(Ahead::InDoubt(Doubt {
                    _active: Some(Active::new(self)),
                    attempt,
                    key: self.key(&step.id, attempt),
                    begun_us,
                    why: super::PROCESS_ENDED.into(),
                    step,
                }))
            }
            Found::Again {
                attempt,
                not_before_us,
            } => {
                // A plan step has no effect of its own, and what it holds is still to be come to.
                if step.kind != StepKind::PlanStep {
                    self.replayed(|| format!("{} {}", step.kind, step.id)).await;
                }
                self.wait_for_retry(&step, not_before_us).await?;
                Ok(Ahead::Intend(step, attempt))
            }
            Found::Nothing => {
                self.replayed(|| format!("{} {}", step.kind, step.id)).await;
                Ok(Ahead::Intend(step, 1))
            }
        }
    }

    /// Whether a step was begun before: then its approval, if it needed one, was used up.
    pub(crate) fn is_begun(&self, id: &StepId) -> bool {
        self.state().journal.steps.contains_key(id)
    }

    /// Whether a fork took a step over unfinished, and nobody has approved it here.
    pub(crate) fn is_unapproved_in_a_fork(&self, id: &StepId) -> bool {
        let state = self.state();
        let asked = state.journal.approvals.get(id);
        state.journal.inherited_key(id).is_some() && !asked.is_some_and(|asked| asked.used)
    }

    /// The same, and it is to be executed again, without a doubt that comes first.
    pub(crate) fn is_to_be_repeated_by_a_fork(&self, id: &StepId) -> bool {
        let is_repeated = {
            let state = self.state();
            state.journal.steps.get(id).is_some_and(|step| {
                let in_doubt = step.is_open() && step.effect == Effect::Once;
                step.outcome.is_none() && !in_doubt
            })
        };
        is_repeated && self.is_unapproved_in_a_fork(id)
    }

    /// Both sides, if a step is not what is recorded.
    pub(crate) fn mismatch(&self, step: &Step) -> Option<Attention> {
        let state = self.state();
        compare(state.journal.steps.get(&step.id)?, step)
    }

    fn is_open_plan(&self, step: &Step) -> bool {
        let state = self.state();
        let found = state.journal.steps.get(&step.id);
        found.is_some_and(|found| found.kind == step.kind && found.outcome.is_none())
    }

    fn find(&self, step: &Step) -> Found {
        let mut state = self.state();
        let Some(found) = state.journal.steps.get(&step.id) else {
            return Found::Nothing;
        };
        if let Some(attention) = compare(found, step) {
            return Found::Mismatch(attention);
        }
        if let Some(outcome) = &found.outcome {
            let outcome = outcome.clone();
            state.replayed += 1;
            // What a memory says is still to be read: who holds its `Sight` tells when it is seen.
            if !matches!(step.kind, StepKind::Retrieval | StepKind::Memory) {
                state.shown(&step.id);
            }
            return Found::Done(outcome);
        }
        let attempt = found.attempts;
        if let Some((_, at)) = found.retry.as_deref() {
            let not_before_us = *at;
            return Found::Again {
                attempt: attempt + 1,
                not_before_us,
            };
        }
        let hasty = self.settings.mutant.breaks(Rule::NeverRepeatOnce);
        // What was recorded decides what may be done, not what the code says now.
        match found.effect {
            _ if found.not_done || attempt == 0 || hasty => Found::Again {
                attempt: attempt + 1,
                not_before_us: 0,
            },
            Effect::Once => Found::Doubt {
                attempt,
                begun_us: found.begun_us,
            },
            _ if found.crashes >= CRASHES_LIMIT => Found::CrashLoop(
                Attention::new(
                    AttentionKind::CrashLoop,
                    format!(
                        "the process has ended {} times during {}: see why, then clear the \
                         attention to try again",
                        found.crashes, step.id
                    ),
                )
                .at(&step.id),
            ),
            _ => Found::Again {
                attempt: attempt + 1,
                not_before_us: 0,
            },
        }
    }

    /// Begins a step that is finished at once, so that an intent would say nothing.
    pub(crate) fn begin_now(self: &Arc<Self>, step: Step) -> Result<Ticket, Stopped> {
        if self.is_replay() {
            return Err(self.stop(Stopped::EndOfRecord));
        }
        if let Some(stopped) = self.stopped() {
            return Err(stopped);
        }
        let kept_back = self.keeps_back(&step);
        Ok(self.ticket(step, 1, String::new(), kept_back))
    }

    /// Records the intent, and waits until it may be acted on.
    pub(crate) async fn intend(
        self: &Arc<Self>,
        mut step: Step,
        attempt: u64,
    ) -> Result<Begun, Stopped> {
        if self.is_replay() {
            return Err(self.stop(Stopped::EndOfRecord));
        }
        let counted = self.count(&step).await?;
        let key = self.key(&step.id, attempt);
        self.state().executed += 1;
        let kept_back = self.keeps_back(&step);
        // A lookup in a memory is one event: the outcome has what was asked.
        if kept_back || step.kind == StepKind::Retrieval {
            let mut ticket = self.ticket(step, attempt, key, kept_back);
            ticket.counted = counted;
            return Ok(Begun::Execute(ticket));
        }
        // The record has it from the first attempt.
        let input = step.input.take().filter(|_| attempt == 1);
        let mut event = record::intended(&step.id, step.kind, step.effect, attempt, input);
        if let Some(approval) = step.approval {
            event.fields = event.fields.with(record::step::APPROVAL, approval);
        }
        let intent = match self.record(vec![event]).await {
            Ok(intent) => intent,
            Err(NotRecorded::Stopped(stopped)) => return Err(stopped),
            Err(NotRecorded::Refused(why)) => {
                let why = format!("its input cannot be recorded, it was not done: {why}");
                let failure = Failure::of(FailureKind::TooLarge, Certainty::Terminal, why);
                let failure = failure.at(step.id.as_str());
                let event = record::failed(&step.id, step.kind, &failure, None);
                return match self.record(vec![event]).await {
                    Ok(_) => Ok(Begun::Recorded(Outcome::Failed(failure))),
                    Err(NotRecorded::Stopped(stopped)) => Err(stopped),
                    Err(NotRecorded::Refused(why)) => Err(self.stop(Stopped::Store(why))),
                };
            }
        };
        // What a memory is given is in one append with the outcome, under the run's token: nothing
        // happens before that.
        if step.kind != StepKind::Memory {
            self.commit(step.effect, Moment::BeforeEffect).await?;
            if step.effect != Effect::ReadOnly {
                self.make_certain().await?;
            }
        }
        // Between the intent and here the run may have been told to stop. A worker that closes lets
        // what is begun finish: an intent that is left alone would be a doubt without a cause.
        match self.stopped() {
            None | Some(Stopped::Closing) => {}
            Some(stopped) => return Err(stopped),
        }
        let mut ticket = self.ticket(step, attempt, key, kept_back);
        ticket.counted = counted;
        ticket.intent = Some(intent);
        Ok(Begun::Execute(ticket))
    }

    fn ticket(self: &Arc<Self>, step: Step, attempt: u64, key: String, kept_back: bool) -> Ticket {
        let mut active = Active::new(self);
        if step.effect == Effect::Once {
            let id = step.id.clone();
            active.in_doubt(move || {
                let reason = format!(
                    "{id} was dropped while it was under way, nobody knows whether it happened: \
                     look, then say happened, did not happen, or fail the run"
                );
                let attention = Attention::new(AttentionKind::InDoubt, reason);
                Stopped::Attention(attention.at(&id))
            });
        }
        Ticket {
            step,
            attempt,
            key,
            kept_back,
            used: Usage::default(),
            intent: None,
            seen: None,
            summary: None,
            counted: None,
            active: Some(active),
        }
    }

    /// Whether a step's outcome need not be recorded at once.
    fn keeps_back(&self, step: &Step) -> bool {
        use crate::effect::Granularity;
        let coarse = match self.settings.granularity {
            Granularity::ToolCall => false,
            Granularity::PlanStep => step.in_plan,
            Granularity::Decision => true,
        };
        coarse && may_be_kept_back(step.effect) && step.kind != StepKind::PlanStep
    }

    /// Counts a step as under way, if there is room for it in the budgets that it counts for.
    async fn count(self: &Arc<Self>, step: &Step) -> Result<Option<Counted>, Stopped> {
        if !matches!(step.kind, StepKind::Model | StepKind::Tool) {
            return Ok(None);
        }
        let is_limited = {
            let state = self.state();
            let journal = &state.journal;
            journal.budget.is_limited() || journal.created.parent.is_some()
        };
        if !is_limited {
            return Ok(None);
        }
        let now_us = self.runtime.now_us();
        let begin = || self.state().under_way += 1;
        // Apart: most runs have no limits, and every step would be made larger by it.
        let over = Box::pin(self.ledger.may_begin(self, now_us, begin)).await;
        let over = over.map_err(|e| self.stop(Stopped::Store(e.to_string())))?;
        let Some(over) = over else {
            return Ok(Some(Counted(Arc::clone(self))));
        };
        let reason = format!("before {} {over}: raise it to go on", step.id);
        let attention = Attention::new(AttentionKind::Budget, reason).at(&step.id);
        Err(self.stop(Stopped::Attention(attention)))
    }

    /// Waits until a step may be tried again.
    pub(crate) async fn wait_for_retry(
        self: &Arc<Self>,
        step: &Step,
        not_before_us: u64,
    ) -> Result<(), Stopped> {
        if not_before_us == 0 {
            return Ok(());
        }
        if self.is_replay() {
            return Err(self.stop(Stopped::EndOfRecord));
        }
        let timer = retry_timer(&step.id);
        let wait = Wait {
            step: step.id.clone(),
            what: format!("retry of {}", step.id),
            due_us: Some(not_before_us),
        };
        self.until(wait, move |state| {
            (!state.journal.timers.contains_key(&timer)).then_some(())
        })
        .await;
        Ok(())
    }
}

/// The timer for the next attempt of a step.
pub(crate) fn retry_timer(id: &StepId) -> String {
    format!("{id}!retry")
}

/// Whether a step is what is recorded; else both sides.
pub(crate) fn compare(found: &StepRecord, step: &Step) -> Option<Attention> {
    let both = if found.kind != step.kind {
        let (then, now) = (found.kind.word(), step.kind.word());
        (json!({ "kind": then }), json!({ "kind": now }))
    } else if !same_input(found, step) {
        let then = found.input.as_ref().map_or_else(|| "nothing".into(), shown);
        let now = step
            .input
            .as_ref()
            .map_or_else(|| "nothing".into(), shown_new);
        (json!({ "input": then }), json!({ "input": now }))
    } else {
        return None;
    };
    let reason = format!(
        "the code does something else than what is recorded at {} (event {}): recorded {}, now {}: \
         nothing was executed; bring the old code back, or branch on ctx.patched",
        step.id, found.first, both.0, both.1
    );
    let evidence = json!({ "step": step.id.as_str(), "event": found.first,
                           "recorded": both.0, "now": both.1 });
    let attention = Attention::new(AttentionKind::Mismatch, reason);
    Some(attention.at(&step.id).with_evidence(&evidence))
}

fn same_input(found: &StepRecord, step: &Step) -> bool {
    // An outcome without an intent has no input to compare with.
    if found.attempts == 0 && found.input.is_none() {
        return true;
    }
    match (&found.input, &step.input) {
        (None, None) => true,
        (Some(then), Some(now)) => same_payload(then, now),
        _ => false,
    }
}

/// Whether a recorded payload is this one. JSON is the same whatever the order of its keys.
pub(crate) fn same_payload(then: &Payload, now: &NewPayload) -> bool {
    if then.content_type != now.content_type {
        return false;
    }
    match &then.body {
        Body::Inline(bytes) => {
            *bytes == now.bytes
                || (then.content_type == "application/json" && {
                    let parse =
                        |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).ok();
                    let (then, now) = (parse(bytes), parse(&now.bytes));
                    then.is_some() && then == now
                })
        }
        Body::Stored { root, bytes } => {
            *bytes == now.bytes.len() as u64 && payload::split(&now.bytes, |_| true).root == *root
        }
    }
}

/// A payload for a person to see.
pub(crate) fn shown(payload: &Payload) -> String {
    match &payload.body {
        Body::Inline(bytes) => shown_bytes(bytes),
        Body::Stored { root, bytes } => format!("{bytes} bytes with hash {root}"),
    }
}

pub(crate) fn shown_new(payload: &NewPayload) -> String {
    shown_bytes(&payload.bytes)
}

fn shown_bytes(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES)]).into_owned();
    match bytes.len() > SHOWN_BYTES {
        true => format!("{text}… ({} bytes)", bytes.len()),
        false => text,
    }
}
