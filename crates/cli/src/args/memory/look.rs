//! `dalsegno memory ls`, `get`, `search`, `history`, `at` and `diff`: what only looks.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use dalsegno_memory::Language;

use super::{AsOfArg, ModelArg, Wanted};
use crate::memory::when::{self, When};

/// List memories, or the documents of one
///
/// Without a memory: all there are. With one: its documents, in the order in which they were added.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno memory ls                                all memories
  dalsegno memory ls kitchen --kind constraint      what must be observed
  dalsegno memory ls kitchen --as-of 2h --json      as it was two hours ago

Exit codes: 0 listed, also if there is none; 1 failed; 4 the store is damaged")]
pub struct Ls {
    /// The memory
    #[arg(value_name = "MEMORY")]
    pub memory: Option<String>,
    /// Which documents
    #[command(flatten)]
    pub wanted: Wanted,
    /// When
    #[command(flatten)]
    pub as_of: AsOfArg,
    /// Only documents after this one
    #[arg(long, value_name = "ID")]
    pub after: Option<u64>,
    /// At most so many documents; 0 for all
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50)]
    pub limit: usize,
}

/// Show a document
///
/// What it says, where it is from, and what became of it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno memory get kitchen 12
  dalsegno memory get kitchen 12 --as-of 40         as it was at version 40
  dalsegno memory get kitchen 12 --json | jq -r .text

Exit codes: 0 shown; 1 failed, there is none, or it is forgotten; 4 the store is damaged")]
pub struct Get {
    /// The memory
    #[arg(value_name = "MEMORY")]
    pub memory: String,
    /// The document
    #[arg(value_name = "ID")]
    pub id: u64,
    /// When
    #[command(flatten)]
    pub as_of: AsOfArg,
}

/// Search a memory
///
/// By words, and with --model also by meaning. The same version, query and ranking give the same
/// documents in the same order with the same scores, bit for bit, on every machine and store. A
/// query has no operators: everything but words separates words. A memory whose vectors are of
/// another model than the one you name refuses the search, and says which.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno memory search handbook 'how to restore a backup'
  dalsegno memory search handbook backup --limit 3 --as-of 120 --explain
  dalsegno memory search handbook backup --model models/wordllama-256
  dalsegno memory search handbook - --context-bytes 8000 --json < question.txt

Exit codes: 0 searched, also if nothing was found; 1 failed; 2 there is nothing to look for; 4 the
store is damaged")]
pub struct Search {
    /// The memory
    #[arg(value_name = "MEMORY")]
    pub memory: String,
    /// What to look for; - for standard input
    #[arg(value_name = "QUERY", required = true, allow_hyphen_values = false)]
    pub query: Vec<String>,
    /// Which documents
    #[command(flatten)]
    pub wanted: Wanted,
    /// When
    #[command(flatten)]
    pub as_of: AsOfArg,
    /// At most so many hits; 0 for all, up to 10,000
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 10)]
    pub limit: usize,
    /// At most so many bytes of text in all: documents are taken whole, up to the first that does
    /// not fit
    #[arg(long, value_name = "BYTES")]
    pub context_bytes: Option<u64>,
    /// Say how each score came to be
    #[arg(long)]
    pub explain: bool,
    /// Show documents whole
    #[arg(long)]
    pub full: bool,
    /// The language whose endings are taken off words; none for words as they are
    #[arg(long, value_name = "LANGUAGE", default_value = "english")]
    #[arg(value_parser = language())]
    pub language: Language,
    /// With which model
    #[command(flatten)]
    pub model: ModelArg,
}

/// Tell what happened to a document, or to the whole memory
///
/// Of a document: each text that it had, the oldest first, and why it ended. Of a memory: every
/// change with who made it, the oldest first.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno memory history kitchen                   the last 50 changes
  dalsegno memory history kitchen 12                all that document 12 has been
  dalsegno memory history kitchen --limit 0 --json

Exit codes: 0 told; 1 failed, or there is no such document; 4 the store is damaged")]
pub struct History {
    /// The memory
    #[arg(value_name = "MEMORY")]
    pub memory: String,
    /// The document
    #[arg(value_name = "ID")]
    pub id: Option<u64>,
    /// Up to when
    #[command(flatten)]
    pub as_of: AsOfArg,
    /// Of a memory, only the last so many changes; 0 for all
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50)]
    pub limit: usize,
}

/// Show what a memory held at a version or time
///
/// The documents that were there and held at that time: those whose --valid-from and --valid-until
/// enclose it. At a version, the time is that of its last event. `ls --as-of` also lists documents
/// that did not hold then.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno memory at kitchen 2026-11-16
  dalsegno memory at kitchen 12 --kind fact
  dalsegno memory at kitchen 30m --json             half an hour ago

Exit codes: 0 shown; 1 failed, or there is no such version; 4 the store is damaged")]
pub struct At {
    /// The memory
    #[arg(value_name = "MEMORY")]
    pub memory: String,
    /// A version or a time, as in --as-of
    #[arg(value_name = "VERSION|TIME", value_parser = when::version_or_time)]
    pub when: When,
    /// Which documents
    #[command(flatten)]
    pub wanted: Wanted,
    /// At most so many documents; 0 for all
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50)]
    pub limit: usize,
}

/// Show what changed between two versions of a memory
///
/// What the later one has more, what it says instead, and what is gone, each document once: a fact
/// that was added and retracted in between is no difference.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno memory diff kitchen 12                   since version 12
  dalsegno memory diff kitchen 12 20
  dalsegno memory diff kitchen 2026-11-15 2026-11-16 --json

Exit codes: 0 the same; 1 not the same, or failed (then there is an error on stderr); 2 used
wrongly; 4 the store is damaged")]
pub struct Diff {
    /// The memory
    #[arg(value_name = "MEMORY")]
    pub memory: String,
    /// The earlier version or time, as in --as-of
    #[arg(value_name = "FROM", value_parser = when::version_or_time)]
    pub from: When,
    /// The later one; now unless it is said
    #[arg(value_name = "TO", value_parser = when::version_or_time)]
    pub to: Option<When>,
}

/// By the words that the library has for them, so that a shell can complete them.
fn language() -> impl TypedValueParser<Value = Language> {
    let words = Language::ALL.iter().map(|language| language.word());
    PossibleValuesParser::new(words).map(|word| {
        let named = Language::ALL
            .iter()
            .find(|language| language.word() == word);
        named.copied().unwrap_or(Language::None)
    })
}
