//! Events in words.

use dalsegno_store::{Event, Kind, Value, field};

use super::{Change, shorten};
use crate::record;

/// So much of a message is shown.
const MESSAGE_BYTES: usize = 200;

/// The last of these events, the newest last.
pub(super) fn last(events: &[Event], count: usize) -> Vec<Change> {
    let from = events.len().saturating_sub(count);
    let change = |event: &Event| Change {
        sequence: event.sequence,
        time_us: event.time_us,
        what: event_words(event),
    };
    events[from..].iter().map(change).collect()
}

/// What an event of a run says, in words on one line: its kind, and what it is about.
pub fn event_words(event: &Event) -> String {
    let fields = &event.fields;
    let text = |key| fields.text(key).unwrap_or_default();
    let kind = event.kind.to_string();
    let about = match &event.kind {
        Kind::RunCreated => text(record::created::AGENT).to_owned(),
        Kind::RunStarted => format!("by {}", text(record::started::SESSION)),
        Kind::RunCheckpointed => match fields.get(record::checkpointed::WAITS) {
            Some(Value::List(waits)) => {
                let waits = waits.iter().filter_map(|wait| match wait {
                    Value::Text(wait) => Some(wait.as_str()),
                    _ => None,
                });
                format!("waits for {}", waits.collect::<Vec<_>>().join(", "))
            }
            _ => String::new(),
        },
        Kind::RunFailed => text(record::failure::MESSAGE).to_owned(),
        Kind::StepFailed => {
            let (step, message) = (text(record::step::STEP), text(record::failure::MESSAGE));
            format!("{step}: {message}")
        }
        Kind::CancelRequested | Kind::RunCancelled => text(record::cancel::REASON).to_owned(),
        Kind::AttentionRaised => text(record::attention::REASON).to_owned(),
        Kind::RunRecovered => text(record::recovered::WHY).to_owned(),
        Kind::CheckpointWritten => match fields.number(record::checkpoint::TURN) {
            Some(turn) => format!("turn {turn}"),
            None => text(record::checkpoint::STEP).to_owned(),
        },
        Kind::ResourceNoted => text(record::resource::NAME).to_owned(),
        Kind::SignalReceived => text(record::signal::NAME).to_owned(),
        Kind::TimerSet | Kind::TimerFired | Kind::TimerCancelled => text(field::TIMER).to_owned(),
        Kind::StepResolved | Kind::ApprovalAnswered => {
            let by = match event.kind {
                Kind::StepResolved => text(record::resolved::BY),
                _ => text(record::approval::BY),
            };
            format!("{} by {by}", text(record::step::STEP))
        }
        Kind::StepSucceeded | Kind::RetrievalPerformed => {
            match (text(record::step::STEP), text(record::step::SUMMARY)) {
                (step, "") => step.to_owned(),
                (step, summary) => format!("{step}: {summary}"),
            }
        }
        _ => text(record::step::STEP).to_owned(),
    };
    let about = shorten(&one_line(&about), MESSAGE_BYTES);
    match about.is_empty() {
        true => kind,
        false => format!("{kind} {about}"),
    }
}

/// Without line breaks and other control characters, which come from the user.
pub(super) fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}
