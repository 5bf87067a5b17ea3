//! What comes next in a run.

use std::fmt;

use super::standing::Notes;
use super::time::utc;
use crate::effect::Effect;
use crate::journal::{ApprovalRecord, Journal, StepRecord};
use crate::step::{StepId, StepKind};

/// What comes next. A run with branches may have several.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// A person has to look.
    Person,
    /// A `once` step: its probe is asked whether it happened, else a person.
    Settle {
        /// The step.
        step: String,
    },
    /// The outcome of a step that is under way.
    Outcome {
        /// The step.
        step: String,
    },
    /// A step is executed, again or for the first time.
    Execute {
        /// The step.
        step: String,
        /// Which attempt.
        attempt: u64,
    },
    /// A step that failed is tried again.
    Retry {
        /// The step.
        step: String,
        /// Which attempt.
        attempt: u64,
        /// When, in microseconds since 1970.
        at_us: u64,
    },
    /// An answer of a person.
    Approval {
        /// What is to be answered.
        approval: String,
        /// When it was asked, in microseconds since 1970.
        asked_us: u64,
        /// Until when an answer counts.
        expires_us: Option<u64>,
        /// Until when the run waits for it.
        until_us: Option<u64>,
    },
    /// A signal.
    Signal {
        /// Its name.
        name: String,
        /// Until when the run waits for it, in microseconds since 1970.
        until_us: Option<u64>,
    },
    /// The end of another run.
    Child {
        /// The step that started it.
        step: String,
        /// That run.
        run: String,
    },
    /// A time.
    Time {
        /// The step.
        step: String,
        /// When, in microseconds since 1970.
        until_us: u64,
    },
    /// The agent's code goes on.
    Code {
        /// After this step, if there was one.
        after: Option<String>,
    },
}

impl Next {
    /// In one word.
    pub fn word(&self) -> &'static str {
        match self {
            Next::Person => "person",
            Next::Settle { .. } => "settle",
            Next::Outcome { .. } => "outcome",
            Next::Execute { .. } => "execute",
            Next::Retry { .. } => "retry",
            Next::Approval { .. } => "approval",
            Next::Signal { .. } => "signal",
            Next::Child { .. } => "child",
            Next::Time { .. } => "time",
            Next::Code { .. } => "code",
        }
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Next::Person => f.write_str("a person has to look"),
            Next::Settle { step } => {
                write!(
                    f,
                    "find out whether {step} happened: its probe, else a person"
                )
            }
            Next::Outcome { step } => write!(f, "the outcome of {step}, which is under way"),
            Next::Execute { step, attempt } => write!(f, "execute {step}, attempt {attempt}"),
            Next::Retry {
                step,
                attempt,
                at_us,
            } => write!(f, "try {step} again at {}, attempt {attempt}", utc(*at_us)),
            Next::Approval {
                approval,
                asked_us,
                expires_us,
                until_us,
            } => {
                write!(f, "approval {approval}, asked {}", utc(*asked_us))?;
                match expires_us {
                    Some(at) => write!(f, ", expires {}", utc(*at))?,
                    None => f.write_str(", does not expire")?,
                }
                match until_us {
                    Some(at) => write!(f, ", waits until {}", utc(*at)),
                    None => Ok(()),
                }
            }
            Next::Signal { name, until_us } => match until_us {
                Some(at) => write!(f, "signal {name}, until {}", utc(*at)),
                None => write!(f, "signal {name}"),
            },
            Next::Child { step, run } => write!(f, "the end of run {run}, started by {step}"),
            Next::Time { step, until_us } => write!(f, "{step} until {}", utc(*until_us)),
            Next::Code { after: Some(step) } => write!(f, "the agent's code goes on after {step}"),
            Next::Code { after: None } => f.write_str("the agent's code begins"),
        }
    }
}

/// What comes next in a run that is being executed: what is open is under way.
pub(super) fn under_way(next: Vec<Next>, journal: &Journal) -> Vec<Next> {
    let is_open = |step: &str| {
        let step = journal.steps.get(&StepId::new(step));
        step.is_some_and(StepRecord::is_open)
    };
    let next = next.into_iter().map(|next| match next {
        Next::Settle { step } => Next::Outcome { step },
        Next::Execute { step, .. } if is_open(&step) => Next::Outcome { step },
        next => next,
    });
    next.collect()
}

