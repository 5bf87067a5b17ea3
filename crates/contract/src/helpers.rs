//! Helpers: whole or absent, of one stream, and gone for good when they are dropped.

use dalsegno_store::engine::FORGOTTEN;
use dalsegno_store::{Fields, Kind, NewEvent, NewHelper, NewPayload, Store, StreamId, Value};

use crate::world::*;

listed! { helpers_contract in helpers:
    a_helper_is_there_as_it_was_kept,
    a_helper_is_of_one_stream,
    an_older_one_does_not_replace_a_newer_one,
    what_was_begun_before_they_were_dropped_is_not_kept,
    they_go_with_what_is_forgotten,
    names_that_cannot_be_one_are_refused,
}

/// Bytes that no compression makes short, and no other seed has.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn helper(name: &str, of: u64, bytes: &[u8]) -> NewHelper {
    NewHelper {
        name: name.into(),
        of,
        bytes: bytes.to_vec(),
    }
}

async fn begin(store: &dyn Store, stream: &StreamId) -> u64 {
    store.begin_helpers(stream).await.unwrap().unwrap()
}

/// Keeps one, and says whether it was.
async fn keep(store: &dyn Store, stream: &StreamId, name: &str, of: u64, bytes: &[u8]) -> bool {
    let begun = begin(store, stream).await;
    let kept = store.keep_helper(stream, begun, helper(name, of, bytes));
    kept.await.unwrap()
}

async fn kept(store: &dyn Store, stream: &StreamId, name: &str) -> Option<Vec<u8>> {
    store.helper(stream, name).await.unwrap()
}

/// A memory with an event.
async fn notes(store: &dyn Store, name: &str) -> StreamId {
    let stream = memory(name);
    append(store, &stream, vec![noted(1)]).await;
    stream
}

/// Says a secret, with another event behind it.
fn secret() -> NewEvent {
    let payload = NewPayload::new("x/y", bytes(7, 100)).apart();
    event(Kind::FactConfirmed).with_input(payload)
}

fn forgetting(sequence: u64) -> NewEvent {
    let named = Value::List(vec![Value::Number(sequence)]);
    event(Kind::MemoryForgotten).with_fields(Fields::new().with(FORGOTTEN, named))
}

pub async fn a_helper_is_there_as_it_was_kept(mut world: World) {
    let stream = notes(&*world, "notes").await;
    assert_eq!(kept(&*world, &stream, "docs").await, None);
    for (of, length) in [0, 1, 1000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_000]
        .into_iter()
        .enumerate()
    {
        let (of, content) = (of as u64 + 1, bytes(of as u64, length));
        assert!(keep(&*world, &stream, "docs", of, &content).await);
        for _ in 0..2 {
            let found = kept(&*world, &stream, "docs").await;
            assert!(found.as_ref() == Some(&content), "{length}");
            world.reopen();
        }
    }
    // A shorter one takes the place of a longer one, and others stay.
    let (long, short) = (bytes(1, 3_000_000), bytes(2, 10));
    assert!(keep(&*world, &stream, "words-0f", 20, &long).await);
    assert!(keep(&*world, &stream, "docs", 20, &short).await);
    assert_eq!(kept(&*world, &stream, "docs").await, Some(short));
    assert!(kept(&*world, &stream, "words-0f").await == Some(long));
}

pub async fn a_helper_is_of_one_stream(world: World) {
    let (one, two) = (notes(&*world, "one").await, notes(&*world, "two").await);
    assert!(keep(&*world, &one, "docs", 1, b"one").await);
    assert!(keep(&*world, &two, "docs", 1, b"two").await);
    assert_eq!(kept(&*world, &one, "docs").await, Some(b"one".to_vec()));
    world.drop_helpers(&one).await.unwrap();
    assert_eq!(kept(&*world, &one, "docs").await, None);
    assert_eq!(kept(&*world, &two, "docs").await, Some(b"two".to_vec()));
    // There is nothing to be kept of what is not there.
    let nobody = memory("nobody");
    assert_eq!(kept(&*world, &nobody, "docs").await, None);
    world.drop_helpers(&nobody).await.unwrap();
}

