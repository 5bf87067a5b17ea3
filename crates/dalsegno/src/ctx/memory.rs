//! Memories inside of a run.
//!
//! | call | step | what is recorded |
//! |---|---|---|
//! | `search`, `get`, `version` | `retrieval`, read-only | one event: what was asked, and what was found, without what the documents say |
//! | `add`, `correct`, `retract`, `forget` | `memory`, idempotent | the intent; then the memory's event and the outcome, in one append |
//!
//! Invariants: what the code is told is the same at every replay, but for what is forgotten, which is
//! gone from the memory and from here, and said to be. What a document says is in the memory only, so
//! that it can be forgotten. A write and its outcome are both recorded, or neither.

use std::future::Future;
use std::sync::Arc;

use dalsegno_memory::{
    AsOf, DocId, Document, Memory, MemoryError, NewDocument, Query, RankingConfig,
};
use dalsegno_store::{StreamId, Version};
use serde_json::{Value, json};

use super::{Ctx, encode, misuse};
use crate::effect::Effect;
use crate::failure::{Certainty, Failure, FailureKind, Result};
use crate::run::{Active, Begun, Done, Sight, Step, Stopped, Ticket, Unbroken};
use crate::step::{STEP_NAME_LIMIT_BYTES, StepId, StepKind};

mod found;
mod same;
mod write;

pub use found::{Found, FoundDocument, FoundHit};
pub(super) use found::{vector_hex, vector_of};
use write::Write;

/// A memory, in the hands of a run; [`Ctx::memory`] makes it.
///
/// Everything it does is a step. What it is given is written in the name of the run, unless
/// [`RunMemory::by`] says another one.
#[derive(Clone, Debug)]
pub struct RunMemory {
    ctx: Ctx,
    name: String,
    by: String,
}

impl Ctx {
    /// A memory of the store, which all runs share. See [`crate::memory`] for an example.
    pub fn memory(&self, name: &str) -> RunMemory {
        RunMemory {
            ctx: self.clone(),
            name: name.to_owned(),
            by: self.run.id().to_string(),
        }
    }
}

/// What the record says of a lookup.
enum Asked {
    Recorded(Value),
    Ask(Box<Ticket>),
}

impl RunMemory {
    /// Writes in somebody's name: an agent's, a person's.
    pub fn by(mut self, author: &str) -> RunMemory {
        self.by = author.to_owned();
        self
    }

    /// Finds documents. What is found is recorded, with the version that was searched: when the run
    /// is driven again, it is handed the same ids, scores and order. What the documents say is read
    /// from the memory; one that was forgotten since is said to be ([`FoundHit::content`]).
    ///
    /// Explanations are not recorded and not given: search outside of the run, as of the version
    /// that was found.
    pub fn search(
        &self,
        query: &Query,
        ranking: &RankingConfig,
    ) -> impl Future<Output = Result<Found>> + Send + use<> {
        let (memory, id) = (self.clone(), self.identify("search"));
        let mut query = query.clone();
        query.explain = false;
        let ranking = ranking.clone();
        async move {
            let (id, _sight) = id?;
            let input = found::asked_json(&memory.name, &query, &ranking);
            match memory.begin(&id, &input).await? {
                Asked::Recorded(answer) => {
                    let mut found: Found = memory.read(&id, Found::from_json(&answer)).await;
                    memory.same_search(&id, &query, &ranking, &found).await;
                    let ids: Vec<DocId> = found.hits.iter().map(|hit| hit.id).collect();
                    let contents = memory.contents(&id, &ids).await;
                    for (hit, content) in found.hits.iter_mut().zip(contents) {
                        hit.content = content;
                    }
                    Ok(found)
                }
                Asked::Ask(mut ticket) => {
                    let open = memory.open().await;
                    let found = open.search(&query, &ranking).await;
                    let found = found.map(|hits| {
                        let found = Found::of(hits);
                        let asked = found::query_words(&query);
                        ticket.summary = Some(format!("{asked} {}", found.words(&memory.name)));
                        (found.to_json(&ranking), found.version, found)
                    });
                    memory.end(*ticket, found).await
                }
            }
        }
    }

