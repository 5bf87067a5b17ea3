//! The future that an agent in Python is to the engine.
//!
//! It starts the agent's code in Python, polls the steps that the code makes, and ends with what the
//! code returns. When the engine leaves it (the run waits, or stops), the code is told to unwind.
//!
//! Invariant: of one run at most one execution is in Python. One that is taken up again begins when
//! the one before it is done with its last `finally`.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use dalsegno::binding::{self, Outside};
use dalsegno::{Ctx, Failure, Result};
use pyo3::prelude::*;
use serde_json::value::RawValue;

use crate::ctx::PyCtx;
use crate::link::Link;
use crate::port::{Port, Said, Turned, Work};

/// What starts an agent's code, and which executions there are.
pub struct Starter {
    /// Called with the agent's name, the run's context and its input.
    start: Py<PyAny>,
    lives: Mutex<HashMap<String, Weak<Port>>>,
}

impl Starter {
    pub fn new(start: Py<PyAny>) -> Arc<Starter> {
        Arc::new(Starter {
            start,
            lives: Mutex::default(),
        })
    }

    /// The execution of this run before, if it is not over.
    fn succeed(&self, run: &str, port: &Arc<Port>) -> Option<Arc<Port>> {
        let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        if lives.len() > 64 && lives.len().is_power_of_two() {
            lives.retain(|_, port| port.strong_count() > 0);
        }
        let before = lives.insert(run.to_owned(), Arc::downgrade(port));
        before.and_then(|before| before.upgrade())
    }

    /// An agent's code, from its start to its end.
    pub async fn run(
        self: Arc<Self>,
        agent: Arc<str>,
        ctx: Ctx,
        input: Box<RawValue>,
    ) -> Result<Turned> {
        let port = Port::new(&ctx);
        if !binding::is_replay(&ctx)
            && let Some(before) = self.succeed(ctx.run_id(), &port)
        {
            before.until_over().await;
        }
        let drive = Drive {
            outside: Some(Outside::new(&ctx)),
            ctx: ctx.clone(),
            port: Arc::clone(&port),
            steps: Vec::new(),
        };
        let started = crate::gate::attach(|py| {
            let given = PyCtx::new(ctx.clone(), &port);
            let started = self.start.call1(py, (&*agent, given, input.get()));
            started.map(drop).map_err(|e| e.to_string())
        });
        let failed = match started {
            Some(Ok(())) => None,
            Some(Err(e)) => Some(e),
            None => Some("the interpreter is ending".to_owned()),
        };
        if let Some(why) = failed {
            port.is_over();
            binding::interrupt(
                &ctx,
                &format!("its agent {agent:?} cannot be started: {why}"),
            );
        }
        drive.await
    }
}

/// An execution in Python, as the engine polls it.
struct Drive {
    ctx: Ctx,
    port: Arc<Port>,
    steps: Vec<(u64, Arc<Link>)>,
    outside: Option<Outside>,
}

impl Drive {
    /// Does what Python has said; what the agent came to, if it has ended.
    fn obey(&mut self) -> Option<Result<Turned, Failure>> {
        for said in self.port.take() {
            match said {
                Said::Drive(number, link) => self.steps.push((number, link)),
                Said::LetGo(number) => {
                    for (_, link) in self.steps.extract_if(.., |(known, _)| *known == number) {
                        drop(link.take());
                    }
                }
                Said::Return(returned) => return Some(returned),
            }
        }
        None
    }
}

impl Future for Drive {
    type Output = Result<Turned>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            if let Some(returned) = this.obey() {
                return Poll::Ready(returned);
            }
            this.steps
                .retain(|(_, link)| link.poll(context).is_pending());
            let Some((work, ran)) = this.port.settle(context.waker()) else {
                continue;
            };
            match (work, this.outside.is_some()) {
                (Work::Running, false) => this.outside = Some(Outside::new(&this.ctx)),
                (Work::Quiet | Work::Unsure, true) => this.outside = None,
                _ => {}
            }
            drop(ran);
            return Poll::Pending;
        }
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.port.leave();
    }
}
