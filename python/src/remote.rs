//! Orders for the runs of a store that another process has open, as letters.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dalsegno::{Error, Remote, Sent};
use pyo3::prelude::*;
use tokio::runtime::Runtime;

use crate::app::{Limits, budget, check_process, closed, query, runs_json, why_json};
use crate::failures;
use crate::pending::Pending;

/// A store beside its owner.
#[pyclass(frozen, name = "Remote")]
pub struct PyRemote {
    pid: u32,
    /// `None` when it was closed.
    inner: Mutex<Option<(Remote, Runtime)>>,
}

/// Opens the store in a folder, beside its owner.
#[pyfunction]
pub fn open_remote(py: Python<'_>, place: String) -> PyResult<PyRemote> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("dalsegno-remote")
        .enable_all()
        .build()
        .map_err(|e| failures::raise(py, "Error", &format!("no threads can be started: {e}")))?;
    let opened = py.detach(|| {
        let _runtime = runtime.enter();
        Remote::open(place)
    });
    let remote = opened.map_err(|e| {
        let (class, words, ..) = failures::problem(&e);
        failures::raise(py, class, &words)
    })?;
    Ok(PyRemote {
        pid: std::process::id(),
        inner: Mutex::new(Some((remote, runtime))),
    })
}

impl PyRemote {
    fn inner(&self) -> MutexGuard<'_, Option<(Remote, Runtime)>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<F, Fut>(&self, py: Python<'_>, ask: F) -> PyResult<Pending>
    where
        F: FnOnce(Remote) -> Fut,
        Fut: Future<Output = Result<Option<String>, Error>> + Send + 'static,
    {
        check_process(py, self.pid)?;
        match &*self.inner() {
            Some((remote, runtime)) => Ok(Pending::new(runtime.handle(), ask(remote.clone()))),
            None => Err(closed(py)),
        }
    }

    /// Sends an order, and waits so long for the owner to take it up.
    fn send<F, Fut>(&self, py: Python<'_>, wait: Option<f64>, send: F) -> PyResult<Pending>
    where
        F: FnOnce(Remote) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Sent, Error>> + Send + 'static,
    {
        self.ask(py, move |remote| async move {
            let sent = send(remote).await?;
            if let Some(wait) = wait {
                let wait = Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX);
                sent.taken_within(wait).await?;
            }
            Ok(None)
        })
    }
}

impl Drop for PyRemote {
    fn drop(&mut self) {
        if let Some((remote, runtime)) = self.inner().take() {
            if std::process::id() != self.pid {
                std::mem::forget((remote, runtime));
                return;
            }
            drop(remote);
            runtime.shutdown_background();
        }
    }
}

#[pymethods]
impl PyRemote {
    fn signal(
        &self,
        py: Python<'_>,
        run: String,
        name: String,
        content: &str,
        wait: Option<f64>,
    ) -> PyResult<Pending> {
        let content = failures::raw(content)?;
        self.send(py, wait, |remote| async move {
            remote.signal(&run, &name, &content).await
        })
    }

    fn approve(
        &self,
        py: Python<'_>,
        run: String,
        approval: String,
        by: String,
        wait: Option<f64>,
    ) -> PyResult<Pending> {
        self.send(py, wait, |remote| async move {
            remote.approve(&run, &approval, &by).await
        })
    }

    fn reject(
        &self,
        py: Python<'_>,
        run: String,
        approval: String,
        by: String,
        why: String,
        wait: Option<f64>,
    ) -> PyResult<Pending> {
        self.send(py, wait, |remote| async move {
            remote.reject(&run, &approval, &by, &why).await
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn resolve(
        &self,
        py: Python<'_>,
        run: String,
        step: String,
        verdict: String,
        output: Option<&str>,
        by: String,
        wait: Option<f64>,
    ) -> PyResult<Pending> {
        let output = failures::raw(output.unwrap_or("null"))?;
        self.send(py, wait, |remote| async move {
            match verdict.as_str() {
                "happened" => remote.resolve_happened(&run, &step, &output, &by).await,
                "did_not_happen" => remote.resolve_not_happened(&run, &step, &by).await,
                _ => remote.resolve_fail(&run, &step, &by).await,
            }
        })
    }

    fn cancel(
        &self,
        py: Python<'_>,
        run: String,
        reason: String,
        wait: Option<f64>,
    ) -> PyResult<Pending> {
        self.send(py, wait, |remote| async move {
            remote.cancel(&run, &reason).await
        })
    }

    fn clear_attention(&self, py: Python<'_>, run: String, wait: Option<f64>) -> PyResult<Pending> {
        self.send(py, wait, |remote| async move {
            remote.clear_attention(&run).await
        })
    }

    fn set_budget(
        &self,
        py: Python<'_>,
        run: String,
        limits: Limits,
        wait: Option<f64>,
    ) -> PyResult<Pending> {
        self.send(py, wait, move |remote| async move {
            remote.set_budget(&run, budget(limits)).await
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
        self.ask(py, move |remote| async move {
            Ok(Some(runs_json(&remote.store().runs(&query).await?)))
        })
    }

    fn why(&self, py: Python<'_>, run: String) -> PyResult<Pending> {
        self.ask(py, |remote| async move {
            Ok(Some(why_json(
                &dalsegno::why(&**remote.store(), &run).await?,
            )))
        })
    }

    fn close(&self, py: Python<'_>) {
        let inner = self.inner().take();
        py.detach(move || {
            if let Some((remote, runtime)) = inner {
                drop(remote);
                runtime.shutdown_background();
            }
        });
    }
}
