//! Drives one run: takes it, loads it, polls its code, and writes down what came of that.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dalsegno_store::{Fields, Kind, Lease, NewEvent, NewPayload, Status, StoreError, StreamId};

use super::Engine;
use super::waker::CodeWaker;
use crate::attention::{Attention, AttentionKind};
use crate::ctx::{CatchPanic, Ctx, Host};
use crate::failure::Result;
use crate::journal::{self, Journal, bytes_of};
use crate::record;
use crate::run::{Around, Hold, Idle, Run, Stopped};
use crate::runtime::BoxFuture;
use crate::step::{StepId, StepKind};

/// After so many deaths of the process without progress a person is asked. Higher than the limit of
/// a single step, so that a step which kills the process is blamed before the runs beside it are.
const DEATHS_LIMIT: u64 = 20;

/// Code that waits for something of its own, beside its run, is given so long to go on.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why the code was left.
pub(super) enum Left {
    /// It returned.
    Returned(Result<NewPayload>),
    /// It panicked.
    Panicked(String),
    /// It can do nothing until something comes: what it waits for.
    Waiting(Vec<(String, StepId)>),
    /// It does something else than what is recorded.
    Astray(Attention),
    /// The run does not go on here.
    Stopped(Stopped),
    /// Something has come for the run.
    Arrived,
    /// It pauses, and something that it did is not recorded yet.
    Late,
}

impl Engine {
    /// Drives a run until it has ended, waits or needs a person, and nothing more has come for it.
    pub(super) async fn drive(self: Arc<Self>, id: StreamId) {
        loop {
            if let Err(why) = self.drive_once(&id).await {
                self.does_not_move(&id, why);
                self.ring_end(&id);
            }
            if !self.leave(&id) {
                return;
            }
        }
    }

    /// Drives a run once. An error says why it does not move.
    async fn drive_once(self: &Arc<Self>, id: &StreamId) -> Result<(), String> {
        let now_us = self.runtime.now_us();
        let (claimed, asked_us) = {
            let mut hub = self.hub();
            let resident = hub.resident.get_mut(id);
            let claimed = resident.and_then(|resident| resident.claimed.take());
            claimed.map_or((None, now_us), |(lease, asked_us)| (Some(lease), asked_us))
        };
        let Some((lease, journal)) = self.take(id, claimed).await? else {
            self.ring_end(id);
            return Ok(());
        };
        let agent = self.agents.get(&journal.created.agent).cloned();
        let input = match &journal.created.input {
            Some(payload) => bytes_of(&*self.store, payload).await,
            None => Ok(b"null".to_vec()),
        };
        let input = input.map_err(|e| e.to_string())?;
        let started = self.started(&journal);
        let crashed = journal.status == Status::Running || journal.damage.is_some();
        let crash_loop = crash_loop(&journal);
        let around = Around {
            store: Arc::clone(&self.store),
            runtime: Arc::clone(&self.runtime),
            syncer: Arc::clone(&self.syncer),
            ledger: Arc::clone(&self.ledger),
            #[cfg(feature = "memory")]
            memories: Arc::clone(&self.memories),
        };
        let hold = Hold::new(lease.token, asked_us, self.limits.lease_us(), &self.runtime);
        let run = Run::new(id.clone(), around, self.settings, hold, journal);
        let run = Arc::new(run);
        self.now_resident(id, &run);
        self.ledger.is_here(&run);
        if self.claims.is_some() {
            // Its timers may be due.
            self.dispatch.ring();
        }
        self.tell_children(&run).await;
        let may_start = self.may_start(&run, started, crashed, crash_loop).await;
        let left = match (may_start, agent) {
            (Err(stopped), _) => Left::Stopped(stopped),
            // Only a run that is to end is taken without its agent.
            (Ok(()), None) => Left::Arrived,
            (Ok(()), Some(agent)) => {
                let host: Arc<dyn Host> = Arc::clone(self) as Arc<dyn Host>;
                let ctx = Ctx::new(Arc::clone(&run), host);
                poll_code(self, &run, || agent.run(ctx, input)).await
            }
        };
        self.end(&run, left).await
    }

