//! `dalsegno resolve`: what became of a step in doubt, or that a stopped run may go on.

use std::time::Duration;

use dalsegno::Budget;
use serde_json::Value;

use super::order::{self, Order};
use crate::args::Global;
use crate::args::resolve::Resolve;
use crate::exit::{Error, Exit, Result};
use crate::output::Out;
use crate::output::text::shown;
use crate::{asks, left_behind, open, runtime};

/// Resolves.
///
/// # Errors
/// No such step is in doubt, or what was said was not taken.
pub fn run(args: &Resolve, global: &Global, out: &mut Out) -> Result<Exit> {
    let result = json(&args.result, "--result")?;
    let budget = budget(&args.budget)?;
    runtime::block_on(async {
        let remote = open::remote(global)?;
        let journal = order::journal(&remote, &args.run).await?;
        let (run, by) = (&args.run, &args.who.by);
        let mut said = Order {
            order: "resolve",
            run,
            about: None,
            words: String::new(),
        };
        if args.go_on || !args.budget.is_empty() {
            let sent = match args.go_on {
                true => remote.clear_attention(run).await?,
                false => remote.set_budget(run, budget).await?,
            };
            said.words = match args.go_on {
                true => "may go on".to_owned(),
                false => format!("may use {}", args.budget.join(", ")),
            };
            return order::report(said, sent, &args.how, global, out).await;
        }
        let open = asks::in_doubt(&journal);
        let step = order::the_one(run, "step in doubt", args.step.as_deref(), &open)?;
        left_behind::hand_to_person(global, run, &journal).await?;
        let (sent, what) = match () {
            () if args.happened => {
                let sent = remote.resolve_happened(run, &step, &result, by).await?;
                (sent, "happened")
            }
            () if args.did_not_happen => {
                let sent = remote.resolve_not_happened(run, &step, by).await?;
                (sent, "did not happen")
            }
            () => {
                let sent = remote.resolve_fail(run, &step, by).await?;
                (sent, "fails the run")
            }
        };
        said.about = Some(&step);
        said.words = format!("step {step} {what}, says {by}");
        order::report(said, sent, &args.how, global, out).await
    })
}

/// A value that was given as JSON.
///
/// # Errors
/// It is none.
pub fn json(text: &str, what: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|e| {
        let short: String = shown(text).chars().take(60).collect();
        Error::usage(format!("{what} {short:?} is not JSON: {e}"))
            .hint("a text needs its own quotes: '\"like this\"'")
    })
}

fn budget(limits: &[String]) -> Result<Budget> {
    let mut budget = Budget::default();
    for limit in limits {
        let wrong = || {
            Error::usage(format!("--budget cannot be {:?}", shown(limit)))
                .hint("steps=N, tokens=N, cost=N in millionths, or seconds=N")
        };
        let (what, number) = limit.split_once('=').ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        budget = match what {
            "steps" => budget.steps(number),
            "tokens" => budget.tokens(number),
            "cost" => budget.cost_micros(number),
            "seconds" => budget.wall(Duration::from_secs(number)),
            _ => return Err(wrong()),
        };
    }
    Ok(budget)
}
