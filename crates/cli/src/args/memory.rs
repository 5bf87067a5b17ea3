//! `dalsegno memory`, and what its subcommands share.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use dalsegno_memory::{DocKind, Filter, Scope};

use super::{not_blank, unless_blank};
use crate::memory::when::{self, Time, When};

pub mod add;
pub mod change;
pub mod look;
pub mod transfer;

/// Keep, find and trace what agents know
///
/// A memory is a stream of documents: facts, constraints, decisions, plans and texts, with where they
/// are from and when they hold. Nothing in its history is rewritten, so every search and every list
/// can also be asked as of an earlier version or time, and gives what it gave then. Looking works
/// beside the program that owns the store.
#[derive(Args, Debug)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(after_long_help = "\
Examples:
  dalsegno memory add kitchen --text 'No nuts: a guest is allergic.' --kind constraint
  dalsegno memory add handbook docs/ README.md          files and folders, in chunks
  dalsegno memory search handbook 'how to restore a backup' --limit 3
  dalsegno memory search handbook 'backup' --as-of 2026-11-01 --explain
  dalsegno memory diff handbook 120                     what changed since version 120")]
pub struct MemoryArgs {
    /// What to do
    #[command(subcommand)]
    pub command: MemoryCommand,
}

/// What to do with a memory.
#[derive(Debug, Subcommand)]
pub enum MemoryCommand {
    Add(add::Add),
    Ls(look::Ls),
    Get(look::Get),
    Search(look::Search),
    History(look::History),
    At(look::At),
    Diff(look::Diff),
    Correct(change::Correct),
    Retract(change::Retract),
    Forget(change::Forget),
    Export(transfer::Export),
    Import(transfer::Import),
}

/// Which version is asked.
#[derive(Args, Clone, Debug)]
pub struct AsOfArg {
    /// As it was at a version (12, or 12@HASH), or at a time: 2026-11-16, 2026-11-16T09:30, or 2h
    /// for two hours ago
    #[arg(long, value_name = "VERSION|TIME", value_parser = when::version_or_time)]
    pub as_of: Option<When>,
}

/// Which documents are wanted.
#[derive(Args, Clone, Debug)]
pub struct Wanted {
    /// Only documents of this kind; may be given more than once
    #[arg(long, short, value_name = "KIND", value_delimiter = ',')]
    pub kind: Vec<KindArg>,
    /// Only documents with this tag; given more than once, with all of them
    #[arg(long, short, value_name = "TAG", value_parser = not_blank)]
    pub tag: Vec<String>,
    /// Only documents with one of these tags
    #[arg(long, value_name = "TAG", value_parser = not_blank)]
    pub any_tag: Vec<String>,
    /// Only documents for shared, agent/NAME or run/NAME; may be given more than once
    #[arg(long, value_name = "SCOPE", value_parser = scope)]
    pub scope: Vec<Scope>,
    /// Only documents that are at least so sure, from 0 to 1000
    #[arg(long, value_name = "PER_MILLE", value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub confidence_from: Option<u16>,
    /// Only documents that hold at this time
    #[arg(long, value_name = "TIME", value_parser = when::time)]
    pub valid_at: Option<Time>,
}

impl Wanted {
    /// For the memory.
    pub fn filter(&self) -> Filter {
        let mut filter = Filter::default();
        filter.kinds = self.kind.iter().map(|kind| kind.kind()).collect();
        filter.all_tags.clone_from(&self.tag);
        filter.any_tags.clone_from(&self.any_tag);
        filter.scopes.clone_from(&self.scope);
        filter.confidence_from = self.confidence_from.unwrap_or(0);
        filter.valid_at_us = self.valid_at.map(Time::start_us);
        filter
    }
}

/// What is said about a document beside its text.
#[derive(Args, Clone, Debug)]
pub struct About {
    /// What it is
    #[arg(long, short, value_name = "KIND")]
    pub kind: Option<KindArg>,
    /// What it is called; searched like its text
    #[arg(long, value_name = "TEXT", value_parser = not_blank)]
    pub title: Option<String>,
    /// Where it is from; may be given more than once
    #[arg(long, short, value_name = "SOURCE", value_parser = not_blank)]
    pub source: Vec<String>,
    /// A word to filter by; may be given more than once
    #[arg(long, short, value_name = "TAG", value_parser = not_blank)]
    pub tag: Vec<String>,
    /// How sure it is, from 0 to 1000, which is certain
    #[arg(long, value_name = "PER_MILLE", value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub confidence: Option<u16>,
    /// For whom it is: shared, agent/NAME or run/NAME
    #[arg(long, value_name = "SCOPE", value_parser = scope)]
    pub scope: Option<Scope>,
    /// Since when it holds, as in 2026-01-01 or 2026-01-01T08:00+01:00
    #[arg(long, value_name = "TIME", value_parser = when::time)]
    pub valid_from: Option<Time>,
    /// Until when it holds, that moment not included
    #[arg(long, value_name = "TIME", value_parser = when::time)]
    pub valid_until: Option<Time>,
}

/// With which model texts become vectors.
#[derive(Args, Clone, Debug)]
pub struct ModelArg {
    /// The folder of a model (tokenizer.json and one *.safetensors): also find what means the same
    #[arg(
        long,
        value_name = "FOLDER",
        env = unless_blank("DALSEGNO_MODEL"),
        hide_env_values = true
    )]
    pub model: Option<PathBuf>,
    /// By words only, whatever the memory has
    #[arg(long)]
    pub no_vectors: bool,
}

impl ModelArg {
    /// The folder, if vectors are wanted.
    pub fn folder(&self) -> Option<&PathBuf> {
        self.model.as_ref().filter(|_| !self.no_vectors)
    }
}

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KindArg {
    /// Something that is so
    Fact,
    /// Something that must be observed
    Constraint,
    /// Something that was decided
    Decision,
    /// What is going to be done
    Plan,
    /// A text
    Document,
}

impl KindArg {
    /// The memory's word.
    pub fn kind(self) -> DocKind {
        match self {
            KindArg::Fact => DocKind::Fact,
            KindArg::Constraint => DocKind::Constraint,
            KindArg::Decision => DocKind::Decision,
            KindArg::Plan => DocKind::Plan,
            KindArg::Document => DocKind::Document,
        }
    }
}

/// What a document says.
fn text(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("a document needs text: this one is blank".to_owned()),
        false => Ok(text.to_owned()),
    }
}

fn scope(text: &str) -> Result<Scope, String> {
    match text.split_once('/') {
        None if text == "shared" => Ok(Scope::Shared),
        Some(("agent", name)) if !name.trim().is_empty() => Ok(Scope::Agent(name.to_owned())),
        Some(("run", name)) if !name.trim().is_empty() => Ok(Scope::Run(name.to_owned())),
        _ => Err("a scope is shared, agent/NAME or run/NAME".to_owned()),
    }
}
