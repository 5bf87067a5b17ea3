//! Asking a person.
//!
//! Invariants: an answer counts for exactly what was shown (a hash over name, content and key), once,
//! and only before the request expires. The approval of a tool call is used up in the same append
//! as the call's intent. Rejected, expired and not answered in time are three different things.

use std::future::IntoFuture;
use std::time::Duration;

use dalsegno_store::{Fields, Hash, Kind, NewEvent, NewPayload};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Ctx, encode};
use crate::attention::{Attention, AttentionKind};
use crate::failure::{Certainty, Failure, FailureKind, Result};
use crate::journal::ApprovalAnswer;
use crate::record;
use crate::run::{Stopped, Wait};
use crate::runtime::BoxFuture;
use crate::step::{StepId, StepKind};

/// What came of a request to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Yes.
    Approved {
        /// Who said so.
        by: String,
        /// What they said.
        note: String,
    },
    /// No.
    Rejected {
        /// Who said so.
        by: String,
        /// What they said.
        note: String,
    },
    /// Nobody answered before the request expired. No answer will count.
    Expired,
    /// Nobody has answered in the time that the run was ready to wait, and the request had not
    /// expired. It takes no answer any more: ask again.
    NoAnswer,
}

impl Answer {
    /// Whether it is yes.
    pub fn is_approved(&self) -> bool {
        matches!(self, Answer::Approved { .. })
    }

    fn of(answer: &ApprovalAnswer) -> Answer {
        let (by, note) = (answer.by.clone(), answer.note.clone());
        match answer.approved {
            true => Answer::Approved { by, note },
            false => Answer::Rejected { by, note },
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Answer::Approved { by, note } => json!(["approved", by, note]),
            Answer::Rejected { by, note } => json!(["rejected", by, note]),
            Answer::Expired => json!(["expired"]),
            Answer::NoAnswer => json!(["no-answer"]),
        }
    }

    fn from_json(value: &Value) -> Answer {
        let text = |at: usize| value[at].as_str().unwrap_or_default().to_owned();
        let (by, note) = (text(1), text(2));
        match value[0].as_str() {
            Some("approved") => Answer::Approved { by, note },
            Some("rejected") => Answer::Rejected { by, note },
            Some("no-answer") => Answer::NoAnswer,
            _ => Answer::Expired,
        }
    }
}

/// How long a request to a person is open, and how long the run waits for the answer.
///
/// ```
/// use std::time::Duration;
/// use dalsegno::Gate;
///
/// let gate = Gate::new().expires_in(Duration::from_secs(2 * 86_400));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    expires_in: Option<Duration>,
    wait_at_most: Option<Duration>,
}

impl Gate {
    /// Open until it is answered.
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Answers count only for so long.
    pub fn expires_in(mut self, time: Duration) -> Gate {
        self.expires_in = Some(time);
        self
    }

    /// The run goes on after so long, with [`Answer::NoAnswer`].
    pub fn wait_at_most(mut self, time: Duration) -> Gate {
        self.wait_at_most = Some(time);
        self
    }
}

/// A request to a person; [`Ctx::approval`] makes it.
#[must_use = "nobody is asked before it is awaited"]
pub struct ApprovalWait {
    ctx: Ctx,
    id: Result<StepId>,
    name: String,
    shown: Result<Option<NewPayload>>,
    gate: Gate,
}

impl Ctx {
    /// Asks a person, and waits for the answer: minutes or days, over any number of restarts.
    ///
    /// ```no_run
    /// # async fn agent(ctx: dalsegno::Ctx) -> dalsegno::Result<()> {
    /// let answer = ctx.approval("publish").of(&"the text").await?;
    /// if answer.is_approved() { /* … */ }
    /// # Ok(()) }
    /// ```
    ///
    /// [`crate::Dalsegno::approve`] and [`crate::Dalsegno::reject`] answer it.
    pub fn approval(&self, name: &str) -> ApprovalWait {
        ApprovalWait {
            ctx: self.clone(),
            id: self.identify(name),
            name: name.to_owned(),
            shown: Ok(None),
            gate: Gate::new(),
        }
    }

    /// Asks for a tool call, and waits: the event of the answer, to be used up with the intent.
    pub(super) async fn pass(
        &self,
        gate: &Gate,
        id: &StepId,
        name: &str,
        input: Option<&NewPayload>,
    ) -> Result<Option<u64>> {
        self.run.at_step(id, StepKind::Tool, input).await;
        let asked = self.ask(gate, id, name, input).await?;
        let (kind, why) = match asked {
            Asked::Answered(answer) if answer.approved => {
                let timers = self.without_timers(id);
                if !timers.is_empty() {
                    self.record(id, timers).await?;
                }
                return Ok(Some(answer.sequence));
            }
            Asked::Answered(answer) => {
                let why = format!("{} rejected it: {}", answer.by, answer.note);
                (FailureKind::Rejected, why)
            }
            Asked::Expired => (
                FailureKind::Expired,
                "the request for approval expired".into(),
            ),
            Asked::NoAnswer => {
                let why = "nobody has answered the request for approval in time".into();
                (FailureKind::NoAnswer, why)
            }
        };
        let failure = Failure::of(kind, Certainty::Terminal, why).at(id.as_str());
        let mut events = self.without_timers(id);
        events.push(record::failed(id, StepKind::Tool, &failure, None));
        self.settle(id, StepKind::Tool, events).await?;
        Err(failure)
    }

    /// That nobody waits for the request's times any more.
    fn without_timers(&self, id: &StepId) -> Vec<NewEvent> {
        let (expiry, patience) = timers(id);
        let state = self.run.state();
        let set = |timer: &&String| state.journal.timers.contains_key(*timer);
        let timers = [&expiry, &patience].into_iter().filter(set);
        timers.map(|timer| record::timer_cancelled(timer)).collect()
    }

