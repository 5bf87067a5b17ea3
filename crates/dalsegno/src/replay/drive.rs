//! Drives a replay: polls the code until it can do nothing, hands out the next outcome, and so on.
//!
//! Invariant: the next outcome in the order of the record is handed out, or skipped because the code
//! has come to its step and let go of it; and if the code has not come to it, that is the first
//! divergence.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dalsegno_store::{NewPayload, StoreError, StreamId};

use super::ends::{ends_with, turn_side};
use super::feed::{Feed, PartEnd, end_of};
use super::order::to_hand_out;
use super::read_only::ReadOnly;
use super::verdict::diverged;
use super::{DivergenceKind, Parts, ReplayVerdict, Replayed, Side, StartAt, find};
use crate::ctx::{CatchPanic, Ctx, Host};
use crate::error::Error;
use crate::failure::Result;
use crate::journal::bytes_of;
use crate::ledger::Ledger;
use crate::run::{Around, Hold, Run, Settings, Stopped, same_payload, shown, shown_new};
use crate::runtime::BoxFuture;
use crate::step::StepId;
use crate::syncer::Syncer;

/// So long the code may do something of its own before it is said to do something else.
const GRACE: Duration = Duration::from_millis(100);
/// The same, if it waits for nothing that is recorded.
const PATIENCE: Duration = Duration::from_secs(10);

type Code = CatchPanic<BoxFuture<'static, Result<NewPayload>>>;

/// Replays a run.
pub(super) async fn replay(
    parts: &Parts<'_>,
    name: &str,
    from: StartAt,
) -> std::result::Result<Replayed, Error> {
    let store: Arc<dyn dalsegno_store::Store> = Arc::new(ReadOnly(Arc::clone(parts.store)));
    let (id, head) = find(&*store, name).await?;
    let (feed, journal, end) = Feed::begin(Arc::clone(&store), id.clone(), head, from).await?;
    let agent_name = journal.created.agent.clone();
    let Some(agent) = parts.agents.get(&agent_name) else {
        let mut known: Vec<_> = parts.agents.keys().map(String::as_str).collect();
        known.sort_unstable();
        return Err(Error::AgentNotFound {
            agent: agent_name,
            known: match known.is_empty() {
                true => "none".to_owned(),
                false => known.join(", "),
            },
        });
    };
    let input = match &journal.created.input {
        Some(payload) => bytes_of(&*store, payload).await?,
        None => b"null".to_vec(),
    };
    let runtime = Arc::clone(&parts.runtime);
    let syncer = Syncer::new(Arc::clone(&store), Arc::clone(&runtime), None);
    let ledger = Ledger::new(Arc::clone(&store));
    #[cfg(feature = "memory")]
    let memories = Arc::clone(&parts.memories);
    // It is only read.
    let hold = Hold::new(0, 0, 0, &runtime);
    let around = Around {
        store,
        runtime,
        syncer,
        ledger,
        #[cfg(feature = "memory")]
        memories,
    };
    let run = Run::new(id, around, Settings::default(), hold, journal);
    let run = Arc::new(run);
    let mut driver = Driver {
        run: Arc::clone(&run),
        feed,
        due: VecDeque::new(),
        end,
        is_open: false,
        steps: 0,
        turns: 0,
    };
    driver.begin_part();
    let ctx = Ctx::new(run, Arc::new(NoHost));
    // The agent's code may panic before its first await.
    let begun = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| agent.run(ctx, input)));
    let verdict = match begun {
        Ok(code) => driver.drive(CatchPanic::new(code)).await?,
        Err(panic) => driver.panicked(crate::ctx::panic_words(&*panic)),
    };
    let unchecked = driver.run.state().gate.as_ref().map_or(0, |g| g.unchecked);
    Ok(Replayed {
        run: name.to_owned(),
        agent: agent_name,
        unchecked,
        steps: driver.steps,
        turns: driver.turns,
        verdict,
    })
}

/// Nobody is told of anything.
struct NoHost;

impl Host for NoHost {
    fn timer_set(&self, _due_us: u64) {}

    fn recorded_for(&self, _run: &StreamId) {}

    fn is_loop(&self, _agent: &str) -> Option<bool> {
        // A child that is not recorded is never started; whether it could be is not the question.
        Some(false)
    }
}

/// What polling the code came to.
enum Polled {
    Returned(Result<NewPayload>),
    Panicked(String),
    Stopped(Stopped),
    /// It can do nothing.
    Still,
    /// It has done nothing for as long as it was given.
    TimedOut,
}

pub(super) struct Driver {
    pub run: Arc<Run>,
    feed: Feed,
    /// Outcomes to be handed out, in order.
    pub due: VecDeque<(u64, StepId)>,
    pub end: PartEnd,
    /// Everything is handed out: what is not recorded has come to the end.
    is_open: bool,
    steps: u64,
    turns: u64,
}

impl Driver {
    /// The journal has the events of a new part.
    fn begin_part(&mut self) {
        let due = to_hand_out(&self.run.state().journal);
        self.due = due.into();
        self.is_open = false;
        self.count();
    }

    /// Nothing new is begun before everything is handed out, the end of the part included.
    fn count(&self) {
        let ends = !matches!(self.end, PartEnd::Open) || !self.is_open;
        self.run.state().journal.remaining = self.due.len() + usize::from(ends);
    }

