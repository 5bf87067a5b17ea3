//! Events and payloads: a line for a person, a document for a program.

use dalsegno::{event_words, record};
use dalsegno_store::{Body, Event, Payload};
use serde::Serialize;
use serde_json::Value;

use super::text::shown;
use super::time;

/// An event, as `tail` and `show --events` give it.
#[derive(Serialize)]
pub struct EventDocument<'a> {
    /// Of the run.
    pub sequence: u64,
    /// When.
    pub time_us: u64,
    /// As in `step-succeeded`.
    pub kind: String,
    /// In words.
    pub what: String,
    /// The step that it is about.
    pub step: Option<&'a str>,
    /// What went in.
    pub input: Option<PayloadDocument<'a>>,
    /// What came out.
    pub output: Option<PayloadDocument<'a>>,
}

impl<'a> EventDocument<'a> {
    /// Of an event.
    pub fn of(event: &'a Event) -> EventDocument<'a> {
        use dalsegno_store::Kind;
        let about_step = matches!(
            event.kind,
            Kind::StepIntended
                | Kind::StepSucceeded
                | Kind::StepFailed
                | Kind::StepResolved
                | Kind::DecisionCommitted
                | Kind::RetrievalPerformed
                | Kind::ApprovalRequested
                | Kind::ApprovalAnswered
                | Kind::User(_)
        );
        let step = event.fields.text(record::step::STEP);
        EventDocument {
            sequence: event.sequence,
            time_us: event.time_us,
            kind: event.kind.to_string(),
            what: event_words(event),
            step: step.filter(|_| about_step),
            input: event.input.as_ref().map(PayloadDocument::of),
            output: event.output.as_ref().map(PayloadDocument::of),
        }
    }
}

/// What went in or came out.
#[derive(Serialize)]
pub struct PayloadDocument<'a> {
    /// As in `application/json`.
    pub content_type: &'a str,
    /// Its length.
    pub bytes: u64,
    /// Under what it is stored, if it is too large to be in the event.
    pub hash: Option<String>,
    /// Itself, if it is small: JSON as such, other text as a text, else `null`.
    pub value: Value,
}

impl<'a> PayloadDocument<'a> {
    /// Of a payload.
    pub fn of(payload: &'a Payload) -> PayloadDocument<'a> {
        let content_type = payload.content_type.as_str();
        let (bytes, hash, value) = match &payload.body {
            Body::Inline(bytes) => (bytes.len() as u64, None, value(bytes)),
            Body::Stored { root, bytes } => (*bytes, Some(root.to_string()), Value::Null),
        };
        PayloadDocument {
            content_type,
            bytes,
            hash,
            value,
        }
    }
}

/// JSON, or text, or nothing.
pub fn value(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| match std::str::from_utf8(bytes) {
        Ok(text) => Value::String(text.to_owned()),
        Err(_) => Value::Null,
    })
}

/// A payload on one line for a person.
pub fn payload_words(payload: &Payload) -> String {
    match &payload.body {
        Body::Inline(bytes) => shown(&String::from_utf8_lossy(bytes)),
        Body::Stored { root, bytes } => format!("{bytes} bytes with hash {root}"),
    }
}

/// An event on one line for a person.
pub fn line(event: &Event) -> String {
    let (at, sequence) = (time::utc(event.time_us), event.sequence);
    format!("{at}  {sequence:>5}  {}", shown(&event_words(event)))
}
