//! The steps that an agent can make, each as the library makes it.
//!
//! Invariant: a step has its identity when the method here returns, so that identities follow the
//! order of the calls in the code, whatever is awaited when.

use std::sync::Arc;
use std::time::Duration;

use dalsegno::{
    Answer, BoxFuture, Ctx, Effect, Gate, IfChanged, Resource, Result, Retry, Turn, binding,
};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::bell::Bell;
use crate::embed::PyEmbedder;
use crate::failures::{self, FailureParts};
use crate::link::{Link, PyStep};
use crate::memory::Order;
use crate::port::{Port, Said, Work};

/// A run as its agent sees it, in one scope.
#[pyclass(frozen, name = "Ctx")]
pub struct PyCtx {
    ctx: Ctx,
    port: Arc<Port>,
}

/// How the steps of a tool are made.
#[pyclass(frozen)]
pub struct Manner {
    is_model: bool,
    effect: Effect,
    retry: Retry,
    timeout: Option<Duration>,
    probe: bool,
    gate: Option<Gate>,
}

#[pymethods]
impl Manner {
    /// `retry` is attempts, first wait, factor, longest wait; `approval` for how long that is open and
    /// waited for, if a person has to approve.
    #[new]
    fn new(
        is_model: bool,
        effect: &str,
        retry: (u64, f64, f64, f64),
        timeout: Option<f64>,
        probe: bool,
        approval: Option<(Option<f64>, Option<f64>)>,
    ) -> Manner {
        let (attempts, first, factor, longest) = retry;
        Manner {
            is_model,
            effect: match effect {
                "read_only" => Effect::ReadOnly,
                "idempotent" => Effect::Idempotent,
                _ => Effect::Once,
            },
            retry: Retry::times(attempts)
                .first(seconds(first))
                .factor(factor)
                .at_most(seconds(longest)),
            timeout: timeout.map(seconds),
            probe,
            gate: approval.map(|(expires, wait)| gate(expires, wait)),
        }
    }
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

