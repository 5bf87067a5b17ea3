//! `dalsegno memory correct`, `retract` and `forget`.

use clap::Args;

use super::super::order::Who;
use super::{About, ModelArg, text};

/// Put another text in the place of a document
///
/// What is not said about the new one is taken from the old one. The old one stays in the history.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno memory correct kitchen 12 --text 'The new oven heats up in 7 minutes.'
  dalsegno memory correct kitchen 12 --text 'No nuts.' --confidence 1000 --by ada

Exit codes: 0 corrected; 1 failed, or somebody was faster; 2 used wrongly; 4 the store is damaged")]
pub struct Correct {
    /// The memory
    #[arg(value_name = "MEMORY")]
    pub memory: String,
    /// The document
    #[arg(value_name = "ID")]
    pub id: u64,
    /// What it says now; the old text if it is left out
    #[arg(long, value_name = "TEXT", value_parser = text)]
    pub text: Option<String>,
    /// What is said about it
    #[command(flatten)]
    pub about: About,
    /// With which model
    #[command(flatten)]
    pub model: ModelArg,
    /// Who
    #[command(flatten)]
    pub who: Who,
}

/// Say that a document is not so any more
///
/// It stays in the history, and is found as of earlier versions.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno memory retract kitchen 12 --reason 'the oven was sold'

Exit codes: 0 retracted; 1 failed, or somebody was faster; 4 the store is damaged")]
pub struct Retract {
    /// The memory
    #[arg(value_name = "MEMORY")]
    pub memory: String,
    /// The document
    #[arg(value_name = "ID")]
    pub id: u64,
    /// Why, in words
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
    /// Who
    #[command(flatten)]
    pub who: Who,
}

/// Remove what documents say, for good
///
/// Their texts, titles, sources, tags and vectors are gone from the store and from every version of
/// the memory. That there was a document, when, by whom, and the reason for forgetting it stays, and
/// all hashes are as before. Earlier texts of a corrected document are documents of their own:
/// --all-revisions takes them too. Exports and copies that were made before are not touched.
/// Neighbours of a chunk that repeat a part of it, and other memories that have the same document,
/// are named and not touched either. What was forgotten before is no error; if that was cut off, this
/// finishes it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno memory forget people 7 --reason 'she asked for it' --yes
  dalsegno memory forget people 7 8 9 --all-revisions --reason 'GDPR request 4711' --yes

Exit codes: 0 forgotten, now or before; 1 failed, and nothing is forgotten; 3 --yes is missing; 4
the store is damaged")]
pub struct Forget {
    /// The memory
    #[arg(value_name = "MEMORY")]
    pub memory: String,
    /// The documents
    #[arg(value_name = "ID", required = true)]
    pub ids: Vec<u64>,
    /// Why, in words; this stays
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Also what they were before they were corrected, and what they were corrected to
    #[arg(long)]
    pub all_revisions: bool,
    /// Do it: it cannot be undone
    #[arg(long, short)]
    pub yes: bool,
    /// Who
    #[command(flatten)]
    pub who: Who,
}
