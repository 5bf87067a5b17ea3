//! Agents that share a memory: each notes facts, corrects some of them, and reads what all noted.
//!
//! Invariant: whatever is told through `report` was acknowledged by the memory: it must be there
//! once, under that id, for ever.

use dalsegno::memory::{DocId, NewDocument, Query, RankingConfig};
use dalsegno::{Builder, Ctx, Result};
use serde::{Deserialize, Serialize};

/// The agent's name.
pub const NAME: &str = "librarian";
/// The memory that they share.
pub const MEMORY: &str = "library";

/// What an agent is given.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Which agent.
    pub agent: u64,
    /// How many facts it notes.
    pub facts: u64,
}

/// What it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// The documents that it noted, in order.
    pub noted: Vec<u64>,
    /// Each of its corrections: what it corrected, and what is there now.
    pub corrected: Vec<(u64, u64)>,
    /// Of each search the version that was searched, and ids with scores.
    pub found: Vec<(u64, Vec<(u64, i64)>)>,
}

/// What an agent notes: nobody else says the same.
pub fn fact(agent: u64, number: u64) -> String {
    format!("Agent{agent} found volume{number} on shelf {}.", number % 5)
}

/// What it says of that when it has looked again.
pub fn correction(agent: u64, number: u64) -> String {
    format!("Agent{agent} looked again: volume{number} is lent out.")
}

/// The name of an agent's run.
pub fn run_name(agent: u64) -> String {
    format!("librarian-{agent}")
}

/// A builder with the agent. `report` is told of each document that was acknowledged: the agent, the
/// number of the fact, and its id.
pub fn register(
    builder: Builder,
    report: impl Fn(u64, u64, u64) + Clone + Send + Sync + 'static,
) -> Builder {
    builder.agent(NAME, move |ctx, task| work(ctx, task, report.clone()))
}

async fn work(ctx: Ctx, task: Task, report: impl Fn(u64, u64, u64) + Send) -> Result<Done> {
    let library = ctx.memory(MEMORY);
    let ranking = RankingConfig::default();
    let mut done = Done {
        noted: Vec::new(),
        corrected: Vec::new(),
        found: Vec::new(),
    };
    for number in 0..task.facts {
        let new = NewDocument::fact(fact(task.agent, number)).source(format!("walk {number}"));
        let id = library.add(new).await?;
        report(task.agent, number, id.0);
        done.noted.push(id.0);
        if number % 3 == 2 {
            let new = NewDocument::fact(correction(task.agent, number));
            let new = library.correct(id, new).await?;
            done.corrected.push((id.0, new.0));
        }
        // Its own is there, and what others noted may be.
        let words = format!("volume{number} agent{}", task.agent);
        let found = library.search(&Query::words(words), &ranking).await?;
        let hits: Vec<(u64, i64)> = found.hits.iter().map(|h| (h.id.0, h.score)).collect();
        let own = done.corrected.last().filter(|(old, _)| *old == id.0);
        let own = DocId(own.map_or(id.0, |(_, new)| *new));
        if found.hits.first().map(|hit| hit.id) != Some(own) {
            let why = format!("{own} was written and is not found: {hits:?}");
            return Err(dalsegno::Failure::terminal(why));
        }
        done.found.push((found.version.sequence, hits));
    }
    Ok(done)
}
