//! Seeing that something was added: positions, waiting for change, following a stream.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dalsegno_store::{Follow, Kind, StoreError};

use crate::world::*;

listed! { changes_contract in changes:
    a_change_that_was_missed_is_answered_at_once,
    whoever_waits_is_woken,
    nobody_is_woken_for_nothing,
    a_stream_is_followed_from_anywhere,
    who_follows_a_stream_sees_each_event_once,
    who_follows_is_not_given_what_is_of_other_streams,
}

/// Long enough for a machine that is very busy.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn a_change_that_was_missed_is_answered_at_once(world: World) {
    let before = world.position().await.unwrap();
    let notes = memory("notes");
    let appended = append(&*world, &notes, vec![noted(1)]).await;
    assert_eq!(world.changed(before).await.unwrap(), appended.position);
    assert!(appended.position > before);
}

pub async fn whoever_waits_is_woken(world: World) {
    let before = world.position().await.unwrap();
    let (done, woken) = std::sync::mpsc::channel();
    for _ in 0..3 {
        let (store, done) = (world.store(), done.clone());
        std::thread::spawn(move || {
            let position = block_on(store.changed(before));
            done.send(position.unwrap()).unwrap();
        });
    }
    append(&*world, &memory("notes"), vec![noted(1)]).await;
    for _ in 0..3 {
        assert!(woken.recv_timeout(PATIENCE).unwrap() > before);
    }
}

pub async fn nobody_is_woken_for_nothing(world: World) {
    let now = append(&*world, &memory("notes"), vec![noted(1)]).await;
    let store = world.store();
    let mut waiting = store.changed(now.position);
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    let nothing = world.append(vec![]).await.unwrap();
    assert_eq!(nothing.position, now.position);
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    append(&*world, &memory("other"), vec![noted(1)]).await;
    match waiting.as_mut().poll(&mut context) {
        Poll::Ready(Ok(position)) => assert!(position > now.position),
        other => panic!("{other:?}"),
    }
}

pub async fn a_stream_is_followed_from_anywhere(world: World) {
    let notes = memory("notes");
    append(&*world, &notes, (0..5).map(noted).collect()).await;
    for from in 0..=6 {
        let store = world.store();
        let mut follow = Follow::new(&*store, notes.clone(), from);
        let mut seen = Vec::new();
        while seen.len() < 6 - from.max(1) as usize {
            let events = follow.next().await.unwrap();
            assert!(!events.is_empty());
            seen.extend(events.iter().map(|e| e.event.sequence));
        }
        let wanted: Vec<_> = (from.max(1)..=5).collect();
        assert_eq!(seen, wanted);
        let mut next = std::pin::pin!(follow.next());
        let mut context = Context::from_waker(Waker::noop());
        assert!(next.as_mut().poll(&mut context).is_pending());
    }
}

pub async fn who_follows_a_stream_sees_each_event_once(world: World) {
    const EVENTS: u64 = 300;
    let notes = memory("notes");
    let (done, followed) = std::sync::mpsc::channel();
    let (store, stream) = (world.store(), notes.clone());
    std::thread::spawn(move || {
        let mut seen = Vec::new();
        let mut follow = Follow::new(&*store, stream, 1);
        while seen.len() < EVENTS as usize {
            seen.extend(block_on(follow.next()).unwrap());
        }
        done.send(seen).unwrap();
    });
    for number in 0..EVENTS / 3 {
        let three = vec![
            noted(3 * number),
            noted(3 * number + 1),
            noted(3 * number + 2),
        ];
        append(&*world, &notes, three).await;
        if number % 40 == 20 {
            world.settle();
        }
    }
    let seen = followed.recv_timeout(PATIENCE).unwrap();
    assert_eq!(seen, all(&*world, &notes).await);
}

pub async fn who_follows_is_not_given_what_is_of_other_streams(world: World) {
    let order = create(&*world, "order").await;
    let store = world.store();
    let mut follow = Follow::new(&*store, order.clone(), 2);
    {
        let mut next = std::pin::pin!(follow.next());
        let mut context = Context::from_waker(Waker::noop());
        for number in 0..5 {
            assert!(next.as_mut().poll(&mut context).is_pending());
            append(&*world, &memory("notes"), vec![noted(number)]).await;
        }
        append(&*world, &order, vec![event(Kind::RunCompleted)]).await;
        // Not at once: a store on another machine has to be asked.
        let events = next.await.unwrap();
        assert_eq!(events[0].event.kind, Kind::RunCompleted);
    }
    // A stream that does not exist yet can be followed too.
    let mut other = Follow::new(&*store, memory("later"), 1);
    append(&*world, &memory("later"), vec![noted(1)]).await;
    let found: Result<_, StoreError> = other.next().await;
    assert_eq!(found.unwrap().len(), 1);
}