    fn step<F>(&self, py: Python<'_>, make: F) -> PyResult<PyStep>
    where
        F: FnOnce(&Arc<Link>) -> BoxFuture<'static, Result<Value>>,
    {
        self.step_within(py, false, make)
    }

    /// The same; it may have a time limit.
    fn step_within<F>(&self, py: Python<'_>, has_limit: bool, make: F) -> PyResult<PyStep>
    where
        F: FnOnce(&Arc<Link>) -> BoxFuture<'static, Result<Value>>,
    {
        self.check(py)?;
        let link = Link::new(&self.port, has_limit);
        let making = make(&link);
        Ok(PyStep::new(link, making))
    }
}

/// Something outside that a run depends on, as Python has it.
#[derive(FromPyObject)]
pub struct Held {
    kind: String,
    name: String,
    detail: Option<String>,
    if_changed: String,
}

impl Held {
    fn resource(&self) -> Resource {
        let (name, detail) = (&self.name, self.detail.as_deref());
        let resource = match (self.kind.as_str(), detail) {
            ("folder", _) => Resource::folder(name),
            ("git", None) => Resource::git(name),
            ("git", Some(branch)) => Resource::git_branch(name, branch),
            ("url", _) => Resource::url(name),
            ("custom", validator) => Resource::custom(validator.unwrap_or_default(), name),
            _ => Resource::file(name),
        };
        resource.if_changed(match self.if_changed.as_str() {
            "fail" => IfChanged::Fail,
            "go_on" => IfChanged::GoOn,
            _ => IfChanged::Attention,
        })
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

    /// By what its event loop is woken.
    fn rings(&self, bell: &Bell) {
        self.port.rings(Arc::clone(&bell.0));
    }

    /// The code waits; `sure` if only for steps of the run.
    fn waits(&self, sure: bool) {
        let work = if sure { Work::Quiet } else { Work::Unsure };
        self.port.works(work);
    }

    /// The agent has returned.
    fn returned(&self, result: &str) -> PyResult<()> {
        let result = failures::raw(result)?;
        self.port.say(Said::Return(Ok(Turn::Done(result))));
        Ok(())
    }

    /// A turn of the agent has ended, and the next one is given this.
    fn again(&self, given: &str) -> PyResult<()> {
        let given = failures::raw(given)?;
        self.port.say(Said::Return(Ok(Turn::Continue(given))));
        Ok(())
    }

    /// The agent has failed.
    fn failed(&self, failure: FailureParts) {
        let failure = failures::from_parts(failure);
        self.port.say(Said::Return(Err(failure)));
    }

    /// The agent's code is broken: a person has to mend it. In a replay that is how it ends.
    fn broken(&self, what: &str, failure: FailureParts) {
        match binding::is_replay(&self.ctx) {
            true => self.failed(failure),
            false => binding::broken(&self.ctx, what),
        }
    }

    /// The agent was interrupted, as by a crash.
    fn interrupted(&self, why: &str) {
        self.port.interrupt(why);
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
    fn call(&self, py: Python<'_>, name: &str, manner: &Manner, input: &str) -> PyResult<PyStep> {
        let input = failures::raw(input)?;
        self.step_within(py, manner.timeout.is_some(), |link| {
            let mut step = match manner.is_model {
                true => self.ctx.model(name),
                false => self.ctx.tool(name),
            };
            step = step.effect(manner.effect).input(&input).retry(manner.retry);
            if let Some(limit) = manner.timeout {
                step = step.timeout(limit);
            }
            if let Some(gate) = manner.gate {
                step = step.approval(gate);
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

    /// The same in a plain agent, and what there is to hear of it; the step is the last item of that, if it is
    /// to be done.
    fn call_here<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        manner: &Manner,
        input: &str,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.call(py, name, manner, input)?.hear_first(py)
    }

    /// A part of the plan, with steps of its own.
    fn plan(&self, py: Python<'_>, name: &str) -> PyResult<PyStep> {
        self.step(py, |link| {
            let link = Arc::clone(link);
            let inside = move |ctx| async move { link.inside(ctx).await };
            Box::pin(self.ctx.plan_step(name, inside))
        })
    }

    fn decide(&self, py: Python<'_>, name: &str, choice: &str) -> PyResult<PyStep> {
        let choice = failures::raw(choice)?;
        self.step(py, |_| Box::pin(self.ctx.decide(name, choice)))
    }

    fn event(&self, py: Python<'_>, kind: &str, content: &str) -> PyResult<PyStep> {
        let content = failures::raw(content)?;
        self.step(py, |_| {
            let event = self.ctx.event(kind, &content);
            Box::pin(async move { value(&event.await?) })
        })
    }

    fn sleep(&self, py: Python<'_>, time: f64) -> PyResult<PyStep> {
        self.step(py, |_| {
            let sleep = self.ctx.sleep(seconds(time));
            Box::pin(async move { value(&sleep.await?) })
        })
    }

    /// A list with the signal in it; an empty one if none came in time.
    fn signal(&self, py: Python<'_>, name: &str, timeout: Option<f64>) -> PyResult<PyStep> {
        self.step(py, |_| {
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
    ) -> PyResult<PyStep> {
        let content = failures::raw(content)?;
        self.step(py, |_| {
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
    ) -> PyResult<PyStep> {
        let of = of.map(failures::raw).transpose()?;
        self.step(py, |_| {
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
    ) -> PyResult<PyStep> {
        let input = failures::raw(input)?;
        self.step(py, |_| {
            let mut child = self.ctx.child::<Value, _>(agent, &input);
            if let Some(name) = name {
                child = child.named(name);
            }
            Box::pin(async move { child.await })
        })
    }

    /// What was said in a conversation before this turn: a list.
    fn conversation(&self, py: Python<'_>, name: String) -> PyResult<PyStep> {
        let ctx = self.ctx.clone();
        self.step(py, |_| {
            Box::pin(async move {
                let said = ctx.conversation(&name).await?.messages();
                value(&said.iter().map(|message| &**message).collect::<Vec<_>>())
            })
        })
    }

    /// Says something in a conversation.
    fn message(&self, py: Python<'_>, name: String, message: &str) -> PyResult<PyStep> {
        let (ctx, message) = (self.ctx.clone(), failures::raw(message)?);
        self.step(py, |_| {
            Box::pin(async move {
                let conversation = ctx.conversation(&name).await?;
                value(&conversation.push(&ctx, &message).await?)
            })
        })
    }

    /// What is asked of a memory, or told to it.
    fn memory(
        &self,
        py: Python<'_>,
        name: &str,
        by: Option<&str>,
        order: &Order,
    ) -> PyResult<PyStep> {
        self.check(py)?;
        let made = order.in_run(py, &self.ctx, name, by)?;
        self.step(py, |_| made)
    }

    /// The vectors of some texts: a list, in hex.
    fn embed(&self, py: Python<'_>, embedder: &PyEmbedder, texts: Vec<String>) -> PyResult<PyStep> {
        self.step(py, |_| embedder.in_run(&self.ctx, texts))
    }

    #[allow(clippy::too_many_arguments)]
    fn checkpoint(
        &self,
        py: Python<'_>,
        name: &str,
        state: &str,
        progress: Option<(u64, u64)>,
        pinned: bool,
        holding: Vec<Held>,
        releasing: Vec<Held>,
    ) -> PyResult<PyStep> {
        let state = failures::raw(state)?;
        self.step(py, |_| {
            let mut checkpoint = self.ctx.checkpoint(name, &state);
            if let Some((at, of)) = progress {
                checkpoint = checkpoint.step(at, of);
            }
            if pinned {
                checkpoint = checkpoint.pin();
            }
            for held in &holding {
                checkpoint = checkpoint.holding(held.resource());
            }
            for held in &releasing {
                checkpoint = checkpoint.releasing(held.resource());
            }
            Box::pin(async move { value(&checkpoint.await?) })
        })
    }

    fn now(&self, py: Python<'_>) -> PyResult<PyStep> {
        self.step(py, |_| {
            let now = self.ctx.now();
            Box::pin(async move { value(&now.await?) })
        })
    }

    fn random(&self, py: Python<'_>) -> PyResult<PyStep> {
        self.step(py, |_| {
            let random = self.ctx.random();
            Box::pin(async move { value(&random.await?) })
        })
    }

    fn uuid(&self, py: Python<'_>) -> PyResult<PyStep> {
        self.step(py, |_| {
            let uuid = self.ctx.uuid();
            Box::pin(async move { value(&uuid.await?) })
        })
    }

    fn patched(&self, py: Python<'_>, change: &str) -> PyResult<PyStep> {
        self.step(py, |_| {
            let patched = self.ctx.patched(change);
            Box::pin(async move { value(&patched.await?) })
        })
    }
}
