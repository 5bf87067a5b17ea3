//! What a run writes to a memory: exactly once.
//!
//! ```text
//! intent                          which memory, and what is done; not what the document says
//! turn                            one run of this process writes to a memory at a time
//! draft                           at the newest version of the memory
//! one append                      the memory's event, caused by the intent; and the outcome
//!   another process was faster: draft again, a little later
//! durable
//! ```
//!
//! Invariant: a crash leaves the memory's event and the outcome, or neither; then the step is done
//! again.

use dalsegno_memory::{DocId, Draft, Memory, MemoryError, NewDocument};
use dalsegno_store::{EventRef, NewPayload};
use serde_json::{Value, json};

use super::{RunMemory, failure_of};
use crate::ctx::{encode, too_large};
use crate::effect::Effect;
use crate::failure::{Failure, Result};
use crate::journal::Outcome;
use crate::run::{Active, Ahead, Begun, Done, Step, Stopped, Ticket, Together, Unbroken};
use crate::step::{StepId, StepKind};

/// Who finds the memory further than it was waits for less than so many microseconds, …
const WAIT_US: u64 = 500;
/// … doubled each time, so often at most.
const WAIT_DOUBLED: u32 = 7;

/// What is to be written.
#[derive(Debug)]
pub(super) enum Write {
    Add(NewDocument),
    Correct(DocId, NewDocument),
    Retract(DocId, String),
    Forget(Vec<DocId>, String),
}

impl Write {
    /// For the intent. What a document says is not in it: it would stay when that is forgotten.
    fn input(&self, memory: &str) -> Value {
        match self {
            Write::Add(document) => json!({
                "memory": memory, "add": document.kind().word(), "key": document.key_name(),
            }),
            Write::Correct(id, document) => json!({
                "memory": memory, "correct": id.0, "add": document.kind().word(),
                "key": document.key_name(),
            }),
            Write::Retract(id, reason) => json!({
                "memory": memory, "retract": id.0, "reason": reason,
            }),
            Write::Forget(ids, reason) => {
                let ids: Vec<u64> = ids.iter().map(|id| id.0).collect();
                json!({ "memory": memory, "forget": ids, "reason": reason })
            }
        }
    }

    /// For people.
    fn words(&self, memory: &Memory, draft: &Draft) -> String {
        let (sequence, memory) = (draft.sequence(), memory.stream());
        match self {
            Write::Add(_) if draft.append().is_none() => {
                format!("document {sequence} was in {memory} under its key")
            }
            Write::Add(_) => format!("adds document {sequence} to {memory}"),
            Write::Correct(id, _) => {
                format!("corrects document {id} of {memory}, which is {sequence} now")
            }
            Write::Retract(id, _) => format!("retracts document {id} of {memory}"),
            Write::Forget(ids, _) => {
                let shown: Vec<String> = ids.iter().take(5).map(DocId::to_string).collect();
                let rest = if ids.len() > shown.len() { ", …" } else { "" };
                format!("forgets documents {}{rest} of {memory}", shown.join(", "))
            }
        }
    }

    async fn draft(&self, memory: &Memory) -> std::result::Result<Draft, MemoryError> {
        match self {
            Write::Add(document) => memory.draft_add(document).await,
            Write::Correct(id, document) => memory.draft_correct(*id, document).await,
            Write::Retract(id, reason) => memory.draft_retract(*id, reason).await,
            Write::Forget(ids, reason) => memory.draft_forget(ids, reason).await,
        }
    }
}

impl RunMemory {
    /// Writes, once; the sequence of the memory's event.
    pub(super) fn write(
        &self,
        what: &str,
        write: Write,
    ) -> impl Future<Output = Result<u64>> + Send + use<> {
        let (memory, id) = (self.clone(), self.identify(what));
        async move {
            let (id, _sight) = id?;
            memory.drive(id, write).await
        }
    }

    async fn drive(self, id: StepId, write: Write) -> Result<u64> {
        let ctx = self.ctx.clone();
        let mut step = Step::new(id.clone(), StepKind::Memory, Effect::Idempotent);
        step.input = Some(encode(&write.input(&self.name))?);
        step.in_plan = ctx.in_plan;
        match ctx.run.before_intent(step).await {
            Err(stopped) => ctx.frozen(stopped).await,
            Ok(Ahead::Recorded(outcome)) => {
                let answer: Value = ctx.recorded(&id, outcome).await?;
                let sequence = self.read(&id, answer["sequence"].as_u64()).await;
                self.same_write(&id, &write, sequence).await;
                if matches!(write, Write::Forget(..)) && !ctx.run.is_replay() {
                    // Who recorded it may have been stopped before the contents were gone.
                    let rest = self.open().await.finish_forgetting().await;
                    if let Err(e) = rest {
                        return self.stop(e).await;
                    }
                }
                Ok(sequence)
            }
            Ok(Ahead::Intend(step, attempt)) => self.once(step, attempt, write).await,
            // Nothing happens outside of an append, so there is never a doubt.
            Ok(Ahead::InDoubt(doubt)) => ctx.frozen(ctx.run.escalate(&doubt)).await,
        }
    }

