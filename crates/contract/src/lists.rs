//! Lists of streams and runs: by name, in pages, and only what was asked for.

use dalsegno_store::{Fields, Kind, RunQuery, Status, Store, StreamId, StreamKind, field};

use crate::world::*;

listed! { lists_contract in lists:
    streams_are_listed_by_name_and_kind,
    streams_are_listed_in_pages,
    runs_are_listed_by_name_in_pages_old_and_new_ones,
    runs_are_found_by_status_agent_and_attention,
    the_newest_runs_can_come_first,
    the_ends_of_many_streams_are_read_at_once,
}

async fn names(store: &dyn Store, query: &RunQuery) -> Vec<String> {
    let runs = store.runs(query).await.unwrap();
    runs.iter().map(|info| info.run.name().to_owned()).collect()
}

pub async fn streams_are_listed_by_name_and_kind(mut world: World) {
    for name in ["b", "a/1", "ä", "B", "10", "9"] {
        append(&*world, &memory(name), vec![noted(1)]).await;
    }
    create(&*world, "r").await;
    for _ in 0..2 {
        let found = world.streams(StreamKind::Memory, None, 0).await.unwrap();
        let names: Vec<_> = found.iter().map(|(id, _)| id.name()).collect();
        assert_eq!(names, ["10", "9", "B", "a/1", "b", "ä"]);
        for (id, head) in &found {
            assert_eq!(world.head(id).await.unwrap(), Some(*head));
        }
        let found = world.streams(StreamKind::Run, None, 0).await.unwrap();
        assert_eq!(found.len(), 1);
        let found = world.streams(StreamKind::Store, None, 0).await.unwrap();
        assert!(found.is_empty(), "{found:?}");
        world.reopen();
    }
}

pub async fn streams_are_listed_in_pages(world: World) {
    for number in 0..10 {
        let run = create(&*world, &format!("r{number}")).await;
        if number % 3 == 0 {
            append(&*world, &run, vec![event(Kind::RunCompleted)]).await;
        }
        if number == 5 {
            world.settle();
        }
    }
    let whole = world.streams(StreamKind::Run, None, 0).await.unwrap();
    assert_eq!(whole.len(), 10);
    for (id, head) in &whole {
        assert_eq!(world.head(id).await.unwrap(), Some(*head));
    }
    for limit in [1, 3, 10, 11] {
        let mut pages = Vec::new();
        let mut after: Option<StreamId> = None;
        loop {
            let page = world.streams(StreamKind::Run, after.as_ref(), limit).await;
            let page = page.unwrap();
            assert!(page.len() <= limit);
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            pages.extend(page);
        }
        assert_eq!(pages, whole);
    }
    let between = run("r4.5");
    let found = world.streams(StreamKind::Run, Some(&between), 1).await;
    assert_eq!(found.unwrap()[0].0, run("r5"));
}

pub async fn runs_are_listed_by_name_in_pages_old_and_new_ones(mut world: World) {
    for number in (0..12).rev() {
        let run = create(&*world, &format!("r{number:02}")).await;
        if number % 2 == 0 {
            append(&*world, &run, vec![event(Kind::RunFailed)]).await;
        }
        if number % 5 == 0 {
            world.settle();
        }
    }
    let whole: Vec<_> = (0..12).map(|number| format!("r{number:02}")).collect();
    for _ in 0..2 {
        assert_eq!(names(&*world, &RunQuery::default()).await, whole);
        let mut pages = Vec::new();
        let mut query = RunQuery {
            limit: 5,
            ..RunQuery::default()
        };
        loop {
            let page = names(&*world, &query).await;
            let Some(last) = page.last() else { break };
            query.after = Some(run(last));
            pages.extend(page);
        }
        assert_eq!(pages, whole);
        world.reopen();
    }
}

