//! What is looked at before a run goes on: is what it depends on outside still as it was, and what
//! is to be said about the crash that it comes back from.
//!
//! Invariant: nothing of the run is executed before its resources were looked at.

use std::sync::Arc;

use dalsegno_store::{Kind, NewEvent};
use serde_json::{Value, json};

use super::Engine;
use crate::effect::Effect;
use crate::recovery::{RecoveryAction, recovered_event};
use crate::resource::{self, Verdicts, check_all};
use crate::run::{NotRecorded, Run, Stopped};
use crate::why::{Facts, Notes, Why, recent, state_of};

/// So many steps, doubts and resources are in a report.
const LISTED: usize = 50;

impl Engine {
    /// Looks at what a run depends on, and records that it starts; or why it does not.
    pub(super) async fn before_start(
        &self,
        run: &Arc<Run>,
        started: Vec<NewEvent>,
        crashed: bool,
    ) -> Result<(), Stopped> {
        let noted = run.state().journal.resources.clone();
        let verdicts = match noted.is_empty() {
            true => Verdicts::default(),
            false => check_all(&noted, &self.validators, &*self.runtime).await,
        };
        let failure = verdicts.failure();
        let changed = verdicts.for_a_person();
        let stops = match (&failure, changed.is_empty()) {
            (Some(why), _) => Some(Stopped::Failed(why.clone())),
            (None, false) => Some(Stopped::Attention(resource::attention(&changed))),
            (None, true) => None,
        };
        let mut events = Vec::new();
        if crashed {
            events.push(self.report(run, &verdicts, stops.as_ref()).await?);
        }
        if stops.is_none() {
            events.extend(verdicts.events());
            events.extend(started);
        }
        if !events.is_empty() {
            record_start(run, events).await?;
        }
        stops.map_or(Ok(()), |stopped| Err(run.stop(stopped)))
    }

    /// What is to be said about a run whose worker died.
    async fn report(
        &self,
        run: &Arc<Run>,
        verdicts: &Verdicts,
        stops: Option<&Stopped>,
    ) -> Result<NewEvent, Stopped> {
        let failed = |e: dalsegno_store::StoreError| run.stop(Stopped::Store(e.to_string()));
        let (last, written) = {
            let state = run.state();
            let journal = &state.journal;
            let written = journal.checkpoint.as_ref().and_then(|c| c.state.clone());
            (journal.last, written)
        };
        let recent = recent(&*self.store, run.id(), last).await;
        let recent = recent.map_err(failed)?;
        let written = state_of(&*self.store, written.as_ref()).await;
        let state = run.state();
        let journal = &state.journal;
        let why = Why::of(Facts {
            run: run.id(),
            journal,
            info: None,
            recent: &recent,
            state: written,
            // As the run was found, not as it is now that this process has it.
            notes: Notes::default(),
            now_us: self.runtime.now_us(),
        });
        let had = journal.session.as_deref().unwrap_or("unknown");
        let mut words = format!("its worker (session {had}) ended while it had it");
        let open = journal.open_steps();
        if !open.is_empty() {
            let names: Vec<_> = open.iter().map(|(id, _)| id.as_str()).take(5).collect();
            words.push_str(&format!(", during {}", names.join(", ")));
        }
        let doubtful = open.iter().any(|(_, step)| step.effect == Effect::Once);
        if doubtful {
            words.push_str("; what is in doubt is looked up, or asked of a person");
        }
        if let Some(damage) = &journal.damage {
            words.push_str(&format!("; {damage}"));
        }
        let action = match stops {
            None => RecoveryAction::Resumed,
            Some(stopped) => {
                words.push_str(&format!("; {stopped}"));
                match stopped {
                    Stopped::Failed(_) => RecoveryAction::Failed,
                    _ => RecoveryAction::NeedsPerson,
                }
            }
        };
        let mut report = why.to_json();
        report["action"] = json!(action.word());
        report["why"] = json!(words);
        report["checked"] = verdicts.to_json();
        for list in ["/doing/open", "/in_doubt", "/next", "/checked"] {
            shorten(&mut report, list);
        }
        let session = self.session.as_str();
        let previous = journal.recovered;
        Ok(recovered_event(action, &words, session, previous, &report))
    }
}

/// Records how an execution begins. A store that does not take so long a report takes the rest: a
/// run must not stay behind for that.
async fn record_start(run: &Arc<Run>, mut events: Vec<NewEvent>) -> Result<(), Stopped> {
    let mut recorded = run.record(events.clone()).await;
    if let Err(NotRecorded::Refused(_)) = recorded {
        let reports = events.iter_mut().filter(|e| e.kind == Kind::RunRecovered);
        reports.for_each(|event| event.input = None);
        recorded = run.record(events).await;
    }
    match recorded {
        Ok(_) => Ok(()),
        Err(NotRecorded::Stopped(stopped)) => Err(stopped),
        Err(NotRecorded::Refused(why)) => Err(run.stop(Stopped::Store(why))),
    }
}

/// Cuts a list of a report, and says how many were left off.
fn shorten(report: &mut Value, list: &str) {
    let Some(Value::Array(all)) = report.pointer_mut(list) else {
        return;
    };
    let left_off = all.len().saturating_sub(LISTED);
    if left_off > 0 {
        all.truncate(LISTED);
        all.push(json!({ "left_off": left_off }));
    }
}
