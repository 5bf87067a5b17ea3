//! Forgetting: what a memory has forgotten is gone, and everything else is as it was.

use dalsegno_store::engine::FORGOTTEN;
use dalsegno_store::portable::verify_portable;
use dalsegno_store::transfer::{self, Export, Importing};
use dalsegno_store::{Body, Fields, Kind, NewEvent, NewPayload, Payload, Store, StreamId, Value};

use crate::world::*;

listed! { forgetting_contract in forgetting:
    a_payload_that_is_apart_is_never_in_its_event,
    what_is_forgotten_is_gone_and_the_rest_stays,
    what_another_memory_still_needs_stays,
    a_file_of_a_memory_that_forgot_is_whole,
}

/// Content that no other payload has.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let line = format!("the secret of number {seed} is {seed} times seven; ");
    line.into_bytes().into_iter().cycle().take(bytes).collect()
}

fn kept_apart(seed: u64, bytes: usize) -> NewEvent {
    let payload = NewPayload::new("x/y", content(seed, bytes)).apart();
    event(Kind::FactConfirmed).with_input(payload)
}

fn forgetting(sequences: &[u64]) -> NewEvent {
    let named = sequences.iter().map(|sequence| Value::Number(*sequence));
    let fields = Fields::new().with(FORGOTTEN, Value::List(named.collect()));
    event(Kind::MemoryForgotten).with_fields(fields)
}

async fn input(store: &dyn Store, stream: &StreamId, sequence: u64) -> Payload {
    let read = store.read(stream, sequence, 1).await.unwrap();
    read[0].event.input.clone().unwrap()
}

pub async fn a_payload_that_is_apart_is_never_in_its_event(mut world: World) {
    let notes = memory("notes");
    let sizes = [0, 1, 100, 1024, 1025, 9000];
    for (seed, size) in sizes.into_iter().enumerate() {
        append(&*world, &notes, vec![kept_apart(seed as u64, size)]).await;
    }
    for _ in 0..2 {
        for (seed, size) in sizes.into_iter().enumerate() {
            let payload = input(&*world, &notes, seed as u64 + 1).await;
            assert!(matches!(payload.body, Body::Stored { bytes, .. } if bytes == size as u64));
            let found = world.payload(&payload).await.unwrap();
            assert!(found == content(seed as u64, size));
        }
        world.reopen();
    }
}

pub async fn what_is_forgotten_is_gone_and_the_rest_stays(mut world: World) {
    let notes = memory("notes");
    let sizes = [30, 300, 40_000];
    for (seed, size) in sizes.into_iter().enumerate() {
        append(&*world, &notes, vec![kept_apart(seed as u64, size)]).await;
        append(&*world, &notes, vec![kept_apart(100 + seed as u64, size)]).await;
    }
    world.settle();
    let appended = append(&*world, &notes, vec![forgetting(&[1, 3, 5])]).await;
    let head = appended.heads[0];
    world.durable(appended.position).await.unwrap();
    assert!(world.erase_forgotten(&notes, head.sequence).await.unwrap() > 3);
    assert_eq!(
        world.erase_forgotten(&notes, head.sequence).await.unwrap(),
        0
    );
    for _ in 0..2 {
        assert_eq!(world.head(&notes).await.unwrap(), Some(head));
        assert_eq!(all(&*world, &notes).await.last().unwrap().hash, head.hash);
        for (seed, size) in sizes.into_iter().enumerate() {
            let at = 2 * seed as u64 + 1;
            let gone = input(&*world, &notes, at).await;
            assert!(world.payload(&gone).await.is_err(), "{size}");
            let left = input(&*world, &notes, at + 1).await;
            let found = world.payload(&left).await.unwrap();
            assert!(found == content(100 + seed as u64, size));
        }
        world.reopen();
    }
    // The same content can be kept again.
    append(&*world, &notes, vec![kept_apart(2, 40_000)]).await;
    let again = input(&*world, &notes, 8).await;
    assert!(world.payload(&again).await.unwrap() == content(2, 40_000));
    // An event that forgets nothing removes nothing.
    assert_eq!(world.erase_forgotten(&notes, 8).await.unwrap(), 0);
    assert_eq!(world.erase_forgotten(&notes, 99).await.unwrap(), 0);
    assert!(world.payload(&again).await.unwrap() == content(2, 40_000));
}

pub async fn what_another_memory_still_needs_stays(world: World) {
    let (notes, others) = (memory("notes"), memory("others"));
    for stream in [&notes, &others] {
        append(&*world, stream, vec![kept_apart(1, 50)]).await;
        append(&*world, stream, vec![forgetting(&[1])]).await;
    }
    // A third one has it too, and forgets it last.
    let third = memory("third");
    append(&*world, &third, vec![kept_apart(1, 50)]).await;
    let payload = input(&*world, &third, 1).await;
    for stream in [&notes, &others] {
        assert_eq!(world.erase_forgotten(stream, 2).await.unwrap(), 0);
    }
    assert!(world.payload(&payload).await.unwrap() == content(1, 50));
    append(&*world, &third, vec![forgetting(&[1])]).await;
    assert_eq!(world.erase_forgotten(&third, 2).await.unwrap(), 1);
    assert!(world.payload(&payload).await.is_err());
}

pub async fn a_file_of_a_memory_that_forgot_is_whole(world: World) {
    let notes = memory("notes");
    append(
        &*world,
        &notes,
        vec![kept_apart(1, 50), kept_apart(2, 9000)],
    )
    .await;
    let only = Export::Streams([notes.clone()].into());
    let mut before = Vec::new();
    let export = transfer::export(&*world, &only, 0, &mut before);
    assert_eq!(
        export.await.unwrap().pieces,
        verify_portable(&before[..]).unwrap().pieces
    );
    append(
        &*world,
        &notes,
        vec![forgetting(&[1, 2]), kept_apart(3, 50)],
    )
    .await;
    // Also what is still there is not given away.
    let mut first = Vec::new();
    let export = transfer::export(&*world, &only, 0, &mut first);
    assert_eq!(export.await.unwrap().pieces, 1);
    world.erase_forgotten(&notes, 3).await.unwrap();
    let mut file = Vec::new();
    let export = transfer::export(&*world, &only, 0, &mut file);
    assert_eq!(export.await.unwrap().pieces, 1);
    assert_eq!(verify_portable(&file[..]).unwrap().events, 4);
    let other = memory("copy");
    let how = Importing {
        rename: Some(&other),
        ..Importing::default()
    };
    let imported = transfer::import(&*world, &how, || Ok(&file[..])).await;
    assert_eq!(imported.unwrap().events, 4);
    let left = input(&*world, &other, 4).await;
    assert!(world.payload(&left).await.unwrap() == content(3, 50));
    let gone = input(&*world, &other, 1).await;
    assert!(world.payload(&gone).await.is_err());
}
