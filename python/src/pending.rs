//! Something that was asked of an open store, and is not answered yet.
//!
//! Invariant: who waits on a thread has let go of the interpreter, and looks for Ctrl-C.

use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dalsegno::Error;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tokio::runtime::Handle;

use crate::failures::{Problem, problem};

/// How long a Ctrl-C may go unnoticed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// JSON, if there is something to say.
pub type Answer = Result<Option<String>, Problem>;

/// Waits for an answer.
#[pyclass(frozen)]
pub struct Pending(Arc<Slot>);

#[derive(Default)]
struct Slot {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    answer: Option<Answer>,
    /// What to call, from any thread, when the answer is there.
    then: Option<Py<PyAny>>,
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, answer: Answer) {
        let then = {
            let mut state = self.state();
            state.answer = Some(answer);
            state.then.take()
        };
        self.answered.notify_all();
        if let Some(then) = then {
            // If the interpreter is gone, so is who waits.
            crate::gate::attach(|py| drop(then.call0(py)));
        }
    }
}

impl Pending {
    /// Asks, on the runtime's threads.
    pub fn new<F>(runtime: &Handle, asked: F) -> Pending
    where
        F: Future<Output = Result<Option<String>, Error>> + Send + 'static,
    {
        let slot = Arc::new(Slot::default());
        let answered = Arc::clone(&slot);
        drop(runtime.spawn(async move {
            // Whatever becomes of it, who waits is told.
            let told = Told(answered);
            let answer = asked.await.map_err(|e| problem(&e));
            told.0.put(answer);
        }));
        Pending(slot)
    }
}

/// Answers when nobody else has: the runtime has gone away.
struct Told(Arc<Slot>);

impl Drop for Told {
    fn drop(&mut self) {
        if self.0.state().answer.is_none() {
            let why = "the store was closed: open it again".to_owned();
            self.0.put(Err(("Closed", why, None, None)));
        }
    }
}

impl Pending {
    /// Waits for a while; whether it is answered.
    fn wait_for(&self, py: Python<'_>, time: Duration) -> PyResult<bool> {
        let is_answered = py.detach(|| {
            let state = self.0.state();
            let wait = |state: &mut State| state.answer.is_none();
            let waited = self.0.answered.wait_timeout_while(state, time, wait);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.answer.is_some()
        });
        if !is_answered {
            py.check_signals()?;
        }
        Ok(is_answered)
    }

    /// The same as `wait`; `None` if that is pointless.
    pub fn wait_unless<'py>(
        &self,
        py: Python<'py>,
        is_pointless: impl Fn() -> bool,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        while !self.wait_for(py, LOOK_EVERY / 20)? {
            if is_pointless() {
                return Ok(None);
            }
        }
        self.answer(py).map(Some)
    }
}

#[pymethods]
impl Pending {
    /// The answer, waited for: `(None, JSON)`, or the name of an exception and what it says.
    pub fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        while !self.wait_for(py, LOOK_EVERY)? {}
        self.answer(py)
    }

    /// Calls something, on any thread, when the answer is there.
    fn then(&self, py: Python<'_>, call: Py<PyAny>) -> PyResult<()> {
        let is_answered = {
            let mut state = self.0.state();
            if state.answer.is_none() {
                state.then = Some(call.clone_ref(py));
            }
            state.answer.is_some()
        };
        if is_answered {
            call.call0(py)?;
        }
        Ok(())
    }

    /// The answer that is there.
    fn answer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let answer = self.0.state().answer.clone();
        match answer {
            Some(Ok(json)) => (None::<&str>, json).into_pyobject(py),
            Some(Err(problem)) => problem.into_pyobject(py),
            None => ("Error", "it is not answered yet").into_pyobject(py),
        }
    }
}
