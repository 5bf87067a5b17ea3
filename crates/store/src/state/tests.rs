//! The fold: what events come to, and that no event can break more than its own run.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::event::LetterRef;
use crate::fields::Fields;

fn run() -> StreamId {
    StreamId::run("r").unwrap()
}

/// Applies events of these kinds to one run, as they come.
fn apply(kinds: &[(Kind, Fields)]) -> State {
    let mut state = State::default();
    for (i, (kind, fields)) in kinds.iter().enumerate() {
        let n = i as u64 + 1;
        let mut event = Event::new(run(), n, n, 1000 + n, kind.clone());
        event.fields = fields.clone();
        state.apply(&event, &event.encode());
    }
    state
}

fn bare(kinds: &[Kind]) -> Vec<(Kind, Fields)> {
    kinds.iter().map(|k| (k.clone(), Fields::new())).collect()
}

#[test]
fn a_run_goes_through_its_life_and_leaves() {
    let life = [
        Kind::RunCreated,
        Kind::RunStarted,
        Kind::RunCheckpointed,
        Kind::RunStarted,
        Kind::RunCompleted,
    ];
    let statuses = [
        Status::Pending,
        Status::Running,
        Status::Checkpointed,
        Status::Running,
    ];
    for (i, status) in statuses.iter().enumerate() {
        let state = apply(&bare(&life[..=i]));
        assert_eq!(state.streams[&run()].status, Some(*status));
        assert_eq!(state.streams[&run()].attention, None);
    }
    let state = apply(&bare(&life));
    assert!(state.streams.is_empty());
    assert_eq!(state.clock, 5);
}

#[test]
fn an_event_that_makes_no_sense_stops_its_own_run_only() {
    for nonsense in [
        bare(&[Kind::RunStarted]),
        bare(&[Kind::RunCreated, Kind::RunCreated]),
        bare(&[Kind::RunCreated, Kind::LeaseTaken]),
        bare(&[Kind::RunCreated, Kind::LeaseReleased]),
        bare(&[Kind::StepIntended]),
        bare(&[Kind::RunCreated, Kind::TimerSet]),
        bare(&[Kind::RunCreated, Kind::Unknown(MUST_UNDERSTAND_ONE)]),
    ] {
        let state = apply(&nonsense);
        let stream = &state.streams[&run()];
        assert!(stream.attention.is_some(), "{nonsense:?}");
        assert_eq!(stream.head.sequence, nonsense.len() as u64);
    }
}

const MUST_UNDERSTAND_ONE: u64 = crate::kind::MUST_UNDERSTAND + 1;

#[test]
fn a_newer_kind_that_may_be_skipped_is() {
    let state = apply(&bare(&[
        Kind::RunCreated,
        Kind::Unknown(4711),
        Kind::RunStarted,
    ]));
    assert_eq!(state.streams[&run()].attention, None);
    assert_eq!(state.streams[&run()].status, Some(Status::Running));
}

fn lease(token: u64, until: u64) -> Fields {
    Fields::new()
        .with(field::OWNER, "worker")
        .with(field::TOKEN, token)
        .with(field::UNTIL, until)
}

#[test]
fn tokens_only_rise() {
    let state = apply(&[
        (Kind::RunCreated, Fields::new()),
        (Kind::LeaseTaken, lease(1, 10)),
        (Kind::LeaseReleased, lease(1, 0)),
        (Kind::LeaseTaken, lease(2, 30)),
    ]);
    let stream = &state.streams[&run()];
    assert_eq!(stream.attention, None);
    assert_eq!(
        stream.lease.as_ref().map(|l| (l.token, l.until_us)),
        Some((2, 30))
    );
    let state = apply(&[
        (Kind::RunCreated, Fields::new()),
        (Kind::LeaseTaken, lease(2, 10)),
        (Kind::LeaseTaken, lease(2, 20)),
    ]);
    assert!(state.streams[&run()].attention.is_some());
}

#[test]
fn an_event_is_taken_in_once() {
    let mut state = apply(&bare(&[Kind::RunCreated]));
    let before = state.clone();
    let first = Event::new(run(), 1, 1, 1001, Kind::RunCreated);
    assert_eq!(state.apply(&first, &first.encode()), Applied::Before);
    assert_eq!(state, before);
}

