//! Shadow replay: many recorded runs against today's code, as a test.
//!
//! ```no_run
//! use std::sync::Arc;
//! use dalsegno::{Dalsegno, shadow_replay};
//! use dalsegno_store::{Options, RunQuery, Store};
//!
//! # async fn agent(_: dalsegno::Ctx, _: u64) -> dalsegno::Result<u64> { Ok(1) }
//! # async fn test() -> Result<(), dalsegno::Error> {
//! let builder = Dalsegno::builder().agent("order", agent);
//! let store: Arc<dyn Store> = Arc::new(Options::new().open_read_only("recorded")?);
//! let query = RunQuery { agent: Some("order".into()), ..RunQuery::default() };
//! shadow_replay(&builder, &store, &query).await?.assert_clean();
//! # Ok(()) }
//! ```
//!
//! Reads come from the records, writes are refused, nothing is executed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use dalsegno_store::{RunQuery, Store};

use super::{Divergence, DivergenceKind, ReplayVerdict, StartAt, drive};
use crate::engine::Builder;
use crate::error::Error;

/// So many runs of a group are named.
const NAMED: usize = 5;

/// What a shadow replay found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShadowReport {
    /// Runs that had ended, and end the same.
    pub same: u64,
    /// Runs that have not ended, and go the same way as far as their record goes.
    pub record_ends: u64,
    /// Runs in which the code does something else.
    pub diverged: u64,
    /// Runs whose agent is not registered, by agent.
    pub not_registered: BTreeMap<String, u64>,
    /// Runs that could not be read, and why.
    pub not_loaded: Vec<(String, String)>,
    /// Outcomes that were handed out from the records.
    pub steps: u64,
    /// Divergences by their cause, the most frequent first.
    pub groups: Vec<DivergenceGroup>,
}

/// Runs that diverge for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DivergenceGroup {
    /// Their agent.
    pub agent: String,
    /// The divergence of the first of them. In the others the same step and sort, but perhaps other
    /// values.
    pub first: Divergence,
    /// Their names.
    pub runs: Vec<String>,
}

/// What makes divergences one group: agent, sort, and the steps of both sides.
type Cause = (String, DivergenceKind, Option<String>, Option<String>);

impl ShadowReport {
    /// How many runs were looked at.
    pub fn runs(&self) -> u64 {
        let not_registered: u64 = self.not_registered.values().sum();
        let not_loaded = self.not_loaded.len() as u64;
        self.same + self.record_ends + self.diverged + not_registered + not_loaded
    }

    /// Whether every run could be replayed, and goes the same way.
    pub fn is_clean(&self) -> bool {
        self.diverged == 0 && self.not_registered.is_empty() && self.not_loaded.is_empty()
    }

    /// For tests: passes only if [`ShadowReport::is_clean`]. Choose runs by agent in the query if
    /// the store has others.
    ///
    /// # Panics
    /// It is not; with the whole report.
    pub fn assert_clean(&self) {
        assert!(self.is_clean(), "{self}");
    }
}

impl fmt::Display for ShadowReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} runs replayed, {} steps: {} the same, {} the same as far as they go, {} diverged",
            self.runs(),
            self.steps,
            self.same,
            self.record_ends,
            self.diverged
        )?;
        for group in &self.groups {
            let (count, first) = (group.runs.len(), &group.first);
            writeln!(f, "  {count} of {}: {first}", group.agent)?;
            let mut named = group.runs.iter().take(NAMED).cloned().collect::<Vec<_>>();
            if count > NAMED {
                named.push(format!("and {} more", count - NAMED));
            }
            writeln!(f, "    in {}", named.join(", "))?;
        }
        for (agent, count) in &self.not_registered {
            writeln!(f, "  {count} of {agent:?}: no such agent is registered")?;
        }
        for (run, why) in &self.not_loaded {
            writeln!(f, "  {run} could not be read: {why}")?;
        }
        Ok(())
    }
}

/// Replays every run that the query finds, one after the other.
///
/// # Errors
/// There is no runtime, or the runs cannot be listed. Whatever is wrong with a run is in the report.
pub async fn shadow_replay(
    builder: &Builder,
    store: &Arc<dyn Store>,
    query: &RunQuery,
) -> Result<ShadowReport, Error> {
    let parts = builder.replay_parts(store)?;
    let mut report = ShadowReport::default();
    let mut groups: BTreeMap<Cause, DivergenceGroup> = BTreeMap::new();
    for info in store.runs(query).await? {
        let run = info.run.name().to_owned();
        let replayed = match drive::replay(&parts, &run, StartAt::First).await {
            Ok(replayed) => replayed,
            Err(Error::AgentNotFound { agent, .. }) => {
                *report.not_registered.entry(agent).or_default() += 1;
                continue;
            }
            Err(e) => {
                report.not_loaded.push((run, e.to_string()));
                continue;
            }
        };
        report.steps += replayed.steps;
        match replayed.verdict {
            ReplayVerdict::SameEnd => report.same += 1,
            ReplayVerdict::RecordEnds { .. } => report.record_ends += 1,
            ReplayVerdict::Diverged(found) => {
                report.diverged += 1;
                let step = |step: &Option<crate::StepId>| step.as_ref().map(ToString::to_string);
                let (then, now) = (step(&found.recorded.step), step(&found.now.step));
                let cause = (replayed.agent.clone(), found.kind, then, now);
                let group = groups.entry(cause).or_insert_with(|| DivergenceGroup {
                    agent: replayed.agent,
                    first: *found,
                    runs: Vec::new(),
                });
                group.runs.push(run);
            }
        }
    }
    report.groups = groups.into_values().collect();
    report
        .groups
        .sort_by_key(|group| std::cmp::Reverse(group.runs.len()));
    Ok(report)
}
