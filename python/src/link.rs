//! One step: what Python is told about it, and what it answers.
//!
//! ```text
//! Python   begin ──▶                              ▲ execute   │ answer   ▲ probe   │ answer    ▲ ended
//! driver             polls the library's step ────┘           ▼ ─────────┘         ▼ ──────────┘
//! ```
//!
//! A step is *here* at first: the code's own thread polls it, so that one which is recorded, or needs
//! no disk, never changes threads. It stays here to wait for the disk: if nobody else syncs, the thread
//! does it itself, and that of an event loop if it had nothing else to do and the disk is quick; else a
//! thread waits for a moment, and a loop until a bell wakes it. What waits for anything else, or has a
//! time limit, is handed over to the driver, and stays there.
//!
//! Invariants: an answer counts only for the question that was asked last; the function of a step that
//! took too long may still be running when the next attempt begins. A step is polled here only while
//! the driver knows that the code runs: else the run may be leaving memory. Nobody waits for a step
//! that is being polled with the interpreter's lock in hand.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use dalsegno::{BoxFuture, Call, Ctx, Failure, Probe, Result, binding};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::value::RawValue;

use crate::ctx::PyCtx;
use crate::failures::{self, FailureParts};
use crate::port::{Port, Said, Work};

/// So long a step waits for the disk before it is handed over.
const HERE_AT_MOST: Duration = Duration::from_millis(5);

/// A loop is kept for a sync that is likely to take no longer: others may have something for it meanwhile.
const LOOP_AT_MOST: Duration = Duration::from_millis(1);

/// What Python is told.
pub enum Told {
    /// Do it; this is question so-and-so.
    Execute(u64, Call),
    /// Do what is inside of it.
    Inside(u64, Ctx),
    /// Find out whether it happened.
    Probe(u64, Call),
    /// This is what it came to.
    Ended(Result<Box<RawValue>>),
    /// The run goes on without this code.
    Unwind,
}

/// A step of the library's, being made.
pub type Making = BoxFuture<'static, Result<Box<RawValue>>>;

/// What Python answers.
pub enum Answer {
    Done(Result<Box<RawValue>>),
    Probed(Probe<Box<RawValue>>),
}

/// Between a step in Python and in the library.
pub struct Link {
    port: Arc<Port>,
    /// What to call, on any thread, when there is something to hear; nothing for who waits on a thread, or does not
    /// wait yet.
    ear: OnceLock<Py<PyAny>>,
    /// It races with a time, which the driver has to be woken by.
    has_limit: bool,
    /// The library's step, until it has ended or the run was left.
    step: Mutex<Option<Making>>,
    state: Mutex<State>,
    told: Condvar,
}

#[derive(Default)]
struct State {
    told: VecDeque<Told>,
    asked: u64,
    answer: Option<Answer>,
    is_unwound: bool,
    /// By which its port knows it, once it was begun.
    number: Option<u64>,
    /// It is polled by the code's own thread.
    is_here: bool,
    /// It is here, and has to be polled.
    is_woken: bool,
    /// It is here, and waits for more than the disk.
    waits_for_run: bool,
}

