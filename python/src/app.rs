//! The open store, and what can be asked of it.
//!
//! Everything that may wait gives a [`Pending`]: Python waits for it on a thread or in an event loop.
//!
//! Invariant: a fork of the process uses nothing of its parent's, not even to let go of it.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dalsegno::{
    AttentionKind, Budget, Builder, Dalsegno, Durability, Error, Fork, RunHandle, Start, Turn, Why,
};
use dalsegno_store::{RunInfo, RunQuery, Status};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::runtime::Runtime;

use crate::crash::{self, Crash};
use crate::drive::Starter;
use crate::failures;
use crate::memory::Order;
use crate::pending::Pending;

/// An open store with its agents.
#[pyclass(frozen)]
pub struct App {
    pid: u32,
    /// `None` when it was closed.
    inner: Mutex<Option<Inner>>,
}

struct Inner {
    app: Dalsegno,
    runtime: Runtime,
}

/// How a store is opened.
#[derive(FromPyObject)]
pub struct Manner {
    durability: Option<f64>,
    max_running: Option<usize>,
    queues: Option<Vec<String>>,
    lease: Option<f64>,
    stay: Option<f64>,
    session: Option<String>,
    /// How resources of the user's own are looked at, by name.
    resources: Vec<(String, Py<PyAny>)>,
    crash: Option<Py<Crash>>,
}

/// Opens a store, and takes up its runs.
#[pyfunction]
pub fn open(
    py: Python<'_>,
    place: String,
    agents: Vec<(String, bool)>,
    start: Py<PyAny>,
    manner: Manner,
) -> PyResult<App> {
    let starter = Starter::new(start);
    let mut builder = Dalsegno::builder();
    for (agent, is_loop) in agents {
        let (starter, name): (_, Arc<str>) = (Arc::clone(&starter), agent.as_str().into());
        let run = move |ctx, input: Box<RawValue>| {
            Arc::clone(&starter).run(Arc::clone(&name), ctx, input)
        };
        builder = match is_loop {
            true => builder.loop_agent(&agent, |input: Box<RawValue>| input, run),
            false => builder.agent(&agent, move |ctx, input| {
                let ended = run(ctx, input);
                async move {
                    match ended.await? {
                        Turn::Done(result) => Ok(result),
                        Turn::Continue(_) => Err(failures::misuse(
                            "it gave dalsegno.again, and is no loop: @dalsegno.agent(loop=True)",
                        )),
                    }
                }
            }),
        };
    }
    let manner_crash = manner.crash.as_ref().map(|crash| crash.clone_ref(py));
    let crash = manner.crash.as_ref().map(|crash| crash.get().parts());
    let builder = manner.apply(builder);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("dalsegno")
        .enable_all()
        .build()
        .map_err(|e| failures::raise(py, "Error", &format!("no threads can be started: {e}")))?;
    let opened = Arc::new(Mutex::new(None));
    let put = Arc::clone(&opened);
    let opening = Pending::new(runtime.handle(), async move {
        let app = match crash {
            None => builder.open(place).await?,
            Some(parts) => Crash::open(builder, &place, parts).await?,
        };
        *put.lock().unwrap_or_else(PoisonError::into_inner) = Some(app);
        Ok(None)
    });
    let is_dead = || {
        manner_crash
            .as_ref()
            .is_some_and(|crash| crash.get().is_dead())
    };
    let answer = match opening.wait_unless(py, is_dead) {
        Ok(Some(answer)) => answer,
        // Whoever gives up (Ctrl-C) does not wait for a server that does not answer.
        gone => {
            runtime.shutdown_background();
            gone?;
            return Err(failures::raise(py, "Closed", "the process is dead"));
        }
    };
    let app = {
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.take()
    };
    match app {
        Some(app) => Ok(App {
            pid: std::process::id(),
            inner: Mutex::new(Some(Inner { app, runtime })),
        }),
        None => {
            runtime.shutdown_background();
            let class: String = answer.get_item(0)?.extract()?;
            let words: String = answer.get_item(1)?.extract()?;
            Err(failures::raise(py, &class, &words))
        }
    }
}