pub async fn runs_are_found_by_status_agent_and_attention(mut world: World) {
    let reason = Fields::new().with(field::REASON, "help");
    let raised = event(Kind::AttentionRaised).with_fields(reason);
    for (name, agent, events) in [
        ("a", "cook", vec![]),
        ("b", "cook", vec![event(Kind::RunStarted)]),
        ("c", "waiter", vec![event(Kind::RunCompleted)]),
        ("d", "cook", vec![event(Kind::RunFailed)]),
        ("e", "waiter", vec![raised]),
        ("f", "cook", vec![event(Kind::RunCheckpointed)]),
    ] {
        let events = [vec![created(agent)], events].concat();
        append(&*world, &run(name), events).await;
    }
    let all = RunQuery::default;
    let status = |status: &[Status]| RunQuery {
        status: status.to_vec(),
        ..all()
    };
    let of = |agent: &str| RunQuery {
        agent: Some(agent.into()),
        ..all()
    };
    let attention = RunQuery {
        attention: true,
        ..all()
    };
    let both = RunQuery {
        status: vec![Status::Pending, Status::Failed],
        ..of("cook")
    };
    let second = RunQuery {
        limit: 2,
        after: Some(run("a")),
        ..of("cook")
    };
    for round in 0..3 {
        for (query, wanted) in [
            (&all(), "abcdef"),
            (&status(&[Status::Pending]), "ae"),
            (&status(&[Status::Running]), "b"),
            (&status(&[Status::Checkpointed]), "f"),
            (&status(&[Status::Cancelled]), ""),
            (&status(&[Status::Completed, Status::Failed]), "cd"),
            (&of("cook"), "abdf"),
            (&of("waiter"), "ce"),
            (&of("nobody"), ""),
            (&attention, "e"),
            (&both, "ad"),
            (&second, "bd"),
        ] {
            let found = names(&*world, query).await.concat();
            assert_eq!(found, wanted, "round {round}, {query:?}");
        }
        world.settle();
        if round == 1 {
            world.reopen();
        }
    }
}

pub async fn the_newest_runs_can_come_first(mut world: World) {
    for (number, name) in ["d", "b", "e", "a", "c"].iter().enumerate() {
        world.clock.pass_us(10);
        let run = create(&*world, name).await;
        if number % 2 == 0 {
            append(&*world, &run, vec![noted(1), event(Kind::RunCompleted)]).await;
        }
        if number == 1 {
            world.settle();
        }
    }
    // At the same time: by name.
    for name in ["y", "x"] {
        create(&*world, name).await;
    }
    world.clock.pass_us(10);
    append(&*world, &run("b"), vec![event(Kind::RunStarted)]).await;
    let newest = |limit| RunQuery {
        limit,
        newest: true,
        ..RunQuery::default()
    };
    for _ in 0..2 {
        assert_eq!(names(&*world, &newest(0)).await.concat(), "bcxyaed");
        assert_eq!(names(&*world, &newest(3)).await.concat(), "bcx");
        for info in world.runs(&newest(0)).await.unwrap() {
            assert_eq!(world.head(&info.run).await.unwrap(), Some(info.head));
        }
        world.reopen();
    }
}

pub async fn the_ends_of_many_streams_are_read_at_once(mut world: World) {
    for number in 0..6 {
        let run = create(&*world, &format!("r{number}")).await;
        let more = (0..number).map(noted).collect::<Vec<_>>();
        if !more.is_empty() {
            append(&*world, &run, more).await;
        }
        if number == 3 {
            append(&*world, &run, vec![event(Kind::RunFailed)]).await;
            world.settle();
        }
    }
    for _ in 0..2 {
        let all = world.streams(StreamKind::Run, None, 0).await.unwrap();
        for limit in [0, 1, 3, 100] {
            let ends = world.last_events(&all, limit).await.unwrap();
            assert_eq!(ends.len(), all.len());
            for ((run, head), end) in all.iter().zip(ends) {
                let from = head.sequence.saturating_sub(limit as u64) + 1;
                let events = world.events(run, from, limit).await.unwrap();
                assert_eq!(end.unwrap(), events);
                assert_eq!(events.len(), limit.min(head.sequence as usize));
            }
        }
        world.reopen();
    }
}