impl Link {
    pub fn new(port: &Arc<Port>, has_limit: bool) -> Arc<Link> {
        Arc::new(Link {
            port: Arc::clone(port),
            ear: OnceLock::new(),
            has_limit,
            step: Mutex::default(),
            state: Mutex::default(),
            told: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(self: &Arc<Self>, told: Told) {
        self.port.tells();
        let is_here = {
            let mut state = self.state();
            state.told.push_back(told);
            state.is_here
        };
        if is_here {
            // Who polls it hears it.
            return;
        }
        self.notify();
    }

    /// Wakes who is to hear something.
    fn notify(self: &Arc<Self>) {
        match (self.ear.get(), self.port.bell()) {
            (None, _) => self.told.notify_all(),
            (Some(_), Some(bell)) => bell.ring(Arc::clone(self)),
            // If the interpreter is gone, so is who would hear.
            (Some(ear), None) => drop(crate::gate::attach(|py| ear.call0(py))),
        }
    }

    /// Tells who waits on the loop, which is where this is.
    pub fn wake_ear(&self, py: Python<'_>) -> PyResult<()> {
        match self.ear.get() {
            Some(ear) => ear.call_method0(py, intern!(py, "wake")).map(drop),
            None => Ok(()),
        }
    }

    /// The run was left.
    pub fn unwind(&self) {
        drop(self.take());
        self.state().is_unwound = true;
        self.told.notify_all();
    }

    fn step(&self) -> MutexGuard<'_, Option<Making>> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be polled. To be dropped without a lock of ours: that looks at the run.
    pub fn take(&self) -> Option<Making> {
        self.step().take()
    }

    /// Polls the step, once. When it has ended, says what it came to.
    pub fn poll(self: &Arc<Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut step = self.step();
        let polled = match step.as_mut() {
            Some(making) => making.as_mut().poll(context),
            None => return Poll::Ready(()),
        };
        let Poll::Ready(ended) = polled else {
            return Poll::Pending;
        };
        let made = step.take();
        drop(step);
        drop(made);
        self.tell(Told::Ended(ended));
        Poll::Ready(())
    }

    /// Polls the step on the thread of the code, which may be kept for a sync of about so long.
    fn poll_here(self: &Arc<Self>, may_block: Option<Duration>) {
        let _runtime = self.port.runtime.enter();
        let waker = Waker::from(Arc::new(Wakes(Arc::downgrade(self))));
        let mut context = Context::from_waker(&waker);
        let polled = match may_block {
            Some(limit) => binding::may_block(limit, || self.poll(&mut context)),
            None => self.poll(&mut context),
        };
        let waits_for_run = polled.is_pending() && self.port.waits_for_run(&waker);
        self.state().waits_for_run = waits_for_run;
    }

    /// Begins, if it is not begun: here, if the driver knows that the code runs.
    fn begin(self: &Arc<Self>, waits: bool, may_block: Option<Duration>) {
        if self.state().number.is_some() {
            return;
        }
        let Some((number, is_running)) = self.port.enter(self) else {
            self.unwind();
            return;
        };
        {
            let mut state = self.state();
            state.number = Some(number);
            state.is_here = is_running;
        }
        match is_running {
            false => self.hand_over(waits),
            true => {
                self.poll_here(may_block);
                let is_probe = matches!(self.state().told.front(), Some(Told::Probe(..)));
                if self.has_limit || is_probe {
                    self.hand_over(false);
                }
            }
        }
    }

    /// Has it driven from now on. With `waits` the whole agent does nothing but wait for it.
    fn hand_over(self: &Arc<Self>, waits: bool) {
        let number = {
            let mut state = self.state();
            state.is_here = false;
            state.number
        };
        if let Some(number) = number {
            self.port.drive(number, self, waits);
        }
    }

    /// What there is to hear, waiting for it on this thread.
    ///
    /// The run's own lock is never asked for with ours in hand: it wakes us with its lock in hand.
    fn next(self: &Arc<Self>) -> Told {
        let may_block = Some(Duration::MAX);
        self.begin(true, may_block);
        let begun = Instant::now();
        let is_still = |state: &mut State| state.told.is_empty() && !state.is_unwound;
        loop {
            let (is_here, is_woken, waits_for_run) = {
                let mut state = self.state();
                if state.is_unwound {
                    return Told::Unwind;
                }
                if let Some(told) = state.told.pop_front() {
                    drop(state);
                    self.port.hears();
                    return told;
                }
                let is_woken = std::mem::take(&mut state.is_woken);
                (state.is_here, is_woken, state.waits_for_run)
            };
            if !is_here {
                // The agent has nothing to do but to hear of this step.
                self.port.works(Work::Quiet);
                drop(self.told.wait_while(self.state(), is_still));
            } else if is_woken {
                self.poll_here(may_block);
            } else if waits_for_run || begun.elapsed() > HERE_AT_MOST {
                self.hand_over(true);
            } else {
                let is_still = |state: &mut State| is_still(state) && !state.is_woken;
                drop(
                    self.told
                        .wait_timeout_while(self.state(), HERE_AT_MOST, is_still),
                );
            }
        }
    }

    /// The same without waiting; `None` if there is nothing. A loop that is idle may be kept for a sync.
    fn look(self: &Arc<Self>, is_idle: bool) -> Option<Told> {
        let may_block = is_idle.then_some(LOOP_AT_MOST);
        self.begin(false, may_block);
        if std::mem::take(&mut self.state().is_woken) {
            self.port.goes_on();
            self.poll_here(may_block);
        }
        let (told, is_here, waits_for_run) = {
            let mut state = self.state();
            match state.is_unwound {
                true => return Some(Told::Unwind),
                false => (state.told.pop_front(), state.is_here, state.waits_for_run),
            }
        };
        match &told {
            Some(_) => self.port.hears(),
            // The loop is woken when it is on disk. What waits for anything else, the driver has to know of.
            None if is_here && (waits_for_run || self.port.bell().is_none()) => {
                self.hand_over(false);
            }
            None => {}
        }
        told
    }

    /// Asks Python something, and waits for the answer.
    async fn ask(self: &Arc<Self>, ask: impl FnOnce(u64) -> Told) -> Answer {
        let asked = {
            let mut state = self.state();
            state.asked += 1;
            state.answer = None;
            state.asked
        };
        self.tell(ask(asked));
        std::future::poll_fn(|_| match self.state().answer.take() {
            Some(answer) => Poll::Ready(answer),
            // The driver is woken by its port whenever Python answers.
            None => Poll::Pending,
        })
        .await
    }

    /// Has the function of the step called.
    pub async fn execute(self: &Arc<Self>, call: Call) -> Result<Box<RawValue>> {
        match self.ask(|asked| Told::Execute(asked, call)).await {
            Answer::Done(done) => done,
            Answer::Probed(_) => Err(failures::misuse("a probe answered for its step")),
        }
    }

    /// Has the function of a plan step called.
    pub async fn inside(self: &Arc<Self>, ctx: Ctx) -> Result<Box<RawValue>> {
        match self.ask(|asked| Told::Inside(asked, ctx)).await {
            Answer::Done(done) => done,
            Answer::Probed(_) => Err(failures::misuse("a probe answered for its step")),
        }
    }

    /// Has the probe called.
    pub async fn probe(self: &Arc<Self>, call: Call) -> Result<Probe<Box<RawValue>>> {
        match self.ask(|asked| Told::Probe(asked, call)).await {
            Answer::Probed(probe) => Ok(probe),
            Answer::Done(Err(failure)) => Err(failure),
            Answer::Done(Ok(_)) => Err(failures::misuse("a step answered for its probe")),
        }
    }

    fn answer(&self, asked: u64, answer: Answer) {
        {
            let mut state = self.state();
            if state.asked != asked || state.is_unwound {
                return;
            }
            state.answer = Some(answer);
            if state.is_here {
                state.is_woken = true;
                return;
            }
        }
        self.port.answered();
    }
}

/// Wakes who waits for a step on its own thread.
struct Wakes(Weak<Link>);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        if let Some(link) = self.0.upgrade() {
            let is_here = {
                let mut state = link.state();
                state.is_woken = true;
                state.is_here
            };
            if is_here {
                link.notify();
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(number) = self.state().number {
            self.port.forget(number);
        }
    }
}

/// A step that the code has come to, as Python has it.
#[pyclass(frozen, name = "Step")]
pub struct PyStep {
    link: Arc<Link>,
}

impl PyStep {
    pub fn new(link: Arc<Link>, making: Making) -> PyStep {
        *link.step() = Some(making);
        PyStep { link }
    }

    /// Hears of it for the first time; the step is the last item, if there is more to hear of it.
    pub fn hear_first(self, py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        match py.detach(|| self.link.next()) {
            Told::Execute(asked, call) => {
                (intern!(py, "execute"), asked, PyCall(call), self).into_pyobject(py)
            }
            Told::Probe(asked, call) => {
                (intern!(py, "probe"), asked, PyCall(call), self).into_pyobject(py)
            }
            told => self.to_python(py, told),
        }
    }
}

/// One execution of a step, as Python has it.
#[pyclass(frozen, name = "Call")]
pub struct PyCall(Call);

#[pymethods]
impl PyCall {
    #[getter]
    fn key(&self) -> &str {
        self.0.key()
    }

    #[getter]
    fn attempt(&self) -> u64 {
        self.0.attempt()
    }

    #[getter]
    fn token(&self) -> u64 {
        self.0.token()
    }

    fn is_held(&self) -> bool {
        self.0.is_held()
    }

    fn tokens(&self, read: u64, written: u64) {
        self.0.tokens(read, written);
    }

    fn cost_micros(&self, micros: u64) {
        self.0.cost_micros(micros);
    }
}

#[pymethods]
impl PyStep {
    /// What there is to hear, waiting for it: a tuple whose first item says what it is. Begins it first.
    pub fn hear<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let told = py.detach(|| self.link.next());
        self.to_python(py, told)
    }

    /// The same without waiting; `None` if there is nothing. With `idle` the event loop has nothing else
    /// to do, and may be kept for a sync.
    fn heard<'py>(&self, py: Python<'py>, idle: bool) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let told = py.detach(|| self.link.look(idle));
        told.map(|told| self.to_python(py, told)).transpose()
    }