    async fn ask(
        &self,
        gate: &Gate,
        id: &StepId,
        name: &str,
        shown: Option<&NewPayload>,
    ) -> Result<Asked> {
        self.run.replayed(|| format!("approval {id}")).await;
        let hash = self.approval_hash(id, name, shown);
        let known = {
            let state = self.run.state();
            let asked = state.journal.approvals.get(id);
            asked.map(|asked| asked.hash.clone())
        };
        match known {
            None => self.request(gate, id, &hash, shown).await?,
            Some(known) if known != hash.as_bytes() => {
                let reason = format!(
                    "{id} asks a person for something else than what is recorded: bring the old \
                     code back, or branch on ctx.patched"
                );
                let attention = Attention::new(AttentionKind::Mismatch, reason).at(id);
                return self.frozen(Stopped::Attention(attention)).await;
            }
            Some(_) => {}
        }
        let (expiry, patience) = timers(id);
        let due_us = {
            let state = self.run.state();
            let due = |timer: &str| state.journal.timers.get(timer).copied();
            due(&expiry).into_iter().chain(due(&patience)).min()
        };
        let wait = Wait {
            step: id.clone(),
            what: format!("approval {id}"),
            due_us,
        };
        let asked = self.run.until(wait, |state| {
            let journal = &state.journal;
            let answer = journal.approvals.get(id).and_then(|a| a.answer.clone());
            answer.map(Asked::Answered).or_else(|| {
                let expired = journal.fired.contains(&expiry).then_some(Asked::Expired);
                expired.or_else(|| journal.fired.contains(&patience).then_some(Asked::NoAnswer))
            })
        });
        Ok(asked.await)
    }

    /// What an answer is bound to: exactly this, in this run, at this step.
    pub(crate) fn approval_hash(
        &self,
        id: &StepId,
        name: &str,
        shown: Option<&NewPayload>,
    ) -> Hash {
        let mut bytes = Vec::new();
        for part in [
            name.as_bytes(),
            shown.map_or(&[][..], |shown| shown.bytes.as_slice()),
            self.run.key(id, 1).as_bytes(),
        ] {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part);
        }
        Hash::of(&bytes)
    }

    async fn request(
        &self,
        gate: &Gate,
        id: &StepId,
        hash: &Hash,
        shown: Option<&NewPayload>,
    ) -> Result<()> {
        let mut fields = Fields::new()
            .with(record::step::STEP, id.as_str())
            .with(record::approval::HASH, hash.as_bytes().to_vec());
        let (expiry, patience) = timers(id);
        let mut events = Vec::new();
        let mut due = Vec::new();
        if let Some(time) = gate.expires_in {
            let at = self.due_us(time);
            fields = fields.with(record::approval::EXPIRES, at);
            events.push(record::timer_set(&expiry, at));
            due.push(at);
        }
        if let Some(time) = gate.wait_at_most {
            let at = self.due_us(time);
            events.push(record::timer_set(&patience, at));
            due.push(at);
        }
        let mut request = NewEvent::new(Kind::ApprovalRequested).with_fields(fields);
        request.input = shown.cloned();
        events.insert(0, request);
        self.record(id, events).await?;
        // A person is about to see it.
        if let Err(stopped) = self.run.durable().await {
            return self.frozen(stopped).await;
        }
        due.into_iter().for_each(|at| self.host.timer_set(at));
        Ok(())
    }
}

/// What came of asking.
enum Asked {
    Answered(ApprovalAnswer),
    Expired,
    NoAnswer,
}

fn timers(id: &StepId) -> (String, String) {
    (format!("{id}!expiry"), format!("{id}!wait"))
}

impl ApprovalWait {
    /// What is to be approved: shown to the person, and bound to the answer.
    pub fn of<T: Serialize + ?Sized>(mut self, what: &T) -> ApprovalWait {
        self.shown = encode(what).map(Some);
        self
    }

    /// Answers count only for so long.
    pub fn expires_in(mut self, time: Duration) -> ApprovalWait {
        self.gate = self.gate.expires_in(time);
        self
    }

    /// The run goes on after so long, with [`Answer::NoAnswer`].
    pub fn wait_at_most(mut self, time: Duration) -> ApprovalWait {
        self.gate = self.gate.wait_at_most(time);
        self
    }

    async fn wait(self) -> Result<Answer> {
        let (ctx, id, shown) = (self.ctx, self.id?, self.shown?);
        ctx.expect_kind(&id, StepKind::Approval).await;
        if let Some(outcome) = ctx.outcome(&id).await {
            ctx.same_request(&id, &self.name, shown.as_ref()).await;
            let recorded: Value = ctx.recorded(&id, outcome).await?;
            return Ok(Answer::from_json(&recorded));
        }
        let asked = ctx.ask(&self.gate, &id, &self.name, shown.as_ref()).await?;
        let answer = match &asked {
            Asked::Answered(answer) => Answer::of(answer),
            Asked::Expired => Answer::Expired,
            Asked::NoAnswer => Answer::NoAnswer,
        };
        let output = encode(&answer.to_json())?;
        let outcome = record::succeeded(&id, StepKind::Approval, Some(output));
        let mut events = ctx.without_timers(&id);
        events.push(outcome);
        ctx.settle(&id, StepKind::Approval, events).await?;
        Ok(answer)
    }
}

impl IntoFuture for ApprovalWait {
    type Output = Result<Answer>;
    type IntoFuture = BoxFuture<'static, Result<Answer>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.wait())
    }
}
