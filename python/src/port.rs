//! One execution of an agent: what Python and the driver of the run tell each other.
//!
//! Python may be
//!
//! | at work | the run is |
//! |---|---|
//! | `Running`: between two steps, or about to be | not idle |
//! | `Unsure`: waits, perhaps for something of its own | idle after a while: a waker is kept, by which the engine sees that |
//! | `Quiet`: waits for steps of the run only | idle |
//!
//! Whatever Python says wakes the driver, through its run.
//!
//! Invariant: what Python says about itself counts only if it has heard everything that it was told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Poll, Waker};

use dalsegno::binding::{self, Outside};
use dalsegno::{Ctx, Failure, Turn};
use pyo3::prelude::*;
use serde_json::value::RawValue;
use tokio::runtime::Handle;

use crate::bell::Rung;
use crate::link::Link;

/// What Python does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Running,
    Unsure,
    Quiet,
}

/// What the agent came to, or a turn of it: the result, or what the next turn is given.
pub type Turned = Turn<Box<RawValue>, Box<RawValue>>;

/// What Python says to the driver.
pub enum Said {
    /// A step is to be driven.
    Drive(u64, Arc<Link>),
    /// A step is not awaited any more.
    LetGo(u64),
    /// The agent has ended.
    Return(Result<Turned, Failure>),
}

/// Between one execution of an agent and its driver.
pub struct Port {
    ctx: Ctx,
    /// The process in which it was made.
    pid: u32,
    /// For steps that are polled on the code's own thread.
    pub runtime: Handle,
    /// What to call, from any thread, when the run is left; `None` for an agent on a thread.
    unwind: Mutex<Option<Py<PyAny>>>,
    /// By which its event loop is woken.
    bell: OnceLock<Arc<Rung>>,
    state: Mutex<State>,
}

struct State {
    said: Vec<Said>,
    /// Kept as long as Python is not sure what it waits for.
    unsure: Option<Waker>,
    work: Work,
    /// That the code runs, until the driver says so itself.
    outside: Vec<Outside>,
    /// How much Python was told, and how much of it it has heard.
    told: u64,
    heard: u64,
    next_step: u64,
    links: HashMap<u64, Weak<Link>>,
    /// The run was left: nothing that Python does counts any more.
    is_left: bool,
    /// Python is done with it.
    is_over: bool,
    /// Who waits for that.
    over: Option<Waker>,
}

