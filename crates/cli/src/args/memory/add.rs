//! `dalsegno memory add`.

use std::path::PathBuf;

use clap::Args;

use super::super::not_blank;
use super::super::order::Who;
use super::{About, ModelArg, text};

/// Add files and folders in chunks, or one text
///
/// Files are cut into chunks, by their headings if they are Markdown (.md, .markdown) and by
/// paragraphs; the source of a chunk is `PATH#NUMBER`, with the path as you give it. The same
/// file again adds nothing. Of a changed file, what is new is added or corrects what was there before,
/// and what is gone is retracted; all of it stays in the history. In folders hidden files are passed over, and
/// links are not followed. What is no text (UTF-8) is named and left out, and then the exit code is 1.
///
/// Makes the store if there is none. Ctrl-C leaves what was added so far; the same command goes on.
#[derive(Args, Debug)]
#[command(override_usage = "\
dalsegno memory add [OPTIONS] <MEMORY> <PATH>...
       dalsegno memory add [OPTIONS] <MEMORY> --text <TEXT>")]
#[command(after_long_help = "\
Examples:
  dalsegno memory add handbook docs/ README.md --tag handbook
  dalsegno memory add handbook docs/ --model models/wordllama-256
  curl -s https://example.org/notes.txt | dalsegno memory add notes - --source notes.txt
  dalsegno memory add kitchen --text 'The oven takes 12 minutes.' --source manual.pdf \\
      --confidence 900 --valid-from 2026-01-01 --key oven-time

Exit codes: 0 added, or all of it was there; 1 failed, or something was left out; 4 damaged; 130
interrupted, and the same command goes on")]
pub struct Add {
    /// The memory; it is made if there is none
    #[arg(value_name = "MEMORY")]
    pub memory: String,
    /// Files and folders; - for standard input
    #[arg(
        value_name = "PATH",
        required_unless_present = "text",
        conflicts_with = "text"
    )]
    pub paths: Vec<PathBuf>,
    /// One document with this text
    #[arg(long, value_name = "TEXT", value_parser = text)]
    pub text: Option<String>,
    /// Add it once: if there is a document under this key, that one is the answer
    #[arg(long, value_name = "KEY", requires = "text", conflicts_with = "paths")]
    #[arg(value_parser = not_blank)]
    pub key: Option<String>,
    /// What is said about it, or about every chunk
    #[command(flatten)]
    pub about: About,
    /// Of folders, only files with these endings, as in md,txt
    #[arg(long, value_name = "ENDING", value_delimiter = ',')]
    pub ext: Vec<String>,
    /// Leave out what is no text without failing; it is still named
    #[arg(long)]
    pub skip_bad: bool,
    /// Retract the chunks of files that are gone from these folders
    #[arg(long)]
    pub prune: bool,
    /// Take files as they are now, also what somebody retracted, and what may have been forgotten
    ///
    /// Once something of a file was forgotten, nobody can tell whether a text that is new in it is that:
    /// such chunks are left out, and the command says so. This is your word that the file is right.
    /// What is forgotten later counts again.
    #[arg(long, conflicts_with = "text")]
    pub anew: bool,
    /// How many bytes a chunk has, at most
    #[arg(long, value_name = "BYTES", default_value_t = 1200)]
    #[arg(value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub chunk_bytes: u32,
    /// How many bytes of a chunk the next one of the same section repeats, at most
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    pub overlap_bytes: u32,
    /// With which model
    #[command(flatten)]
    pub model: ModelArg,
    /// Who
    #[command(flatten)]
    pub who: Who,
}