    /// Takes a run and reads it, unless it cannot move: then nothing is recorded, however often this
    /// is tried. `None` if it has ended.
    async fn take(
        &self,
        id: &StreamId,
        claimed: Option<Lease>,
    ) -> Result<Option<(Lease, Journal)>, String> {
        let load = || async {
            let journal = journal::load(&*self.store, id, None).await;
            let journal = journal.map_err(|e| e.to_string())?;
            match self.cannot_move(&journal) {
                Some(why) => Err(why),
                None => Ok(journal),
            }
        };
        if let Some(lease) = claimed {
            return match load().await {
                Ok(journal) => Ok(Some((lease, journal))),
                Err(why) => Err(self.give_back(id, &lease, why).await),
            };
        }
        let mut journal = load().await?;
        let for_us = self.limits.lease_us();
        let lease = match self.store.take_lease(id, &self.session, for_us).await {
            Ok(lease) => lease,
            Err(StoreError::Ended { .. }) => return Ok(None),
            Err(e) => return Err(e.to_string()),
        };
        // Taking it is an event. If it is not the next one, a worker before may have written more.
        let head = self.store.head(id).await.map_err(|e| e.to_string())?;
        if head.is_none_or(|head| head.sequence != journal.last + 1) {
            journal = match load().await {
                Ok(journal) => journal,
                Err(why) => return Err(self.give_back(id, &lease, why).await),
            };
        }
        Ok(Some((lease, journal)))
    }

    /// Gives a run back that cannot move here. Why it does not.
    async fn give_back(&self, id: &StreamId, lease: &Lease, why: String) -> String {
        let released = self.store.release_lease(id, lease.token).await;
        released.err().map_or(why, |e| e.to_string())
    }

    /// Why a run cannot move here, if it cannot.
    fn cannot_move(&self, journal: &Journal) -> Option<String> {
        // Ending it needs neither a person nor its agent.
        if journal.status.is_final() || journal.cancel.is_some() || journal.fail.is_some() {
            return None;
        }
        match &journal.attention {
            Some(attention) if !journal.answered => return Some(attention.reason.clone()),
            _ => {}
        }
        let agent = &journal.created.agent;
        (!self.agents.contains_key(agent))
            .then(|| format!("its agent {agent:?} is not registered in this process"))
    }

    fn now_resident(&self, id: &StreamId, run: &Arc<Run>) {
        let mut hub = self.hub();
        let closing = hub.closing;
        if let Some(resident) = hub.resident.get_mut(id) {
            resident.run = Some(Arc::clone(run));
            // What came before has been read.
            resident.again = false;
        }
        drop(hub);
        if closing {
            run.stop(Stopped::Closing);
        }
    }

    /// Records that the run is being executed, unless it is not to be.
    async fn may_start(
        &self,
        run: &Arc<Run>,
        started: Vec<NewEvent>,
        crashed: bool,
        crash_loop: Option<Attention>,
    ) -> Result<(), Stopped> {
        // Something may have come between reading the journal and being told of arrivals.
        run.catch_up().await?;
        let (fail, cancel, left_over) = {
            let journal = &run.state().journal;
            let before = journal.created.time_us < self.opened_us;
            let left_over = before && journal.status != Status::Checkpointed;
            (journal.fail.clone(), journal.cancel.clone(), left_over)
        };
        if let Some(why) = fail {
            return Err(run.stop(Stopped::Failed(why)));
        }
        if let Some(why) = cancel {
            return Err(run.stop(Stopped::Cancelled(why)));
        }
        if let Some(attention) = crash_loop {
            return Err(run.stop(Stopped::Attention(attention)));
        }
        self.before_start(run, started, crashed).await?;
        // A process before had it, and may have died of it: that it is tried again must be known to
        // the next one, or it would be tried for ever.
        match left_over {
            true => run.durable().await,
            false => Ok(()),
        }
    }