    /// A document, as it is now. A failure of kind [`FailureKind::Ended`] says that it is forgotten.
    pub fn get(&self, id: DocId) -> impl Future<Output = Result<FoundDocument>> + Send + use<> {
        let (memory, step) = (self.clone(), self.identify("get"));
        async move {
            let (step, _sight) = step?;
            let input = json!({ "memory": memory.name, "id": id.0 });
            match memory.begin(&step, &input).await? {
                Asked::Recorded(answer) => {
                    let read = FoundDocument::from_json(&answer);
                    let mut document: FoundDocument = memory.read(&step, read).await;
                    memory.same_version(&step, document.version).await;
                    let mut contents = memory.contents(&step, &[id]).await;
                    if let Some(content) = contents.pop() {
                        document.content = content;
                    }
                    Ok(document)
                }
                Asked::Ask(mut ticket) => {
                    let open = memory.open().await;
                    ticket.summary = Some(format!("reads document {id} of {}", open.stream()));
                    let found = look_up(&open, id).await.map(|(document, version)| {
                        let document = FoundDocument::of(document, version);
                        (document.to_json(), version, document)
                    });
                    memory.end(*ticket, found).await
                }
            }
        }
    }

    /// The newest version: a sequence, and a hash over everything up to it.
    pub fn version(&self) -> impl Future<Output = Result<Version>> + Send + use<> {
        let (memory, step) = (self.clone(), self.identify("version"));
        async move {
            let (step, _sight) = step?;
            let input = json!({ "memory": memory.name });
            match memory.begin(&step, &input).await? {
                Asked::Recorded(answer) => {
                    let version = found::version_of(&answer["version"]);
                    let version = memory.read(&step, version).await;
                    memory.same_version(&step, version).await;
                    Ok(version)
                }
                Asked::Ask(ticket) => {
                    let version = memory.open().await.version().await;
                    let version = version.map(|version| {
                        let answer = json!({ "version": found::version_json(version) });
                        (answer, version, version)
                    });
                    memory.end(*ticket, version).await
                }
            }
        }
    }

    /// Adds a document, once. It is durable when this returns.
    pub fn add(&self, document: NewDocument) -> impl Future<Output = Result<DocId>> + Send + use<> {
        let written = self.write("add", Write::Add(document));
        async move { Ok(DocId(written.await?)) }
    }

    /// Puts another document in the place of one, once. A failure of kind [`FailureKind::Ended`] says
    /// that somebody was faster.
    pub fn correct(
        &self,
        id: DocId,
        new: NewDocument,
    ) -> impl Future<Output = Result<DocId>> + Send + use<> {
        let written = self.write("correct", Write::Correct(id, new));
        async move { Ok(DocId(written.await?)) }
    }

    /// Says that a document is not so any more, and why. The sequence of the memory's event that
    /// says so.
    pub fn retract(
        &self,
        id: DocId,
        reason: &str,
    ) -> impl Future<Output = Result<u64>> + Send + use<> {
        self.write("retract", Write::Retract(id, reason.to_owned()))
    }

    /// Forgets documents, as [`Memory::forget`] does. The sequence of the memory's event that says
    /// so.
    pub fn forget(
        &self,
        ids: &[DocId],
        reason: &str,
    ) -> impl Future<Output = Result<u64>> + Send + use<> {
        self.write("forget", Write::Forget(ids.to_vec(), reason.to_owned()))
    }

    /// Fixes the identity of a step: the memory's name and what is done, as in `kitchen.add#1`. With
    /// what is to be held until the code sees what it came to.
    fn identify(&self, what: &str) -> Result<(StepId, Sight)> {
        StreamId::memory(&self.name).map_err(|e| misuse(e.to_string()))?;
        let bad = |c: char| matches!(c, '/' | '#' | '!' | '@') || c.is_control();
        let mut name = self.name.replace(bad, "-");
        while name.len() + 1 + what.len() > STEP_NAME_LIMIT_BYTES {
            name.pop();
        }
        let id = self.ctx.identify(&format!("{name}.{what}"))?;
        let sight = self.ctx.run.sight(&id);
        Ok((id, sight))
    }

    /// The memory, open. If it cannot be read, the run stops here.
    async fn open(&self) -> Memory {
        let run = &self.ctx.run;
        let _active = Active::new(run);
        let (memories, name) = (Arc::clone(&run.memories), self.name.clone());
        let opening = async move { memories.get(&name).await };
        match Unbroken::new(&run.runtime, opening).await {
            Ok(memory) => memory,
            Err(e) => self.stop(e).await,
        }
    }

    /// The run stops here: its memory cannot be used.
    async fn stop<T>(&self, error: MemoryError) -> T {
        self.ctx.frozen(self.stopped(&error)).await
    }

    fn stopped(&self, error: &MemoryError) -> Stopped {
        let run = &self.ctx.run;
        match error {
            MemoryError::Store(e) => run.stop_for(e),
            other => run.stop(Stopped::Store(other.to_string())),
        }
    }

