//! A run in the hands of a worker: `begin` and `finish`, on any store.
//!
//! This is the core that every language's layer stands on. A step goes one way down and one way up:
//!
//! ```text
//! call(scope, name)      the identity, when the call is made                         step.rs
//! begin(step)            recorded? hand it back. Else: intent, and wait by the rule   run/begin.rs
//!   … the effect …
//! finish(ticket, done)   outcome, and wait by the rule                                run/finish.rs
//! ```
//!
//! Invariants: nothing is executed before the code has come to everything that is recorded; only
//! who holds the run's fencing token appends to it as its worker; once [`Run::stopped`] says so,
//! nothing more is executed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use dalsegno_store::{Append, NewEvent, Position, Store, StoreError, StreamId, Version};

use crate::attention::Attention;
use crate::ctx::Said;
use crate::effect::{Durability, Granularity};
use crate::journal::Journal;
use crate::ledger::{Ledger, Spent};
#[cfg(feature = "memory")]
use crate::memories::Memories;
use crate::replay::ReplayGate;
use crate::rules::{Mutant, Rule};
use crate::runtime::Runtime;
use crate::step::{Occurrences, StepId, check_name};
use crate::syncer::Syncer;

mod append;
mod begin;
mod finish;
mod hold;
mod kept_back;
mod sights;
mod unbroken;
mod waits;

pub(crate) use append::NotRecorded;
#[cfg(feature = "memory")]
pub(crate) use begin::Ahead;
pub use begin::{Begun, Doubt, Step, Ticket};
pub(crate) use begin::{compare, same_payload, shown, shown_new};
pub use finish::Done;
#[cfg(feature = "memory")]
pub(crate) use finish::Together;
pub(crate) use hold::Hold;
use kept_back::KeptBack;
use sights::OnItsWay;
pub(crate) use sights::Sight;
#[cfg(feature = "memory")]
pub(crate) use unbroken::Unbroken;
pub(crate) use waits::{Active, Idle, Wait};

/// Why nobody knows whether a step of a process that is gone has happened.
pub(crate) const PROCESS_ENDED: &str = "the process ended while it was under way";

/// Why a run does not go on here.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Stopped {
    /// Only a person can move it on.
    Attention(Attention),
    /// Somebody asked for it to end.
    Cancelled(String),
    /// A person said that it fails.
    Failed(String),
    /// Another worker has it.
    Fenced(String),
    /// The store does not work.
    Store(String),
    /// It is only being read: the record ends here.
    EndOfRecord,
    /// The worker is closing.
    Closing,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stopped::Attention(attention) => f.write_str(&attention.reason),
            Stopped::Cancelled(why) if why.is_empty() => f.write_str("it was cancelled"),
            Stopped::Cancelled(why) => write!(f, "it was cancelled: {why}"),
            Stopped::Failed(why) | Stopped::Fenced(why) | Stopped::Store(why) => f.write_str(why),
            Stopped::EndOfRecord => f.write_str("the record ends here"),
            Stopped::Closing => f.write_str("the worker is closing"),
        }
    }
}

/// How runs are executed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    pub durability: Durability,
    pub granularity: Granularity,
    pub mutant: Mutant,
}

/// What a run shares with the others of its process.
pub(crate) struct Around {
    pub store: Arc<dyn Store>,
    pub runtime: Arc<dyn Runtime>,
    pub syncer: Arc<Syncer>,
    pub ledger: Arc<Ledger>,
    #[cfg(feature = "memory")]
    pub memories: Arc<Memories>,
}

/// A run in the hands of a worker.
pub struct Run {
    pub(crate) id: StreamId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) settings: Settings,
    /// `None` if the run is only read, to be replayed.
    pub(crate) token: Option<u64>,
    pub(crate) hold: Arc<Hold>,
    pub(crate) syncer: Arc<Syncer>,
    pub(crate) ledger: Arc<Ledger>,
    #[cfg(feature = "memory")]
    pub(crate) memories: Arc<Memories>,
    lineage: String,
    state: Mutex<RunState>,
}

