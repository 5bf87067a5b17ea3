//! Payloads: every byte as given, and equal ones stored once.

use dalsegno_store::{Body, INLINE_LIMIT_BYTES, NewPayload, Payload};

use crate::world::*;

listed! { payloads_contract in payloads:
    payloads_of_every_size_come_back,
    small_payloads_are_in_the_event_and_large_ones_are_not,
    equal_payloads_are_stored_once,
    a_payload_that_grows_costs_what_is_new,
    a_payload_that_is_not_there_is_an_error,
}

/// Bytes that no compression makes shorter.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56
    };
    (0..length).map(|_| next() as u8).collect()
}

fn of(bytes: Vec<u8>) -> NewPayload {
    NewPayload::new("application/octet-stream", bytes)
}

pub async fn payloads_of_every_size_come_back(mut world: World) {
    let notes = memory("notes");
    let sizes = [0, 1, 1023, 1024, 1025, 4096, 4097, 50_000, 300_000];
    for (seed, size) in sizes.into_iter().enumerate() {
        let both = noted(seed as u64)
            .with_input(of(noise(seed as u64, size)))
            .with_output(NewPayload::json("y".repeat(size)));
        append(&*world, &notes, vec![both]).await;
    }
    for round in 0..3 {
        let events = all(&*world, &notes).await;
        for (seed, size) in sizes.into_iter().enumerate() {
            let event = &events[seed].event;
            let input = world.payload(event.input.as_ref().unwrap()).await.unwrap();
            assert!(input == noise(seed as u64, size), "{size} in round {round}");
            let output = world.payload(event.output.as_ref().unwrap()).await.unwrap();
            assert!(output == "y".repeat(size).into_bytes(), "{size}");
        }
        world.settle();
        if round == 1 {
            world.reopen();
        }
    }
}

pub async fn small_payloads_are_in_the_event_and_large_ones_are_not(world: World) {
    let notes = memory("notes");
    for (size, inline) in [
        (0, true),
        (INLINE_LIMIT_BYTES, true),
        (INLINE_LIMIT_BYTES + 1, false),
    ] {
        let appended = append(
            &*world,
            &notes,
            vec![noted(1).with_input(of(noise(1, size)))],
        )
        .await;
        let last = world.read(&notes, appended.heads[0].sequence, 1).await;
        let input = last.unwrap()[0].event.input.clone().unwrap();
        match &input.body {
            Body::Inline(bytes) => assert!(inline && bytes.len() == size),
            Body::Stored { bytes, .. } => assert!(!inline && *bytes == size as u64),
        }
    }
}

pub async fn equal_payloads_are_stored_once(mut world: World) {
    const SIZE: usize = 100_000;
    let (notes, others) = (memory("notes"), memory("others"));
    let large = of(noise(1, SIZE));
    let twice = noted(1)
        .with_input(large.clone())
        .with_output(large.clone());
    append(&*world, &notes, vec![twice.clone(), twice.clone()]).await;
    let once = world.stored_bytes();
    assert!(once > SIZE as u64 && once < 3 * SIZE as u64 / 2, "{once}");
    append(&*world, &notes, vec![twice.clone()]).await;
    world.reopen();
    append(&*world, &others, vec![twice]).await;
    let still = world.stored_bytes();
    assert!(still < once + 5000, "{once} became {still}");
    for stream in [&notes, &others] {
        for recorded in all(&*world, stream).await {
            for payload in recorded.event.payloads() {
                assert!(world.payload(payload).await.unwrap() == large.bytes);
            }
        }
    }
}

pub async fn a_payload_that_grows_costs_what_is_new(world: World) {
    const TURN: usize = 5000;
    const TURNS: u64 = 30;
    let chat = create(&*world, "chat").await;
    let mut bytes = Vec::new();
    for turn in 0..TURNS {
        bytes.extend(noise(turn, TURN));
        append(
            &*world,
            &chat,
            vec![noted(turn).with_input(of(bytes.clone()))],
        )
        .await;
    }
    let stored = world.stored_bytes();
    let squared = (TURNS * (TURNS + 1) / 2) * TURN as u64;
    assert!(stored < 4 * TURNS * TURN as u64, "{stored} of {squared}");
    let events = all(&*world, &chat).await;
    for (turn, recorded) in events[1..].iter().enumerate() {
        let input = recorded.event.input.as_ref().unwrap();
        let found = world.payload(input).await.unwrap();
        assert!(found == bytes[..(turn + 1) * TURN]);
    }
}

pub async fn a_payload_that_is_not_there_is_an_error(world: World) {
    let notes = memory("notes");
    append(
        &*world,
        &notes,
        vec![noted(1).with_input(of(noise(1, 9000)))],
    )
    .await;
    let events = all(&*world, &notes).await;
    let Some(Payload {
        content_type,
        body: Body::Stored { root, bytes },
    }) = events[0].event.input.clone()
    else {
        panic!("a large payload is not in its event");
    };
    let unknown = dalsegno_store::Hash::of(b"unknown");
    for body in [
        Body::Stored {
            root: unknown,
            bytes,
        },
        Body::Stored {
            root,
            bytes: bytes - 1,
        },
        Body::Stored {
            root,
            bytes: u64::MAX,
        },
    ] {
        let payload = Payload {
            content_type: content_type.clone(),
            body,
        };
        assert!(world.payload(&payload).await.is_err(), "{payload:?}");
    }
}