    /// The events that begin an execution.
    fn started(&self, journal: &Journal) -> Vec<NewEvent> {
        let mut events = Vec::new();
        if journal.attention.is_some() {
            events.push(NewEvent::new(Kind::AttentionCleared));
        }
        let mut fields = Fields::new()
            .with(record::started::WORKER, self.session.as_str())
            .with(record::started::SESSION, self.session.as_str());
        if journal.status == Status::Running {
            fields = fields.with(record::started::RECOVERED, 1);
            let done = journal.steps.values().filter(|step| step.outcome.is_some());
            let mut saved = (0, crate::budget::Usage::default());
            let mut replayed = 0;
            for step in done {
                replayed += 1;
                if step.kind == StepKind::Model {
                    saved.0 += 1;
                    saved.1.add(&step.usage);
                }
            }
            for (key, number) in [
                (record::started::SAVED_CALLS, saved.0),
                (record::started::SAVED_TOKENS, saved.1.tokens()),
                (record::started::SAVED_COST, saved.1.cost_micros),
                (record::started::REPLAYED, replayed),
            ] {
                if number > 0 {
                    fields = fields.with(key, number);
                }
            }
        }
        events.push(NewEvent::new(Kind::RunStarted).with_fields(fields));
        events
    }
}

/// Whether a run dies again and again outside of any step that is recorded.
fn crash_loop(journal: &Journal) -> Option<Attention> {
    let dies_again = journal.status == Status::Running && journal.deaths + 1 >= DEATHS_LIMIT;
    dies_again.then(|| {
        let reason = format!(
            "the process has ended {DEATHS_LIMIT} times while it had this run, which made no \
             progress: see why, then clear the attention to try again"
        );
        Attention::new(AttentionKind::CrashLoop, reason)
    })
}

