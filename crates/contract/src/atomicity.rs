//! An append over several streams is whole or absent.

use dalsegno_store::{Append, Kind, NewPayload, StoreError};

use crate::world::*;

listed! { atomicity_contract in atomicity:
    an_append_to_several_streams_is_taken_whole,
    a_refused_part_takes_the_others_with_it,
    an_append_to_the_same_stream_twice_goes_on_where_the_first_part_ended,
    a_stream_that_ends_within_an_append_takes_nothing_after_its_end,
    threads_move_between_streams_and_nothing_is_lost,
}

pub async fn an_append_to_several_streams_is_taken_whole(mut world: World) {
    let (order, notes) = (run("order"), memory("notes"));
    let batch = vec![
        Append::to(order.clone(), vec![created("cook"), noted(1)]).expecting(0),
        Append::to(notes.clone(), vec![noted(2)]).expecting(0),
    ];
    let appended = world.append(batch).await.unwrap();
    assert_eq!(appended.heads[0].sequence, 2);
    assert_eq!(appended.heads[1].sequence, 1);
    world.reopen();
    assert_eq!(all(&*world, &order).await.len(), 2);
    assert_eq!(all(&*world, &notes).await.len(), 1);
}

pub async fn a_refused_part_takes_the_others_with_it(mut world: World) {
    let ended = create(&*world, "ended").await;
    append(&*world, &ended, vec![event(Kind::RunFailed)]).await;
    let held = create(&*world, "held").await;
    let token = world.take_lease(&held, "w", 1000).await.unwrap().token;
    let large = NewPayload::json("large ".repeat(5000));
    let too_long = NewPayload::new("x".repeat(201), "");
    let refusals = vec![
        Append::to(ended.clone(), vec![noted(1)]),
        Append::to(held.clone(), vec![noted(1)]).under(token + 1),
        Append::to(held.clone(), vec![noted(1)]).expecting(9),
        Append::to(held.clone(), vec![event(Kind::RunCreated)]),
        Append::to(run("unknown"), vec![event(Kind::RunStarted)]),
        Append::to(memory("new"), vec![noted(1).with_input(too_long)]),
        Append::to(dalsegno_store::StreamId::store(), vec![noted(1)]),
    ];
    let first = memory("first");
    for bad in &refusals {
        let good = noted(0).with_input(large.clone());
        let good = Append::to(first.clone(), vec![good, noted(1)]);
        for batch in [
            vec![good.clone(), bad.clone()],
            vec![bad.clone(), good.clone()],
        ] {
            refused(&*world, batch).await;
            assert_eq!(world.head(&first).await.unwrap(), None, "{bad:?}");
        }
    }
    world.reopen();
    for absent in [&first, &run("unknown"), &memory("new")] {
        assert_eq!(world.head(absent).await.unwrap(), None);
    }
    assert_eq!(all(&*world, &ended).await.len(), 2);
    // The payload that was refused with its event is no hindrance later.
    append(&*world, &first, vec![noted(0).with_input(large.clone())]).await;
    let events = all(&*world, &first).await;
    let input = events[0].event.input.as_ref().unwrap();
    assert_eq!(world.payload(input).await.unwrap(), large.bytes);
}

pub async fn an_append_to_the_same_stream_twice_goes_on_where_the_first_part_ended(world: World) {
    let notes = memory("notes");
    let first = Append::to(notes.clone(), vec![noted(1), noted(2)]).expecting(0);
    let second = Append::to(notes.clone(), vec![noted(3)]);
    let batch = vec![first.clone(), second.clone().expecting(2)];
    let appended = world.append(batch).await.unwrap();
    assert_eq!(appended.heads[0], appended.heads[1]);
    assert_eq!(appended.heads[0].sequence, 3);
    let batch = vec![first.expecting(3), second.expecting(3)];
    let error = refused(&*world, batch).await;
    assert!(error.is_conflict(), "{error}");
    let events = all(&*world, &notes).await;
    let numbers: Vec<_> = events.iter().map(|e| e.event.fields.number(1)).collect();
    assert_eq!(numbers, [Some(1), Some(2), Some(3)]);
}

pub async fn a_stream_that_ends_within_an_append_takes_nothing_after_its_end(world: World) {
    let order = create(&*world, "order").await;
    let end = event(Kind::RunCompleted);
    let one = Append::to(order.clone(), vec![end.clone(), noted(1)]);
    let error = refused(&*world, vec![one]).await;
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    let two = ["a", "b"].map(|_| Append::to(order.clone(), vec![end.clone()]));
    refused(&*world, two.to_vec()).await;
    assert_eq!(all(&*world, &order).await.len(), 1);
    append(&*world, &order, vec![noted(1), end]).await;
    assert_eq!(all(&*world, &order).await.len(), 3);
}

/// Each append gives to one stream what it takes from another: whenever one looks, the sum is 0.
pub async fn threads_move_between_streams_and_nothing_is_lost(world: World) {
    const THREADS: u64 = 8;
    const EACH: u64 = 20;
    let accounts = ["a", "b", "c"].map(memory);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, accounts) = (world.store(), accounts.clone());
            scope.spawn(move || {
                block_on(async {
                    for count in 0..EACH {
                        let id = thread << 32 | count;
                        let from = &accounts[(id % 3) as usize];
                        let to = &accounts[((id + 1) % 3) as usize];
                        let batch = vec![
                            Append::to(from.clone(), vec![noted(id)]),
                            Append::to(to.clone(), vec![noted(id)]),
                        ];
                        store.append(batch).await.unwrap();
                    }
                });
            });
        }
    });
    let mut ids = Vec::new();
    for account in &accounts {
        let events = all(&*world, account).await;
        ids.extend(events.iter().filter_map(|e| e.event.fields.number(1)));
    }
    assert_eq!(ids.len() as u64, 2 * THREADS * EACH);
    ids.sort_unstable();
    assert!(ids.chunks(2).all(|two| two[0] == two[1]));
}