    /// What to call from now on when there is something to hear. What there was before is to be looked for.
    fn heard_by(&self, ear: Py<PyAny>) {
        // Who waits for it is one, and has one ear.
        let _first = self.link.ear.set(ear);
    }

    /// What it was to do is done, and this is its result. Who `hears` waits for what becomes of that.
    fn done<'py>(
        &self,
        py: Python<'py>,
        asked: u64,
        result: &str,
        hears: bool,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let result = failures::raw(result)?;
        self.link.answer(asked, Answer::Done(Ok(result)));
        hears.then(|| self.hear(py)).transpose()
    }

    /// What it was to do has failed.
    fn failed(&self, asked: u64, failure: FailureParts) {
        let failure: Failure = failures::from_parts(failure);
        self.link.answer(asked, Answer::Done(Err(failure)));
    }

    /// What was found out: it happened, with a result; or it did not; or nobody knows.
    #[pyo3(signature = (asked, happened, result=None))]
    fn probed(&self, asked: u64, happened: Option<bool>, result: Option<&str>) -> PyResult<()> {
        let probe = match (happened, result) {
            (Some(true), result) => Probe::Happened(failures::raw(result.unwrap_or("null"))?),
            (Some(false), _) => Probe::DidNotHappen,
            (None, _) => Probe::Unknown,
        };
        self.link.answer(asked, Answer::Probed(probe));
        Ok(())
    }

    /// Nobody waits for the step any more.
    fn let_go(&self, py: Python<'_>) {
        py.detach(|| {
            let (number, is_here) = {
                let state = self.link.state();
                (state.number, state.is_here)
            };
            match number {
                // The driver may be polling it, and waiting for the interpreter.
                Some(number) if !is_here => {
                    self.link.port.say(Said::LetGo(number));
                }
                _ => drop(self.link.take()),
            }
        });
    }
}

impl Drop for PyStep {
    fn drop(&mut self) {
        // The step knows its link. The driver lets go of what it drives by itself.
        let is_driven = {
            let state = self.link.state();
            state.number.is_some() && !state.is_here
        };
        if !is_driven {
            drop(self.link.take());
        }
    }
}

impl PyStep {
    fn to_python<'py>(&self, py: Python<'py>, told: Told) -> PyResult<Bound<'py, PyTuple>> {
        match told {
            Told::Execute(asked, call) => {
                (intern!(py, "execute"), asked, PyCall(call)).into_pyobject(py)
            }
            Told::Probe(asked, call) => {
                (intern!(py, "probe"), asked, PyCall(call)).into_pyobject(py)
            }
            Told::Inside(asked, ctx) => {
                let ctx = PyCtx::new(ctx, &self.link.port);
                (intern!(py, "inside"), asked, ctx).into_pyobject(py)
            }
            Told::Ended(Ok(result)) => (intern!(py, "done"), result.get()).into_pyobject(py),
            Told::Ended(Err(failure)) => {
                (intern!(py, "failed"), failures::parts(&failure)).into_pyobject(py)
            }
            Told::Unwind => (intern!(py, "unwind"),).into_pyobject(py),
        }
    }
}
