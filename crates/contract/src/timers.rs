//! Timers: due in their order, until they fire, are cancelled, or their run ends.

use dalsegno_store::{Append, Fields, Kind, NewEvent, RunQuery, StoreError, field};

use crate::world::*;

listed! { timers_contract in timers:
    timers_are_due_in_order,
    a_timer_set_again_is_due_then,
    fired_and_cancelled_timers_are_gone,
    the_timers_of_a_run_end_with_it,
    a_timer_needs_a_name_and_a_time,
}

fn set(id: &str, due_us: u64) -> NewEvent {
    let fields = Fields::new()
        .with(field::TIMER, id)
        .with(field::DUE, due_us);
    event(Kind::TimerSet).with_fields(fields)
}

fn about(kind: Kind, id: &str) -> NewEvent {
    event(kind).with_fields(Fields::new().with(field::TIMER, id))
}

async fn due(world: &World, now_us: u64) -> Vec<String> {
    let timers = world.timers_due(now_us, 100).await.unwrap();
    assert!(timers.is_sorted_by_key(|timer| timer.due_us));
    assert!(timers.iter().all(|timer| timer.due_us <= now_us));
    let name = |timer: &dalsegno_store::Timer| format!("{}:{}", timer.run.name(), timer.id);
    timers.iter().map(name).collect()
}

pub async fn timers_are_due_in_order(mut world: World) {
    assert_eq!(world.next_timer_us().await.unwrap(), None);
    let (a, b) = (create(&*world, "a").await, create(&*world, "b").await);
    append(&*world, &a, vec![set("x", 30), set("y", 10)]).await;
    append(&*world, &b, vec![set("x", 20), set("z", u64::MAX)]).await;
    append(&*world, &b, vec![set("now", 0)]).await;
    for _ in 0..2 {
        assert_eq!(due(&world, 0).await, ["b:now"]);
        assert_eq!(due(&world, 19).await, ["b:now", "a:y"]);
        assert_eq!(due(&world, 30).await, ["b:now", "a:y", "b:x", "a:x"]);
        assert_eq!(due(&world, u64::MAX).await.len(), 5);
        let two = world.timers_due(30, 2).await.unwrap();
        assert_eq!(two.len(), 2);
        assert_eq!((two[1].run.clone(), two[1].due_us), (a.clone(), 10));
        assert_eq!(world.next_timer_us().await.unwrap(), Some(0));
        let runs = world.runs(&RunQuery::default()).await.unwrap();
        let next: Vec<_> = runs.iter().map(|info| info.next_timer_us).collect();
        assert_eq!(next, [Some(10), Some(0)]);
        world.reopen();
    }
}

pub async fn a_timer_set_again_is_due_then(world: World) {
    let a = create(&*world, "a").await;
    append(&*world, &a, vec![set("x", 10), set("x", 40)]).await;
    assert!(due(&world, 39).await.is_empty());
    append(&*world, &a, vec![set("x", 20)]).await;
    assert_eq!(due(&world, 100).await, ["a:x"]);
    assert_eq!(world.next_timer_us().await.unwrap(), Some(20));
}

pub async fn fired_and_cancelled_timers_are_gone(mut world: World) {
    let a = create(&*world, "a").await;
    append(&*world, &a, vec![set("x", 1), set("y", 2), set("z", 3)]).await;
    append(&*world, &a, vec![about(Kind::TimerFired, "x")]).await;
    append(&*world, &a, vec![about(Kind::TimerCancelled, "y")]).await;
    // One that nobody set, or that fired already, is no reason to stop.
    append(&*world, &a, vec![about(Kind::TimerFired, "other")]).await;
    for _ in 0..2 {
        assert_eq!(due(&world, 100).await, ["a:z"]);
        assert_eq!(world.next_timer_us().await.unwrap(), Some(3));
        world.reopen();
    }
}

pub async fn the_timers_of_a_run_end_with_it(mut world: World) {
    for end in [Kind::RunCompleted, Kind::RunFailed, Kind::RunCancelled] {
        let name = end.to_string();
        let run = create(&*world, &name).await;
        append(&*world, &run, vec![set("x", 1), set("y", 2)]).await;
        append(&*world, &run, vec![event(end)]).await;
        assert_eq!(world.next_timer_us().await.unwrap(), None);
    }
    world.reopen();
    assert!(due(&world, u64::MAX).await.is_empty());
}

pub async fn a_timer_needs_a_name_and_a_time(world: World) {
    let a = create(&*world, "a").await;
    let named = Fields::new().with(field::TIMER, "x");
    let timed = Fields::new().with(field::DUE, 7);
    let text = named.clone().with(field::DUE, "soon");
    for fields in [Fields::new(), named, timed, text] {
        let bad = event(Kind::TimerSet).with_fields(fields);
        let error = refused(&*world, vec![Append::to(a.clone(), vec![bad])]).await;
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    }
    let nameless = Append::to(a.clone(), vec![event(Kind::TimerFired)]);
    refused(&*world, vec![nameless]).await;
}
