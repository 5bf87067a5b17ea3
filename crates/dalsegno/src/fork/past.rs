//! What a fork shares with its origin: the events, and what becomes of each step.
//!
//! Invariant: an effect of the shared past is never forgotten. A step that can have had one is
//! shared with its outcome, or with the doubt and the key that it was sent with.

use std::collections::HashMap;

use dalsegno_store::{Event, Kind, Recorded, Store, StoreError, StreamId};

use crate::budget::Usage;
use crate::effect::Effect;
use crate::failure::Certainty;
use crate::journal::{Journal, StepRecord, Verdict};
use crate::record;
use crate::step::{StepId, StepKind, idempotency_key};

/// Events read at once.
const PAGE: usize = 4096;

/// What becomes of a step in the fork.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fate {
    /// Its events are shared as they are.
    Shared,
    /// The same, and it got this outcome later.
    Later(Box<Event>),
    /// The same, and nobody knows how it ended: it was sent with this key.
    Unknown(String),
    /// The fork does it for itself.
    Anew,
}

/// What a fork shares with its origin.
pub(super) struct Past {
    pub origin: StreamId,
    pub cut: u64,
    /// The origin's hash there.
    pub hash: Vec<u8>,
    /// The origin's journal there.
    pub shared: Journal,
    /// What was used up to the end of the last turn.
    pub before: Usage,
    /// What was said in conversations before the last turn ended.
    pub messages: Vec<Event>,
    /// From before the last turn: signals that nobody had taken, and resources.
    pub carried: Vec<Event>,
    /// The end of the last turn, if it is a loop, and all that follows, up to the cut.
    pub events: Vec<Event>,
    pub fates: HashMap<StepId, Fate>,
}

impl Past {
    /// A `once` step that was begun, and of which nobody knows how it ended.
    pub fn first_unknown_once(&self) -> Option<&StepId> {
        let unknown = self.fates.iter().filter(|(id, fate)| {
            let step = self.shared.steps.get(*id);
            matches!(fate, Fate::Unknown(_)) && step.is_some_and(|s| s.effect == Effect::Once)
        });
        unknown.map(|(id, _)| id).min()
    }

    pub fn fate(&self, id: &StepId) -> &Fate {
        self.fates.get(id).unwrap_or(&Fate::Shared)
    }
}

/// Reads the shared past of a run.
pub(super) async fn read(
    store: &dyn Store,
    origin: &StreamId,
    shared: &Journal,
    cut: u64,
    head: u64,
) -> Result<Past, StoreError> {
    let turn = shared.turn.as_ref().map(|turn| turn.sequence);
    let mut events = Vec::new();
    let mut hash = Vec::new();
    each(store, origin, turn.unwrap_or(1), cut, |recorded| {
        if recorded.event.sequence == cut {
            hash = recorded.hash.as_bytes().to_vec();
        }
        events.push(recorded.event);
        true
    })
    .await?;
    let mut carried = Vec::new();
    let mut messages = Vec::new();
    let mut before = Usage::default();
    if let (Some(turn), Some(end)) = (turn, events.first()) {
        each(store, origin, 1, turn - 1, |recorded| {
            let event = recorded.event;
            let kind = event.fields.number(record::step::KIND);
            if event.kind == Kind::StepSucceeded && kind == Some(StepKind::Message.number()) {
                messages.push(event);
            }
            true
        })
        .await?;
        let (carry, counting) = crate::journal::carried(store, origin, end).await?;
        before = carry.usage;
        carried = counting;
        carried.retain(|e| matches!(e.kind, Kind::SignalReceived | Kind::ResourceNoted));
    }
    let fates = fates(store, origin, shared, cut, head).await?;
    Ok(Past {
        origin: origin.clone(),
        cut,
        hash,
        shared: shared.clone(),
        before,
        messages,
        carried,
        events,
        fates,
    })
}