/// Polls the code of a run until it can be left.
pub(super) async fn poll_code<F>(engine: &Engine, run: &Arc<Run>, begin: impl FnOnce() -> F) -> Left
where
    F: Future<Output = Result<NewPayload>>,
{
    // The agent's code may panic before its first await.
    let begun = std::panic::catch_unwind(std::panic::AssertUnwindSafe(begin));
    let mut code = match begun {
        Ok(code) => CatchPanic::new(code),
        Err(panic) => return Left::Panicked(crate::ctx::panic_words(&*panic)),
    };
    let code_waker: Arc<CodeWaker> = Arc::default();
    let waker = Waker::from(Arc::clone(&code_waker));
    let mut patience: Option<BoxFuture<'static, ()>> = None;
    loop {
        let left = std::future::poll_fn(|context| {
            code_waker.drives(context.waker());
            run.state().wakes(context.waker());
            if let Some(left) = look(run) {
                return Poll::Ready(left);
            }
            {
                let mut state = run.state();
                (state.polling, state.woken) = (true, false);
            }
            let polled = std::pin::Pin::new(&mut code).poll(&mut Context::from_waker(&waker));
            run.state().polling = false;
            match polled {
                Poll::Ready(Ok(_)) if run.is_astray() => {
                    return Poll::Ready(Left::Astray(astray(run)));
                }
                // It went on without a `once` step that it dropped under way.
                Poll::Ready(Ok(_)) if is_in_attention(run) => {}
                Poll::Ready(Ok(returned)) => return Poll::Ready(Left::Returned(returned)),
                Poll::Ready(Err(panic)) => return Poll::Ready(Left::Panicked(panic)),
                // Code outside has not paused: the next step may take it along.
                Poll::Pending if run.is_late() && !run.is_outside() => {
                    return Poll::Ready(Left::Late);
                }
                Poll::Pending => {}
            }
            if let Some(left) = look(run) {
                return Poll::Ready(left);
            }
            let idle = run.idle();
            if !matches!(idle, Idle::No) && code_waker.is_kept_elsewhere(&waker, run) {
                let lost = patience.as_mut().map(|time| time.as_mut().poll(context));
                if lost != Some(Poll::Ready(())) {
                    let until_us = run.runtime.now_us() + PATIENCE.as_micros() as u64;
                    let mut time = run.runtime.sleep_until(until_us);
                    // Polled for its waker; its time has not come.
                    let _pending = time.as_mut().poll(context);
                    patience = Some(time);
                    return Poll::Pending;
                }
            }
            match idle {
                Idle::No => Poll::Pending,
                Idle::Held if run.let_one_through() => Poll::Pending,
                Idle::Held if !run.is_astray() => {
                    // Nothing is held back any more; the code looks again.
                    run.state().wake();
                    Poll::Pending
                }
                Idle::Held | Idle::Astray => Poll::Ready(Left::Astray(astray(run))),
                Idle::Waiting { due_us } => {
                    let stay_us = engine.limits.stay.as_micros() as u64;
                    let soon_us = run.runtime.now_us() + stay_us;
                    match due_us.is_some_and(|due| due <= soon_us) {
                        true => Poll::Pending,
                        false => Poll::Ready(Left::Waiting(run.waits_in())),
                    }
                }
            }
        })
        .await;
        match left {
            Left::Arrived => {
                // If it stops the run, that is seen in the next round.
                drop(run.catch_up().await);
                engine.tell_children(run).await;
            }
            // If it cannot be recorded, the run has stopped.
            Left::Late => run.record_late().await,
            Left::Returned(returned) => {
                let is_settled = run.settled().await;
                let stopped = run.stopped().filter(|_| !is_settled);
                return stopped.map_or(Left::Returned(returned), Left::Stopped);
            }
            left => return left,
        }
    }
}

/// Whether the code is to be left, whatever it does.
fn look(run: &Run) -> Option<Left> {
    if run.has_arrived() {
        return Some(Left::Arrived);
    }
    let stopped = run.stopped()?;
    // What is under way is finished first; nothing more is begun. A run that used up its budget
    // must not lose what it has paid for, nor any other make a doubt where there is none.
    let busy = match &stopped {
        Stopped::Closing => run.is_busy(),
        Stopped::Attention(attention) if attention.kind == AttentionKind::Budget => run.is_busy(),
        Stopped::Attention(_) | Stopped::Cancelled(_) | Stopped::Failed(_) => {
            run.is_busy_with_once()
        }
        Stopped::Fenced(_) | Stopped::Store(_) | Stopped::EndOfRecord => false,
    };
    (!busy).then_some(Left::Stopped(stopped))
}

fn is_in_attention(run: &Run) -> bool {
    matches!(run.stopped(), Some(Stopped::Attention(_)))
}

/// The mismatch of code that has not come to everything that is recorded. To be asked before the
/// code is dropped, which forgets what it wants.
fn astray(run: &Run) -> Attention {
    let parked = run.parked();
    let waits = run.waits_for();
    let state = run.state();
    let mut missing = state.journal.not_called();
    missing.truncate(5);
    let now = match (parked.is_empty(), waits.is_empty()) {
        (false, _) => format!("now it wants {}", parked.join(", ")),
        (true, false) => format!("now it waits for {}", waits.join(", ")),
        (true, true) => "now it has ended".to_owned(),
    };
    let reason = format!(
        "the code does something else than what is recorded: recorded {}, {now}: nothing was \
             executed; bring the old code back, or branch on ctx.patched",
        missing.join(", ")
    );
    let evidence = serde_json::json!({ "recorded": missing, "now": parked, "waits": waits });
    Attention::new(AttentionKind::Mismatch, reason).with_evidence(&evidence)
}
