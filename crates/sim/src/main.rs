//! Runs simulated lives of a log, or of a whole store, for as long as wanted.
//!
//! `cargo run --release -p dalsegno-sim -- --seeds 1000000` lives a million lives on all cores;
//! `--seed N` lives one and prints its trace if it fails; with `--store` it is a store's.

use std::process::ExitCode;
use std::time::Instant;

use dalsegno_sim::campaign::{self, Failure};

const USAGE: &str = "\
Lives simulated lives of a log or a store and checks that it keeps its promises.

  --store        lives of a whole store, not of a log alone
  --seeds N      how many lives (default 100000)
  --from N       the first seed (default 0)
  --seed N       one life only, with its trace if it fails
  --break RULE   with one rule switched off: one of
                 ";

struct Arguments {
    store: bool,
    from: u64,
    seeds: u64,
    broken: Option<String>,
}

fn main() -> ExitCode {
    let outcome = parse(std::env::args().skip(1)).and_then(|arguments| match arguments {
        Some(arguments) => run(&arguments),
        None => Ok(None),
    });
    match outcome {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(failure)) => {
            for line in &failure.trace {
                println!("  {line}");
            }
            println!("FAILED {failure}");
            ExitCode::FAILURE
        }
        Err(what) => {
            eprintln!("{what}\n\n{}", usage());
            ExitCode::from(2)
        }
    }
}

/// Lives the lives, and prints what they went through.
fn run(arguments: &Arguments) -> Result<Option<Failure>, String> {
    let started = Instant::now();
    let (from, seeds) = (arguments.from, arguments.seeds);
    let (lives, summary, failure) = if arguments.store {
        let rule = find(&dalsegno_store::Rule::ALL, arguments.broken.as_deref())?;
        let outcome = campaign::run_store(from, seeds, rule);
        let summary = format!("{:?}", outcome.summary);
        (outcome.lives, summary, outcome.failure)
    } else {
        let rule = find(&dalsegno_log::Rule::ALL, arguments.broken.as_deref())?;
        let outcome = campaign::run(from, seeds, rule);
        let summary = format!("{:?}", outcome.summary);
        (outcome.lives, summary, outcome.failure)
    };
    let seconds = started.elapsed().as_secs_f64();
    println!("{lives} lives in {seconds:.1} s: {summary}");
    Ok(failure)
}

/// The rule with a name.
fn find<R: Copy + std::fmt::Debug>(rules: &[R], name: Option<&str>) -> Result<Option<R>, String> {
    let Some(name) = name else { return Ok(None) };
    let rule = rules.iter().find(|rule| format!("{rule:?}") == name);
    rule.map(|rule| Some(*rule))
        .ok_or(format!("there is no rule {name}"))
}

fn usage() -> String {
    let log = dalsegno_log::Rule::ALL.iter().map(|r| format!("{r:?}"));
    let store = dalsegno_store::Rule::ALL.iter().map(|r| format!("{r:?}"));
    let (log, store): (Vec<String>, Vec<String>) = (log.collect(), store.collect());
    let (log, store) = (log.join(", "), store.join(", "));
    format!("{USAGE}{log};\n                 with --store one of {store}")
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let mut arguments = Arguments {
        store: false,
        from: 0,
        seeds: 100_000,
        broken: None,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--help" | "-h" => {
                println!("{}", usage());
                return Ok(None);
            }
            "--store" => {
                arguments.store = true;
                continue;
            }
            _ => {}
        }
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        let number = || {
            value
                .parse()
                .map_err(|_| format!("{word}: {value} is not a number"))
        };
        match word.as_str() {
            "--seeds" => arguments.seeds = number()?,
            "--from" => arguments.from = number()?,
            "--seed" => {
                arguments.from = number()?;
                arguments.seeds = 1;
            }
            "--break" => arguments.broken = Some(value),
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(Some(arguments))
}