/// Gives each event of a range to `take`, until it has enough.
async fn each(
    store: &dyn Store,
    stream: &StreamId,
    from: u64,
    to: u64,
    mut take: impl FnMut(Recorded) -> bool,
) -> Result<(), StoreError> {
    let mut next = from;
    while next <= to {
        let limit = PAGE.min((to - next + 1) as usize);
        let page = store.read(stream, next, limit).await?;
        if page.is_empty() {
            return Ok(());
        }
        for recorded in page {
            next = recorded.event.sequence + 1;
            if !take(recorded) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// What becomes of the steps that have no outcome at the cut.
async fn fates(
    store: &dyn Store,
    origin: &StreamId,
    shared: &Journal,
    cut: u64,
    head: u64,
) -> Result<HashMap<StepId, Fate>, StoreError> {
    let lineage = &shared.created.lineage;
    let mut fates = HashMap::new();
    let mut open = HashMap::new();
    for (id, step) in shared.steps.iter() {
        if step.outcome.is_some() {
            continue;
        }
        let fate = at_the_cut(id, step, lineage);
        let is_settled_later =
            matches!(fate, Fate::Unknown(_)) || (step.kind == StepKind::Child && step.attempts > 0);
        if is_settled_later {
            open.insert(id.clone(), ());
        }
        fates.insert(id.clone(), fate);
    }
    if open.is_empty() {
        return Ok(fates);
    }
    each(store, origin, cut + 1, head, |recorded| {
        let event = recorded.event;
        let ends_turn = event.kind == Kind::CheckpointWritten
            && event.fields.number(record::checkpoint::TURN).is_some();
        let id = event.fields.text(record::step::STEP).map(StepId::new);
        if let Some(id) = id.filter(|id| open.contains_key(id))
            && let Some(fate) = settled(event)
        {
            open.remove(&id);
            fates.insert(id, fate);
        }
        // Steps of a turn never come after it.
        !ends_turn && !open.is_empty()
    })
    .await?;
    Ok(fates)
}

fn at_the_cut(id: &StepId, step: &StepRecord, lineage: &str) -> Fate {
    match (step.kind, step.effect) {
        (StepKind::PlanStep | StepKind::Sleep, _) => Fate::Shared,
        // Whoever knows its outcome later says so.
        (StepKind::Child, _) | (_, Effect::ReadOnly) => Fate::Anew,
        (_, Effect::Once | Effect::Idempotent) => {
            let failed = step.retry.as_deref();
            let is_not_done = failed.is_some_and(|(f, _)| f.certainty() != Certainty::Unknown);
            match step.not_done || is_not_done {
                true => Fate::Anew,
                false => {
                    let key = step.key.clone();
                    Fate::Unknown(key.unwrap_or_else(|| idempotency_key(lineage, id.as_str())))
                }
            }
        }
    }
}

/// What an event behind the cut says about a step that was open there.
fn settled(event: Event) -> Option<Fate> {
    let fields = &event.fields;
    match event.kind {
        Kind::StepSucceeded => Some(Fate::Later(Box::new(event))),
        Kind::StepFailed => {
            let again = fields.get(record::failure::RETRY_AT).is_some();
            let certainty = fields.number(record::failure::CERTAINTY);
            let certainty = certainty.and_then(Certainty::from_number);
            match (again, certainty) {
                (false, _) => Some(Fate::Later(Box::new(event))),
                (true, Some(Certainty::NotDone | Certainty::Terminal)) => Some(Fate::Anew),
                (true, _) => None,
            }
        }
        Kind::StepResolved => {
            let verdict = fields.number(record::resolved::VERDICT);
            match verdict.and_then(Verdict::from_number) {
                Some(Verdict::Happened) => Some(Fate::Later(Box::new(event))),
                Some(Verdict::DidNotHappen) => Some(Fate::Anew),
                Some(Verdict::FailRun) | None => None,
            }
        }
        _ => None,
    }
}