impl Manner {
    fn apply(self, mut builder: Builder) -> Builder {
        let seconds = |time: f64| Duration::try_from_secs_f64(time).unwrap_or(Duration::MAX);
        if let Some(bound) = self.durability {
            builder = builder.durability(match bound > 0.0 {
                true => Durability::Bounded(seconds(bound)),
                false => Durability::Strict,
            });
        }
        if let Some(runs) = self.max_running {
            builder = builder.max_running(runs);
        }
        if let Some(queues) = self.queues {
            builder = builder.queues(queues);
        }
        if let Some(lease) = self.lease {
            builder = builder.lease(seconds(lease));
        }
        if let Some(stay) = self.stay {
            builder = builder.stay_in_memory(seconds(stay));
        }
        if let Some(session) = self.session {
            builder = builder.session(&session);
        }
        for (name, look) in self.resources {
            let look = Arc::new(look);
            builder = builder.resource(&name, move |name| look_at(Arc::clone(&look), name));
        }
        builder
    }
}

/// Asks Python what a resource looks like, on a thread that may wait.
async fn look_at(look: Arc<Py<PyAny>>, name: String) -> dalsegno::Result<Option<String>> {
    let asked = move || {
        crate::gate::attach(|py| {
            let found = look.call1(py, (name,))?;
            found.extract::<Option<String>>(py)
        })
    };
    match tokio::task::spawn_blocking(asked).await {
        Ok(Some(Ok(found))) => Ok(found),
        Ok(Some(Err(e))) => Err(failures::failed(&e.to_string())),
        Ok(None) => Err(failures::failed("the interpreter is ending")),
        Err(e) => Err(failures::failed(&e.to_string())),
    }
}

impl App {
    fn inner(&self) -> MutexGuard<'_, Option<Inner>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks something of the store.
    pub(crate) fn ask<F, Fut>(&self, py: Python<'_>, ask: F) -> PyResult<Pending>
    where
        F: FnOnce(Dalsegno) -> Fut,
        Fut: Future<Output = Result<Option<String>, Error>> + Send + 'static,
    {
        self.check(py)?;
        let open = {
            let inner = self.inner();
            let open = inner.as_ref();
            open.map(|inner| (inner.runtime.handle().clone(), inner.app.clone()))
        };
        match open {
            Some((runtime, app)) => Ok(Pending::new(&runtime, ask(app))),
            None => Err(closed(py)),
        }
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        check_process(py, self.pid)
    }
}

/// Whoever asks a store that is closed is told that.
pub fn closed(py: Python<'_>) -> PyErr {
    failures::raise(py, "Closed", "the store was closed: open it again")
}

/// Whether this is the process that has opened a store, and not a fork of it.
pub fn check_process(py: Python<'_>, pid: u32) -> PyResult<()> {
    match std::process::id() == pid {
        true => Ok(()),
        false => {
            let why = "this process was forked from the one that has opened the store: open it \
                       here, after the fork, or start the process with \"spawn\"";
            Err(failures::raise(py, "Forked", why))
        }
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let Some(inner) = self.inner().take() else {
            return;
        };
        if std::process::id() != self.pid {
            // Its threads are the parent's, and so are its files.
            std::mem::forget(inner);
            return;
        }
        // As a crash: what is on disk is whole, and whoever opens it next goes on.
        let Inner { app, runtime } = inner;
        drop(app);
        runtime.shutdown_background();
    }
}

async fn result(handle: RunHandle) -> Result<Option<String>, Error> {
    let value: Box<RawValue> = handle.result().await?;
    Ok(Some(value.get().to_owned()))
}

/// The statuses of these names.
fn statuses(names: &[String]) -> Vec<Status> {
    const ALL: [Status; 6] = [
        Status::Pending,
        Status::Running,
        Status::Checkpointed,
        Status::Completed,
        Status::Failed,
        Status::Cancelled,
    ];
    let is_wanted = |known: &Status| names.contains(&known.to_string());
    ALL.into_iter().filter(is_wanted).collect()
}

/// Which runs are wanted.
pub fn query(
    status: &[String],
    agent: Option<String>,
    attention: bool,
    newest: bool,
    limit: usize,
) -> RunQuery {
    RunQuery {
        status: statuses(status),
        attention,
        agent,
        after: None,
        limit,
        newest,
    }
}

/// Runs in a list.
pub fn runs_json(runs: &[RunInfo]) -> String {
    let info = |info: &RunInfo| {
        json!({
            "run": info.run.name(),
            "agent": info.agent,
            "status": info.status.to_string(),
            "created_us": info.created_us,
            "updated_us": info.updated_us,
            "attention": info.attention,
            "next_timer_us": info.next_timer_us,
        })
    };
    json!(runs.iter().map(info).collect::<Vec<_>>()).to_string()
}

/// Why a run is where it is, for Python and for people.
pub fn why_json(why: &Why) -> String {
    json!([why.to_json(), why.to_string()]).to_string()
}

/// What Python knows of a budget: steps, tokens, cost in millionths, seconds.
pub type Limits = (Option<u64>, Option<u64>, Option<u64>, Option<f64>);

pub fn budget((steps, tokens, cost_micros, wall): Limits) -> Budget {
    Budget {
        steps,
        tokens,
        cost_micros,
        wall: wall.map(|time| Duration::try_from_secs_f64(time).unwrap_or(Duration::MAX)),
    }
}

#[pymethods]
impl App {
    /// Starts a run, and waits for its result if that is wanted.
    #[allow(clippy::too_many_arguments)]
    fn start(
        &self,
        py: Python<'_>,
        agent: String,
        run: String,
        input: &str,
        limits: Limits,
        queue: String,
        priority: u32,
        wait: bool,
    ) -> PyResult<Pending> {
        let input = failures::raw(input)?;
        self.ask(py, |app| async move {
            let start = Start::new()
                .budget(budget(limits))
                .queue(queue)
                .priority(priority);
            let handle = app.start_with(&agent, &run, &input, start).await?;
            match wait {
                true => result(handle).await,
                false => Ok(None),
            }
        })
    }

