//! Memories inside of runs: what was asked is recorded and handed back the same, what was given is
//! there once, and a replay searches again and compares.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dalsegno::memory::{
    DocId, EmbedError, Embedder, EmbedderId, NewDocument, Query, RankingConfig, Scope, Vector,
};
use dalsegno::{Builder, Ctx, Dalsegno, DivergenceKind, FailureKind, Result, StepKind};
use dalsegno_simdisk::SimDisk;
use dalsegno_store::{Event, Kind, LocalStore, NewEvent, Options, Store, StreamId};
use serde_json::{Value, json};

fn store_on(disk: &SimDisk) -> Arc<dyn Store> {
    let options = Options::new().fs(Arc::new(disk.clone())).without_threads();
    let store: LocalStore = options.open(std::path::Path::new("store")).unwrap();
    Arc::new(store)
}

async fn open(store: &Arc<dyn Store>, builder: Builder) -> Dalsegno {
    let store = Arc::clone(store);
    builder.without_mailbox().open_store(store).await.unwrap()
}

async fn events(store: &Arc<dyn Store>, stream: &StreamId) -> Vec<Event> {
    store.events(stream, 1, 1000).await.unwrap()
}

fn json_of(payload: Option<&dalsegno_store::Payload>) -> Value {
    match &payload.unwrap().body {
        dalsegno_store::Body::Inline(bytes) => serde_json::from_slice(bytes).unwrap(),
        dalsegno_store::Body::Stored { .. } => panic!("long"),
    }
}

fn oven() -> Query {
    Query::words("heating the oven").limit(5)
}

/// Adds, searches, waits for a signal, and says what it found.
async fn cook(ctx: Ctx, minutes: u64) -> Result<Vec<(u64, i64, String, bool)>> {
    let kitchen = ctx.memory("kitchen");
    let fact = NewDocument::fact(format!("The oven takes {minutes} minutes.")).source("manual.pdf");
    kitchen.add(fact).await?;
    let found = kitchen.search(&oven(), &RankingConfig::default()).await?;
    let () = ctx.signal("go").await?;
    let hits = found.hits.iter().map(|hit| {
        let text = hit.text().to_owned();
        (hit.id.0, hit.score, text, hit.is_forgotten())
    });
    Ok(hits.collect())
}

