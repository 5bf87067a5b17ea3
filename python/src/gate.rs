//! The way into the interpreter for threads that are not Python's.
//!
//! A thread that runs Python code while the interpreter ends is torn out of it, through whatever is
//! below on its stack. So the gate is shut before that, and who is inside is waited for.
//!
//! Invariant: once [`shut`] has returned, no thread of ours is or comes into Python.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

/// So long those who are inside are waited for. They do little there.
const PATIENCE: Duration = Duration::from_secs(2);

struct Gate {
    is_shut: bool,
    inside: usize,
}

static GATE: Mutex<Gate> = Mutex::new(Gate {
    is_shut: false,
    inside: 0,
});
static LEFT: Condvar = Condvar::new();

fn gate() -> MutexGuard<'static, Gate> {
    GATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Somebody is inside, until this is dropped.
struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        gate().inside -= 1;
        LEFT.notify_all();
    }
}

/// Does something in Python; `None` if the interpreter is gone or ending.
pub fn attach<R>(work: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    let inside = {
        let mut gate = gate();
        if gate.is_shut {
            return None;
        }
        gate.inside += 1;
        Inside
    };
    let done = Python::try_attach(work);
    drop(inside);
    done
}

/// The interpreter is about to end.
#[pyfunction]
pub fn shut(py: Python<'_>) {
    py.detach(|| {
        let mut gate = gate();
        gate.is_shut = true;
        let is_used = |gate: &mut Gate| gate.inside > 0;
        drop(LEFT.wait_timeout_while(gate, PATIENCE, is_used));
    });
}