    /// Waits for the result of a run.
    fn result(&self, py: Python<'_>, run: String) -> PyResult<Pending> {
        self.ask(py, |app| async move { result(app.find(&run).await?).await })
    }

    /// Of which agent a run is.
    fn agent_of(&self, py: Python<'_>, run: String) -> PyResult<Pending> {
        self.ask(py, |app| async move {
            app.find(&run).await?;
            Ok(Some(
                json!(app.journal(&run).await?.created.agent).to_string(),
            ))
        })
    }

    /// Why only a person can move a run on: the class of an exception for it.
    fn attention_of(&self, py: Python<'_>, run: String) -> PyResult<Pending> {
        self.ask(py, |app| async move {
            let attention = app.journal(&run).await?.attention;
            let class = match attention.map(|attention| attention.kind) {
                Some(AttentionKind::Mismatch) => "Mismatch",
                Some(AttentionKind::Budget) => "BudgetExceeded",
                Some(AttentionKind::InDoubt) => "InDoubt",
                Some(_) => "NeedsAttention",
                None => "NotMoving",
            };
            Ok(Some(json!(class).to_string()))
        })
    }

    fn signal(
        &self,
        py: Python<'_>,
        run: String,
        name: String,
        content: &str,
    ) -> PyResult<Pending> {
        let content = failures::raw(content)?;
        self.ask(py, |app| async move {
            app.signal(&run, &name, &content).await?;
            Ok(None)
        })
    }

    fn approve(
        &self,
        py: Python<'_>,
        run: String,
        approval: String,
        by: String,
    ) -> PyResult<Pending> {
        self.ask(py, |app| async move {
            app.approve(&run, &approval, &by).await?;
            Ok(None)
        })
    }

    fn reject(
        &self,
        py: Python<'_>,
        run: String,
        approval: String,
        by: String,
        why: String,
    ) -> PyResult<Pending> {
        self.ask(py, |app| async move {
            app.reject(&run, &approval, &by, &why).await?;
            Ok(None)
        })
    }

    /// Says of a step in doubt that it happened, with a result; did not; or fails the run.
    fn resolve(
        &self,
        py: Python<'_>,
        run: String,
        step: String,
        verdict: String,
        output: Option<&str>,
        by: String,
    ) -> PyResult<Pending> {
        let output = failures::raw(output.unwrap_or("null"))?;
        self.ask(py, |app| async move {
            match verdict.as_str() {
                "happened" => app.resolve_happened(&run, &step, &output, &by).await?,
                "did_not_happen" => app.resolve_not_happened(&run, &step, &by).await?,
                _ => app.resolve_fail(&run, &step, &by).await?,
            }
            Ok(None)
        })
    }

    fn cancel(&self, py: Python<'_>, run: String, reason: String) -> PyResult<Pending> {
        self.ask(py, |app| async move {
            app.cancel(&run, &reason).await?;
            Ok(None)
        })
    }