impl Port {
    pub fn new(ctx: &Ctx) -> Arc<Port> {
        Arc::new(Port {
            ctx: ctx.clone(),
            pid: std::process::id(),
            runtime: Handle::current(),
            unwind: Mutex::new(None),
            bell: OnceLock::new(),
            state: Mutex::new(State {
                said: Vec::new(),
                unsure: None,
                work: Work::Running,
                outside: Vec::new(),
                told: 0,
                heard: 0,
                next_step: 0,
                links: HashMap::new(),
                is_left: false,
                is_over: false,
                over: None,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is another process than the one that has the run: a fork of it.
    pub fn is_forked(&self) -> bool {
        std::process::id() != self.pid
    }

    /// Whether the run was left.
    pub fn is_left(&self) -> bool {
        self.state().is_left
    }

    /// What to call when the run is left.
    pub fn unwind_with(&self, call: Py<PyAny>) {
        let mut unwind = self.unwind.lock().unwrap_or_else(PoisonError::into_inner);
        *unwind = Some(call);
    }

    /// Python was interrupted: the run is left as by a crash. Before anything else of it is dropped.
    pub fn interrupt(&self, why: &str) {
        binding::interrupt(&self.ctx, why);
    }

    /// Says something to the driver; `false` if there is none any more.
    pub fn say(&self, said: Said) -> bool {
        {
            let mut state = self.state();
            if state.is_left {
                return false;
            }
            state.said.push(said);
            state.work = Work::Running;
        }
        binding::wake(&self.ctx);
        true
    }

    /// A step begins: its number, and whether the driver knows that the code runs. `None` if the run was
    /// left.
    pub fn enter(&self, link: &Arc<Link>) -> Option<(u64, bool)> {
        let mut state = self.state();
        if state.is_left {
            return None;
        }
        let number = state.next_step;
        state.next_step += 1;
        state.links.insert(number, Arc::downgrade(link));
        Some((number, state.work == Work::Running))
    }

    /// A step is gone.
    pub fn forget(&self, number: u64) {
        self.state().links.remove(&number);
    }

    /// Has a step driven. With `waits` the whole agent does nothing but wait for it.
    pub fn drive(&self, number: u64, link: &Arc<Link>, waits: bool) {
        {
            let mut state = self.state();
            if state.is_left {
                return;
            }
            state.said.push(Said::Drive(number, Arc::clone(link)));
            state.work = if waits { Work::Quiet } else { Work::Running };
        }
        binding::wake(&self.ctx);
    }

    /// The code goes on by itself: the run must not be taken for idle from here on.
    pub fn goes_on(&self) {
        if self.state().work == Work::Running {
            return;
        }
        let outside = Outside::new(&self.ctx);
        let mut state = self.state();
        state.work = Work::Running;
        state.outside.push(outside);
    }

    /// By what the loop of this execution is woken.
    pub fn rings(&self, bell: Arc<Rung>) {
        // There is one loop, and one bell for it.
        let _first = self.bell.set(bell);
    }

    /// The bell of its loop, if it has one.
    pub fn bell(&self) -> Option<&Arc<Rung>> {
        self.bell.get()
    }

    /// Whether who was polled with this waker waits for more than the disk.
    pub fn waits_for_run(&self, waker: &Waker) -> bool {
        binding::waits_for_run(&self.ctx, waker)
    }

    /// Python has heard something.
    pub fn hears(&self) {
        self.state().heard += 1;
    }

    /// Python says what it does. That it waits counts only if it has heard everything.
    pub fn works(&self, work: Work) {
        {
            let mut state = self.state();
            if state.told != state.heard || state.work == work {
                return;
            }
            state.work = work;
        }
        binding::wake(&self.ctx);
    }

    /// Python answers: the driver has to look.
    pub fn answered(&self) {
        binding::wake(&self.ctx);
    }

    /// Python is about to be told something.
    pub fn tells(&self) {
        let mut state = self.state();
        state.told += 1;
        state.work = Work::Running;
    }

    /// What was said.
    pub fn take(&self) -> Vec<Said> {
        std::mem::take(&mut self.state().said)
    }

    /// What Python does, if it has said nothing more; and that it ran until now, which is to be dropped
    /// when the driver has said what it does.
    pub fn settle(&self, waker: &Waker) -> Option<(Work, Vec<Outside>)> {
        let mut state = self.state();
        if !state.said.is_empty() {
            return None;
        }
        state.unsure = (state.work == Work::Unsure).then(|| waker.clone());
        Some((state.work, std::mem::take(&mut state.outside)))
    }

    /// The run is left: whoever waits in Python is told, now and from now on.
    pub fn leave(&self) {
        let (links, said, outside) = {
            let mut state = self.state();
            state.is_left = true;
            state.unsure = None;
            let said = std::mem::take(&mut state.said);
            let outside = std::mem::take(&mut state.outside);
            (std::mem::take(&mut state.links), said, outside)
        };
        drop(outside);
        // Futures are dropped without a lock of ours: that looks at the run.
        drop(said);
        for link in links.values().filter_map(Weak::upgrade) {
            link.unwind();
        }
        let unwind = {
            let mut unwind = self.unwind.lock().unwrap_or_else(PoisonError::into_inner);
            unwind.take()
        };
        let is_over = self.state().is_over;
        if let (Some(unwind), false) = (unwind, is_over) {
            // If the interpreter is gone, so is who would unwind.
            crate::gate::attach(|py| drop(unwind.call0(py)));
        }
    }

    /// Python is done with it, to the last `finally`.
    pub fn is_over(&self) {
        let over = {
            let mut state = self.state();
            state.is_over = true;
            state.over.take()
        };
        if let Some(over) = over {
            over.wake();
        }
    }

    /// Waits until Python is done with it.
    pub async fn until_over(&self) {
        std::future::poll_fn(|context| {
            let mut state = self.state();
            match state.is_over {
                true => Poll::Ready(()),
                false => {
                    state.over = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
    }
}