#[tokio::test]
async fn a_lookup_is_one_event_with_all_that_decided_it() {
    let disk = SimDisk::new(1);
    let store = store_on(&disk);
    let app = open(&store, Builder::new().agent("cook", cook)).await;
    let run = app.start("cook", "monday", &12).await.unwrap();
    app.signal("monday", "go", &()).await.unwrap();
    run.result::<Value>().await.unwrap();

    let recorded = events(&store, &StreamId::run("monday").unwrap()).await;
    let lookups: Vec<&Event> = recorded
        .iter()
        .filter(|event| event.kind == Kind::RetrievalPerformed)
        .collect();
    let [lookup] = lookups[..] else {
        panic!("{recorded:?}");
    };
    let head = store
        .head(&StreamId::memory("kitchen").unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(lookup.memory, Some(head));
    let asked = json_of(lookup.input.as_ref());
    assert_eq!(asked["memory"], "kitchen");
    assert_eq!(asked["query"], "heating the oven");
    assert_eq!(asked["ranking"]["k1_per_mille"], 1200);
    let found = json_of(lookup.output.as_ref());
    assert_eq!(found["version"]["sequence"], 1);
    assert_eq!(found["version"]["hash"], head.hash.to_string());
    let ranking = RankingConfig::default();
    assert_eq!(found["ranking"]["hash"], ranking.hash().to_string());
    let bytes = ranking.to_bytes();
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(found["ranking"]["bytes"], hex);
    let hit = &found["hits"][0];
    assert_eq!((&hit["rank"], &hit["id"]), (&json!(1), &json!(1)));
    assert_eq!(hit["sources"], json!(["manual.pdf"]));
    assert!(hit["score"].as_i64().unwrap() > 0);
    // What the document says is in the memory only.
    assert!(!format!("{asked}{found}").contains("minutes"));

    // Every event of the run from then on says which memory it knew.
    let after = recorded.iter().filter(|e| e.sequence > lookup.sequence);
    let by_worker = after.filter(|e| e.kind != Kind::SignalReceived);
    assert!(by_worker.clone().count() > 1);
    for event in by_worker.filter(|e| !matches!(e.kind, Kind::LeaseTaken | Kind::LeaseReleased)) {
        assert_eq!(event.memory, Some(head), "{event:?}");
    }
    let journal = app.journal("monday").await.unwrap();
    assert_eq!(journal.memory, Some(head));

    // The memory's event says which step wrote it.
    let memory = events(&store, &StreamId::memory("kitchen").unwrap()).await;
    let cause = memory[0].cause.clone().unwrap();
    assert_eq!(cause.stream, StreamId::run("monday").unwrap());
    let intent = &recorded[cause.sequence as usize - 1];
    assert_eq!(intent.kind, Kind::StepIntended);
    assert_eq!(json_of(intent.input.as_ref())["add"], "fact");
    let document = app.memory("kitchen").await.unwrap();
    let document = document.get(DocId(1)).await.unwrap();
    assert_eq!(document.by.as_deref(), Some("run/monday"));
    assert_eq!(document.content.sources, ["manual.pdf"]);
    let replayed = app.replay("monday").await.unwrap();
    assert!(replayed.is_same(), "{replayed}");
    assert_eq!(replayed.unchecked, 0);

    // In words, for people.
    let page = app.why("monday").await.unwrap().to_string();
    let score = &hit["score"];
    let words = format!(
        "\"heating the oven\" finds document 1 (score {score}) in memory/kitchen at version 1"
    );
    assert!(page.contains(&words), "{words} in {page}");
    assert!(page.contains("adds document 1 to memory/kitchen"), "{page}");
    let timeline = dalsegno::timeline(&*store, "monday", None).await.unwrap();
    let summaries = timeline
        .steps
        .iter()
        .filter_map(|s| s.record.summary.as_ref());
    assert_eq!(
        summaries.filter(|summary| summary.contains(&words)).count(),
        1
    );
}

/// The run is written down between its search and its end; meanwhile the memory grows, and more.
#[tokio::test]
async fn what_was_found_stays_found_whatever_happens_to_the_memory() {
    let mut before = None;
    for what in ["nothing", "grow", "correct", "forget"] {
        let store = store_on(&SimDisk::new(1));
        let stay = std::time::Duration::ZERO;
        let builder = || Builder::new().agent("cook", cook).stay_in_memory(stay);
        let app = open(&store, builder()).await;
        let run = app.start("cook", "monday", &12).await.unwrap();
        let kitchen = app.memory("kitchen").await.unwrap();
        while app.journal("monday").await.unwrap().waits.is_empty() {
            tokio::task::yield_now().await;
        }
        match what {
            "grow" => {
                let many = (0..100).map(|n| NewDocument::fact(format!("oven heating oven {n}")));
                kitchen.add_many(many.collect()).await.unwrap();
            }
            "correct" => {
                let new = NewDocument::fact("The oven is new.");
                kitchen.correct(DocId(1), new).await.unwrap();
            }
            "forget" => {
                kitchen.forget(&[DocId(1)], "asked to").await.unwrap();
            }
            _ => {}
        }
        app.signal("monday", "go", &()).await.unwrap();
        let result: Vec<(u64, i64, String, bool)> = run.result().await.unwrap();
        let (ids, texts): (Vec<_>, Vec<_>) = result
            .into_iter()
            .map(|(id, score, text, gone)| ((id, score), (text, gone)))
            .unzip();
        assert_eq!(*before.get_or_insert(ids.clone()), ids, "{what}");
        let is_forgotten = what == "forget";
        let text = match is_forgotten {
            true => "",
            false => "The oven takes 12 minutes.",
        };
        assert_eq!(texts, [(text.to_owned(), is_forgotten)], "{what}");
        for _ in 0..2 {
            let replayed = app.replay("monday").await.unwrap();
            assert!(replayed.is_same(), "{what}: {replayed}");
            assert_eq!(replayed.unchecked, u64::from(is_forgotten), "{what}");
        }
    }
}

#[tokio::test]
async fn all_writes_are_steps_and_failures_are_recorded() {
    let store = store_on(&SimDisk::new(1));
    async fn agent(ctx: Ctx, (): ()) -> Result<Value> {
        let kitchen = ctx.memory("kitchen").by("cook");
        let one = kitchen.add(NewDocument::fact("one").key("k")).await?;
        let again = kitchen.add(NewDocument::fact("one").key("k")).await?;
        let two = kitchen.correct(one, NewDocument::fact("two")).await?;
        let late = kitchen.correct(one, NewDocument::fact("three")).await;
        let late = late.unwrap_err();
        let three = kitchen.add(NewDocument::fact("three")).await?;
        let retracted = kitchen.retract(three, "it is not so").await?;
        let old = kitchen.get(one).await?;
        let forgotten = kitchen.forget(&[one, two], "asked to").await?;
        let gone = kitchen.get(two).await.unwrap_err();
        let empty = kitchen.add(NewDocument::fact("")).await.unwrap_err();
        let missing = kitchen.retract(DocId(99), "").await.unwrap_err();
        let version = kitchen.version().await?;
        let nowhere = ctx.memory("").version().await.unwrap_err();
        assert_eq!(late.kind(), FailureKind::Ended);
        assert_eq!(gone.kind(), FailureKind::Ended);
        assert_eq!(empty.kind(), FailureKind::Misuse);
        assert_eq!(nowhere.kind(), FailureKind::Misuse);
        assert!(late.message().contains("corrected by 2 by cook"), "{late}");
        assert!(missing.message().contains("no document 99"), "{missing}");
        assert_eq!(old.ended, Some(dalsegno::memory::HowEnded::Corrected(two)));
        let () = ctx.signal("go").await?;
        let ids = [one, again, two, three].map(|id| id.0);
        Ok(json!([ids, retracted, forgotten, version.sequence]))
    }
    let stay = std::time::Duration::ZERO;
    let builder = Builder::new().agent("all", agent).stay_in_memory(stay);
    let app = open(&store, builder).await;
    let run = app.start("all", "r", &()).await.unwrap();
    app.signal("r", "go", &()).await.unwrap();
    let result: Value = run.result().await.unwrap();
    assert_eq!(result, json!([[1, 1, 2, 3], 4, 5, 5]));
    for _ in 0..2 {
        let replayed = app.replay("r").await.unwrap();
        assert!(replayed.is_same(), "{replayed}");
    }
    let journal = app.journal("r").await.unwrap();
    let kinds = journal.steps.values().map(|step| step.kind);
    assert_eq!(kinds.filter(|kind| *kind == StepKind::Memory).count(), 9);
}

/// Code that writes something else, and a record that no search gives.
#[tokio::test]
async fn a_replay_finds_what_is_not_the_same() {
    let store = store_on(&SimDisk::new(1));
    async fn agent(ctx: Ctx, (text, words, limit): (String, String, usize)) -> Result<u64> {
        let kitchen = ctx.memory("kitchen");
        kitchen.add(NewDocument::fact(text)).await?;
        let query = Query::words(words).limit(limit).scope(Scope::Shared);
        let found = kitchen.search(&query, &RankingConfig::default()).await?;
        Ok(found.hits.len() as u64)
    }
    let app = open(&store, Builder::new().agent("a", agent)).await;
    let input = ("an oven", "oven", 5);
    let found: u64 = app.run("a", "r", &input).await.unwrap();
    assert_eq!(found, 1);

    let other = |change: fn(&mut (String, String, usize))| {
        Builder::new().agent("a", move |ctx, mut input: (String, String, usize)| {
            change(&mut input);
            agent(ctx, input)
        })
    };
    for (change, kind, sides) in [
        (
            (|input| input.0 = "a pan".into()) as fn(&mut (String, String, usize)),
            DivergenceKind::Retrieval,
            ["writes \"an oven\"", "writes \"a pan\""],
        ),
        (
            |input| input.1 = "pan".into(),
            DivergenceKind::Input,
            ["\"query\":\"oven\"", "\"query\":\"pan\""],
        ),
        (
            |input| input.2 = 4,
            DivergenceKind::Input,
            ["\"limit\":5", "\"limit\":4"],
        ),
    ] {
        let replayed = other(change).replay_store(&store, "r").await.unwrap();
        let divergence = replayed.divergence().unwrap();
        assert_eq!(divergence.kind, kind, "{divergence}");
        let both = [&divergence.recorded, &divergence.now].map(ToString::to_string);
        for (side, expected) in both.iter().zip(sides) {
            assert!(side.contains(expected), "{expected} in {divergence}");
        }
    }

    // The same run, but for the score that it says it found.
    let forged = StreamId::run("forged").unwrap();
    let mut copies = Vec::new();
    for event in events(&store, &StreamId::run("r").unwrap()).await {
        let payload = |payload: &dalsegno_store::Payload, change: bool| match &payload.body {
            dalsegno_store::Body::Inline(bytes) if change => {
                let mut found: Value = serde_json::from_slice(bytes).unwrap();
                found["hits"][0]["score"] = json!(7);
                dalsegno_store::NewPayload::json(found.to_string())
            }
            dalsegno_store::Body::Inline(bytes) => {
                dalsegno_store::NewPayload::new(payload.content_type.clone(), bytes.clone())
            }
            dalsegno_store::Body::Stored { .. } => panic!("long"),
        };
        let is_lookup = event.kind == Kind::RetrievalPerformed;
        let mut new = NewEvent::new(event.kind.clone()).with_fields(event.fields.clone());
        new.memory = event.memory;
        new.input = event.input.as_ref().map(|input| payload(input, false));
        new.output = event
            .output
            .as_ref()
            .map(|output| payload(output, is_lookup));
        let is_lease = matches!(event.kind, Kind::LeaseTaken | Kind::LeaseReleased);
        copies.extend((!is_lease).then_some(new));
    }
    let append = dalsegno_store::Append::to(forged, copies);
    store.append(vec![append]).await.unwrap();
    let replayed = app.replay("forged").await.unwrap();
    let divergence = replayed.divergence().unwrap();
    assert_eq!(divergence.kind, DivergenceKind::Retrieval);
    let words = divergence.to_string();
    assert!(
        words.contains("recorded retrieval kitchen.search#1 finds document 1 (score 7)"),
        "{words}"
    );
    assert!(
        words.contains("now retrieval kitchen.search#1 finds document 1 (score "),
        "{words}"
    );
}

/// What the origin has written is not written again, wherever the fork begins.
#[tokio::test]
async fn a_fork_shares_what_was_found_and_written() {
    let store = store_on(&SimDisk::new(1));
    async fn agent(ctx: Ctx, (): ()) -> Result<(u64, Vec<(u64, i64)>)> {
        let kitchen = ctx.memory("kitchen");
        let id = kitchen.add(NewDocument::fact("an oven")).await?;
        let found = kitchen.search(&oven(), &RankingConfig::default()).await?;
        let hits = found.hits.iter().map(|hit| (hit.id.0, hit.score));
        Ok((id.0, hits.collect()))
    }
    let app = open(&store, Builder::new().agent("a", agent)).await;
    let origin: Value = app.run("a", "r", &()).await.unwrap();
    let recorded = events(&store, &StreamId::run("r").unwrap()).await;
    let of = |kind: Kind| {
        let found = recorded.iter().find(|event| event.kind == kind);
        found.unwrap().sequence
    };
    let (intent, looked) = (of(Kind::StepIntended), of(Kind::RetrievalPerformed));
    for cut in intent..=recorded.len() as u64 {
        let name = format!("fork-{cut}");
        let fork = dalsegno::Fork::at(cut).named(&name);
        let run = app.fork("r", fork).await.unwrap();
        let forked: Value = run.result().await.unwrap();
        assert_eq!(forked, origin, "at {cut}");
        let replayed = app.replay(&name).await.unwrap();
        assert!(replayed.is_same(), "at {cut}: {replayed}");
    }
    let kitchen = app.memory("kitchen").await.unwrap();
    assert_eq!(kitchen.version().await.unwrap().sequence, 1);

    // What it found is changed in the fork only.
    let mut found = json_of(recorded[looked as usize - 1].output.as_ref());
    found["hits"][0]["score"] = json!(7);
    let step = dalsegno::Fork::at(recorded.len() as u64).named("changed");
    let run = app.fork("r", step.with_outcome("kitchen.search#1", &found).unwrap());
    let changed: Value = run.await.unwrap().result().await.unwrap();
    assert_eq!(changed, json!([1, [[1, 7]]]));
    let replayed = app.replay("changed").await.unwrap();
    assert!(replayed.is_same(), "{replayed}");
    let write = dalsegno::Fork::at(recorded.len() as u64).named("no");
    let error = app.fork(
        "r",
        write.with_outcome("kitchen.add#1", &json!({})).unwrap(),
    );
    let error = error.await.unwrap_err().to_string();
    assert!(error.contains("a write to a memory"), "{error}");
}

/// Counts how often it is asked.
#[derive(Debug)]
struct Counting(EmbedderId, AtomicUsize);

impl Embedder for Counting {
    fn id(&self) -> &EmbedderId {
        &self.0
    }

    fn dimensions(&self) -> usize {
        2
    }

    fn limit(&self) -> dalsegno_embed::TextLimit {
        dalsegno_embed::TextLimit {
            bytes: 1000,
            tokens: None,
        }
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<dalsegno_embed::Vector>, EmbedError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let vectors = texts.iter().map(|text| {
            let components = vec![text.len() as i8, -1];
            dalsegno_embed::Vector::from_i8(components).unwrap()
        });
        Ok(vectors.collect())
    }
}

#[tokio::test]
async fn an_embedder_is_asked_once_and_its_answer_is_recorded() {
    let store = store_on(&SimDisk::new(1));
    let counting = Arc::new(Counting(
        EmbedderId::new("counting", []),
        AtomicUsize::new(0),
    ));
    let embedder: Arc<dyn Embedder> = Arc::clone(&counting) as Arc<dyn Embedder>;
    let agent = move |ctx: Ctx, (): ()| {
        let embedder = Arc::clone(&embedder);
        async move {
            let kitchen = ctx.memory("kitchen");
            let vectors = ctx.embed(&embedder, ["oven", "pan"]).await?;
            assert_eq!(vectors[1], Vector::from_i8(vec![3, -1]).unwrap());
            for (text, vector) in ["oven", "pan"].into_iter().zip(vectors.clone()) {
                kitchen.add(NewDocument::fact(text).vector(vector)).await?;
            }
            let query = Query::hybrid("pan", vectors[1].clone());
            let ranking = RankingConfig::default().model(embedder.id().to_string());
            let found = kitchen.search(&query, &ranking).await?;
            let () = ctx.signal("go").await?;
            let many = vec!["x"; dalsegno::memory::EMBED_LIMIT_TEXTS + 1];
            let many = ctx.embed(&embedder, many).await.unwrap_err();
            assert_eq!(many.kind(), FailureKind::TooLarge);
            Ok(found.hits.iter().map(|hit| hit.id.0).collect::<Vec<_>>())
        }
    };
    let stay = std::time::Duration::ZERO;
    let builder = Builder::new().agent("a", agent).stay_in_memory(stay);
    let app = open(&store, builder).await;
    let run = app.start("a", "r", &()).await.unwrap();
    while app.journal("r").await.unwrap().waits.is_empty() {
        tokio::task::yield_now().await;
    }
    app.signal("r", "go", &()).await.unwrap();
    assert_eq!(run.result::<Vec<u64>>().await.unwrap(), [2, 1]);
    let replayed = app.replay("r").await.unwrap();
    assert!(replayed.is_same(), "{replayed}");
    assert_eq!(counting.1.load(Ordering::Relaxed), 1);
    let recorded = events(&store, &StreamId::run("r").unwrap()).await;
    let lookup = recorded.iter().find(|e| e.kind == Kind::RetrievalPerformed);
    let asked = json_of(lookup.unwrap().input.as_ref());
    assert_eq!(asked["vector"], "03ff");
    let id = counting.0.to_string();
    assert_eq!(asked["ranking"]["model"], id);
    let embedded = recorded.iter().find(|e| {
        let input = e.input.as_ref();
        input.is_some_and(|_| json_of(input)["embedder"] == id)
    });
    assert!(embedded.is_some());
}
