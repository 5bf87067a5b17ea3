//! The life of a run: what it takes, and that its end is its end.

use dalsegno_store::{
    Append, Fields, Kind, RunInfo, RunQuery, Status, Store, StoreError, StreamId, field,
};

use crate::world::*;

listed! { runs_contract in runs:
    a_run_goes_through_its_life,
    a_run_begins_with_its_creation,
    a_run_is_created_once,
    a_run_that_has_ended_is_listed_and_read_but_takes_nothing,
    a_run_that_ended_long_ago_takes_nothing_either,
    attention_comes_and_goes,
    a_memory_is_no_run,
}

const ENDS: [(Kind, Status); 3] = [
    (Kind::RunCompleted, Status::Completed),
    (Kind::RunFailed, Status::Failed),
    (Kind::RunCancelled, Status::Cancelled),
];

async fn info(store: &dyn Store, run: &StreamId) -> RunInfo {
    let runs = store.runs(&RunQuery::default()).await.unwrap();
    runs.into_iter().find(|info| info.run == *run).unwrap()
}

pub async fn a_run_goes_through_its_life(mut world: World) {
    let order = create(&*world, "order").await;
    assert_eq!(info(&*world, &order).await.status, Status::Pending);
    for (kind, status) in [
        (Kind::RunStarted, Status::Running),
        (Kind::StepIntended, Status::Running),
        (Kind::RunCheckpointed, Status::Checkpointed),
        (Kind::RunStarted, Status::Running),
        (Kind::RunCompleted, Status::Completed),
    ] {
        world.clock.pass_us(10);
        let appended = append(&*world, &order, vec![event(kind)]).await;
        let found = info(&*world, &order).await;
        assert_eq!(found.status, status);
        assert_eq!(found.agent.as_deref(), Some("cook"));
        assert_eq!(found.head, appended.heads[0]);
        assert_eq!(found.created_us, BEGINNING_US);
        assert_eq!(found.updated_us, world.clock.now_us());
        assert_eq!(found.lease, None);
        world.reopen();
        assert_eq!(info(&*world, &order).await, found);
    }
}

pub async fn a_run_begins_with_its_creation(world: World) {
    for kind in Kind::ALL {
        if *kind == Kind::RunCreated {
            continue;
        }
        let first = Append::to(run("order"), vec![event(kind.clone())]);
        let error = refused(&*world, vec![first]).await;
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    }
    assert!(world.runs(&RunQuery::default()).await.unwrap().is_empty());
}

pub async fn a_run_is_created_once(world: World) {
    let order = create(&*world, "order").await;
    let again = Append::to(order.clone(), vec![created("cook")]);
    let error = refused(&*world, vec![again.clone()]).await;
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    let error = refused(&*world, vec![again.clone().expecting(0)]).await;
    assert!(error.is_conflict(), "{error}");
    append(&*world, &order, vec![event(Kind::RunCancelled)]).await;
    for settled in [false, true] {
        if settled {
            world.settle();
        }
        let error = refused(&*world, vec![again.clone()]).await;
        assert!(matches!(error, StoreError::Ended { .. }), "{error}");
        let error = refused(&*world, vec![again.clone().expecting(0)]).await;
        assert!(error.is_conflict(), "{error}");
    }
}

async fn check_ended(world: &World, run: &StreamId, status: Status) {
    let found = info(&**world, run).await;
    assert_eq!(found.status, status);
    assert_eq!(found.agent.as_deref(), Some("cook"));
    assert_eq!(found.created_us, BEGINNING_US);
    assert_eq!(found.updated_us, BEGINNING_US + 7);
    let events = all(&**world, run).await;
    assert_eq!(events.len(), 3);
    let more = Append::to(run.clone(), vec![noted(1)]);
    for append in [more.clone(), more.expecting(3)] {
        match refused(&**world, vec![append]).await {
            StoreError::Ended {
                stream,
                status: found,
            } => assert_eq!((&stream, found), (run, status)),
            other => panic!("{other}"),
        }
    }
}

pub async fn a_run_that_has_ended_is_listed_and_read_but_takes_nothing(world: World) {
    let runs = ["a", "b", "c"].map(run);
    for run in &runs {
        append(&*world, run, vec![created("cook"), noted(1)]).await;
    }
    world.clock.pass_us(7);
    for (run, (end, _)) in runs.iter().zip(&ENDS) {
        append(&*world, run, vec![event(end.clone())]).await;
    }
    for (run, (_, status)) in runs.iter().zip(&ENDS) {
        check_ended(&world, run, *status).await;
    }
}

/// Its beginning, middle and end are in different pieces of old history.
pub async fn a_run_that_ended_long_ago_takes_nothing_either(mut world: World) {
    let order = create(&*world, "order").await;
    world.settle();
    append(&*world, &order, vec![noted(1)]).await;
    world.settle();
    world.clock.pass_us(7);
    append(&*world, &order, vec![event(Kind::RunFailed)]).await;
    check_ended(&world, &order, Status::Failed).await;
    world.reopen();
    check_ended(&world, &order, Status::Failed).await;
    world.settle();
    check_ended(&world, &order, Status::Failed).await;
    create(&*world, "another").await;
    world.settle();
    world.reopen();
    check_ended(&world, &order, Status::Failed).await;
}

pub async fn attention_comes_and_goes(mut world: World) {
    let order = create(&*world, "order").await;
    create(&*world, "other").await;
    let reason = Fields::new().with(field::REASON, "the oven is cold");
    let raised = event(Kind::AttentionRaised).with_fields(reason);
    append(&*world, &order, vec![raised]).await;
    world.reopen();
    let query = RunQuery {
        attention: true,
        ..RunQuery::default()
    };
    let found = world.runs(&query).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].attention.as_deref(), Some("the oven is cold"));
    append(&*world, &order, vec![event(Kind::AttentionCleared)]).await;
    assert!(world.runs(&query).await.unwrap().is_empty());
    assert_eq!(info(&*world, &order).await.attention, None);
}

pub async fn a_memory_is_no_run(world: World) {
    let notes = memory("notes");
    append(&*world, &notes, vec![noted(1)]).await;
    for (end, _) in &ENDS {
        let end = Append::to(notes.clone(), vec![event(end.clone())]);
        let error = refused(&*world, vec![end]).await;
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    }
    assert!(world.runs(&RunQuery::default()).await.unwrap().is_empty());
    append(&*world, &notes, vec![noted(2)]).await;
}
