//! Leases: one holder at a time, and none that has been overtaken can write.

use dalsegno_store::{Append, Claim, Kind, NewPayload, RunQuery, StoreError, StreamId};

use crate::world::*;

listed! { leases_contract in leases:
    a_run_has_one_holder,
    a_lease_ends_with_its_time,
    a_renewed_lease_goes_on,
    a_lease_that_was_given_back_can_be_taken,
    tokens_rise_also_when_opened_again,
    a_holder_who_was_overtaken_cannot_write,
    a_token_is_asked_for_in_every_stream_of_an_append,
    what_does_not_go_on_cannot_be_held,
    a_holder_needs_a_name,
    runs_that_may_go_on_are_claimed_once,
    threads_take_a_run_one_after_the_other,
}

const SECOND_US: u64 = 1_000_000;

fn assert_fenced(error: &StoreError, token: u64, current: u64) {
    match error {
        StoreError::Fenced {
            token: t,
            current: c,
            ..
        } => assert_eq!((*t, *c), (token, current)),
        other => panic!("{other}"),
    }
}

async fn lease_of(world: &World, run: &StreamId) -> Option<dalsegno_store::Lease> {
    let runs = world.runs(&RunQuery::default()).await.unwrap();
    runs.into_iter()
        .find(|info| info.run == *run)
        .unwrap()
        .lease
}

pub async fn a_run_has_one_holder(world: World) {
    let order = create(&*world, "order").await;
    let lease = world.take_lease(&order, "anna", SECOND_US).await.unwrap();
    assert_eq!((&*lease.owner, lease.token), ("anna", 1));
    assert_eq!(lease.until_us, BEGINNING_US + SECOND_US);
    for owner in ["bert", "anna"] {
        match world
            .take_lease(&order, owner, SECOND_US)
            .await
            .unwrap_err()
        {
            StoreError::Held {
                stream,
                lease: held,
            } => assert_eq!((stream, held), (order.clone(), lease.clone())),
            other => panic!("{other}"),
        }
    }
    assert_eq!(lease_of(&world, &order).await, Some(lease));
    let own = Append::to(order.clone(), vec![noted(1)]).under(1);
    world.append(vec![own]).await.unwrap();
}

pub async fn a_lease_ends_with_its_time(world: World) {
    let order = create(&*world, "order").await;
    world.take_lease(&order, "anna", SECOND_US).await.unwrap();
    world.clock.pass_us(SECOND_US - 1);
    let held = world.take_lease(&order, "bert", SECOND_US).await;
    assert!(matches!(held, Err(StoreError::Held { .. })), "{held:?}");
    world.clock.pass_us(1);
    assert_eq!(lease_of(&world, &order).await, None);
    let lease = world.take_lease(&order, "bert", SECOND_US).await.unwrap();
    assert_eq!((&*lease.owner, lease.token), ("bert", 2));
}

pub async fn a_renewed_lease_goes_on(world: World) {
    let order = create(&*world, "order").await;
    world.take_lease(&order, "anna", SECOND_US).await.unwrap();
    for _ in 0..3 {
        world.clock.pass_us(SECOND_US - 1);
        let lease = world.renew_lease(&order, 1, SECOND_US).await.unwrap();
        assert_eq!((&*lease.owner, lease.token), ("anna", 1));
        assert_eq!(lease.until_us, world.clock.now_us() + SECOND_US);
        let held = world.take_lease(&order, "bert", SECOND_US).await;
        match held.unwrap_err() {
            StoreError::Held { lease: held, .. } => assert_eq!(held, lease),
            other => panic!("{other}"),
        }
        assert_eq!(lease_of(&world, &order).await, Some(lease));
    }
    // Forever, and no overflow.
    let lease = world.renew_lease(&order, 1, u64::MAX).await.unwrap();
    assert_eq!(lease.until_us, u64::MAX);
    world.clock.pass_us(100 * SECOND_US);
    let held = world.take_lease(&order, "bert", u64::MAX).await;
    assert!(matches!(held, Err(StoreError::Held { .. })), "{held:?}");
}

