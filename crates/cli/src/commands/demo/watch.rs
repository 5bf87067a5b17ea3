//! What the demonstration sees of the store, beside its owner and without a lock, and what it says to
//! it as the person.
//!
//! Invariant: every event of a run is seen once, in order; each question is answered once, and a
//! step in doubt only after a look into the world's ledger.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use dalsegno::{Effect, Journal, Remote, StepKind, record};
use dalsegno_store::{Event, Kind, Options, Position, RunQuery, Store};
use dalsegno_story::agent::{STEPS, told_name};

use super::scene::Scene;
use super::told::{Happening, Step};
use crate::exit::{Error, Result};

/// Kinds of attention, as docs/format.md numbers them.
const IN_DOUBT: u64 = 1;
const CRASH_LOOP: u64 = 6;
/// Who the demonstration says it is.
const PERSON: &str = "demo";

/// A store that is watched.
pub struct Watch {
    remote: Remote,
    position: Position,
    runs: BTreeMap<String, Vec<Event>>,
    questions: Vec<Question>,
}

/// What a person is asked.
#[derive(Clone, Debug)]
enum Question {
    Approval {
        run: String,
        id: String,
    },
    Doubt {
        run: String,
        id: String,
        key: String,
    },
    CrashLoop {
        run: String,
    },
}

impl Watch {
    pub fn open(store: &Path) -> Result<Watch> {
        let store = Options::new().existing_only().open_read_only(store)?;
        Ok(Watch {
            remote: Remote::with(Arc::new(store))?,
            position: 0,
            runs: BTreeMap::new(),
            questions: Vec::new(),
        })
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        self.remote.store()
    }

    /// Waits until there is something new.
    pub async fn changed(&self) -> Result<()> {
        self.store().changed(self.position).await?;
        Ok(())
    }

    /// What is new.
    pub async fn look(&mut self, worker: u32) -> Result<Vec<Happening>> {
        self.position = self.store().position().await?;
        let mut told = Vec::new();
        for info in self.store().runs(&RunQuery::default()).await? {
            let run = info.run.name().to_owned();
            let known = self.runs.get(&run).map_or(0, Vec::len) as u64;
            if info.head.sequence <= known {
                continue;
            }
            for event in self
                .store()
                .events(&info.run, known + 1, usize::MAX)
                .await?
            {
                let what = match &event.input {
                    Some(input) if event.kind == Kind::ApprovalRequested => {
                        String::from_utf8_lossy(&self.store().payload(input).await?).into_owned()
                    }
                    _ => String::new(),
                };
                self.runs
                    .entry(run.clone())
                    .or_default()
                    .push(event.clone());
                self.note_question(&run, &event)?;
                told.extend(self.happening(&run, &event, what, worker));
            }
        }
        Ok(told)
    }

    /// What a run has done so far.
    pub fn journal(&self, run: &str) -> Journal {
        let events = self.runs.get(run).into_iter().flatten();
        Journal::fold(events.cloned())
    }

    /// What a worker had begun of a run and nobody recorded, if it had the run; and whether it had.
    pub fn begun_by(&self, run: &str, worker: &str) -> (bool, Vec<Step>) {
        let events = self.runs.get(run).into_iter().flatten();
        let is_start = |event: &&Event| {
            event.kind == Kind::RunStarted
                && event.fields.text(record::started::SESSION) == Some(worker)
        };
        let Some(start) = events.clone().find(is_start) else {
            return (false, Vec::new());
        };
        let journal = self.journal(run);
        let is_open = |id: &&str| match journal.steps.get(*id) {
            Some(step) => step.outcome.is_none(),
            None => true,
        };
        let since = events.filter(|event| event.sequence > start.sequence);
        let begun =
            since.filter(|e| matches!(e.kind, Kind::StepIntended | Kind::ApprovalRequested));
        let ids = begun.filter_map(|event| event.fields.text(record::step::STEP));
        let open = ids.filter(is_open).map(step);
        (true, open.filter(|step| step.number.is_some()).collect())
    }

    fn happening(&self, run: &str, event: &Event, what: String, worker: u32) -> Option<Happening> {
        let run = run.to_owned();
        let number = |key| event.fields.number(key).unwrap_or(0);
        let text = |key| event.fields.text(key).unwrap_or_default().to_owned();
        let step = || step(event.fields.text(record::step::STEP).unwrap_or_default());
        Some(match event.kind {
            Kind::RunStarted => Happening::RunStarted {
                run,
                worker,
                recovered: number(record::started::RECOVERED) == 1,
                replayed: numbers(&run_steps(&self.journal_before(event))),
                saved_calls: number(record::started::SAVED_CALLS),
                saved_tokens: number(record::started::SAVED_TOKENS),
            },
            Kind::StepSucceeded | Kind::DecisionCommitted => {
                let journal = self.journal(&run);
                let (kind, effect) = match journal.steps.get(step().id.as_str()) {
                    Some(found) => (found.kind, found.effect),
                    None => (StepKind::Decision, Effect::ReadOnly),
                };
                Happening::Step {
                    step: step(),
                    kind: kind.word(),
                    effect: effect.word(),
                    took_us: self.took_us(&run, event),
                    worker,
                    run,
                }
            }
            Kind::ApprovalRequested => Happening::ApprovalAsked {
                run,
                step: step(),
                what,
            },
            Kind::AttentionRaised => Happening::Attention {
                run,
                reason: text(record::attention::REASON),
            },
            Kind::StepResolved => Happening::Resolved {
                run,
                step: step(),
                by: text(record::resolved::BY),
                happened: number(record::resolved::VERDICT) == 1,
            },
            Kind::RunCompleted | Kind::RunFailed | Kind::RunCancelled => Happening::RunEnded {
                run,
                worker,
                status: event.kind.to_string().replacen("run-", "", 1),
            },
            _ => return None,
        })
    }