    fn clear_attention(&self, py: Python<'_>, run: String) -> PyResult<Pending> {
        self.ask(py, |app| async move {
            app.clear_attention(&run).await?;
            Ok(None)
        })
    }

    fn set_budget(&self, py: Python<'_>, run: String, limits: Limits) -> PyResult<Pending> {
        self.ask(py, move |app| async move {
            app.set_budget(&run, budget(limits)).await?;
            Ok(None)
        })
    }

    fn runs(
        &self,
        py: Python<'_>,
        status: Vec<String>,
        agent: Option<String>,
        attention: bool,
        newest: bool,
        limit: usize,
    ) -> PyResult<Pending> {
        let query = query(&status, agent, attention, newest, limit);
        self.ask(py, move |app| async move {
            Ok(Some(runs_json(&app.runs(&query).await?)))
        })
    }

    fn why(&self, py: Python<'_>, run: String) -> PyResult<Pending> {
        self.ask(py, |app| async move {
            Ok(Some(why_json(&app.why(&run).await?)))
        })
    }

    fn replay(&self, py: Python<'_>, run: String) -> PyResult<Pending> {
        self.ask(py, |app| async move {
            let replayed = app.replay(&run).await?;
            let divergence = replayed.divergence().map(|divergence| {
                json!([
                    divergence.kind.to_string(),
                    divergence.recorded.to_string(),
                    divergence.now.to_string(),
                ])
            });
            let said = json!([
                replayed.steps,
                divergence,
                replayed.unchecked,
                replayed.to_string()
            ]);
            Ok(Some(said.to_string()))
        })
    }

    /// Forks a run: after an event, or its last, with other outcomes and another input.
    fn fork(
        &self,
        py: Python<'_>,
        run: String,
        at: Option<u64>,
        name: Option<String>,
        outcomes: Vec<(String, String)>,
        input: Option<String>,
    ) -> PyResult<Pending> {
        self.ask(py, move |app| async move {
            let raw = |json: String| {
                RawValue::from_string(json).map_err(|e| Error::Encoding {
                    what: "a value",
                    why: e.to_string(),
                })
            };
            let mut fork = at.map_or_else(Fork::at_end, Fork::at);
            if let Some(name) = name {
                fork = fork.named(&name);
            }
            for (step, outcome) in outcomes {
                fork = fork.with_outcome(&step, &raw(outcome)?)?;
            }
            if let Some(input) = input {
                fork = fork.with_input(&raw(input)?)?;
            }
            let forked = app.fork(&run, fork).await?;
            Ok(Some(json!(forked.id()).to_string()))
        })
    }

    /// What is asked of a memory, or told to it.
    fn memory(
        &self,
        py: Python<'_>,
        name: String,
        by: Option<String>,
        order: &Order,
    ) -> PyResult<Pending> {
        self.ask(py, order.outside(py, name, by)?)
    }

    fn recovered(&self, py: Python<'_>) -> PyResult<Pending> {
        self.ask(py, |app| async move {
            let all = app.recovered().await;
            let all = all.iter().map(|recovered| {
                let action = recovered.action.word();
                json!([recovered.run, recovered.agent, action, recovered.why])
            });
            Ok(Some(json!(all.collect::<Vec<_>>()).to_string()))
        })
    }

    /// What the runs that wait ask a person.
    fn asks(&self, py: Python<'_>) -> PyResult<Pending> {
        self.ask(py, crash::asks)
    }

    /// Leaves everything as a crash of the process would, and waits until nothing moves any more.
    fn crash(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        let inner = self.inner().take();
        py.detach(move || {
            if let Some(Inner { app, runtime }) = inner {
                drop(app);
                runtime.shutdown_timeout(Duration::from_secs(5));
            }
        });
        Ok(())
    }

    /// Closes the store; steps that are under way have so long to end, or until Ctrl-C.
    fn close<'py>(&self, py: Python<'py>, grace: f64) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.check(py)?;
        let inner = self.inner().take();
        let Some(Inner { app, runtime }) = inner else {
            return Ok(None);
        };
        let grace = Duration::try_from_secs_f64(grace).unwrap_or(Duration::MAX);
        let closing = Pending::new(runtime.handle(), async move {
            app.close_within(grace).await.map(|()| None)
        });
        let closed = closing.wait(py);
        runtime.shutdown_background();
        let closed = closed?;
        Ok(match closed.get_item(0)?.is_none() {
            true => None,
            false => Some(closed),
        })
    }
}
