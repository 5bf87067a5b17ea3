//! What a run writes to a memory: exactly once.
//!
//! ```text
//! intent                          which memory, and what is done; not what the document says
//! draft                           at the newest version of the memory
//! one append                      the memory's event, caused by the intent; and the outcome
//!   the memory has moved: draft again
//! ```
//!
//! Invariant: a crash leaves the memory's event and the outcome, or neither; then the step is done
//! again.

use dalsegno_memory::{DocId, Draft, Memory, MemoryError, NewDocument};
use dalsegno_store::EventRef;
use serde_json::{Value, json};

use super::{RunMemory, failure_of};
use crate::ctx::{encode, too_large};
use crate::effect::Effect;
use crate::failure::Result;
use crate::run::{Begun, Done, Step, Ticket, Together};
use crate::step::{StepId, StepKind};

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
        async move { memory.drive(id?, write).await }
    }

    async fn drive(self, id: StepId, write: Write) -> Result<u64> {
        let ctx = &self.ctx;
        let mut step = Step::new(id.clone(), StepKind::Memory, Effect::Idempotent);
        step.input = Some(encode(&write.input(&self.name))?);
        step.in_plan = ctx.in_plan;
        match ctx.run.begin(step).await {
            Err(stopped) => ctx.frozen(stopped).await,
            Ok(Begun::Recorded(outcome)) => {
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
            Ok(Begun::Execute(ticket)) => self.once(ticket, &write).await,
            // Nothing happens outside of an append, so there is never a doubt.
            Ok(Begun::InDoubt(doubt)) => ctx.frozen(ctx.run.escalate(&doubt)).await,
        }
    }

    async fn once(&self, mut ticket: Ticket, write: &Write) -> Result<u64> {
        let (ctx, id) = (&self.ctx, ticket.step.id.clone());
        let memory = self.open().await.by(&self.by);
        let memory = match ticket.intent {
            Some(sequence) => memory.caused_by(EventRef {
                stream: ctx.run.id().clone(),
                sequence,
            }),
            None => memory,
        };
        loop {
            let draft = match write.draft(&memory).await {
                Ok(draft) => draft,
                Err(MemoryError::Store(e)) => return self.stop(e.into()).await,
                Err(e) => return self.failed(ticket, failure_of(&e).at(id.as_str())).await,
            };
            ticket.seen = Some(draft.seen());
            let sequence = draft.sequence();
            ticket.summary = Some(write.words(&memory, &draft));
            let output = encode(&json!({ "sequence": sequence }))?;
            let Some(append) = draft.append() else {
                let (output, usage) = (Some(output), Default::default());
                let done = Done::Succeeded { output, usage };
                return match ctx.run.finish(ticket, done).await {
                    Err(stopped) => ctx.frozen(stopped).await,
                    Ok(finished) => finished.map(|()| sequence),
                };
            };
            match ctx.run.finish_with(ticket, output, append).await {
                Err(stopped) => return ctx.frozen(stopped).await,
                Ok(Together::Moved(again)) => ticket = again,
                Ok(Together::Refused(ticket, why)) => {
                    return self.failed(ticket, too_large(&id, why)).await;
                }
                Ok(Together::Done) => {
                    let _active = crate::run::Active::new(&ctx.run);
                    return match memory.written(draft).await {
                        Ok(()) => Ok(sequence),
                        Err(e) => self.stop(e).await,
                    };
                }
            }
        }
    }

    async fn failed(&self, ticket: Ticket, failure: crate::failure::Failure) -> Result<u64> {
        let done = Done::Failed(failure.clone());
        match self.ctx.run.finish(ticket, done).await {
            Err(stopped) => self.ctx.frozen(stopped).await,
            Ok(Err(other)) => Err(other),
            Ok(Ok(())) => Err(failure),
        }
    }
}
