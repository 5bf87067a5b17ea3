//! The events of a memory: what their fields mean. See `docs/format.md`.
//!
//! Invariant: an event says which documents it is about, who wrote it and when; what a document says
//! is in its payload only, so that it can be forgotten.

use dalsegno_store::engine::FORGOTTEN;
use dalsegno_store::{Event, Fields, Kind, NewEvent, NewPayload, Value};

use crate::content::CONTENT_TYPE;
use crate::document::{DocKind, NewDocument};

/// Of what adds a document: the event that it corrects. Of a retraction: the event that it is about.
const SUBJECT: u64 = 1;
/// Who wrote it.
const BY: u64 = 2;
/// Of a retraction, and of forgetting: why.
const REASON: u64 = 3;
/// Of what adds a document: how many dimensions its vector has.
const DIMENSION: u64 = 4;
/// Of what adds a document: added once under this key.
const KEY: u64 = 5;
/// Of what adds a document: what made its vector.
const MODEL: u64 = 6;

/// Adds a document whose content was encoded.
pub(crate) fn add(
    new: &NewDocument,
    content: Vec<u8>,
    by: Option<&str>,
    corrects: Option<u64>,
) -> NewEvent {
    let mut fields = written_by(by);
    if let Some(corrects) = corrects {
        fields = fields.with(SUBJECT, corrects);
    }
    if let Some(vector) = &new.content.vector {
        fields = fields.with(DIMENSION, vector.dimension() as u64);
        if let Some(model) = &new.model {
            fields = fields.with(MODEL, model.as_str());
        }
    }
    if let Some(key) = &new.key {
        fields = fields.with(KEY, key.as_str());
    }
    let mut event = NewEvent::new(new.kind.event_kind())
        .with_input(NewPayload::new(CONTENT_TYPE, content).apart())
        .with_fields(fields);
    event.cause = new.cause.clone();
    event
}

/// Says that a document is not so any more.
pub(crate) fn retract(subject: u64, by: Option<&str>, reason: &str) -> NewEvent {
    let fields = written_by(by).with(SUBJECT, subject).with(REASON, reason);
    NewEvent::new(Kind::MemoryRetracted).with_fields(fields)
}

/// Says that documents are forgotten.
pub(crate) fn forget(subjects: &[u64], by: Option<&str>, reason: &str) -> NewEvent {
    let named = subjects.iter().map(|subject| Value::Number(*subject));
    let fields = written_by(by)
        .with(FORGOTTEN, Value::List(named.collect()))
        .with(REASON, reason);
    NewEvent::new(Kind::MemoryForgotten).with_fields(fields)
}

fn written_by(by: Option<&str>) -> Fields {
    match by {
        Some(by) => Fields::new().with(BY, by),
        None => Fields::new(),
    }
}

/// What kind of document an event adds, if it adds one.
pub(crate) fn added(event: &Event) -> Option<DocKind> {
    let is_content = event.input.as_ref()?.content_type == CONTENT_TYPE;
    DocKind::of_event(&event.kind).filter(|_| is_content)
}

/// The event that this one is about: one before it. Anything else, as a file from elsewhere may have
/// it, is none; else what corrects what would have no end.
pub(crate) fn subject(event: &Event) -> Option<u64> {
    let subject = event.fields.number(SUBJECT);
    subject.filter(|subject| *subject < event.sequence)
}

pub(crate) fn by(event: &Event) -> Option<&str> {
    event.fields.text(BY)
}

pub(crate) fn reason(event: &Event) -> Option<&str> {
    event.fields.text(REASON)
}

pub(crate) fn dimension(event: &Event) -> Option<usize> {
    added(event)?;
    let dimension = event.fields.number(DIMENSION)?;
    usize::try_from(dimension).ok().filter(|found| *found > 0)
}

pub(crate) fn key(event: &Event) -> Option<&str> {
    event.fields.text(KEY)
}

pub(crate) fn model(event: &Event) -> Option<&str> {
    event.fields.text(MODEL)
}
