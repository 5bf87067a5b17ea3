//! Streams: appending where one thinks they are, and reading them.

use dalsegno_store::{Append, Event, EventRef, Kind, NewPayload, StoreError, Version};

use crate::world::*;

listed! { streams_contract in streams:
    a_stream_begins_with_its_first_append,
    an_append_at_the_right_place_is_taken,
    an_append_at_the_wrong_place_shows_where_the_stream_is,
    an_append_without_a_place_goes_to_the_end,
    an_empty_append_says_where_the_streams_are,
    sequences_and_clocks_rise,
    every_part_of_an_event_is_kept,
    a_range_is_read,
    a_range_is_read_across_old_and_new_history,
    kinds_of_the_users_own_are_kept,
    kinds_of_newer_versions_are_kept_but_not_if_they_must_be_understood,
    a_kind_by_its_number_is_that_kind,
    what_could_not_be_read_again_is_refused,
    only_the_store_writes_its_own_stream,
    everything_is_there_when_opened_again,
    threads_lose_no_update,
}

pub async fn a_stream_begins_with_its_first_append(world: World) {
    let notes = memory("notes");
    assert_eq!(world.head(&notes).await.unwrap(), None);
    assert!(world.read(&notes, 1, 10).await.unwrap().is_empty());
    let append = Append::to(notes.clone(), vec![noted(1)]).expecting(0);
    let appended = world.append(vec![append]).await.unwrap();
    world.durable(appended.position).await.unwrap();
    let events = all(&*world, &notes).await;
    assert_eq!(events.len(), 1);
    assert_eq!(appended.heads.len(), 1);
    assert_eq!(appended.heads[0].hash, events[0].hash);
    assert_eq!(events[0].event.time_us, BEGINNING_US);
    assert_eq!(world.position().await.unwrap(), appended.position);
}

pub async fn an_append_at_the_right_place_is_taken(world: World) {
    let notes = memory("notes");
    for at in 0..20 {
        let append = Append::to(notes.clone(), vec![noted(at)]).expecting(at);
        let appended = world.append(vec![append]).await.unwrap();
        assert_eq!(appended.heads[0].sequence, at + 1);
    }
    let events = all(&*world, &notes).await;
    for (number, recorded) in events.iter().enumerate() {
        assert_eq!(recorded.event.fields.number(1), Some(number as u64));
    }
}

