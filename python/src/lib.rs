//! The core of the Python package: what Python asks of the library, and how the library calls Python.
//!
//! An agent in Python runs on a thread or an event loop of its own. Its steps are the library's: they
//! are made here by the same calls that an agent in Rust makes, and driven by the same engine. What is
//! added is only the way between the two, see `port.rs`.
//!
//! | file | what is in it |
//! |---|---|
//! | `port.rs` | one execution of an agent: what Python and the driver tell each other |
//! | `link.rs` | one step: what Python is told, and what it answers |
//! | `bell.rs` | wakes an event loop from any thread |
//! | `drive.rs` | the future that an agent in Python is to the engine |
//! | `ctx.rs` | the steps that an agent can make |
//! | `app.rs`, `pending.rs` | the open store, and waiting for what is asked of it |
//! | `memory.rs`, `memory_given.rs`, `memory_said.rs` | what is asked of a memory, what it is given, and what it answers |
//! | `embed.rs` | embedders: tables, and functions in Python |
//! | `remote.rs` | orders for runs that another process has |
//! | `crash.rs` | a process that dies, for tests |
//! | `gate.rs` | the way into the interpreter, which is shut before that ends |
//! | `streams.rs` | streams that a module keeps for itself |
//! | `failures.rs` | failures and errors on their way to Python and back |
//!
//! Invariants: nobody waits for the interpreter's lock with a lock of ours in hand, and nobody waits
//! for anything else with the interpreter's lock in hand.

mod app;
mod bell;
mod crash;
mod ctx;
mod drive;
mod embed;
mod failures;
mod gate;
mod link;
mod memory;
mod memory_given;
mod memory_said;
mod pending;
mod port;
mod remote;
mod streams;

use pyo3::prelude::*;

/// The core of the package `dalsegno`; not for use by itself.
#[pymodule]
fn _dalsegno(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<app::App>()?;
    module.add_class::<ctx::PyCtx>()?;
    module.add_class::<bell::Bell>()?;
    module.add_class::<crash::Crash>()?;
    module.add_class::<ctx::Manner>()?;
    module.add_class::<link::PyStep>()?;
    module.add_class::<link::PyCall>()?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<streams::Streams>()?;
    module.add_class::<streams::Asked>()?;
    module.add_class::<memory::Order>()?;
    module.add_class::<embed::PyEmbedder>()?;
    module.add_function(wrap_pyfunction!(embed::quantised, module)?)?;
    module.add_function(wrap_pyfunction!(app::open, module)?)?;
    module.add_class::<remote::PyRemote>()?;
    module.add_function(wrap_pyfunction!(remote::open_remote, module)?)?;
    module.add_function(wrap_pyfunction!(gate::shut, module)?)?;
    Ok(())
}