#[test]
fn a_stream_with_a_hole_is_broken_and_says_so() {
    let mut state = apply(&bare(&[Kind::RunCreated]));
    let fourth = Event::new(run(), 4, 4, 0, Kind::RunStarted);
    state.apply(&fourth, &fourth.encode());
    let stream = &state.streams[&run()];
    assert!(stream.broken);
    assert_eq!(
        stream.attention.as_deref(),
        Some("events 2 to 3 are missing")
    );
    assert_eq!(State::decode(&state.encode()).unwrap(), state);
}

fn own(sequence: u64, clock: u64, kind: Kind, fields: Fields) -> Event {
    let mut event = Event::new(StreamId::store(), sequence, clock, 0, kind);
    event.fields = fields;
    event
}

#[test]
fn retired_runs_are_gone_whatever_is_left_of_them() {
    // The end of the run was removed from the log, its beginning not yet.
    let mut state = apply(&[
        (Kind::RunCreated, Fields::new()),
        (
            Kind::TimerSet,
            Fields::new().with(field::TIMER, "t").with(field::DUE, 9),
        ),
    ]);
    let fields = Fields::new()
        .with(
            field::RUNS,
            Value::List(vec!["run/r".into(), 1.into(), "".into()]),
        )
        .with(field::PIECES_FROM, 40);
    let retired = own(1, 9, Kind::RunsRetired, fields);
    state.apply(&retired, &retired.encode());
    assert!(!state.streams.contains_key(&run()));
    assert!(state.due.is_empty());
    assert!(state.retiring.contains(&run()));
    assert_eq!(state.pieces_from, 40);
    assert_eq!(State::decode(&state.encode()).unwrap(), state);
    // What the letters were is repeated, and replaces what there is.
    let mut letter = own(2, 10, Kind::LetterRefused, Fields::new());
    let (sender, number) = ("gone".to_owned(), 4);
    letter.letter = Some(LetterRef { sender, number });
    state.apply(&letter, &letter.encode());
    let taken = Taken {
        number: 7,
        clock: 3,
    }
    .to_value("kept");
    let fields = Fields::new().with(field::LETTERS, Value::List(vec![taken, "nonsense".into()]));
    let letters = own(3, 11, Kind::RunsRetired, fields.clone());
    state.apply(&letters, &letters.encode());
    assert_eq!(
        (state.last_letter("gone"), state.last_letter("kept")),
        (0, 7)
    );
    let taken = Taken {
        number: 8,
        clock: 4,
    }
    .to_value("more");
    let fields = Fields::new()
        .with(field::LETTERS, Value::List(vec![taken]))
        .with(field::MORE_LETTERS, 1);
    let letters = own(4, 12, Kind::RunsRetired, fields);
    state.apply(&letters, &letters.encode());
    assert_eq!(
        (state.last_letter("kept"), state.last_letter("more")),
        (7, 8)
    );
    let done = own(5, 13, Kind::SpaceReclaimed, Fields::new());
    state.apply(&done, &done.encode());
    assert!(state.retiring.is_empty());
}

#[test]
fn only_so_many_senders_are_remembered_and_the_oldest_go_first() {
    let mut state = State::default();
    for n in 1..=SENDERS_LIMIT as u64 + 1 {
        let mut event = own(n, n, Kind::LetterRefused, Fields::new());
        let sender = format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        event.letter = Some(LetterRef { sender, number: n });
        state.apply(&event, &event.encode());
    }
    assert_eq!(state.letters.len(), SENDERS_LIMIT);
    assert_eq!(
        state.last_letter(&format!("{:016x}", 0x9e37_79b9_7f4a_7c15u64)),
        0
    );
}

#[test]
fn the_state_survives_being_written_and_read() {
    let mut state = apply(&[
        (Kind::RunCreated, Fields::new().with(field::AGENT, "writer")),
        (Kind::LeaseTaken, lease(7, 10)),
        (
            Kind::TimerSet,
            Fields::new().with(field::TIMER, "t").with(field::DUE, 99),
        ),
        (
            Kind::AttentionRaised,
            Fields::new().with(field::REASON, "in doubt"),
        ),
    ]);
    let mut event = Event::new(
        StreamId::memory("m").unwrap(),
        1,
        5,
        2000,
        Kind::FactConfirmed,
    );
    event.letter = Some(LetterRef {
        sender: "cli".into(),
        number: 3,
    });
    state.apply(&event, &event.encode());
    let bytes = state.encode();
    let read = State::decode(&bytes).unwrap();
    assert_eq!(read, state);
    assert_eq!(read.digest(), state.digest());
    for at in 0..bytes.len() {
        assert!(State::decode(&bytes[..at]).is_err());
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        if let Ok(other) = State::decode(&changed) {
            assert_ne!(other, state);
        }
    }
}
