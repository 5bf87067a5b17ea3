//! What a run has done so far: a fold over its events.
//!
//! Invariant: the same events give the same journal, whoever reads them, and wherever a loop's last
//! turn lets the reading begin.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use dalsegno_store::{Event, Payload, Status, StreamId, Version};

use crate::attention::Attention;
use crate::budget::{Budget, Usage};
use crate::effect::Effect;
use crate::failure::Failure;
use crate::resource::NotedResource;
use crate::step::{StepId, StepKind};

mod carry;
mod fold;
mod load;
mod order;
mod replay;
mod steps;

pub(crate) use carry::Carry;
pub(crate) use fold::read_usage;
pub(crate) use load::{bytes_of, carried, load};
use order::Order;
pub(crate) use order::{NOT_SEEN, are_ordered, seen};
pub use steps::Steps;

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done; the result, if it has one.
    Succeeded(Option<Payload>),
    /// It failed for good.
    Failed(Failure),
}

/// What became of a step in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It happened.
    Happened,
    /// It did not.
    DidNotHappen,
    /// Nobody will ever know, or it does not matter: the run fails.
    FailRun,
}

crate::failure::numbered! { Verdict:
    Happened = 1, "happened";
    DidNotHappen = 2, "did-not-happen";
    FailRun = 3, "fail-run";
}

/// One step, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// What it does.
    pub kind: StepKind,
    /// What it does to the world.
    pub effect: Effect,
    /// What went in.
    pub input: Option<Payload>,
    /// How often it was begun.
    pub attempts: u64,
    /// How often the process ended while it was under way, since the run last made progress or a
    /// person last looked.
    pub crashes: u64,
    /// Its outcome, if it has one.
    pub outcome: Option<Outcome>,
    /// A failure that is not final, and when it is tried again.
    pub retry: Option<Box<(Failure, u64)>>,
    /// A person or a probe said that it did not happen, after the last attempt.
    pub not_done: bool,
    /// The child run that it started.
    pub child: Option<StreamId>,
    /// The idempotency key that it was sent with, if that is not the run's own: a fork took it over.
    pub key: Option<String>,
    /// What was asked and what came of it, in words for people, if it says so itself.
    pub summary: Option<Box<str>>,
    /// What it used.
    pub usage: Usage,
    /// The event of its first intent, or of its outcome if it had none.
    pub first: u64,
    /// The event of its outcome.
    pub last: u64,
    /// When it was first begun, in microseconds since 1970.
    pub begun_us: u64,
    /// When its outcome was recorded.
    pub done_us: u64,
    /// It was begun while the code had not seen what another step came to.
    pub(crate) beside: bool,
    /// The event that says that the code has seen its outcome, if not the outcome's own.
    pub(crate) seen: Option<u64>,
    /// The running code has to come to it, and has not.
    pub(crate) due: bool,
    /// The running code sees its outcome when it is its turn, and has not seen it.
    pub(crate) held: bool,
}

impl StepRecord {
    fn new(kind: StepKind, event: &Event) -> StepRecord {
        StepRecord {
            kind,
            effect: Effect::ReadOnly,
            input: None,
            attempts: 0,
            crashes: 0,
            outcome: None,
            retry: None,
            not_done: false,
            child: None,
            key: None,
            summary: None,
            usage: Usage::default(),
            first: event.sequence,
            last: event.sequence,
            begun_us: event.time_us,
            done_us: 0,
            beside: false,
            seen: None,
            due: false,
            held: false,
        }
    }

    /// Begun, and nobody knows how it ended.
    pub fn is_open(&self) -> bool {
        self.attempts > 0 && self.outcome.is_none() && self.retry.is_none() && !self.not_done
    }

    /// Code that does not come to it has changed.
    ///
    /// Not so if it was begun beside an outcome that the code had not seen, and has none itself, or one
    /// that others have recorded since: code that is shown that outcome sooner may let go of what led
    /// here before it comes here.
    fn is_proof(&self) -> bool {
        let is_in_doubt = self.effect == Effect::Once && self.is_open();
        let is_of_others = self.seen.is_none() && order::is_from_outside(self);
        let has_ended = self.outcome.is_some() && !(self.beside && is_of_others);
        self.kind != StepKind::Patched && (has_ended || is_in_doubt || !self.beside)
    }
}

/// A wait of the code that is recorded, and is not a step that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Awaited {
    /// In words, as in `approval refund#1`.
    what: String,
    /// The event that says so first.
    first: u64,
    /// The running code has to come to it, and has not.
    due: bool,
}

/// A signal that nobody has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signal {
    pub name: String,
    pub payload: Option<Payload>,
}

/// A request to a person, and the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRecord {
    /// What is to be approved.
    pub payload: Option<Payload>,
    /// The hash that an answer has to repeat.
    pub hash: Vec<u8>,
    /// Until when an answer counts, in microseconds since 1970.
    pub expires_us: Option<u64>,
    /// When it was asked.
    pub asked_us: u64,
    /// The first answer that counts.
    pub answer: Option<ApprovalAnswer>,
    /// It was used, or nobody waits for it any more.
    pub used: bool,
}

/// What a person said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalAnswer {
    /// Yes or no.
    pub approved: bool,
    /// Who.
    pub by: String,
    /// In words.
    pub note: String,
    /// The event that it came in.
    pub sequence: u64,
}

/// How a run began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// The agent.
    pub agent: String,
    /// What it was given.
    pub input: Option<Payload>,
    /// The run and step that started it.
    pub parent: Option<(StreamId, StepId)>,
    /// Whom its keys are derived from.
    pub lineage: String,
    /// When, in microseconds since 1970.
    pub time_us: u64,
    /// The agent is a loop.
    pub is_loop: bool,
    /// The queue that workers take it from.
    pub queue: String,
    /// Its priority there.
    pub priority: u32,
}

