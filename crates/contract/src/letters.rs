//! Letters: what other processes say to a stream becomes an event of it, once and in order.

use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{Fields, Kind, StoreError, StreamId};

use crate::world::*;

listed! { letters_contract in letters:
    a_letter_becomes_an_event_of_its_stream,
    a_letter_is_taken_once,
    the_letters_of_a_sender_are_taken_in_order,
    many_and_large_letters_are_all_taken_at_once,
    what_no_letter_can_say_is_refused_when_sent,
    a_letter_that_its_stream_does_not_take_is_told_to_the_store,
    a_letter_that_is_too_large_for_the_store_is_refused,
}

fn letter(to: &StreamId, number: u64) -> NewLetter {
    let mut letter = NewLetter::new(to.clone(), Kind::SignalReceived, 7);
    letter.fields = Fields::new().with(1, number);
    letter
}

pub async fn a_letter_becomes_an_event_of_its_stream(mut world: World) {
    let order = create(&*world, "order").await;
    let mut said = letter(&order, 42);
    said.payload = Some(("text/plain".into(), b"paid".to_vec()));
    let sent = world.send(&said).await.unwrap();
    assert!(!world.is_taken(&sent).await.unwrap());
    let taken = world.take_letters().await.unwrap();
    assert!(
        taken.refused.is_empty() && taken.bad.is_empty(),
        "{taken:?}"
    );
    let [(from, became)] = &taken.taken[..] else {
        panic!("{taken:?}");
    };
    assert_eq!((from, became.sequence), (&sent, 2));
    assert_eq!(became.stream, order);
    assert!(world.is_taken(&sent).await.unwrap());
    for _ in 0..2 {
        let events = all(&*world, &order).await;
        let event = &events[1].event;
        assert_eq!(event.kind, Kind::SignalReceived);
        assert_eq!(event.fields, said.fields);
        assert_eq!(event.letter.as_ref(), Some(&sent));
        let input = event.input.as_ref().unwrap();
        assert_eq!(input.content_type, "text/plain");
        assert_eq!(world.payload(input).await.unwrap(), b"paid");
        world.reopen();
    }
}

pub async fn a_letter_is_taken_once(mut world: World) {
    let order = create(&*world, "order").await;
    world.send(&letter(&order, 1)).await.unwrap();
    assert_eq!(world.take_letters().await.unwrap().taken.len(), 1);
    assert_eq!(world.take_letters().await.unwrap(), Default::default());
    world.send(&letter(&order, 2)).await.unwrap();
    world.reopen();
    assert_eq!(world.take_letters().await.unwrap().taken.len(), 1);
    world.reopen();
    assert_eq!(world.take_letters().await.unwrap(), Default::default());
    assert_eq!(all(&*world, &order).await.len(), 3);
}

pub async fn the_letters_of_a_sender_are_taken_in_order(world: World) {
    let streams = [create(&*world, "a").await, create(&*world, "b").await];
    for number in 0..30 {
        let to = &streams[number as usize % 2];
        world.send(&letter(to, number)).await.unwrap();
    }
    let taken = world.take_letters().await.unwrap().taken;
    assert_eq!(taken.len(), 30);
    let mut last_clock = 0;
    for number in 0..30 {
        let events = all(&*world, &streams[number % 2]).await;
        let event = &events[1 + number / 2].event;
        assert_eq!(event.fields.number(1), Some(number as u64));
        assert!(event.clock > last_clock);
        last_clock = event.clock;
    }
}

/// More than one batch, by count and by size.
pub async fn many_and_large_letters_are_all_taken_at_once(world: World) {
    let order = create(&*world, "order").await;
    for number in 0..18 {
        let mut large = letter(&order, number);
        large.payload = Some(("text/plain".into(), vec![number as u8; 1_000_000]));
        world.send(&large).await.unwrap();
    }
    for number in 18..300 {
        world.send(&letter(&order, number)).await.unwrap();
    }
    let taken = world.take_letters().await.unwrap();
    assert_eq!(taken.taken.len(), 300);
    let events = all(&*world, &order).await;
    let numbers = events[1..].iter().map(|e| e.event.fields.number(1));
    assert!(numbers.eq((0..300).map(Some)));
}

pub async fn what_no_letter_can_say_is_refused_when_sent(world: World) {
    let order = create(&*world, "order").await;
    let allowed = [
        Kind::SignalReceived,
        Kind::ApprovalAnswered,
        Kind::CancelRequested,
        Kind::StepResolved,
        Kind::AttentionCleared,
        Kind::BudgetSet,
    ];
    let mut sent = 0;
    for kind in Kind::ALL.iter().chain(&[Kind::Unknown(0x7ffe)]) {
        let said = NewLetter::new(order.clone(), kind.clone(), 0);
        match world.send(&said).await {
            Ok(_) => sent += u64::from(allowed.contains(kind)),
            Err(StoreError::Refused { .. }) => assert!(!allowed.contains(kind)),
            Err(e) => panic!("{e}"),
        }
    }
    let own = NewLetter::new(order.clone(), Kind::User("own".into()), 0);
    world.send(&own).await.unwrap();
    assert_eq!(sent, allowed.len() as u64);
    let taken = world.take_letters().await.unwrap().taken;
    assert_eq!(taken.len(), allowed.len() + 1);
}

pub async fn a_letter_that_its_stream_does_not_take_is_told_to_the_store(mut world: World) {
    let order = create(&*world, "order").await;
    append(&*world, &order, vec![event(Kind::RunCompleted)]).await;
    let unknown = run("unknown");
    let going_on = create(&*world, "going-on").await;
    let mut refs = Vec::new();
    for to in [&order, &unknown, &StreamId::store(), &going_on] {
        refs.push(world.send(&letter(to, 1)).await.unwrap());
    }
    let taken = world.take_letters().await.unwrap();
    assert_eq!(taken.taken.len(), 1);
    let refused: Vec<_> = taken.refused.iter().map(|(letter, _)| letter).collect();
    assert_eq!(refused, [&refs[0], &refs[1], &refs[2]]);
    assert!(taken.refused[0].1.contains("completed"), "{taken:?}");
    for sent in &refs {
        assert!(world.is_taken(sent).await.unwrap());
    }
    world.reopen();
    assert_eq!(world.take_letters().await.unwrap(), Default::default());
    assert_eq!(world.head(&unknown).await.unwrap(), None);
    let told = all(&*world, &StreamId::store()).await;
    assert_eq!(told.len(), 3);
    for (recorded, sent) in told.iter().zip(&refs) {
        assert_eq!(recorded.event.kind, Kind::LetterRefused);
        assert_eq!(recorded.event.letter.as_ref(), Some(sent));
    }
    assert_eq!(told[1].event.fields.text(1), Some("run/unknown"));
}

pub async fn a_letter_that_is_too_large_for_the_store_is_refused(world: World) {
    let order = create(&*world, "order").await;
    let mut wordy = letter(&order, 1);
    wordy.fields = Fields::new().with(1, "x".repeat(100_000).as_str());
    world.send(&wordy).await.unwrap();
    let mut odd = letter(&order, 2);
    odd.payload = Some(("x".repeat(201).into(), vec![]));
    world.send(&odd).await.unwrap();
    let own = NewLetter::new(order.clone(), Kind::User("a\nb".into()), 0);
    world.send(&own).await.unwrap();
    world.send(&letter(&order, 3)).await.unwrap();
    let taken = world.take_letters().await.unwrap();
    assert_eq!((taken.taken.len(), taken.refused.len()), (1, 3));
    assert_eq!(all(&*world, &order).await.len(), 2);
}
