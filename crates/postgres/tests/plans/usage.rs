//! Uses a store in every way there is, so that each of its statements is sent.

use std::collections::BTreeSet;

use dalsegno_contract::world::{block_on, created, event, noted};
use dalsegno_pgtest::Server;
use dalsegno_postgres::PostgresStore;
use dalsegno_store::engine::FORGOTTEN;
use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{
    Append, Claim, Fields, Kind, NewHelper, NewPayload, Retention, RunQuery, Status, Store,
    StreamId, StreamKind, Value, field,
};

use crate::common::*;

/// Names begin with `prefix`, so that it can be done again.
pub fn use_all(store: &PostgresStore, server: &Server, url: &str, prefix: &str) {
    block_on(async {
        let template = run("template");
        if store.head(&template).await.unwrap().is_none() {
            let append = Append::to(template, vec![created("template"), noted(1)]);
            store.append(vec![append]).await.unwrap();
        }
    });
    claims_and_appends(store, prefix);
    letters(store, server, url, prefix);
    lists(store);
    overtaken(store, url, prefix);
    retention(store, server, url, prefix);
    forgetting(store, prefix);
}

fn forgetting(store: &PostgresStore, prefix: &str) {
    let memory = StreamId::memory(prefix).unwrap();
    let payload = NewPayload::json(format!("{prefix} {prefix}")).apart();
    let forgets = Fields::new().with(FORGOTTEN, Value::List(vec![1.into()]));
    let events = vec![
        event(Kind::FactConfirmed).with_input(payload),
        event(Kind::MemoryForgotten).with_fields(forgets),
    ];
    block_on(store.append(vec![Append::to(memory.clone(), events)])).unwrap();
    for of in 1..3 {
        let begun = block_on(store.begin_helpers(&memory)).unwrap().unwrap();
        let helper = NewHelper {
            name: "docs".into(),
            of,
            bytes: vec![of as u8; 2_500_000],
        };
        let kept = store.keep_helper(&memory, begun, helper.clone());
        assert!(block_on(kept).unwrap());
        let found = block_on(store.helper(&memory, "docs")).unwrap();
        assert!(found == Some(helper.bytes));
    }
    assert_eq!(block_on(store.erase_forgotten(&memory, 2)).unwrap(), 1);
    assert_eq!(block_on(store.helper(&memory, "docs")).unwrap(), None);
}

fn claim(limit: usize, agents: &[&str], queues: &[&str]) -> Claim {
    Claim {
        owner: "worker".into(),
        for_us: 600 * SECOND_US,
        limit,
        agents: agents.iter().map(|&agent| agent.into()).collect(),
        queues: queues.iter().map(|&queue| queue.into()).collect(),
    }
}

fn timer(kind: Kind) -> dalsegno_store::NewEvent {
    let fields = Fields::new().with(field::TIMER, "t");
    event(kind).with_fields(fields.with(field::DUE, 1_u64))
}

fn claims_and_appends(store: &PostgresStore, prefix: &str) {
    for number in 0..3 {
        create(store, &format!("{prefix}-{number}"));
    }
    block_on(async {
        let text = NewPayload::json(format!("{prefix} ").repeat(9000));
        let memory = StreamId::memory(&format!("{prefix}-memory")).unwrap();
        let append = Append::to(memory.clone(), vec![noted(1).with_output(text.clone())]);
        store.append(vec![append]).await.unwrap();
        let nobody = store.claim(&claim(10, &["nobody"], &[])).await.unwrap();
        assert!(nobody.is_empty());
        let mut taken = store.claim(&claim(2, &["cook"], &[""])).await.unwrap();
        let few = ["a1", "a2", "a3", "cook"];
        taken.extend(store.claim(&claim(10, &few, &[""])).await.unwrap());
        taken.extend(store.claim(&claim(10, &[], &[])).await.unwrap());
        assert!(taken.len() >= 3);
        let held: Vec<_> = taken.iter().map(|(r, l)| (r.clone(), l.token)).collect();
        for renewed in store.renew_leases(&held, 900 * SECOND_US).await.unwrap() {
            renewed.unwrap();
        }
        store.renew_leases(&[(memory, 1)], 1).await.unwrap()[0]
            .as_ref()
            .unwrap_err();
        for (run, token) in &held {
            let under = |events| vec![Append::to(run.clone(), events).under(*token)];
            store.append(under(vec![noted(1)])).await.unwrap();
            let long = vec![noted(2).with_output(text.clone()), timer(Kind::TimerSet)];
            let done = store.append(under(long)).await.unwrap();
            store.durable(done.position).await.unwrap();
        }
        assert!(!store.timers_due(u64::MAX, 10).await.unwrap().is_empty());
        assert!(store.next_timer_us().await.unwrap().is_some());
        for (run, token) in &held {
            let events = vec![timer(Kind::TimerFired), event(Kind::RunCheckpointed)];
            let append = Append::to(run.clone(), events).under(*token);
            store.append(vec![append]).await.unwrap();
            store.release_lease(run, *token).await.unwrap();
        }
    });
    let memory = StreamId::memory(&format!("{prefix}-memory")).unwrap();
    let events = all(store, &memory);
    block_on(store.payload(events[0].event.output.as_ref().unwrap())).unwrap();
}