pub async fn a_lease_that_was_given_back_can_be_taken(world: World) {
    let order = create(&*world, "order").await;
    for token in 1..4 {
        let lease = world.take_lease(&order, "anna", SECOND_US).await.unwrap();
        assert_eq!(lease.token, token);
        world.release_lease(&order, token).await.unwrap();
        assert_eq!(lease_of(&world, &order).await, None);
        let error = world.release_lease(&order, token).await.unwrap_err();
        assert_fenced(&error, token, token);
        let error = world.renew_lease(&order, token, 1).await.unwrap_err();
        assert_fenced(&error, token, token);
        let late = Append::to(order.clone(), vec![noted(1)]).under(token);
        assert_fenced(&refused(&*world, vec![late]).await, token, token);
    }
}

pub async fn tokens_rise_also_when_opened_again(mut world: World) {
    let order = create(&*world, "order").await;
    for token in 1..4 {
        let lease = world.take_lease(&order, "anna", u64::MAX).await.unwrap();
        assert_eq!(lease.token, token);
        // With the process that owned the store, its workers are gone.
        world.reopen();
        let error = world.renew_lease(&order, token, 1).await.unwrap_err();
        assert_fenced(&error, token, token);
    }
}

pub async fn a_holder_who_was_overtaken_cannot_write(world: World) {
    let order = create(&*world, "order").await;
    world.take_lease(&order, "anna", SECOND_US).await.unwrap();
    world.clock.pass_us(SECOND_US);
    // Nobody has taken it yet, so that nothing can go wrong.
    let late = Append::to(order.clone(), vec![noted(1)]).under(1);
    world.append(vec![late.clone()]).await.unwrap();
    world.take_lease(&order, "bert", SECOND_US).await.unwrap();
    assert_fenced(&refused(&*world, vec![late]).await, 1, 2);
    let error = world.renew_lease(&order, 1, SECOND_US).await.unwrap_err();
    assert_fenced(&error, 1, 2);
    let error = world.release_lease(&order, 1).await.unwrap_err();
    assert_fenced(&error, 1, 2);
    let never = Append::to(order.clone(), vec![noted(1)]).under(3);
    assert_fenced(&refused(&*world, vec![never]).await, 3, 2);
    let own = Append::to(order.clone(), vec![noted(2)]).under(2);
    world.append(vec![own]).await.unwrap();
    let lease = lease_of(&world, &order).await.unwrap();
    assert_eq!((&*lease.owner, lease.token), ("bert", 2));
}

pub async fn a_token_is_asked_for_in_every_stream_of_an_append(world: World) {
    let (a, b) = (create(&*world, "a").await, create(&*world, "b").await);
    world.take_lease(&a, "anna", SECOND_US).await.unwrap();
    let batch = vec![
        Append::to(a.clone(), vec![noted(1)]).under(1),
        Append::to(b.clone(), vec![noted(1)]).under(1),
    ];
    assert_fenced(&refused(&*world, batch).await, 1, 0);
    assert_eq!(all(&*world, &a).await.len(), 2);
}

pub async fn what_does_not_go_on_cannot_be_held(world: World) {
    let order = create(&*world, "order").await;
    let token = world.take_lease(&order, "anna", SECOND_US).await.unwrap();
    append(&*world, &order, vec![event(Kind::RunCompleted)]).await;
    for settled in [false, true] {
        if settled {
            world.settle();
        }
        let taken = world.take_lease(&order, "bert", 1).await.unwrap_err();
        let renewed = world.renew_lease(&order, token.token, 1).await.unwrap_err();
        let released = world.release_lease(&order, token.token).await.unwrap_err();
        for error in [taken, renewed, released] {
            assert!(matches!(error, StoreError::Ended { .. }), "{error}");
        }
    }
    let unknown = run("unknown");
    let taken = world.take_lease(&unknown, "bert", 1).await.unwrap_err();
    let renewed = world.renew_lease(&unknown, 1, 1).await.unwrap_err();
    for error in [taken, renewed] {
        assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    }
    assert!(world.release_lease(&unknown, 1).await.is_err());
    assert_eq!(world.head(&unknown).await.unwrap(), None);
}