    /// What the run had done before an event of it.
    fn journal_before(&self, event: &Event) -> Journal {
        let events = self.runs.get(event.stream.name()).into_iter().flatten();
        let before = events.take_while(|other| other.sequence < event.sequence);
        Journal::fold(before.cloned())
    }

    /// From the last time that the step was begun to its outcome.
    fn took_us(&self, run: &str, done: &Event) -> Option<u64> {
        let id = done.fields.text(record::step::STEP);
        let events = self.runs.get(run)?;
        let begun = events.iter().rev().find(|event| {
            event.kind == Kind::StepIntended && event.fields.text(record::step::STEP) == id
        })?;
        Some(done.time_us.saturating_sub(begun.time_us))
    }

    fn note_question(&mut self, run: &str, event: &Event) -> Result<()> {
        let text = |key| event.fields.text(key).unwrap_or_default().to_owned();
        let run = run.to_owned();
        match event.kind {
            Kind::ApprovalRequested => {
                let id = text(record::step::STEP);
                self.questions.push(Question::Approval { run, id });
            }
            Kind::AttentionRaised => match event.fields.number(record::attention::KIND) {
                Some(IN_DOUBT) => self.questions.push(Question::Doubt {
                    run,
                    id: text(record::attention::STEP),
                    key: key_in(&text(record::attention::EVIDENCE))?,
                }),
                Some(CRASH_LOOP) => self.questions.push(Question::CrashLoop { run }),
                _ => return Err(at_a_loss(&text(record::attention::REASON))),
            },
            _ => {}
        }
        Ok(())
    }

    /// Answers what is asked, as the person.
    pub async fn answer(&mut self, scene: &Scene) -> Result<Vec<Happening>> {
        let mut told = Vec::new();
        for question in std::mem::take(&mut self.questions) {
            told.push(match question {
                Question::Approval { run, id } => {
                    self.remote.approve(&run, &id, PERSON).await?;
                    let because = "nobody else is here to be asked".to_owned();
                    said(run, id, "approved", because)
                }
                Question::Doubt { run, id, key } => {
                    let remote = &self.remote;
                    match scene.ask(&format!("/seen/{key}"))? {
                        Some(reply) => {
                            remote.resolve_happened(&run, &id, &reply, PERSON).await?;
                            let because = "it is in the world's ledger".to_owned();
                            said(run, id, "happened", because)
                        }
                        None => {
                            remote.resolve_not_happened(&run, &id, PERSON).await?;
                            let because = "it is not in the world's ledger".to_owned();
                            said(run, id, "did_not_happen", because)
                        }
                    }
                }
                Question::CrashLoop { run } => {
                    self.remote.clear_attention(&run).await?;
                    let because = "these deaths are our own doing".to_owned();
                    said(run, String::new(), "go_on", because)
                }
            });
        }
        Ok(told)
    }
}

fn said(run: String, id: String, said: &'static str, because: String) -> Happening {
    Happening::PersonSaid {
        run,
        id,
        said,
        because,
    }
}

/// The steps, of the 12, that have their outcome.
pub fn run_steps(journal: &Journal) -> Vec<&'static str> {
    let done = |name: &&&str| {
        let mut steps = journal.steps.iter();
        steps.any(|(id, step)| told_name(id.as_str()) == **name && step.outcome.is_some())
    };
    STEPS.iter().filter(done).copied().collect()
}

fn numbers(steps: &[&str]) -> Vec<usize> {
    let number = |name: &&str| STEPS.iter().position(|step| step == name);
    steps.iter().filter_map(number).map(|at| at + 1).collect()
}

/// A step by its identity.
pub fn step(id: &str) -> Step {
    let name = told_name(id);
    Step {
        step: name.to_owned(),
        id: id.to_owned(),
        number: STEPS.iter().position(|step| *step == name).map(|at| at + 1),
    }
}

/// The key of a step in doubt, from the evidence.
fn key_in(evidence: &str) -> Result<String> {
    let evidence: serde_json::Value = serde_json::from_str(evidence).unwrap_or_default();
    let key = evidence["idempotency_key"].as_str().map(str::to_owned);
    key.ok_or_else(|| at_a_loss("a doubt without a key to look for"))
}

fn at_a_loss(why: &str) -> Error {
    let why = crate::output::text::shown(why);
    Error::failed(format!("the run needs more than the demo can give: {why}"))
}