pub(crate) struct RunState {
    pub journal: Journal,
    occurrences: Occurrences,
    /// Every event up to here is in the journal.
    applied: u64,
    /// Events of ours behind one that is not.
    ahead: BTreeSet<u64>,
    /// Events of others may have come.
    arrived: bool,
    /// Steps between begin and finish.
    active: usize,
    /// Code of the run that runs outside of its future, see `binding.rs`.
    pub outside: usize,
    /// Those of them that must not be dropped.
    active_once: usize,
    /// What is brought to its end, whatever the code does, see `unbroken.rs`.
    unbroken: usize,
    /// Some of it was not, because the run is to stop: neither the run nor its turn may end.
    pub(crate) gave_up: bool,
    /// Somebody waits until there is none.
    settling: bool,
    /// Those of them that count for a budget, and whose outcome is not recorded.
    under_way: u64,
    /// What the code waits for, by a number of its own.
    waits: BTreeMap<u64, Wait>,
    next_wait: u64,
    /// Steps that wait for the code to come to everything recorded.
    parked: BTreeMap<u64, String>,
    /// What was said, as long as the run is in memory.
    pub conversations: HashMap<String, Arc<Mutex<Said>>>,
    /// Outcomes that are not recorded yet.
    kept_back: KeptBack,
    /// Outcomes that the code sees when they are recorded, by a number of their own.
    on_their_way: BTreeMap<u64, OnItsWay>,
    /// Where the last append of this run ended.
    position: Position,
    stopped: Option<Stopped>,
    /// The driver is polling the code right now, and will look at everything afterwards.
    pub polling: bool,
    /// Who waits was woken since the driver last began to poll: the code has something to do.
    pub woken: bool,
    /// Who wants to know of changes: the driver, and the futures that wait.
    wakers: Vec<Waker>,
    /// How many steps were served from the record, and how many were executed.
    pub replayed: u64,
    pub executed: u64,
    /// The record as a replay hands it out, if the run is only read.
    pub gate: Option<ReplayGate>,
}