pub async fn a_holder_needs_a_name(world: World) {
    let order = create(&*world, "order").await;
    for bad in ["", "a\nb", &"x".repeat(201)] {
        let error = world.take_lease(&order, bad, 1).await.unwrap_err();
        assert!(matches!(error, StoreError::Name(_)), "{error}");
    }
    assert_eq!(all(&*world, &order).await.len(), 1);
}

pub async fn runs_that_may_go_on_are_claimed_once(world: World) {
    for name in ["free", "ended", "held", "stuck", "other"] {
        create(&*world, name).await;
    }
    append(&*world, &run("ended"), vec![event(Kind::RunCompleted)]).await;
    append(&*world, &run("stuck"), vec![event(Kind::AttentionRaised)]).await;
    let held = run("held");
    world.take_lease(&held, "anna", SECOND_US).await.unwrap();
    let claim = |limit, agent: &str| Claim {
        owner: "bert".into(),
        for_us: SECOND_US,
        limit,
        agents: vec![agent.into()],
        queues: vec![String::new()],
    };
    assert!(world.claim(&claim(9, "waiter")).await.unwrap().is_empty());
    assert!(world.claim(&claim(0, "cook")).await.unwrap().is_empty());
    let mut claimed = world.claim(&claim(1, "cook")).await.unwrap();
    assert_eq!(claimed.len(), 1);
    claimed.extend(world.claim(&claim(9, "cook")).await.unwrap());
    let mut names: Vec<_> = claimed.iter().map(|(run, _)| run.name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["free", "other"]);
    for (run, lease) in &claimed {
        assert_eq!((&*lease.owner, lease.token), ("bert", 1));
        let own = Append::to(run.clone(), vec![noted(1)]).under(1);
        world.append(vec![own]).await.unwrap();
    }
    assert!(world.claim(&claim(9, "cook")).await.unwrap().is_empty());
    // When its time is over, another can go on with it.
    world.clock.pass_us(SECOND_US);
    let renewed = [(run("free"), 1), (run("other"), 2)];
    let renewed = world.renew_leases(&renewed, SECOND_US).await.unwrap();
    assert!(renewed[0].is_ok() && renewed[1].is_err(), "{renewed:?}");
    let taken = world.take_lease(&run("other"), "anna", SECOND_US).await;
    assert_eq!(taken.unwrap().token, 2);
}

/// Whoever holds the run can renew and write, however many others try to take it.
pub async fn threads_take_a_run_one_after_the_other(world: World) {
    const THREADS: usize = 8;
    const EACH: usize = 60;
    let order = create(&*world, "order").await;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, order) = (world.store(), order.clone());
            scope.spawn(move || {
                let owner = format!("w{thread}");
                block_on(async {
                    for _ in 0..EACH {
                        let lease = loop {
                            match store.take_lease(&order, &owner, SECOND_US).await {
                                Ok(lease) => break lease,
                                Err(StoreError::Held { .. }) => std::thread::yield_now(),
                                Err(e) => panic!("{e}"),
                            }
                        };
                        let token = lease.token;
                        store.renew_lease(&order, token, SECOND_US).await.unwrap();
                        let long = NewPayload::json("x".repeat(1000));
                        let own = noted(token).with_input(long);
                        let own = Append::to(order.clone(), vec![own]).under(token);
                        store.append(vec![own]).await.unwrap();
                        store.release_lease(&order, token).await.unwrap();
                    }
                });
            });
        }
    });
    let events = all(&*world, &order).await;
    let kinds: Vec<_> = events[1..].iter().map(|e| &e.event.kind).collect();
    assert_eq!(kinds.len(), 3 * THREADS * EACH);
    for turn in kinds.chunks(3) {
        assert_eq!(*turn[0], Kind::LeaseTaken);
        assert_eq!(*turn[2], Kind::LeaseReleased);
    }
}