fn letters(store: &PostgresStore, server: &Server, url: &str, prefix: &str) {
    let to = create(store, &format!("{prefix}-letters"));
    let other = open(url);
    let token = take(&other, &to, "other", 600 * SECOND_US);
    block_on(async {
        let letter = NewLetter::new(to.clone(), Kind::SignalReceived, 0);
        let sent = store.send(&letter).await.unwrap();
        assert!(!store.is_taken(&sent).await.unwrap());
        // To a run that another holds.
        let append = Append::to(to.clone(), vec![noted(1)]);
        store.append(vec![append]).await.unwrap();
        other.release_lease(&to, token).await.unwrap();
    });
    server.sql(
        url,
        &format!(
            "INSERT INTO letter (sender, number, kind, name, form, bytes)
             VALUES ('{prefix}', 1, 1, 'x', 1, 'no letter')"
        ),
    );
    let taken = block_on(store.take_letters()).unwrap();
    assert_eq!((taken.taken.len(), taken.bad.len()), (2, 1), "{taken:?}");
}

fn lists(store: &PostgresStore) {
    use Status::{Checkpointed, Completed, Failed, Pending, Running};
    let statuses: [&[Status]; 4] = [
        &[],
        &[Completed],
        &[Running, Failed],
        &[Pending, Running, Checkpointed, Failed],
    ];
    let agents = [None, Some("cook"), Some("late"), Some("nobody")];
    let queries = statuses.into_iter().flat_map(|status| {
        agents.into_iter().flat_map(move |agent| {
            [false, true].into_iter().flat_map(move |newest| {
                [None, Some(run("w00020000"))].map(|after| RunQuery {
                    status: status.to_vec(),
                    agent: agent.map(str::to_owned),
                    newest,
                    // The newest of those behind a name: nobody asks for that.
                    after: after.filter(|_| !newest),
                    limit: 20,
                    attention: false,
                })
            })
        })
    });
    for query in queries {
        block_on(store.runs(&query)).unwrap();
        let attention = true;
        if query.agent.is_none() && query.status.is_empty() {
            let query = RunQuery { attention, ..query };
            block_on(store.runs(&query)).unwrap();
        }
    }
    for kind in [StreamKind::Run, StreamKind::Memory, StreamKind::Store] {
        block_on(store.streams(kind, None, 20)).unwrap();
    }
    block_on(store.let_go_on(&[run("w00020000"), run("w00020001")])).unwrap();
}

/// Somebody writes under a newer lease, and the handle finds out.
fn overtaken(store: &PostgresStore, url: &str, prefix: &str) {
    let order = create(store, &format!("{prefix}-order"));
    let token = take(store, &order, "worker", 1);
    let other = open(url);
    let newer = take(&other, &order, "other", SECOND_US);
    append_under(&other, &order, newer, noted(1)).unwrap();
    append_under(store, &order, token, noted(2)).unwrap_err();
    // Given up when it is closed.
    let held = create(store, &format!("{prefix}-held"));
    take(store, &held, "worker", 600 * SECOND_US);
}

fn retention(store: &PostgresStore, server: &Server, url: &str, prefix: &str) {
    let mut names = BTreeSet::new();
    for kind in [Kind::RunCompleted, Kind::RunFailed, Kind::RunCancelled] {
        let name = format!("{prefix}-{kind}");
        let done = create(store, &name);
        let append = Append::to(done, vec![event(kind)]);
        block_on(store.append(vec![append])).unwrap();
        names.insert(name);
    }
    let old = "UPDATE run SET changed_us = 1 WHERE name LIKE";
    server.sql(
        url,
        &format!("{old} '{prefix}-Run%' OR name LIKE '{prefix}-run%'"),
    );
    let retention = Retention {
        ended_before_us: 1000,
        archive: false,
    };
    let retired = block_on(store.retire(&retention)).unwrap();
    assert_eq!(retired.runs.len(), names.len(), "{retired:?}");
}