pub async fn an_append_at_the_wrong_place_shows_where_the_stream_is(world: World) {
    let (notes, order) = (memory("notes"), create(&*world, "order").await);
    append(&*world, &notes, vec![noted(1), noted(2)]).await;
    append(&*world, &order, vec![event(Kind::RunCompleted)]).await;
    for (stream, at) in [(&notes, 2), (&order, 2), (&memory("new"), 0)] {
        let there = world.head(stream).await.unwrap();
        for wrong in [0, 1, 2, 3, u64::MAX] {
            if wrong == at {
                continue;
            }
            let append = Append::to(stream.clone(), vec![noted(3)]).expecting(wrong);
            match refused(&*world, vec![append]).await {
                StoreError::Conflict {
                    stream: found,
                    expected,
                    head,
                } => {
                    assert_eq!((&found, expected), (stream, wrong));
                    assert_eq!(head, there.unwrap_or(Version::START));
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!(world.head(stream).await.unwrap(), there);
    }
}

pub async fn an_append_without_a_place_goes_to_the_end(world: World) {
    let notes = memory("notes");
    for at in 0..5 {
        let appended = append(&*world, &notes, vec![noted(at)]).await;
        assert_eq!(appended.heads[0].sequence, at + 1);
    }
}

pub async fn an_empty_append_says_where_the_streams_are(world: World) {
    let notes = memory("notes");
    let first = append(&*world, &notes, vec![noted(1)]).await;
    let nothing = world.append(vec![]).await.unwrap();
    assert!(nothing.heads.is_empty());
    assert_eq!(nothing.position, first.position);
    let none = Append::to(notes.clone(), vec![]);
    let unknown = Append::to(memory("unknown"), vec![]);
    let appended = world.append(vec![none.clone(), unknown]).await.unwrap();
    assert_eq!(appended.heads, [first.heads[0], Version::START]);
    assert_eq!(appended.position, first.position);
    world.durable(appended.position).await.unwrap();
    assert_eq!(world.head(&memory("unknown")).await.unwrap(), None);
    let error = refused(&*world, vec![none.expecting(7)]).await;
    assert!(error.is_conflict(), "{error}");
}

pub async fn sequences_and_clocks_rise(world: World) {
    let streams = ["a", "b", "c"].map(memory);
    let mut last = 0;
    for round in 0..30 {
        let stream = &streams[round % 3];
        let events = (0..round as u64 % 4 + 1).map(noted).collect();
        let appended = append(&*world, stream, events).await;
        assert!(appended.position > last);
        last = appended.position;
    }
    let mut clocks = Vec::new();
    for stream in &streams {
        let events = all(&*world, stream).await;
        assert!(events.is_sorted_by(|a, b| a.event.clock < b.event.clock));
        clocks.extend(events.iter().map(|recorded| recorded.event.clock));
    }
    clocks.sort_unstable();
    assert!(clocks.is_sorted_by(|a, b| a < b), "a clock stood still");
}

pub async fn every_part_of_an_event_is_kept(mut world: World) {
    let notes = memory("notes");
    let seen = append(&*world, &notes, vec![noted(1)]).await.heads[0];
    let mut full = noted(u64::MAX);
    full.memory = Some(seen);
    full.input = Some(NewPayload::json("{}"));
    full.output = Some(NewPayload::new("text/plain", "häßlich"));
    full.sources = vec!["a page".into(), String::new()];
    full.cause = Some(EventRef {
        stream: notes.clone(),
        sequence: 1,
    });
    world.clock.pass_us(5);
    append(&*world, &notes, vec![full.clone()]).await;
    for _ in 0..2 {
        let events = all(&*world, &notes).await;
        let event: &Event = &events[1].event;
        assert_eq!(event.memory, full.memory);
        assert_eq!(event.sources, full.sources);
        assert_eq!(event.cause, full.cause);
        assert_eq!(event.fields, full.fields);
        assert_eq!(event.time_us, BEGINNING_US + 5);
        assert_eq!(event.letter, None);
        let input = event.input.as_ref().unwrap();
        assert_eq!(input.content_type, "application/json");
        assert_eq!(world.payload(input).await.unwrap(), b"{}");
        let output = event.output.as_ref().unwrap();
        let bytes = world.payload(output).await.unwrap();
        assert_eq!(bytes, "häßlich".as_bytes());
        world.reopen();
    }
}

/// Reads every range around the edges of a stream with events 1 to 12.
async fn check_ranges(world: &World, stream: &dalsegno_store::StreamId) {
    let whole = all(&**world, stream).await;
    assert_eq!(whole.len(), 12);
    for from in [0, 1, 2, 6, 7, 11, 12, 13, 14, u64::MAX] {
        for limit in [0, 1, 2, 5, 6, 12, 13, 1000, usize::MAX] {
            let found = world.read(stream, from, limit).await.unwrap();
            let from = usize::try_from(from.max(1) - 1).unwrap();
            let wanted: Vec<_> = whole.iter().skip(from).take(limit).cloned().collect();
            assert_eq!(found, wanted, "from {from}, at most {limit}");
            let events = world.events(stream, from as u64 + 1, limit).await.unwrap();
            let wanted: Vec<_> = wanted.into_iter().map(|recorded| recorded.event).collect();
            assert_eq!(events, wanted, "from {from}, at most {limit}");
        }
    }
}

pub async fn a_range_is_read(world: World) {
    let notes = memory("notes");
    append(&*world, &notes, (0..12).map(noted).collect()).await;
    check_ranges(&world, &notes).await;
}

pub async fn a_range_is_read_across_old_and_new_history(mut world: World) {
    let (notes, others) = (memory("notes"), memory("others"));
    for (round, upto) in [(1, 3), (2, 6), (3, 7), (4, 12)] {
        let at = world.head(&notes).await.unwrap().map_or(0, |h| h.sequence);
        append(&*world, &notes, (at..upto).map(noted).collect()).await;
        append(&*world, &others, vec![noted(round)]).await;
        if round < 4 {
            world.settle();
        }
        if round == 2 {
            // Nothing of the stream is in this piece of history.
            append(&*world, &others, vec![noted(round)]).await;
            world.settle();
        }
    }
    check_ranges(&world, &notes).await;
    world.reopen();
    check_ranges(&world, &notes).await;
    world.settle();
    check_ranges(&world, &notes).await;
}

pub async fn kinds_of_the_users_own_are_kept(mut world: World) {
    let order = create(&*world, "order").await;
    for name in ["x", "höflich", "a kind/with 😀"] {
        append(&*world, &order, vec![event(Kind::User(name.into()))]).await;
    }
    for bad in ["", "a\nb", &"x".repeat(201)] {
        let append = Append::to(order.clone(), vec![event(Kind::User(bad.into()))]);
        let error = refused(&*world, vec![append]).await;
        assert!(matches!(error, StoreError::Name(_)), "{error}");
    }
    world.reopen();
    let events = all(&*world, &order).await;
    assert_eq!(events[2].event.kind, Kind::User("höflich".into()));
    assert_eq!(events.len(), 4);
}

pub async fn kinds_of_newer_versions_are_kept_but_not_if_they_must_be_understood(mut world: World) {
    let order = create(&*world, "order").await;
    append(&*world, &order, vec![event(Kind::Unknown(0x7fff))]).await;
    let must = Append::to(order.clone(), vec![event(Kind::Unknown(0x8000))]);
    let error = refused(&*world, vec![must]).await;
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("newer"), "{error}");
    append(&*world, &order, vec![noted(1)]).await;
    world.reopen();
    let events = all(&*world, &order).await;
    assert_eq!(events[1].event.kind, Kind::Unknown(0x7fff));
    assert_eq!(events.len(), 3);
}

/// Whoever writes a known kind by its number means that kind, before and after opening again.
pub async fn a_kind_by_its_number_is_that_kind(mut world: World) {
    let order = create(&*world, "order").await;
    let number = Kind::RunCompleted.number().unwrap();
    append(&*world, &order, vec![event(Kind::Unknown(number))]).await;
    let more = Append::to(order.clone(), vec![noted(1)]);
    for _ in 0..2 {
        let error = refused(&*world, vec![more.clone()]).await;
        assert!(matches!(error, StoreError::Ended { .. }), "{error}");
        let events = all(&*world, &order).await;
        assert_eq!(events[1].event.kind, Kind::RunCompleted);
        world.reopen();
    }
}

pub async fn what_could_not_be_read_again_is_refused(mut world: World) {
    use dalsegno_store::{Fields, Value};
    let order = create(&*world, "order").await;
    let mut deep = Value::List(vec![]);
    for _ in 0..200 {
        deep = Value::List(vec![deep]);
    }
    for value in [deep, Value::Other(vec![0xff]), Value::Other(vec![])] {
        let fields = Fields::new().with(1, value);
        let event = noted(1).with_fields(fields);
        let error = refused(&*world, vec![Append::to(order.clone(), vec![event])]).await;
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    }
    append(&*world, &order, vec![noted(2)]).await;
    world.reopen();
    assert_eq!(all(&*world, &order).await.len(), 2);
}

pub async fn only_the_store_writes_its_own_stream(world: World) {
    let own = dalsegno_store::StreamId::store();
    for events in [vec![], vec![noted(1)], vec![event(Kind::RunsRetired)]] {
        let error = refused(&*world, vec![Append::to(own.clone(), events)]).await;
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    }
    let other = "store/other".parse().unwrap();
    let error = refused(&*world, vec![Append::to(other, vec![noted(1)])]).await;
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
}

pub async fn everything_is_there_when_opened_again(mut world: World) {
    let streams = ["a", "b"].map(memory);
    let mut before = Vec::new();
    for round in 0..3 {
        for stream in &streams {
            let large = noted(round).with_input(NewPayload::json("x".repeat(9000)));
            append(&*world, stream, vec![noted(round), large]).await;
        }
        before = Vec::new();
        for stream in &streams {
            before.push(all(&*world, stream).await);
        }
        world.reopen();
        for (stream, before) in streams.iter().zip(&before) {
            assert_eq!(all(&*world, stream).await, *before);
        }
    }
    assert_eq!(before[0].len(), 6);
}

pub async fn threads_lose_no_update(world: World) {
    const THREADS: u64 = 8;
    const EACH: u64 = 40;
    let counter = memory("counter");
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let (store, counter) = (world.store(), counter.clone());
            scope.spawn(move || block_on(add_up(&*store, &counter, EACH)));
        }
    });
    let events = all(&*world, &counter).await;
    let sums: Vec<_> = events.iter().map(|e| e.event.fields.number(1)).collect();
    let wanted: Vec<_> = (1..=THREADS * EACH).map(Some).collect();
    assert_eq!(sums, wanted);
}

/// Reads the last number, and adds one that is greater by one: `times` times.
async fn add_up(store: &dyn dalsegno_store::Store, counter: &dalsegno_store::StreamId, times: u64) {
    for _ in 0..times {
        loop {
            let head = store.head(counter).await.unwrap();
            let at = head.map_or(0, |head| head.sequence);
            let last = store.read(counter, at, 1).await.unwrap();
            let last = last.first().and_then(|last| last.event.fields.number(1));
            let next = noted(last.unwrap_or(0) + 1);
            let append = Append::to(counter.clone(), vec![next]).expecting(at);
            match store.append(vec![append]).await {
                Ok(appended) => break store.durable(appended.position).await.unwrap(),
                Err(e) => assert!(e.is_conflict(), "{e}"),
            }
        }
    }
}
