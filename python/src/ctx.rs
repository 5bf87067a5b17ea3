//! The steps that an agent can make, each as the library makes it.
//!
//! Invariant: a step has its identity when the method here returns, so that identities follow the
//! order of the calls in the code, whatever is awaited when.

use std::sync::Arc;
use std::time::Duration;

use dalsegno::{Answer, BoxFuture, Ctx, Effect, Gate, Result, Retry, binding};
use pyo3::prelude::*;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::failures::{self, FailureParts};
use crate::link::{Link, PyStep};
use crate::port::{Port, Said, Work};

/// A run as its agent sees it, in one scope.
#[pyclass(frozen, name = "Ctx")]
pub struct PyCtx {
    ctx: Ctx,
    port: Arc<Port>,
}

/// How a step is to be made.
#[derive(FromPyObject)]
pub struct Manner {
    is_model: bool,
    effect: String,
    /// Attempts, first wait, factor, longest wait.
    retry: (u64, f64, f64, f64),
    timeout: Option<f64>,
    probe: bool,
    /// Whether a person has to approve, and for how long that is open and waited for.
    approval: bool,
    expires: Option<f64>,
    wait: Option<f64>,
}

type Value = Box<RawValue>;

impl PyCtx {
    pub fn new(ctx: Ctx, port: &Arc<Port>) -> PyCtx {
        let port = Arc::clone(port);
        PyCtx { ctx, port }
    }

    /// What the run knows is not to be used from a fork of its process.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        match self.port.is_forked() {
            false => Ok(()),
            true => {
                let why = "this process was forked from the one that has the run: return from the \
                           fork what its parent is to do, and let the agent do it";
                Err(failures::raise(py, "Forked", why))
            }
        }
    }

    fn step<F>(&self, py: Python<'_>, hear: Option<Py<PyAny>>, make: F) -> PyResult<PyStep>
    where
        F: FnOnce(&Arc<Link>) -> BoxFuture<'static, Result<Value>>,
    {
        self.check(py)?;
        let link = Link::new(&self.port, hear);
        let made = make(&link);
        let told = Arc::clone(&link);
        let future = Box::pin(async move { told.ended(made.await) });
        Ok(PyStep::new(link, future))
    }
}

fn seconds(time: f64) -> Duration {
    Duration::try_from_secs_f64(time.max(0.0)).unwrap_or(Duration::MAX)
}

fn gate(expires: Option<f64>, wait: Option<f64>) -> Gate {
    let mut gate = Gate::new();
    if let Some(expires) = expires {
        gate = gate.expires_in(seconds(expires));
    }
    if let Some(wait) = wait {
        gate = gate.wait_at_most(seconds(wait));
    }
    gate
}

/// A value of the library's own as JSON.
fn value(of: &impl serde::Serialize) -> Result<Value> {
    Ok(to_raw_value(of)?)
}

#[pymethods]
impl PyCtx {
    #[getter]
    fn run(&self) -> &str {
        self.ctx.run_id()
    }

    /// Whether the run is only read, to be replayed: nothing is to be done outside of steps either.
    #[getter]
    fn is_replay(&self) -> bool {
        binding::is_replay(&self.ctx)
    }

    /// Whether the run was left: nothing that its code does counts any more.
    #[getter]
    fn is_left(&self) -> bool {
        self.port.is_left()
    }

    /// What to call, from any thread, when the run is left.
    fn unwind_with(&self, call: Py<PyAny>) {
        self.port.unwind_with(call);
    }

    /// The code waits; `sure` if only for steps of the run.
    fn waits(&self, sure: bool) {
        let work = if sure { Work::Quiet } else { Work::Unsure };
        self.port.works(work);
    }

    /// The agent has returned.
    fn returned(&self, result: &str) -> PyResult<()> {
        let result = failures::raw(result)?;
        self.port.say(Said::Return(Ok(result)));
        Ok(())
    }

    /// The agent has failed.
    fn failed(&self, failure: FailureParts) {
        let failure = failures::from_parts(failure);
        self.port.say(Said::Return(Err(failure)));
    }

    /// The agent was interrupted, as by a crash.
    fn interrupted(&self, why: String) {
        self.port.say(Said::Interrupted(why));
    }

    /// The last `finally` of the agent is done.
    fn is_over(&self) {
        self.port.is_over();
    }

    /// A scope of its own, for code that runs beside other code.
    fn branch(&self, name: &str) -> PyCtx {
        PyCtx::new(self.ctx.branch(name), &self.port)
    }

    /// A call of a model or a tool.
    fn call(
        &self,
        py: Python<'_>,
        name: &str,
        manner: Manner,
        input: &str,
        hear: Option<Py<PyAny>>,
    ) -> PyResult<PyStep> {
        let input = failures::raw(input)?;
        let effect = match manner.effect.as_str() {
            "read_only" => Effect::ReadOnly,
            "idempotent" => Effect::Idempotent,
            _ => Effect::Once,
        };
        let (attempts, first, factor, longest) = manner.retry;
        let retry = Retry::times(attempts)
            .first(seconds(first))
            .factor(factor)
            .at_most(seconds(longest));
        self.step(py, hear, |link| {
            let mut step = match manner.is_model {
                true => self.ctx.model(name),
                false => self.ctx.tool(name),
            };
            step = step.effect(effect).input(&input).retry(retry);
            if let Some(limit) = manner.timeout {
                step = step.timeout(seconds(limit));
            }
            if manner.approval {
                step = step.approval(gate(manner.expires, manner.wait));
            }
            if manner.probe {
                let link = Arc::clone(link);
                step = step.probe(move |call| {
                    let link = Arc::clone(&link);
                    async move { link.probe(call).await }
                });
            }
            let link = Arc::clone(link);
            Box::pin(step.call(move |call| {
                let link = Arc::clone(&link);
                async move { link.execute(call).await }
            }))
        })
    }

