//! Wakes an event loop from any thread, without the interpreter.
//!
//! The loop waits for one end of a pair of sockets; who rings writes a byte into the other. So the
//! thread that syncs the disk wakes the loop itself: nobody in between, and no lock of Python's.
//!
//! Invariant: a byte is in the sockets whenever there is something to hear that was not taken.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::link::Link;

/// The bell of one event loop.
#[pyclass(frozen)]
pub struct Bell(pub Arc<Rung>);

/// What is to be heard.
pub struct Rung {
    here: UnixStream,
    there: UnixStream,
    ready: Mutex<Vec<Arc<Link>>>,
}

impl Rung {
    fn ready(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is something to hear of a step.
    pub fn ring(&self, link: Arc<Link>) {
        let is_first = {
            let mut ready = self.ready();
            ready.push(link);
            ready.len() == 1
        };
        if is_first {
            // If it cannot be written, so many bytes are there that the loop wakes anyway.
            let _written = (&self.there).write(&[1]);
        }
    }
}

#[pymethods]
impl Bell {
    #[new]
    fn new() -> PyResult<Bell> {
        let (here, there) = UnixStream::pair()?;
        here.set_nonblocking(true)?;
        there.set_nonblocking(true)?;
        Ok(Bell(Arc::new(Rung {
            here,
            there,
            ready: Mutex::default(),
        })))
    }

    /// What the loop waits for.
    fn fileno(&self) -> i32 {
        self.0.here.as_raw_fd()
    }

    /// Tells who waits, on the loop.
    fn take(&self, py: Python<'_>) -> PyResult<()> {
        let mut bytes = [0; 64];
        // Before what is ready is taken: who rings after that writes another.
        let _read = (&self.0.here).read(&mut bytes);
        let ready = std::mem::take(&mut *self.0.ready());
        for link in ready {
            link.wake_ear(py)?;
        }
        Ok(())
    }
}