    /// Begins a lookup.
    async fn begin(&self, id: &StepId, input: &Value) -> Result<Asked> {
        let ctx = &self.ctx;
        let mut step = Step::new(id.clone(), StepKind::Retrieval, Effect::ReadOnly);
        step.input = Some(encode(input)?);
        step.in_plan = ctx.in_plan;
        match ctx.run.begin(step).await {
            Err(stopped) => ctx.frozen(stopped).await,
            Ok(Begun::Recorded(outcome)) => Ok(Asked::Recorded(ctx.recorded(id, outcome).await?)),
            Ok(Begun::Execute(ticket)) => Ok(Asked::Ask(Box::new(ticket))),
            // Only what can be seen from outside is ever in doubt.
            Ok(Begun::InDoubt(doubt)) => ctx.frozen(ctx.run.escalate(&doubt)).await,
        }
    }

    /// Ends a lookup: records what was found in which version, or why nothing could be.
    async fn end<T>(
        &self,
        mut ticket: Ticket,
        found: std::result::Result<(Value, Version, T), MemoryError>,
    ) -> Result<T> {
        let ctx = &self.ctx;
        let (done, result) = match found {
            Err(MemoryError::Store(e)) => return self.stop(e.into()).await,
            Err(e) => {
                let failure = failure_of(&e).at(ticket.step.id.as_str());
                (Done::Failed(failure.clone()), Err(failure))
            }
            Ok((answer, version, found)) => {
                ticket.seen = Some(version);
                let (output, usage) = (Some(encode(&answer)?), Default::default());
                (Done::Succeeded { output, usage }, Ok(found))
            }
        };
        match ctx.run.finish(ticket, done).await {
            Err(stopped) => ctx.frozen(stopped).await,
            Ok(Err(failure)) => Err(failure),
            Ok(Ok(())) => result,
        }
    }

    /// What is recorded, if it can be read.
    async fn read<T>(&self, id: &StepId, read: Option<T>) -> T {
        match read {
            Some(read) => read,
            None => {
                let (wanted, why) = ("the answer of a memory", "something is missing in it");
                self.ctx.unreadable(id, wanted, why).await
            }
        }
    }

    /// What documents say, and of those that are forgotten, that they are.
    async fn contents(
        &self,
        id: &StepId,
        ids: &[DocId],
    ) -> Vec<std::result::Result<dalsegno_memory::Content, dalsegno_memory::Ended>> {
        if ids.is_empty() {
            return Vec::new();
        }
        let _active = Active::new(&self.ctx.run);
        match self.open().await.contents_of(ids).await {
            Ok(contents) => contents,
            Err(e @ MemoryError::NotFound { .. }) if self.ctx.run.is_replay() => {
                let then = format!("knows documents of memory/{}", self.name);
                self.differs(id, then, e.to_string()).await;
                self.stop(e).await
            }
            Err(e) => self.stop(e).await,
        }
    }

    /// In a replay: the memory has, or had, the version that is recorded.
    async fn same_version(&self, id: &StepId, then: Version) {
        if !self.ctx.run.is_replay() || self.is_changed_by_a_fork(id) {
            return;
        }
        let found = {
            let _active = Active::new(&self.ctx.run);
            self.open().await.version_at(AsOf::Version(then)).await
        };
        match found {
            Ok(_) => {}
            Err(MemoryError::Store(e)) => self.stop(e.into()).await,
            Err(other) => {
                let then = same::at(&self.name, then);
                self.differs(id, then, other.to_string()).await;
            }
        }
    }
}

/// A document, and the version that it is so in.
async fn look_up(
    memory: &Memory,
    id: DocId,
) -> std::result::Result<(Document, Version), MemoryError> {
    let mut before = memory.get(id).await?;
    loop {
        let version = memory.version().await?;
        let after = memory.get(id).await?;
        // It is never again as it was before it ended: so it was the same in between, however many
        // wrote to the memory meanwhile.
        if after == before {
            return Ok((after, version));
        }
        before = after;
    }
}

/// What a memory refuses, as the failure of a step. It was not done, and would not be again.
fn failure_of(error: &MemoryError) -> Failure {
    let kind = match error {
        MemoryError::Ended { .. } => FailureKind::Ended,
        MemoryError::TooLarge { .. } => FailureKind::TooLarge,
        MemoryError::Random(_) | MemoryError::Moved { .. } => FailureKind::Failed,
        _ => FailureKind::Misuse,
    };
    Failure::of(kind, Certainty::Terminal, error)
}
