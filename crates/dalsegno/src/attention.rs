//! Attention: a run that only a person can move on, and why.
//!
//! Invariant: whoever raises it says what happened and what to do, and nothing else of the run is
//! appended: on any doubt it freezes.

use dalsegno_store::{Event, Fields, Kind, NewEvent};

use crate::failure::numbered;
use crate::record;
use crate::step::StepId;

/// Why only a person can move a run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attention {
    /// What sort of reason.
    pub kind: AttentionKind,
    /// In words: what happened, and what to do.
    pub reason: String,
    /// The step it is about.
    pub step: Option<StepId>,
    /// What is known, as JSON.
    pub evidence: Option<String>,
}

/// What sort of reason it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttentionKind {
    /// Nobody knows whether a `once` step happened.
    InDoubt,
    /// The code does something else than what is recorded.
    Mismatch,
    /// The budget is used up.
    Budget,
    /// A file, branch or page that the run depends on has changed.
    Resource,
    /// The agent's code panicked.
    Panic,
    /// The process has died several times in the same step.
    CrashLoop,
    /// Something else.
    Other,
}

// The numbers are part of the format.
numbered! { AttentionKind:
    InDoubt = 1, "in-doubt";
    Mismatch = 2, "mismatch";
    Budget = 3, "budget";
    Resource = 4, "resource";
    Panic = 5, "panic";
    CrashLoop = 6, "crash-loop";
    Other = 7, "other";
}

impl Attention {
    pub(crate) fn new(kind: AttentionKind, reason: impl Into<String>) -> Attention {
        Attention {
            kind,
            reason: reason.into(),
            step: None,
            evidence: None,
        }
    }

    pub(crate) fn at(mut self, step: &StepId) -> Attention {
        self.step = Some(step.clone());
        self
    }

    pub(crate) fn with_evidence(mut self, evidence: &serde_json::Value) -> Attention {
        self.evidence = Some(evidence.to_string());
        self
    }

    /// As it was recorded.
    pub(crate) fn of(event: &Event) -> Attention {
        let fields = &event.fields;
        let kind = fields.number(record::attention::KIND);
        let kind = kind.and_then(AttentionKind::from_number);
        let reason = fields.text(record::attention::REASON);
        Attention {
            kind: kind.unwrap_or(AttentionKind::Other),
            reason: reason.unwrap_or("no reason given").to_owned(),
            step: fields.text(record::attention::STEP).map(StepId::new),
            evidence: fields.text(record::attention::EVIDENCE).map(str::to_owned),
        }
    }

    pub(crate) fn event(&self) -> NewEvent {
        let mut fields = Fields::new()
            .with(record::attention::REASON, record::bounded(&self.reason))
            .with(record::attention::KIND, self.kind.number());
        if let Some(step) = &self.step {
            fields = fields.with(record::attention::STEP, step.as_str());
        }
        if let Some(evidence) = &self.evidence {
            fields = fields.with(record::attention::EVIDENCE, record::bounded(evidence));
        }
        NewEvent::new(Kind::AttentionRaised).with_fields(fields)
    }
}
