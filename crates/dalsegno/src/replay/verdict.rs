//! What a replay is said to have come to, and both sides if the code does something else.

use dalsegno_store::NewPayload;

use super::drive::Driver;
use super::ends::{ends_with, same_end, turn_side};
use super::feed::PartEnd;
use super::gate::Wanted;
use super::order::InDonePlan;
use super::{Divergence, DivergenceKind, ReplayVerdict, Side};
use crate::attention::{Attention, AttentionKind};
use crate::failure::Result;
use crate::run::{Stopped, shown, shown_new};
use crate::step::{StepId, StepKind};

impl Driver {
    pub(super) fn returned(&mut self, result: Result<NewPayload>) -> ReplayVerdict {
        let now = || {
            Side::other(
                match &result {
                    Ok(output) => format!("ends with {}", shown_new(output)),
                    Err(failure) => format!("fails: {failure}"),
                },
                None,
            )
        };
        if let Some(missing) = self.first_missing() {
            return diverged(DivergenceKind::Step, missing, now());
        }
        match &self.end {
            PartEnd::Open => ReplayVerdict::RecordEnds { next: Vec::new() },
            PartEnd::Turn { turn, state, event } => {
                let recorded = turn_side(*turn, state.as_ref().map(shown), Some(*event));
                diverged(DivergenceKind::Turn, recorded, now())
            }
            PartEnd::Run { end, .. } if same_end(end, &result) => ReplayVerdict::SameEnd,
            PartEnd::Run { event, end } => {
                let recorded = Side::other(ends_with(end), Some(*event));
                diverged(DivergenceKind::Result, recorded, now())
            }
        }
    }

    pub(super) fn panicked(&mut self, panic: String) -> ReplayVerdict {
        let now = Side::other(format!("panics: {panic}"), None);
        if let Some(missing) = self.first_missing() {
            return diverged(DivergenceKind::Panic, missing, now);
        }
        match &self.end {
            PartEnd::Open => {
                let state = self.run.state();
                let attention = state.journal.attention.as_ref();
                if attention.is_some_and(|a| a.kind == AttentionKind::Panic) {
                    let next = vec![format!("it panics, as recorded: {panic}")];
                    return ReplayVerdict::RecordEnds { next };
                }
                let recorded = Side::other("nothing more", Some(state.journal.last));
                drop(state);
                diverged(DivergenceKind::Panic, recorded, now)
            }
            PartEnd::Turn { turn, state, event } => {
                let recorded = turn_side(*turn, state.as_ref().map(shown), Some(*event));
                diverged(DivergenceKind::Panic, recorded, now)
            }
            PartEnd::Run { event, end } => {
                let recorded = Side::other(ends_with(end), Some(*event));
                diverged(DivergenceKind::Panic, recorded, now)
            }
        }
    }

    pub(super) fn stopped(&mut self, stopped: Stopped) -> ReplayVerdict {
        let found = self.run.state().gate.as_mut().and_then(|g| g.found.take());
        if let Some(found) = found {
            return ReplayVerdict::Diverged(Box::new(found));
        }
        match stopped {
            Stopped::Attention(attention) => self.of_attention(&attention),
            other => {
                let now = Side::other(other.to_string(), None);
                let recorded = self.first_missing().unwrap_or_default();
                diverged(DivergenceKind::Unreadable, recorded, now)
            }
        }
    }

    /// The core has found a mismatch.
    pub(super) fn of_attention(&self, attention: &Attention) -> ReplayVerdict {
        let evidence = attention.evidence.as_deref().unwrap_or("null");
        let evidence: serde_json::Value = serde_json::from_str(evidence).unwrap_or_default();
        let recorded = attention.step.as_ref().and_then(|id| {
            let state = self.run.state();
            let step = state.journal.steps.get(id);
            step.map(|step| Side::of_step(id, step))
        });
        let recorded = recorded.unwrap_or_default();
        let input = evidence["now"]["input"].as_str().map(str::to_owned);
        let kind = match attention.reason.contains("cannot be read as") {
            false => DivergenceKind::Input,
            true => DivergenceKind::Unreadable,
        };
        let what = input.is_none().then(|| attention.reason.clone());
        let now = Side {
            event: None,
            input,
            what,
            ..recorded.clone()
        };
        diverged(kind, recorded, now)
    }

