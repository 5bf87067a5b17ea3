//! `dalsegno import`.

use std::path::PathBuf;

use clap::Args;

/// Read a portable file into the store
///
/// The whole file is verified before anything of it is believed. A run that is here already is
/// continued if the file's history begins with it, and refused if its history is another: nothing
/// is ever overwritten. Interrupted, it goes on when it is run again. Nobody else may own the store.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno import order-42.dalsegno
  dalsegno import order-42.dalsegno --as 'order-42 from the backup'
  dalsegno --store restored import --create everything.dalsegno
  ssh there dalsegno export --all - | dalsegno import -

Exit codes: 0 imported, or all of it was here; 1 failed; 4 the file or the store is damaged")]
pub struct Import {
    /// What
    #[command(flatten)]
    pub from: FromFile,
}

/// What is to be read, of `import` and of `memory import`.
#[derive(Args, Clone, Debug)]
pub struct FromFile {
    /// The file; - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Another name for the only one that is in it
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<String>,
    /// Make the store if there is none
    #[arg(long)]
    pub create: bool,
}