/// What comes next, in the order of the steps.
pub(super) fn of(journal: &Journal, notes: &Notes) -> Vec<Next> {
    if journal.status.is_final() {
        return Vec::new();
    }
    let mut next = Vec::new();
    if journal.attention.is_some() && !journal.answered {
        next.push(Next::Person);
    }
    let steps = journal.steps.iter();
    let mut steps: Vec<_> = steps.filter(|(_, step)| step.outcome.is_none()).collect();
    steps.sort_by_key(|(_, step)| step.first);
    for (id, step) in steps {
        next.extend(of_step(journal, id, step));
    }
    let mut asked: Vec<_> = journal.approvals.iter().collect();
    asked.sort_by_key(|(_, asked)| asked.asked_us);
    for (id, asked) in asked {
        next.extend(of_approval(journal, id, asked));
    }
    let here = notes.here.as_ref().map(|here| here.waits.as_slice());
    let waits = here.filter(|waits| !waits.is_empty());
    for wait in waits.unwrap_or(&journal.waits) {
        if let Some(name) = wait.strip_prefix("signal ") {
            next.push(Next::Signal {
                name: name.to_owned(),
                until_us: signal_limit(journal, name),
            });
        }
    }
    if next.is_empty() {
        let done = journal.steps.iter().filter(|(_, s)| s.outcome.is_some());
        let last = done.max_by_key(|(_, step)| step.last);
        let after = last.map(|(id, _)| id.to_string());
        let turn = journal.turn.as_ref().and_then(|written| written.turn);
        let after = after.or_else(|| turn.map(|turn| format!("turn {turn}")));
        next.push(Next::Code { after });
    }
    next
}

fn of_step(journal: &Journal, id: &StepId, step: &StepRecord) -> Option<Next> {
    let name = id.to_string();
    if let Some((_, at_us)) = step.retry.as_deref() {
        return Some(Next::Retry {
            step: name,
            attempt: step.attempts + 1,
            at_us: *at_us,
        });
    }
    if let Some(child) = &step.child {
        let run = child.name().to_owned();
        return Some(Next::Child { step: name, run });
    }
    if step.kind == StepKind::Sleep {
        let until_us = journal.timers.get(id.as_str()).copied()?;
        return Some(Next::Time {
            step: name,
            until_us,
        });
    }
    // What is inside of it comes first.
    if step.kind == StepKind::PlanStep {
        return None;
    }
    if step.is_open() && step.effect == Effect::Once {
        return Some(Next::Settle { step: name });
    }
    (step.is_open() || step.not_done).then_some(Next::Execute {
        step: name,
        attempt: step.attempts + 1,
    })
}

fn of_approval(journal: &Journal, id: &StepId, asked: &ApprovalRecord) -> Option<Next> {
    let approval = id.to_string();
    let (expiry, patience) = (format!("{id}!expiry"), format!("{id}!wait"));
    // (A step that a fork took over unfinished is begun here when it has its approval.)
    let begun = journal.steps.get(id).is_some_and(|s| s.key.is_none());
    match &asked.answer {
        _ if asked.used || begun => None,
        Some(_) => Some(Next::Execute {
            step: approval,
            attempt: 1,
        }),
        None if journal.fired.contains(&expiry) || journal.fired.contains(&patience) => None,
        None => Some(Next::Approval {
            approval,
            asked_us: asked.asked_us,
            expires_us: asked.expires_us,
            until_us: journal.timers.get(&patience).copied(),
        }),
    }
}

/// Until when a signal is waited for: the timer of a step that has its name.
fn signal_limit(journal: &Journal, name: &str) -> Option<u64> {
    let mut timers = journal.timers.iter().filter_map(|(timer, due_us)| {
        let step = timer.strip_suffix("!timeout")?;
        let last = step.rsplit('/').next()?;
        (last.split('#').next() == Some(name)).then_some(*due_us)
    });
    timers.next()
}
