//! Runs as agents make them: created, started, then steps with a small input and output each.

use dalsegno_store::{Fields, Kind, NewEvent, NewPayload, StreamId, field};

use crate::Error;

/// What a step takes in and gives back, so that an event has about 200 bytes.
const INPUT: &str = r#"{"tool":"lookup","arguments":{"customer":"c-20417","region":"north"},"reason":"verify the address first"}"#;
const OUTPUT: &str = r#"{"status":"ok","address":"12 Harbour Lane, Westhaven","verified":true,"score":0.97,"source":"register"}"#;

/// The run with a number.
pub fn id(number: u64) -> Result<StreamId, Error> {
    Ok(StreamId::run(&format!("order-{number:07}"))?)
}

/// The first event of every run.
pub fn created() -> NewEvent {
    NewEvent::new(Kind::RunCreated)
        .with_fields(Fields::new().with(field::AGENT, "support"))
        .with_input(NewPayload::json(INPUT))
}

/// The event before or after the work of a step: both take turns.
pub fn step(number: u64) -> NewEvent {
    let fields = Fields::new().with(1, "lookup-address").with(2, number / 2);
    match number.is_multiple_of(2) {
        true => NewEvent::new(Kind::StepIntended)
            .with_fields(fields)
            .with_input(NewPayload::json(INPUT)),
        false => NewEvent::new(Kind::StepSucceeded)
            .with_fields(fields)
            .with_output(NewPayload::json(OUTPUT)),
    }
}

/// A run of so many events that goes on.
pub fn unfinished(events: u64) -> Vec<NewEvent> {
    let begin = [created(), NewEvent::new(Kind::RunStarted)];
    let steps = (0..events.saturating_sub(2)).map(step);
    begin.into_iter().chain(steps).collect()
}

/// A run of so many events that has ended.
pub fn finished(events: u64) -> Vec<NewEvent> {
    let mut run = unfinished(events - 1);
    run.push(NewEvent::new(Kind::RunCompleted).with_output(NewPayload::json(OUTPUT)));
    run
}
