//! The command line.

use std::path::PathBuf;

use crate::groups::memory::Told;
use crate::groups::{GROUPS, Group};

/// Short slices and many of them: a disk's slow seconds then meet ours and the anchor alike.
const DEFAULT_ROUNDS: usize = 25;

/// What to measure, and how.
#[derive(Debug)]
pub struct Args {
    pub group: &'static Group,
    pub json: bool,
    pub rounds: usize,
    pub dir: Option<PathBuf>,
    pub memory: Told,
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Asked {
    Help,
    Run(Args),
}

/// Reads the words behind the program's name; the error is for the user.
pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Asked, String> {
    let mut words = words.into_iter();
    let (mut group, mut json, mut rounds, mut dir) = (None, false, DEFAULT_ROUNDS, None);
    let mut memory = Told::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--help" | "-h" => return Ok(Asked::Help),
            "--json" => json = true,
            "--rounds" => rounds = parse_number(&word, words.next())?,
            "--dir" => dir = Some(parse_path(&word, words.next())?),
            "--collection" => memory.collection = Some(parse_path(&word, words.next())?),
            "--model" => memory.models.push(parse_path(&word, words.next())?),
            "--peers" => memory.peers = Some(parse_path(&word, words.next())?),
            "--postgres" => memory.postgres = true,
            "--documents" => memory.documents = Some(parse_number(&word, words.next())?),
            option if option.starts_with('-') => {
                return Err(format!("there is no option '{option}': see --help"));
            }
            name if group.is_none() => group = Some(find_group(name)?),
            extra => return Err(format!("one group at a time: '{extra}' is one too many")),
        }
    }
    let group = group.ok_or_else(|| format!("name a group to measure: {}", group_names()))?;
    if group.name != "memory" && memory != Told::default() {
        return Err(format!(
            "--collection, --model, --documents, --postgres and --peers are for the group 'memory', not for '{}'",
            group.name
        ));
    }
    Ok(Asked::Run(Args {
        group,
        json,
        rounds,
        dir,
        memory,
    }))
}

fn parse_number(option: &str, word: Option<String>) -> Result<usize, String> {
    word.and_then(|word| word.parse().ok())
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("{option} needs a number from 1 on"))
}

fn parse_path(option: &str, word: Option<String>) -> Result<PathBuf, String> {
    word.map(PathBuf::from)
        .ok_or_else(|| format!("{option} needs a path"))
}

fn find_group(name: &str) -> Result<&'static Group, String> {
    GROUPS
        .iter()
        .find(|group| group.name == name)
        .ok_or_else(|| format!("there is no group '{name}': choose from {}", group_names()))
}

fn group_names() -> String {
    let names: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
    names.join(", ")
}

/// The text of `--help`.
pub fn help() -> String {
    let groups: String = GROUPS
        .iter()
        .map(|group| format!("  {:<12} {}\n", group.name, group.about))
        .collect();
    format!(
        "\
Measures one group of rows, each beside an anchor measured in the same seconds.

usage: dalsegno-bench <group> [options]

groups:
{groups}
options:
  --json       one JSON object per row and line, instead of a table
  --rounds N   slices of ours and of the anchor per row, alternating (default {DEFAULT_ROUNDS}; below 7
               the medians mean little)
  --dir PATH   where to put the files, on the disk to be measured (default: target/ of the
               workspace); a folder is made there and removed afterwards
  --help       this text

options of the group memory:
  --documents N      how many to measure with (default 100000)
  --postgres         instead of all else, opening a memory that is in PostgreSQL
  --peers PROGRAM    measure beside other programs too: the one that
                     cargo build --release --manifest-path bench/peers/Cargo.toml gives (memvid
                     takes about 10000 documents)
  --collection DIR   instead of speed, how good the answers are on a collection in BEIR's layout
                     (corpus.jsonl, queries.jsonl, qrels.tsv)
  --model DIR        for that: vectors of this model, a table or (built with --features
                     transformer) a transformer; may be given more than once
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str) -> String {
        match parse(line.split_whitespace().map(str::to_owned)) {
            Ok(Asked::Help) => "help".into(),
            Ok(Asked::Run(args)) => format!(
                "{} json={} rounds={} dir={:?}",
                args.group.name, args.json, args.rounds, args.dir
            ),
            Err(wrong) => wrong,
        }
    }

    #[test]
    fn reads_a_command_line_or_says_what_is_wrong_with_it() {
        for (line, expected) in [
            ("--help", "help"),
            ("log", "log json=false rounds=25 dir=None"),
            ("--json log --rounds 7", "log json=true rounds=7 dir=None"),
            ("log --dir x", "log json=false rounds=25 dir=Some(\"x\")"),
            (
                "",
                "name a group to measure: log, store, runs, cli, postgres, memory",
            ),
            (
                "disk",
                "there is no group 'disk': choose from log, store, runs, cli, postgres, memory",
            ),
            ("log log", "one group at a time: 'log' is one too many"),
            ("log --rounds 0", "--rounds needs a number from 1 on"),
            ("log --fast", "there is no option '--fast': see --help"),
            ("log --dir", "--dir needs a path"),
            (
                "memory --documents 9 --collection",
                "--collection needs a path",
            ),
            (
                "log --model m",
                "--collection, --model, --documents, --postgres and --peers are for the group 'memory', not for 'log'",
            ),
        ] {
            assert_eq!(check(line), expected, "{line}");
        }
    }
}
