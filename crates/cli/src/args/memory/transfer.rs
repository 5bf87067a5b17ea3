//! `dalsegno memory export` and `import`.

use std::path::PathBuf;

use clap::Args;

use super::super::import::FromFile;

/// Write a memory into one portable file
///
/// The file has every event and every text with their hashes, and can be verified by itself
/// (`dalsegno verify FILE`). In another store, in a folder or in a database, it is the same memory:
/// the same ids, versions and hashes, and for the same question the same scores. Works beside the
/// program that owns the store.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno memory export kitchen kitchen.dalsegno
  dalsegno memory export kitchen - | ssh there dalsegno memory import -

Exit codes: 0 written; 1 failed, and nothing was written; 4 the memory is damaged")]
pub struct Export {
    /// The memory
    #[arg(value_name = "MEMORY")]
    pub memory: String,
    /// Where to write it; - for standard output
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Replace the file if it is there
    #[arg(long, short)]
    pub force: bool,
}

/// Read a memory from a portable file
///
/// The whole file is verified before anything of it is believed. A memory that is here already is
/// continued if the file's history begins with it, and refused if its history is another.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno memory import kitchen.dalsegno
  dalsegno memory import kitchen.dalsegno --as 'kitchen of the backup'
  dalsegno --store postgres://app@db/agents memory import --create kitchen.dalsegno

Exit codes: 0 imported, or all of it was here; 1 failed; 4 the file or the store is damaged")]
pub struct Import {
    /// What
    #[command(flatten)]
    pub from: FromFile,
}
