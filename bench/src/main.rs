//! Measures groups of rows: `cargo run --release -p dalsegno-bench -- log`.
//!
//! A disk and a shared machine change their mood by the second, so a number alone says little.
//! Each row therefore has an *anchor*: the simplest program that does the same work, measured in
//! the same seconds. The row's goal is about the ratio of the two wherever that makes sense.
//!
//! | word | meaning |
//! |---|---|
//! | group | rows about one part of the project |
//! | row | one number of ours, its anchor, its goal |
//! | round | a short slice of ours and a short slice of the anchor, one after the other |
//! | spread | the middle half of the rounds' ratios |

use std::io::{self, IsTerminal};
use std::process::ExitCode;

mod args;
mod groups;
mod json;
mod measure;
mod raw;
mod row;
mod scratch;
mod table;

use args::{Args, Asked};
use groups::Setting;
use scratch::Scratch;

/// Whatever stops a measurement.
type Error = Box<dyn std::error::Error + Send + Sync>;

const USAGE_EXIT: u8 = 2;

fn main() -> ExitCode {
    // This program again, as a process of its own to be measured.
    if let Some(done) = groups::store::child::called() {
        return match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        };
    }
    match args::parse(std::env::args().skip(1)) {
        Ok(Asked::Help) => {
            print!("{}", args::help());
            ExitCode::SUCCESS
        }
        Ok(Asked::Run(args)) => match run(args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        },
        Err(wrong) => {
            eprintln!("error: {wrong}");
            ExitCode::from(USAGE_EXIT)
        }
    }
}

fn run(args: Args) -> Result<(), Error> {
    let scratch = Scratch::new(args.dir.as_deref())?;
    if let Some(kind) = scratch.in_memory() {
        let path = scratch.path().display();
        eprintln!("warning: {path} is on {kind}: syncs cost nothing there; choose another --dir");
    }
    let setting = Setting {
        rounds: args.rounds,
        dir: scratch.path().to_owned(),
        memory: args.memory,
    };
    let show_progress = io::stderr().is_terminal();
    let mut rows = Vec::new();
    (args.group.run)(&setting, &mut |row| {
        if args.json {
            println!("{}", json::object(&row));
        } else if show_progress {
            eprintln!("measured: {}", row.name);
        }
        rows.push(row);
    })?;
    if !args.json {
        print!("{}", table::render(&rows, io::stdout().is_terminal()));
    }
    Ok(())
}
