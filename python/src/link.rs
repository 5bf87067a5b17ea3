//! One step: what Python is told about it, and what it answers.
//!
//! ```text
//! Python   begin ──▶                              ▲ execute   │ answer   ▲ probe   │ answer    ▲ ended
//! driver             polls the library's step ────┘           ▼ ─────────┘         ▼ ──────────┘
//! ```
//!
//! Invariant: an answer counts only for the question that was asked last. The function of a step that
//! took too long may still be running when the next attempt begins.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use dalsegno::{BoxFuture, Call, Ctx, Failure, Probe, Result};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::value::RawValue;

use crate::ctx::PyCtx;
use crate::failures::{self, FailureParts};
use crate::port::{Port, Work};

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

/// What Python answers.
pub enum Answer {
    Done(Result<Box<RawValue>>),
    Probed(Probe<Box<RawValue>>),
}

/// Between a step in Python and in the library.
pub struct Link {
    port: Arc<Port>,
    /// What to call, on any thread, when there is something to hear; `None` for who waits on a thread.
    hear: Option<Py<PyAny>>,
    state: Mutex<State>,
    told: Condvar,
}

#[derive(Default)]
struct State {
    told: VecDeque<Told>,
    asked: u64,
    answer: Option<Answer>,
    is_unwound: bool,
}

impl Link {
    pub fn new(port: &Arc<Port>, hear: Option<Py<PyAny>>) -> Arc<Link> {
        Arc::new(Link {
            port: Arc::clone(port),
            hear,
            state: Mutex::default(),
            told: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, told: Told) {
        self.port.tells();
        self.state().told.push_back(told);
        match &self.hear {
            None => self.told.notify_all(),
            // If the interpreter is gone, so is who would hear.
            Some(hear) => drop(Python::try_attach(|py| hear.call0(py))),
        }
    }

    /// The run was left.
    pub fn unwind(&self) {
        self.state().is_unwound = true;
        self.told.notify_all();
    }

    /// Asks Python something, and waits for the answer.
    async fn ask(&self, ask: impl FnOnce(u64) -> Told) -> Answer {
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
    pub async fn execute(&self, call: Call) -> Result<Box<RawValue>> {
        match self.ask(|asked| Told::Execute(asked, call)).await {
            Answer::Done(done) => done,
            Answer::Probed(_) => Err(failures::misuse("a probe answered for its step")),
        }
    }

    /// Has the function of a plan step called.
    pub async fn inside(&self, ctx: Ctx) -> Result<Box<RawValue>> {
        match self.ask(|asked| Told::Inside(asked, ctx)).await {
            Answer::Done(done) => done,
            Answer::Probed(_) => Err(failures::misuse("a probe answered for its step")),
        }
    }

    /// Has the probe called.
    pub async fn probe(&self, call: Call) -> Result<Probe<Box<RawValue>>> {
        match self.ask(|asked| Told::Probe(asked, call)).await {
            Answer::Probed(probe) => Ok(probe),
            Answer::Done(Err(failure)) => Err(failure),
            Answer::Done(Ok(_)) => Err(failures::misuse("a step answered for its probe")),
        }
    }

    /// Says what the step came to.
    pub fn ended(&self, ended: Result<Box<RawValue>>) {
        self.tell(Told::Ended(ended));
    }

    fn answer(&self, asked: u64, answer: Answer) {
        {
            let mut state = self.state();
            if state.asked != asked || state.is_unwound {
                return;
            }
            state.answer = Some(answer);
        }
        self.port.answered();
    }
}

/// A step that the code has come to, as Python has it.
#[pyclass(frozen, name = "Step")]
pub struct PyStep {
    link: Arc<Link>,
    begin: Mutex<Option<BoxFuture<'static, ()>>>,
    number: Mutex<Option<u64>>,
}

impl PyStep {
    pub fn new(link: Arc<Link>, future: BoxFuture<'static, ()>) -> PyStep {
        PyStep {
            link,
            begin: Mutex::new(Some(future)),
            number: Mutex::new(None),
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
    /// Has the step driven; `False` if the run was left. With `waits` the agent does nothing else.
    fn begin(&self, waits: bool) -> bool {
        let lock = |slot: &Mutex<Option<u64>>, number| {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = number;
        };
        let future = {
            let mut begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner);
            begin.take()
        };
        let Some(future) = future else { return false };
        let number = self.link.port.begin(&self.link, future, waits);
        lock(&self.number, number);
        number.is_some()
    }

    /// What there is to hear, waiting for it: a tuple whose first item says what it is.
    fn hear<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let told = py.detach(|| {
            let mut state = self.link.state();
            loop {
                if state.is_unwound {
                    return Told::Unwind;
                }
                if let Some(told) = state.told.pop_front() {
                    self.link.port.hears();
                    return told;
                }
                // The agent has nothing to do but to hear of this step.
                self.link.port.works(Work::Quiet);
                let waited = self.link.told.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
            }
        });
        self.to_python(py, told)
    }

    /// The same without waiting; `None` if there is nothing.
    fn heard<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let told = {
            let mut state = self.link.state();
            match state.is_unwound {
                true => Some(Told::Unwind),
                false => state.told.pop_front(),
            }
        };
        if !matches!(told, None | Some(Told::Unwind)) {
            self.link.port.hears();
        }
        told.map(|told| self.to_python(py, told)).transpose()
    }

    /// What it was to do is done, and this is its result.
    fn done(&self, asked: u64, result: &str) -> PyResult<()> {
        let result = failures::raw(result)?;
        self.link.answer(asked, Answer::Done(Ok(result)));
        Ok(())
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
    fn let_go(&self) {
        let future = {
            let mut begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner);
            begin.take()
        };
        drop(future);
        let number = {
            let mut number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
            number.take()
        };
        if let Some(number) = number {
            self.link.port.say(crate::port::Said::LetGo(number));
        }
    }
}

impl PyStep {
    fn to_python<'py>(&self, py: Python<'py>, told: Told) -> PyResult<Bound<'py, PyTuple>> {
        match told {
            Told::Execute(asked, call) => ("execute", asked, PyCall(call)).into_pyobject(py),
            Told::Probe(asked, call) => ("probe", asked, PyCall(call)).into_pyobject(py),
            Told::Inside(asked, ctx) => {
                let ctx = PyCtx::new(ctx, &self.link.port);
                ("inside", asked, ctx).into_pyobject(py)
            }
            Told::Ended(Ok(result)) => ("done", result.get()).into_pyobject(py),
            Told::Ended(Err(failure)) => ("failed", failures::parts(&failure)).into_pyobject(py),
            Told::Unwind => ("unwind",).into_pyobject(py),
        }
    }
}
