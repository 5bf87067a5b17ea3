//! `dalsegno export`.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;

/// Write runs, or everything, into one portable file
///
/// The file has all events and payloads of the runs, and can be verified by itself. It is whole and
/// on disk when the command ends, or not there. Works beside the program that owns the store.
#[derive(Args, Debug)]
#[command(override_usage = "\
dalsegno export [OPTIONS] <RUN>... <FILE>
       dalsegno export [OPTIONS] --all <FILE>")]
#[command(after_long_help = "\
Examples:
  dalsegno export order-42 order-42.dalsegno
  dalsegno export --all everything.dalsegno
  dalsegno export --all - | ssh backup 'cat > everything.dalsegno'

Exit codes: 0 written; 1 failed, and nothing was written; 4 what was to be exported is damaged")]
pub struct Export {
    /// The runs, and last where to write them; - for standard output
    #[arg(value_name = "RUN|FILE", required = true, hide_possible_values = true)]
    places: Vec<OsString>,
    /// All runs and memories, and what happened to the store itself
    #[arg(long)]
    pub all: bool,
    /// Replace the file if it is there
    #[arg(long, short)]
    pub force: bool,
}

impl Export {
    /// The runs.
    pub fn runs(&self) -> &[OsString] {
        self.places.split_last().map_or(&[], |(_, runs)| runs)
    }

    /// Where to.
    pub fn file(&self) -> &Path {
        Path::new(self.places.last().map_or("".as_ref(), OsString::as_os_str))
    }
}
