//! The memory: how quickly it answers, and how well.
//!
//! | file | |
//! |---|---|
//! | `speed.rs` | searching, as of then too, opening, adding; beside the simplest program that does the same |
//! | `database.rs` | opening one that is in PostgreSQL |
//! | `beside.rs` | the same beside other programs |
//! | `peer.rs` | other programs, as a process (`bench/peers`) |
//! | `quality.rs` | a collection with known answers: words, vectors, both; beside a textbook |
//! | `collection.rs` | reading and judging it |
//! | `textbook.rs` | BM25 as it stands in books |
//! | `texts.rs` | texts and vectors by chance |

use std::path::PathBuf;

use tokio::runtime::{Builder, Runtime};

use super::{Emit, Group, Setting};
use crate::Error;

mod beside;
mod collection;
mod database;
mod peer;
mod quality;
mod speed;
mod textbook;
mod texts;

/// The group.
pub const GROUP: Group = Group {
    name: "memory",
    about: "searching and adding; --postgres, opening there; --collection, how good the answers are",
    run,
};

/// What only this group is told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Measure how good answers are on this collection, not how quick.
    pub collection: Option<PathBuf>,
    /// Folders of models for vectors.
    pub models: Vec<PathBuf>,
    /// How many documents to measure with.
    pub documents: Option<usize>,
    /// Measure opening in PostgreSQL, not all else in a folder.
    pub postgres: bool,
    /// The program of `bench/peers`.
    pub peers: Option<PathBuf>,
}

fn run(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    match &setting.memory.collection {
        Some(folder) => quality::rows(setting, folder, emit),
        None if setting.memory.postgres => database::rows(setting, emit),
        None => speed::rows(setting, emit),
    }
}

fn runtime() -> Result<Runtime, Error> {
    Ok(Builder::new_current_thread().build()?)
}