/// Where a fork comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forked {
    /// The run whose past it shares.
    pub origin: StreamId,
    /// Up to and including this event of it.
    pub sequence: u64,
    /// The hash of the origin's stream there.
    pub hash: Vec<u8>,
    /// The steps whose outcome was changed, here or in the fork that it is a fork of.
    pub changed: Vec<StepId>,
    /// Of a loop: the turn whose state stands for what was before.
    pub turn: Option<u64>,
}

/// A written state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The event.
    pub sequence: u64,
    /// Turns done, for a loop.
    pub turn: Option<u64>,
    /// The state.
    pub state: Option<Payload>,
    /// When, in microseconds since 1970.
    pub time_us: u64,
    /// The step that wrote it, if it was one.
    pub step: Option<StepId>,
    /// Which step of the task it is, of how many, if the agent says so.
    pub progress: Option<(u64, u64)>,
    /// Steps that were under way.
    pub pending: Vec<String>,
    /// The session that wrote it.
    pub session: Option<String>,
    /// It is kept for looking at.
    pub pinned: bool,
}

/// What a run has done so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Journal {
    /// How it began.
    pub created: Created,
    /// Where it comes from, if it is a fork.
    pub forked: Option<Forked>,
    /// Its steps. Of a loop, those since the last turn ended.
    pub steps: Steps,
    /// Notes of sights that came before the steps that they are about.
    pub(crate) early_sights: HashMap<StepId, u64>,
    /// Waits that no step says anything of yet.
    pub(crate) awaited: BTreeMap<StepId, Awaited>,
    /// Requests to people.
    pub approvals: HashMap<StepId, ApprovalRecord>,
    /// What it used.
    pub usage: Usage,
    /// What it may use.
    pub budget: Budget,
    /// What recovery has saved: model calls that were not paid again.
    pub saved_calls: u64,
    /// Their usage.
    pub saved: Usage,
    /// Why it is to end, if somebody asked for that.
    pub cancel: Option<String>,
    /// Why only a person can move it on.
    pub attention: Option<Attention>,
    /// The last written state.
    pub checkpoint: Option<Checkpoint>,
    /// Of a loop: the state after the last turn, which it goes on from.
    pub turn: Option<Checkpoint>,
    /// Where it is in its life.
    pub status: Status,
    /// How it ended.
    pub end: Option<Outcome>,
    /// The last event.
    pub last: u64,
    /// When the last event happened.
    pub last_us: u64,
    /// What it waits for, when it is not in memory.
    pub waits: Vec<String>,
    /// The session that had it last.
    pub session: Option<String>,
    /// What it depends on outside, by [`crate::NotedResource::key`].
    pub resources: BTreeMap<String, NotedResource>,
    /// Events of checkpoints that are kept for looking at.
    pub pinned: Vec<u64>,
    /// The event of the last recovery from a crash.
    pub recovered: Option<u64>,
    /// The memory that it saw last.
    pub memory: Option<Version>,
    /// Written states that cannot be read any more, and what is used instead, in words.
    pub damage: Option<String>,
    /// Children that have not ended, as far as the run has heard.
    pub(crate) children: BTreeSet<StreamId>,
    /// What it may use was changed since it was last started.
    pub(crate) raised: bool,
    pub(crate) signals: BTreeMap<u64, Signal>,
    pub(crate) timers: BTreeMap<String, u64>,
    pub(crate) fired: HashSet<String>,
    /// Something was said since attention was raised that may have changed it.
    pub(crate) answered: bool,
    /// A person wants the run to fail.
    pub(crate) fail: Option<String>,
    /// The latest time that the run was told.
    pub(crate) told_us: u64,
    /// Recorded steps that the running code has not come to yet.
    pub(crate) remaining: usize,
    /// Turns up to this one are recorded, but their states cannot be read: they are made again
    /// from what is recorded of their steps.
    pub(crate) redo_until: u64,
    /// Recorded outcomes that it has not seen yet.
    pub(crate) unseen: usize,
    /// In which order it sees them.
    pub(crate) order: Order,
    /// Counts what was brought to an end: outcomes, failed attempts, orderly suspensions.
    pub(crate) progress: u64,
    /// How far the run was when it was last started.
    pub(crate) progress_at_start: u64,
    /// How often in a row the process ended and there was no progress in between.
    pub(crate) deaths: u64,
}

impl Journal {
    /// The fold over events of a run, from its first on.
    pub fn fold(events: impl IntoIterator<Item = Event>) -> Journal {
        let mut journal = Journal::default();
        events.into_iter().for_each(|event| journal.apply(event));
        journal
    }
}

impl Default for Journal {
    fn default() -> Journal {
        Journal {
            created: Created::default(),
            forked: None,
            steps: Steps::default(),
            early_sights: HashMap::new(),
            awaited: BTreeMap::new(),
            approvals: HashMap::new(),
            usage: Usage::default(),
            budget: Budget::default(),
            saved_calls: 0,
            saved: Usage::default(),
            cancel: None,
            attention: None,
            checkpoint: None,
            turn: None,
            status: Status::Pending,
            end: None,
            last: 0,
            last_us: 0,
            waits: Vec::new(),
            session: None,
            resources: BTreeMap::new(),
            pinned: Vec::new(),
            recovered: None,
            memory: None,
            damage: None,
            children: BTreeSet::new(),
            raised: false,
            signals: BTreeMap::new(),
            timers: BTreeMap::new(),
            fired: HashSet::new(),
            answered: false,
            fail: None,
            told_us: 0,
            remaining: 0,
            redo_until: 0,
            unseen: 0,
            order: Order::default(),
            progress: 0,
            progress_at_start: 0,
            deaths: 0,
        }
    }
}