pub async fn an_older_one_does_not_replace_a_newer_one(world: World) {
    let stream = notes(&*world, "notes").await;
    let begun = begin(&*world, &stream).await;
    assert!(keep(&*world, &stream, "docs", 7, b"newer").await);
    let older = world.keep_helper(&stream, begun, helper("docs", 6, b"older"));
    assert!(!older.await.unwrap());
    assert_eq!(kept(&*world, &stream, "docs").await, Some(b"newer".into()));
    // Of another name it is not older.
    let other = world.keep_helper(&stream, begun, helper("words", 6, b"words"));
    assert!(other.await.unwrap());
    let newest = world.keep_helper(&stream, begun, helper("docs", 8, b"newest"));
    assert!(newest.await.unwrap());
    assert_eq!(kept(&*world, &stream, "docs").await, Some(b"newest".into()));
    // When they were dropped, there is none that could be newer.
    world.drop_helpers(&stream).await.unwrap();
    assert!(keep(&*world, &stream, "docs", 1, b"again").await);
    assert_eq!(kept(&*world, &stream, "docs").await, Some(b"again".into()));
}

pub async fn what_was_begun_before_they_were_dropped_is_not_kept(world: World) {
    let stream = notes(&*world, "notes").await;
    let other = notes(&*world, "other").await;
    let others = begin(&*world, &other).await;
    for of in [5, 10] {
        // Also if nothing was kept yet that could have been dropped.
        let begun = begin(&*world, &stream).await;
        world.drop_helpers(&stream).await.unwrap();
        let again = begin(&*world, &stream).await;
        let late = world.keep_helper(&stream, begun, helper("docs", of, b"late"));
        assert!(!late.await.unwrap());
        assert_eq!(kept(&*world, &stream, "docs").await, None);
        let kept_again = world.keep_helper(&stream, again, helper("docs", of, b"x"));
        assert!(kept_again.await.unwrap());
        let late = world.keep_helper(&stream, begun, helper("docs", of + 1, b"late"));
        assert!(!late.await.unwrap());
        assert_eq!(kept(&*world, &stream, "docs").await, Some(b"x".into()));
    }
    // Of another stream nothing was dropped.
    let kept_there = world.keep_helper(&other, others, helper("docs", 1, b"y"));
    assert!(kept_there.await.unwrap());
}

pub async fn they_go_with_what_is_forgotten(mut world: World) {
    let stream = memory("notes");
    append(&*world, &stream, vec![secret()]).await;
    assert!(keep(&*world, &stream, "docs", 1, b"the secret").await);
    let begun = begin(&*world, &stream).await;
    let appended = append(&*world, &stream, vec![forgetting(1)]).await;
    world.durable(appended.position).await.unwrap();
    assert_eq!(world.erase_forgotten(&stream, 2).await.unwrap(), 1);
    let late = world.keep_helper(&stream, begun, helper("docs", 1, b"the secret"));
    assert!(!late.await.unwrap());
    for _ in 0..2 {
        assert_eq!(kept(&*world, &stream, "docs").await, None);
        world.reopen();
    }
    // Somebody brought them back who does not keep to the rules: asking again removes them, though
    // nothing else is left to remove.
    assert!(keep(&*world, &stream, "docs", 1, b"the secret").await);
    assert_eq!(world.erase_forgotten(&stream, 2).await.unwrap(), 0);
    assert_eq!(kept(&*world, &stream, "docs").await, None);
}

pub async fn names_that_cannot_be_one_are_refused(world: World) {
    let stream = notes(&*world, "notes").await;
    let begun = begin(&*world, &stream).await;
    for name in ["", "Docs", "a/b", "..", "a b", "ä", "a\0", "a_b"] {
        let refused = world.keep_helper(&stream, begun, helper(name, 1, b"x"));
        refused.await.unwrap_err();
        world.helper(&stream, name).await.unwrap_err();
    }
}