    /// A recorded step that the code has not come to.
    pub(super) fn first_missing(&self) -> Option<Side> {
        let state = self.run.state();
        let (journal, gate) = (&state.journal, state.gate.as_ref()?);
        let mut due = self.due.iter();
        let missing = due.find(|(_, id)| !gate.is_begun(id));
        let missing = missing.and_then(|(_, id)| Some((id, journal.steps.get(id)?)));
        if let Some((id, step)) = missing {
            return Some(Side::of_step(id, step));
        }
        // Begun, and without an outcome.
        let inside = InDonePlan::of(journal);
        let open = journal
            .steps_in_order()
            .into_iter()
            .find(|(id, step)| step.outcome.is_none() && !gate.is_called(id) && !inside.has(id));
        if let Some((id, step)) = open {
            return Some(Side::of_step(id, step));
        }
        let mut asked: Vec<_> = journal.approvals.iter().collect();
        asked.retain(|(id, asked)| {
            let step = journal.steps.contains_key(*id);
            !asked.used && !step && !gate.is_called(id) && !inside.has(id)
        });
        asked.sort_by_key(|(id, asked)| (asked.asked_us, (*id).clone()));
        asked.first().map(|(id, asked)| Side {
            step: Some((*id).clone()),
            kind: Some(StepKind::Approval),
            input: asked.payload.as_ref().map(shown),
            ..Side::default()
        })
    }

    pub(super) fn missing(&self, id: &StepId) -> ReplayVerdict {
        let recorded = {
            let state = self.run.state();
            let step = state.journal.steps.get(id);
            step.map_or_else(Side::default, |step| Side::of_step(id, step))
        };
        diverged(DivergenceKind::Step, recorded, self.now())
    }

    /// The code has gone as far as the record goes.
    pub(super) fn record_ends(&self) -> ReplayVerdict {
        if let Some(missing) = self.first_missing() {
            return diverged(DivergenceKind::Step, missing, self.now());
        }
        let state = self.run.state();
        let mut next: Vec<String> = Vec::new();
        if let Some(gate) = &state.gate {
            next.extend(gate.wanted().map(|w| format!("{} {}", w.kind, w.id)));
            let turn = gate.turn_end.as_ref();
            next.extend(turn.map(|end| format!("end of turn {}", end.turn)));
        }
        drop(state);
        if next.is_empty() {
            next = self.run.waits_for();
            next.extend(self.run.parked());
        }
        if next.is_empty() {
            next.push("something of its own".to_owned());
        }
        ReplayVerdict::RecordEnds { next }
    }

    pub(super) fn wants_anything(&self) -> bool {
        let state = self.run.state();
        let gate = state.gate.as_ref();
        let wants =
            gate.is_some_and(|g| g.ends > 0 || g.wanted().next().is_some() || g.turn_end.is_some());
        drop(state);
        wants || !self.run.waits_for().is_empty() || !self.run.parked().is_empty()
    }

    /// What the code does instead: best something that is not recorded.
    pub(super) fn now(&self) -> Side {
        let state = self.run.state();
        if let Some(gate) = &state.gate {
            let steps = &state.journal.steps;
            let new = gate.wanted().find(|wanted| !steps.contains_key(&wanted.id));
            let recorded = |wanted: &&Wanted| steps.contains_key(&wanted.id);
            if let Some(wanted) = new.or_else(|| gate.wanted().find(recorded)) {
                return wanted.side();
            }
            if let Some(end) = &gate.turn_end {
                return turn_side(end.turn, Some(shown_new(&end.state)), None);
            }
        }
        drop(state);
        let mut waits = self.run.parked();
        waits.extend(self.run.waits_for());
        match waits.is_empty() {
            true => Side::other("waits for something of its own", None),
            false => Side::other(format!("waits for {}", waits.join(", ")), None),
        }
    }
}

/// The code does something else than what is recorded.
pub(super) fn diverged(kind: DivergenceKind, recorded: Side, now: Side) -> ReplayVerdict {
    ReplayVerdict::Diverged(Box::new(Divergence {
        kind,
        recorded,
        now,
    }))
}