    /// Executes it. From the intent on it is brought to its end, whatever the code does meanwhile.
    async fn once(self, step: Step, attempt: u64, write: Write) -> Result<u64> {
        let ctx = self.ctx.clone();
        let showing = ctx.run.showing(&step.id, StepKind::Memory);
        let mut active = Active::new(&ctx.run);
        active.is_unbroken(&mut ctx.run.state());
        let writing = Unbroken::new(&ctx.run.runtime, async move {
            let _active = active;
            match self.ctx.run.intend(step, attempt).await? {
                Begun::Recorded(Outcome::Failed(failure)) => Ok(Err(failure)),
                Begun::Execute(ticket) => self.write_to_the_end(ticket, write).await,
                // An intent that was recorded is to be acted on.
                other => {
                    let why = format!("a write was begun, and came to {other:?}");
                    Err(self.ctx.run.stop(Stopped::Store(why)))
                }
            }
        });
        match writing.await {
            Err(stopped) => ctx.frozen(stopped).await,
            Ok(result) => {
                showing.seen();
                result
            }
        }
    }

    async fn write_to_the_end(
        &self,
        ticket: Ticket,
        write: Write,
    ) -> std::result::Result<Result<u64>, Stopped> {
        let run = &self.ctx.run;
        let (ticket, done, result) = match self.append(ticket, write).await? {
            Wrote::Recorded(sequence) => return Ok(Ok(sequence)),
            Wrote::There(ticket, output, sequence) => {
                let (output, usage) = (Some(output), Default::default());
                (ticket, Done::Succeeded { output, usage }, Ok(sequence))
            }
            Wrote::Failed(ticket, failure) => {
                let failure = failure.at(ticket.step.id.as_str());
                (ticket, Done::Failed(failure.clone()), Err(failure))
            }
        };
        let recorded = run.finish_unseen(*ticket, done).await?;
        Ok(recorded.and(result))
    }

    /// Appends it, with its outcome, as soon as nobody else is faster.
    async fn append(
        &self,
        mut ticket: Ticket,
        write: Write,
    ) -> std::result::Result<Wrote, Stopped> {
        let run = &self.ctx.run;
        let memory = run.memories.get(&self.name).await;
        let memory = memory.map_err(|e| self.stopped(&e))?.by(&self.by);
        let memory = match ticket.intent {
            Some(sequence) => memory.caused_by(EventRef {
                stream: run.id().clone(),
                sequence,
            }),
            None => memory,
        };
        let mut lost = 0;
        loop {
            let turn = run.memories.turn(&self.name).await;
            // Whoever is to stop writes nothing more, however many were in front of it. A process that
            // closes lets what is begun finish.
            match run.stopped() {
                None | Some(Stopped::Closing) => {}
                Some(stopped) => {
                    run.state().gave_up = true;
                    return Err(stopped);
                }
            }
            let draft = match write.draft(&memory).await {
                Ok(draft) => draft,
                Err(e @ MemoryError::Store(_)) => return Err(self.stopped(&e)),
                Err(e) => return Ok(Wrote::Failed(Box::new(ticket), failure_of(&e))),
            };
            ticket.seen = Some(draft.seen());
            let sequence = draft.sequence();
            ticket.summary = Some(write.words(&memory, &draft));
            let output = match encode(&json!({ "sequence": sequence })) {
                Ok(output) => output,
                Err(failure) => return Ok(Wrote::Failed(Box::new(ticket), failure)),
            };
            let Some(append) = draft.append() else {
                return Ok(Wrote::There(Box::new(ticket), output, sequence));
            };
            let appended = run.append_together(ticket, output, append).await?;
            drop(turn);
            match appended {
                Together::Done => {
                    run.durable().await?;
                    let written = memory.written(draft).await;
                    written.map_err(|e| self.stopped(&e))?;
                    return Ok(Wrote::Recorded(sequence));
                }
                Together::Moved(again) => {
                    // Somebody in another process was faster.
                    ticket = again;
                    lost += 1;
                    run.runtime.sleep_until(self.later_us(lost)).await;
                }
                Together::Refused(ticket, why) => {
                    let failure = too_large(&ticket.step.id, why);
                    return Ok(Wrote::Failed(Box::new(ticket), failure));
                }
            }
        }
    }
}

impl RunMemory {
    /// When to try again after so many tries: at a random time, the later the more others write.
    fn later_us(&self, tries: u32) -> u64 {
        let runtime = &self.ctx.run.runtime;
        let within_us = WAIT_US << tries.min(WAIT_DOUBLED);
        runtime.now_us() + runtime.random() % within_us
    }
}

/// What a write came to.
enum Wrote {
    /// It is recorded, with its outcome.
    Recorded(u64),
    /// It was there: the outcome is to be recorded.
    There(Box<Ticket>, NewPayload, u64),
    /// The memory does not take it: that is to be recorded.
    Failed(Box<Ticket>, Failure),
}