    async fn drive(&mut self, mut code: Code) -> std::result::Result<ReplayVerdict, StoreError> {
        let mut limit = None;
        loop {
            let timed_out = match self.poll(&mut code, limit.take()).await {
                Polled::Returned(result) => return Ok(self.returned(result)),
                Polled::Panicked(panic) => return Ok(self.panicked(panic)),
                Polled::Stopped(stopped) => return Ok(self.stopped(stopped)),
                Polled::Still => false,
                Polled::TimedOut => true,
            };
            if self.hand_out() {
                continue;
            }
            let verdict = match (self.due.front(), &self.end) {
                (Some((_, id)), _) => self.missing(id),
                (None, PartEnd::Turn { .. }) => match self.end_turn().await? {
                    None => continue,
                    Some(verdict) => verdict,
                },
                (None, PartEnd::Run { event, end }) => {
                    let recorded = Side::other(ends_with(end), Some(*event));
                    diverged(DivergenceKind::Beyond, recorded, self.now())
                }
                (None, PartEnd::Open) if !self.is_open => {
                    self.open();
                    continue;
                }
                (None, PartEnd::Open) => self.record_ends(),
            };
            let idle = !self.wants_anything();
            let is_same = matches!(verdict, ReplayVerdict::RecordEnds { .. });
            if timed_out || (is_same && !idle) {
                return Ok(verdict);
            }
            // Perhaps it is only busy with something of its own.
            limit = Some(if idle { PATIENCE } else { GRACE });
        }
    }

    /// Polls the code until it can do nothing. With a limit, until it has come to something new.
    async fn poll(&self, code: &mut Code, limit: Option<Duration>) -> Polled {
        let run = &self.run;
        let runtime = &run.runtime;
        let arrivals = || run.state().gate.as_ref().map_or(0, |gate| gate.arrivals);
        let before = arrivals();
        let mut sleep = limit.map(|limit| {
            runtime.sleep_until(runtime.now_us().saturating_add(limit.as_micros() as u64))
        });
        std::future::poll_fn(|context| {
            run.state().wakes(context.waker());
            let polled = std::pin::Pin::new(&mut *code).poll(context);
            if let Some(stopped) = run.stopped() {
                return Poll::Ready(Polled::Stopped(stopped));
            }
            match polled {
                Poll::Ready(Ok(returned)) => return Poll::Ready(Polled::Returned(returned)),
                Poll::Ready(Err(panic)) => return Poll::Ready(Polled::Panicked(panic)),
                Poll::Pending if run.is_busy() || run.is_outside() => return Poll::Pending,
                Poll::Pending => {}
            }
            match &mut sleep {
                None => Poll::Ready(Polled::Still),
                Some(_) if arrivals() != before => Poll::Ready(Polled::Still),
                Some(sleep) => sleep.as_mut().poll(context).map(|()| Polled::TimedOut),
            }
        })
        .await
    }

    /// Hands out the next outcome, if the code waits for it.
    fn hand_out(&mut self) -> bool {
        let mut handed_out = false;
        let mut state = self.run.state();
        let Some(gate) = &mut state.gate else {
            return false;
        };
        while let Some((_, id)) = self.due.front() {
            if gate.is_waiting(id) {
                gate.release(id);
                self.steps += 1;
                handed_out = true;
            } else if !gate.is_begun(id) {
                break;
            }
            // Handed out, or the code has let go of it.
            self.due.pop_front();
            if handed_out {
                break;
            }
        }
        drop(state);
        self.count();
        handed_out
    }

    /// Everything is handed out: who waits comes to the end of the record.
    fn open(&mut self) {
        self.is_open = true;
        self.count();
        let mut state = self.run.state();
        if let Some(gate) = &mut state.gate {
            gate.wake();
        }
        state.wake();
    }

    /// The code is at the end of the turn that was recorded, or it is not.
    async fn end_turn(&mut self) -> std::result::Result<Option<ReplayVerdict>, StoreError> {
        let PartEnd::Turn { turn, state, event } = &self.end else {
            return Ok(None);
        };
        let recorded = turn_side(*turn, state.as_ref().map(shown), Some(*event));
        let now = {
            let state = self.run.state();
            let end = state.gate.as_ref().and_then(|gate| gate.turn_end.as_ref());
            end.map(|end| (end.turn, end.state.clone()))
        };
        let Some((now_turn, now_state)) = now else {
            let now = self.now();
            return Ok(Some(diverged(DivergenceKind::Turn, recorded, now)));
        };
        let same = now_turn == *turn
            && state
                .as_ref()
                .is_some_and(|then| same_payload(then, &now_state));
        if !same {
            let now = turn_side(now_turn, Some(shown_new(&now_state)), None);
            return Ok(Some(diverged(DivergenceKind::Turn, recorded, now)));
        }
        let mut events = Vec::new();
        let end = self.feed.part(|event| events.push(event)).await?;
        let mut state = self.run.state();
        for event in events {
            state.journal.apply(event);
        }
        self.end = match end {
            PartEnd::Open => end_of(&state.journal),
            end => end,
        };
        if let Some(gate) = &mut state.gate {
            gate.release_turn();
        }
        drop(state);
        self.turns += 1;
        self.begin_part();
        Ok(None)
    }
}
