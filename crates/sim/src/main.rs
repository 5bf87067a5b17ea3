//! Runs simulated lives of a log, for as long as wanted.
//!
//! `cargo run --release -p dalsegno-sim -- --seeds 1000000` lives a million lives on all cores;
//! `--seed N` lives one and prints its trace if it fails.

use std::process::ExitCode;
use std::time::Instant;

use dalsegno_log::Rule;
use dalsegno_sim::campaign;

const USAGE: &str = "\
Lives simulated lives of a log and checks that it keeps its promises.

  --seeds N      how many lives (default 100000)
  --from N       the first seed (default 0)
  --seed N       one life only, with its trace if it fails
  --break RULE   with one durability rule switched off: one of
                 ";

struct Arguments {
    from: u64,
    seeds: u64,
    rule: Option<Rule>,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            println!("{}", usage());
            return ExitCode::SUCCESS;
        }
        Err(what) => {
            eprintln!("{what}\n\n{}", usage());
            return ExitCode::from(2);
        }
    };
    let started = Instant::now();
    let outcome = campaign::run(arguments.from, arguments.seeds, arguments.rule);
    let (lives, summary) = (outcome.lives, outcome.summary);
    println!(
        "{lives} lives in {:.1} s: {} recoveries, {} power cuts, {} kills, {} torn tails, \
         {} poisonings, {} full disks, {} flipped bits, {} rewrites, \
         {} repairs, {} records acknowledged, {} operations",
        started.elapsed().as_secs_f64(),
        summary.recoveries,
        summary.power_cuts,
        summary.kills,
        summary.torn_tails,
        summary.poisonings,
        summary.full_disks,
        summary.flipped_bits,
        summary.rewrites,
        summary.repairs,
        summary.acknowledged,
        summary.operations,
    );
    match outcome.failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            for line in &failure.trace {
                println!("  {line}");
            }
            println!("FAILED {failure}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> String {
    let names: Vec<String> = Rule::ALL.iter().map(|rule| format!("{rule:?}")).collect();
    format!("{USAGE}{}", names.join(", "))
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let mut arguments = Arguments {
        from: 0,
        seeds: 100_000,
        rule: None,
    };
    while let Some(word) = words.next() {
        if word == "--help" || word == "-h" {
            return Ok(None);
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
            "--break" => {
                let rule = Rule::ALL.iter().find(|rule| format!("{rule:?}") == value);
                arguments.rule = Some(*rule.ok_or(format!("there is no rule {value}"))?);
            }
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(Some(arguments))
}
