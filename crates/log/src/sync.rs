//! Locks, atomics and threads, from one place.
//!
//! Under `--cfg shuttle` they come from the shuttle model checker, which then decides every
//! interleaving; see CONTRIBUTING.md.

pub(crate) use std::sync::Arc;

#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread, thread_local,
};

#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread, thread_local,
};

/// Locks, also after a panic in another thread: every critical section of this crate leaves its
/// data whole at each point where it could panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