/// Without what the run has done, which is long and the user's.
impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Run {
    pub(crate) fn new(
        id: StreamId,
        around: Around,
        settings: Settings,
        hold: Arc<Hold>,
        mut journal: Journal,
    ) -> Run {
        let token = (hold.token > 0).then_some(hold.token);
        let Around {
            store,
            runtime,
            syncer,
            ledger,
            #[cfg(feature = "memory")]
            memories,
        } = around;
        journal.begin_replay();
        if token.is_none() {
            // A replay hands outcomes out in their order by itself.
            (journal.unseen, journal.order) = Default::default();
        }
        let lineage = journal.created.lineage.clone();
        let applied = journal.last;
        let kept_back = KeptBack::new(&store.limits());
        Run {
            id,
            store,
            runtime,
            settings,
            token,
            hold,
            syncer,
            ledger,
            #[cfg(feature = "memory")]
            memories,
            lineage,
            state: Mutex::new(RunState {
                journal,
                occurrences: Occurrences::default(),
                applied,
                ahead: BTreeSet::new(),
                arrived: false,
                active: 0,
                outside: 0,
                active_once: 0,
                unbroken: 0,
                gave_up: false,
                settling: false,
                under_way: 0,
                waits: BTreeMap::new(),
                next_wait: 0,
                parked: BTreeMap::new(),
                conversations: HashMap::new(),
                kept_back,
                on_their_way: BTreeMap::new(),
                position: 0,
                stopped: None,
                polling: false,
                woken: false,
                wakers: Vec::new(),
                replayed: 0,
                executed: 0,
                gate: token.is_none().then(ReplayGate::default),
            }),
        }
    }

    /// What is known of the run. Never held over an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it has used, for whoever limits it.
    pub(crate) fn spent(&self) -> Spent {
        let state = self.state();
        Spent::of(&state.journal, state.under_way)
    }

    /// Its name.
    pub fn id(&self) -> &StreamId {
        &self.id
    }

    /// Fixes the identity of a step: to be called when the call is made, in the order of the code.
    ///
    /// # Errors
    /// The name cannot be one, or the scope is nested too deep.
    pub fn call(&self, scope: &str, name: &str) -> Result<StepId, String> {
        check_name(name)?;
        if scope.len() + name.len() + 22 > crate::step::STEP_PATH_LIMIT_BYTES {
            let limit = crate::step::STEP_PATH_LIMIT_BYTES;
            return Err(format!(
                "{name}: its scope is nested too deep for {limit} bytes"
            ));
        }
        let mut state = self.state();
        let id = state.occurrences.take(scope, name);
        if let Some(gate) = &mut state.gate {
            gate.called(&id);
            return Ok(id);
        }
        if state.journal.call(&id) {
            state.wake();
        }
        Ok(id)
    }

    /// A new turn of a loop: identities of earlier ones never come again.
    pub(crate) fn new_turn(&self) {
        self.state().occurrences.clear();
    }

    /// Why the run does not go on, if it does not.
    pub fn stopped(&self) -> Option<Stopped> {
        self.state().stopped.clone()
    }

    /// Stops the run: nothing more is executed. The first reason stays.
    pub(crate) fn stop(&self, why: Stopped) -> Stopped {
        let mut state = self.state();
        if let (Some(gate), Stopped::EndOfRecord) = (&mut state.gate, &why) {
            // Only who asked has come to the end: other branches may have more to show.
            gate.ends += 1;
            return why;
        }
        let why = state.stopped.get_or_insert(why).clone();
        state.wake();
        why
    }

    /// The idempotency key of one of its steps. One that a fork took over unfinished keeps the key
    /// that it was sent with.
    pub(crate) fn key(&self, id: &StepId, attempt: u64) -> String {
        if self.settings.mutant.breaks(Rule::KeyFromIdentity) {
            return format!("{id} {attempt}");
        }
        if let Some(key) = self.state().journal.inherited_key(id) {
            return key;
        }
        crate::step::idempotency_key(&self.lineage, id.as_str())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.token.is_none()
    }

    /// Appends as the run's worker, with other streams' events in the same append; if a sequence is
    /// given, only if that is the run's last event.
    async fn append_with(
        &self,
        events: Vec<NewEvent>,
        others: Vec<Append>,
        last: Option<u64>,
    ) -> Result<Heads, StoreError> {
        let mut own = Append::to(self.id.clone(), events);
        own.token = self.token;
        own.expected = last;
        let count = own.events.len() as u64;
        let mut batch = vec![own];
        batch.extend(others);
        let appended = self.store.append(batch).await?;
        let (own, others) = appended.heads.split_first().unzip();
        let head = own.map_or(0, |head| head.sequence);
        let mut state = self.state();
        state.position = state.position.max(appended.position);
        state.took(head, count);
        drop(state);
        self.syncer.appended(appended.position);
        Ok(Heads {
            own: head,
            others: others.unwrap_or_default().to_vec(),
        })
    }
}

/// Where streams are after an append.
#[derive(Debug)]
pub(crate) struct Heads {
    /// The sequence of the run's last event.
    pub own: u64,
    /// The others that were appended to.
    #[cfg_attr(not(feature = "memory"), expect(dead_code))]
    pub others: Vec<Version>,
}

impl RunState {
    /// The journal knows every event up to here.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// The run was read again. `false` if more is known by now.
    pub fn relearn(&mut self, journal: Journal) -> bool {
        if journal.last < self.applied {
            return false;
        }
        self.applied = journal.last;
        self.ahead = self.ahead.split_off(&(self.applied + 1));
        self.journal = journal;
        true
    }

    /// Events of ours are in the stream, the last of them at `head`.
    fn took(&mut self, head: u64, count: u64) {
        if head - count == self.applied {
            self.applied = head;
            while self.ahead.remove(&(self.applied + 1)) {
                self.applied += 1;
            }
        } else {
            self.ahead.extend(head - count + 1..=head);
        }
    }

    pub fn wake(&mut self) {
        self.woken = true;
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }

    /// How many clones of a waker are kept here.
    pub fn kept(&self, waker: &Waker) -> usize {
        let kept = self.wakers.iter().filter(|known| known.will_wake(waker));
        kept.count()
    }

    pub fn wakes(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|known| known.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }
}