    /// A part of the plan, with steps of its own.
    fn plan(&self, py: Python<'_>, name: &str, hear: Option<Py<PyAny>>) -> PyResult<PyStep> {
        self.step(py, hear, |link| {
            let link = Arc::clone(link);
            let inside = move |ctx| async move { link.inside(ctx).await };
            Box::pin(self.ctx.plan_step(name, inside))
        })
    }

    fn decide(
        &self,
        py: Python<'_>,
        name: &str,
        choice: &str,
        hear: Option<Py<PyAny>>,
    ) -> PyResult<PyStep> {
        let choice = failures::raw(choice)?;
        self.step(py, hear, |_| Box::pin(self.ctx.decide(name, choice)))
    }

    fn event(
        &self,
        py: Python<'_>,
        kind: &str,
        content: &str,
        hear: Option<Py<PyAny>>,
    ) -> PyResult<PyStep> {
        let content = failures::raw(content)?;
        self.step(py, hear, |_| {
            let event = self.ctx.event(kind, &content);
            Box::pin(async move { value(&event.await?) })
        })
    }

    fn sleep(&self, py: Python<'_>, time: f64, hear: Option<Py<PyAny>>) -> PyResult<PyStep> {
        self.step(py, hear, |_| {
            let sleep = self.ctx.sleep(seconds(time));
            Box::pin(async move { value(&sleep.await?) })
        })
    }

    /// A list with the signal in it; an empty one if none came in time.
    fn signal(
        &self,
        py: Python<'_>,
        name: &str,
        timeout: Option<f64>,
        hear: Option<Py<PyAny>>,
    ) -> PyResult<PyStep> {
        self.step(py, hear, |_| {
            let wait = self.ctx.signal::<Value>(name);
            Box::pin(async move {
                let came = match timeout {
                    None => Some(wait.await?),
                    Some(limit) => wait.timeout(seconds(limit)).await?,
                };
                value(&came.into_iter().collect::<Vec<_>>())
            })
        })
    }

    fn send_signal(
        &self,
        py: Python<'_>,
        run: &str,
        name: &str,
        content: &str,
        hear: Option<Py<PyAny>>,
    ) -> PyResult<PyStep> {
        let content = failures::raw(content)?;
        self.step(py, hear, |_| {
            let sent = self.ctx.send_signal(run, name, &content);
            Box::pin(async move { value(&sent.await?) })
        })
    }

    /// What a person says: a list of the answer, who gave it, and a note.
    fn approval(
        &self,
        py: Python<'_>,
        name: &str,
        of: Option<&str>,
        expires: Option<f64>,
        wait: Option<f64>,
        hear: Option<Py<PyAny>>,
    ) -> PyResult<PyStep> {
        let of = of.map(failures::raw).transpose()?;
        self.step(py, hear, |_| {
            let mut asked = self.ctx.approval(name);
            if let Some(of) = &of {
                asked = asked.of(of);
            }
            if let Some(expires) = expires {
                asked = asked.expires_in(seconds(expires));
            }
            if let Some(wait) = wait {
                asked = asked.wait_at_most(seconds(wait));
            }
            Box::pin(async move {
                value(&match asked.await? {
                    Answer::Approved { by, note } => json!(["approved", by, note]),
                    Answer::Rejected { by, note } => json!(["rejected", by, note]),
                    Answer::Expired => json!(["expired", "", ""]),
                    Answer::NoAnswer => json!(["no-answer", "", ""]),
                })
            })
        })
    }

    fn child(
        &self,
        py: Python<'_>,
        agent: &str,
        input: &str,
        name: Option<&str>,
        hear: Option<Py<PyAny>>,
    ) -> PyResult<PyStep> {
        let input = failures::raw(input)?;
        self.step(py, hear, |_| {
            let mut child = self.ctx.child::<Value, _>(agent, &input);
            if let Some(name) = name {
                child = child.named(name);
            }
            Box::pin(async move { child.await })
        })
    }

    fn now(&self, py: Python<'_>, hear: Option<Py<PyAny>>) -> PyResult<PyStep> {
        self.step(py, hear, |_| {
            let now = self.ctx.now();
            Box::pin(async move { value(&now.await?) })
        })
    }

    fn random(&self, py: Python<'_>, hear: Option<Py<PyAny>>) -> PyResult<PyStep> {
        self.step(py, hear, |_| {
            let random = self.ctx.random();
            Box::pin(async move { value(&random.await?) })
        })
    }

    fn uuid(&self, py: Python<'_>, hear: Option<Py<PyAny>>) -> PyResult<PyStep> {
        self.step(py, hear, |_| {
            let uuid = self.ctx.uuid();
            Box::pin(async move { value(&uuid.await?) })
        })
    }

    fn patched(&self, py: Python<'_>, change: &str, hear: Option<Py<PyAny>>) -> PyResult<PyStep> {
        self.step(py, hear, |_| {
            let patched = self.ctx.patched(change);
            Box::pin(async move { value(&patched.await?) })
        })
    }
}
