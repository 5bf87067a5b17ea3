//! Events of another store: taken over as they are, whole, and held back until all are there.

use dalsegno_store::payload::{self, Piece};
use dalsegno_store::transfer::{self, Export, Importing};
use dalsegno_store::{
    Body, Claim, ContentType, Event, Fields, Foreign, Kind, Payload, Status, StoreError, StreamId,
    StreamKind, Version, field,
};

use crate::world::*;

listed! { foreign_contract in foreign:
    what_is_taken_over_keeps_its_bytes_and_hashes,
    what_does_not_follow_is_refused_as_a_whole,
    a_run_is_claimed_only_when_all_of_it_is_here,
    a_file_is_written_and_read,
}

/// The events of a run elsewhere: created, a timer, a payload, and the end if that is wanted.
fn elsewhere(name: &str, ends: bool) -> (Foreign, Vec<Piece>) {
    let stream = run(name);
    let bytes = b"large ".repeat(20_000);
    let split = payload::split(&bytes, |_| false);
    let mut events = Vec::new();
    let mut head = Version::START;
    let mut add = |kind: Kind, fields: Fields, input: Option<Payload>| {
        let sequence = head.sequence + 1;
        let mut event = Event::new(stream.clone(), sequence, 100 + sequence, 7, kind);
        event.fields = fields;
        event.input = input;
        let bytes = event.encode();
        head = head.after(&bytes);
        events.push(bytes);
    };
    let agent = Fields::new().with(field::AGENT, "writer");
    add(Kind::RunCreated, agent.with(field::QUEUE, "slow"), None);
    let timer = Fields::new().with(field::TIMER, "tea").with(field::DUE, 9);
    add(Kind::TimerSet, timer, None);
    let stored = Payload {
        content_type: ContentType::from("x/y"),
        body: Body::Stored {
            root: split.root,
            bytes: bytes.len() as u64,
        },
    };
    add(Kind::User("saw".into()), Fields::new(), Some(stored));
    if ends {
        add(Kind::RunCompleted, Fields::new(), None);
    }
    let foreign = Foreign {
        original: stream.clone(),
        stream,
        after: Version::START,
        events,
        head,
    };
    (foreign, split.pieces)
}

pub async fn what_is_taken_over_keeps_its_bytes_and_hashes(mut world: World) {
    let (open, pieces) = elsewhere("open", false);
    let (ended, _) = elsewhere("ended", true);
    let both = vec![open.clone(), ended.clone()];
    let position = world.take_over(pieces, both).await.unwrap();
    world.durable(position).await.unwrap();
    for _ in 0..2 {
        for foreign in [&open, &ended] {
            let read = all(&*world, &foreign.stream).await;
            let bytes: Vec<Vec<u8>> = read.iter().map(|r| r.event.encode()).collect();
            assert_eq!(bytes, foreign.events);
            assert_eq!(read.last().unwrap().hash, foreign.head.hash);
            let head = world.head(&foreign.stream).await.unwrap();
            assert_eq!(head, Some(foreign.head));
            let payload = read[2].event.input.as_ref().unwrap();
            let content = world.payload(payload).await.unwrap();
            assert_eq!(content, b"large ".repeat(20_000));
        }
        let listed = world.runs(&Default::default()).await.unwrap();
        let status: Vec<_> = listed.iter().map(|run| run.status).collect();
        assert_eq!(status, [Status::Completed, Status::Pending]);
        assert_eq!(listed[1].agent.as_deref(), Some("writer"));
        let due = world.timers_due(10, 10).await.unwrap();
        assert_eq!(due.len(), 1, "that of the run which has ended is gone");
        world.reopen();
    }
    // It goes on from there, with a clock that is later.
    append(&*world, &open.stream, vec![noted(1)]).await;
    let last = all(&*world, &open.stream).await.pop().unwrap();
    assert_eq!(last.event.sequence, 4);
    assert!(last.event.clock > 103, "{}", last.event.clock);
    // Who took it over is in the store's own stream.
    let own = all(&*world, &StreamId::store()).await;
    let notes = own.iter().filter(|r| r.event.kind == Kind::Imported);
    assert_eq!(notes.count(), 2);
}

pub async fn what_does_not_follow_is_refused_as_a_whole(world: World) {
    let (good, pieces) = elsewhere("good", false);
    let (mut other, _) = elsewhere("other", false);
    for wrong in 0..4 {
        let (mut bad, _) = elsewhere("bad", true);
        match wrong {
            // It is not here up to there.
            0 => bad.after = good.head,
            // One is missing.
            1 => drop(bad.events.remove(1)),
            // One is of another stream.
            2 => bad.events[1] = other.events.swap_remove(1),
            // One is nothing.
            _ => bad.events[1] = b"nothing".to_vec(),
        }
        let refused = world
            .take_over(pieces.clone(), vec![good.clone(), bad])
            .await;
        let refused = refused.unwrap_err();
        assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
        for kind in [StreamKind::Run, StreamKind::Memory] {
            assert_eq!(world.streams(kind, None, 0).await.unwrap(), []);
        }
    }
}

pub async fn a_run_is_claimed_only_when_all_of_it_is_here(world: World) {
    let (whole, pieces) = elsewhere("run", false);
    let mut first = whole.clone();
    let rest = first.events.split_off(1);
    first.head = Version::START.after(&first.events[0]);
    let second = Foreign {
        after: first.head,
        events: rest,
        ..whole.clone()
    };
    let claim = Claim {
        owner: "worker".into(),
        for_us: 1_000_000,
        limit: 10,
        ..Claim::default()
    };
    for part in [first, second] {
        world.take_over(pieces.clone(), vec![part]).await.unwrap();
        if world.is_shared() {
            assert_eq!(world.claim(&claim).await.unwrap(), []);
        }
    }
    world
        .let_go_on(std::slice::from_ref(&whole.stream))
        .await
        .unwrap();
    let claimed = world.claim(&claim).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].0, whole.stream);
}

pub async fn a_file_is_written_and_read(world: World) {
    let (open, pieces) = elsewhere("open", false);
    world.take_over(pieces, vec![open.clone()]).await.unwrap();
    let mut file = Vec::new();
    let what = Export::Streams([open.stream.clone()].into());
    let report = transfer::export(&*world, &what, 5, &mut file).await;
    assert_eq!(report.unwrap().streams[&open.stream], open.head);
    let other = run("other");
    let how = Importing {
        rename: Some(&other),
        ..Importing::default()
    };
    let imported = transfer::import(&*world, &how, || Ok(&file[..])).await;
    assert_eq!(imported.unwrap().events, 3);
    assert_eq!(all(&*world, &other).await.len(), 3);
    let again = transfer::import(&*world, &Importing::default(), || Ok(&file[..])).await;
    assert_eq!(again.unwrap().present, [open.stream]);
}
