//! The groups there are. A new one is a file beside `log.rs` and a line in [`GROUPS`].

use std::path::PathBuf;

use crate::Error;
use crate::row::Row;

mod cli;
mod log;
pub mod memory;
mod postgres;
mod runs;
pub mod store;

/// All groups, in the order in which `--help` lists them.
pub const GROUPS: &[Group] = &[
    log::GROUP,
    store::GROUP,
    runs::GROUP,
    cli::GROUP,
    postgres::GROUP,
    memory::GROUP,
];

/// Rows about one part of the project.
#[derive(Debug)]
pub struct Group {
    /// As it is called on the command line.
    pub name: &'static str,
    /// One line for `--help`.
    pub about: &'static str,
    /// Measures all rows and hands over each as soon as it is there.
    pub run: fn(&Setting, &mut Emit<'_>) -> Result<(), Error>,
}

/// Takes a finished row.
pub type Emit<'a> = dyn FnMut(Row) + 'a;

/// What every group is given.
#[derive(Debug)]
pub struct Setting {
    /// How many slices of ours and of the anchor a row takes.
    pub rounds: usize,
    /// An empty folder on the disk to be measured.
    pub dir: PathBuf,
    /// What the group `memory` is told besides.
    pub memory: memory::Told,
}
