//! A search at an old version, through today's index, is the search that was made then: after
//! reopening, after a rebuild, after an import elsewhere, on every kind of store, however it is
//! computed. What was forgotten is gone at every version, and is the one exception.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::*;
use dalsegno_memory::{AsOf, DocId, Memory, MemoryOptions, NewDocument, Query};
use dalsegno_postgres::PostgresOptions;
use dalsegno_simdisk::SimDisk;
use dalsegno_store::transfer::{self, Export, Importing};
use dalsegno_store::{Store, Version};

/// A memory with only the documents of a version that are left, and what they are called there.
async fn fresh(history: &History, version: Version) -> (Memory, Vec<DocId>) {
    let store = Arc::new(simulated(&SimDisk::new(7)));
    let memory = Memory::open(store, "fresh").await.unwrap();
    let mut names = Vec::new();
    let mut documents = Vec::new();
    for lived in &history.lived {
        if lived.was_there(version.sequence) && lived.forgotten == u64::MAX {
            names.push(lived.id);
            documents.push(again(lived));
        }
    }
    memory.add_many(documents).await.unwrap();
    (memory, names)
}

fn again(lived: &Lived) -> NewDocument {
    let content = &lived.content;
    let mut new = NewDocument::new(lived.kind, content.text.clone())
        .confidence(content.confidence)
        .scope(content.scope.clone());
    if let Some(title) = &content.title {
        new = new.title(title.clone());
    }
    if let Some(vector) = &content.vector {
        new = new.vector(vector.clone());
    }
    if let (Some(from), Some(until)) = (content.valid_from_us, content.valid_until_us) {
        new = new.valid_from_us(from).valid_until_us(until);
    }
    content
        .tags
        .iter()
        .fold(new, |new, tag| new.tag(tag.clone()))
}

/// Compares every version with what was found then; and, if there is time, with a memory that never
/// had anything else.
async fn compare(memory: &Memory, history: &History, queries: &[Query], with_fresh: bool) {
    for (version, then) in &history.found {
        let now = all_hits(memory, queries, AsOf::Version(*version)).await;
        let forgotten = history.lived.iter().filter(|lived| {
            lived.was_there(version.sequence)
                && lived.forgotten != u64::MAX
                && lived.forgotten > version.sequence
        });
        let forgotten = forgotten.count() as u64;
        assert!(now.iter().all(|hits| hits.forgotten_since == forgotten));
        // Forgetting changes the numbers that words are weighed by, also for what is left.
        let is_touched = history.lived.iter().any(|lived| {
            lived.id.0 <= version.sequence
                && lived.forgotten != u64::MAX
                && lived.forgotten > version.sequence
        });
        if !is_touched {
            let at = version.sequence;
            assert_eq!(ids_and_scores(&now), ids_and_scores(then), "at {at}");
            assert!(now == *then, "something else differs at {at}");
        }
        if with_fresh {
            let (fresh, names) = fresh(history, *version).await;
            let mut found = all_hits(&fresh, queries, AsOf::Now).await;
            for hit in found.iter_mut().flat_map(|hits| &mut hits.hits) {
                hit.id = names[hit.number as usize];
            }
            let at = version.sequence;
            assert_eq!(ids_and_scores(&now), ids_and_scores(&found), "at {at}");
        }
    }
}

/// All that must make no difference, for a history that was lived in a store.
async fn compare_everywhere(store: Arc<dyn Store>, history: &History, queries: &[Query]) {
    for options in ways() {
        let reopened = options.open(Arc::clone(&store), "life").await.unwrap();
        compare(&reopened, history, queries, false).await;
        reopened.keep().await.unwrap();
        let from_kept = options.open(Arc::clone(&store), "life").await.unwrap();
        compare(&from_kept, history, queries, false).await;
        let stream = reopened.stream().clone();
        drop((reopened, from_kept));
        store.drop_helpers(&stream).await.unwrap();
        let rebuilt = options.open(Arc::clone(&store), "life").await.unwrap();
        compare(&rebuilt, history, queries, false).await;
    }
    let mut file = Vec::new();
    transfer::export(&*store, &Export::Store, 0, &mut file)
        .await
        .unwrap();
    let elsewhere = Arc::new(simulated(&SimDisk::new(9)));
    let how = Importing::default();
    let imported = transfer::import(&*elsewhere, &how, || Ok(&file[..])).await;
    assert_eq!(imported.unwrap().imported.len(), 1);
    let memory = Memory::open(elsewhere, "life").await.unwrap();
    compare(&memory, history, queries, false).await;
}

#[test]
fn in_random_lives() {
    for seed in 0..12 {
        block_on(async {
            let mut random = Random::new(seed);
            let store: Arc<dyn Store> = Arc::new(simulated(&SimDisk::new(seed)));
            let memory = Memory::open(Arc::clone(&store), "life").await.unwrap();
            let queries = queries(&mut random);
            let history = History::live(&memory, &mut random, &queries, 40).await;
            compare(&memory, &history, &queries, seed < 4).await;
            drop(memory);
            compare_everywhere(store, &history, &queries).await;
        });
    }
}

#[test]
fn on_a_disk_that_is_closed_and_opened() {
    let folder = Folder::new();
    let mut random = Random::new(99);
    let queries = queries(&mut random);
    let mut history = History::default();
    for round in 0..4 {
        let store = folder.open();
        block_on(async {
            let memory = Memory::open(shared(&store), "life").await.unwrap();
            compare(&memory, &history, &queries, false).await;
            for _ in 0..15 {
                history.step(&memory, &mut random, &queries).await;
            }
            if round % 2 == 0 {
                memory.keep().await.unwrap();
            }
        });
        store.close().unwrap();
    }
    let store = folder.open();
    block_on(compare_everywhere(shared(&store), &history, &queries));
}

#[test]
fn in_postgresql() {
    let server = dalsegno_pgtest::Server::shared();
    for seed in 200..202 {
        let database = PostgresOptions::new().open(&server.url()).unwrap();
        let store: Arc<dyn Store> = Arc::new(database.clone());
        block_on(async {
            let mut random = Random::new(seed);
            let memory = Memory::open(Arc::clone(&store), "life").await.unwrap();
            let queries = queries(&mut random);
            let history = History::live(&memory, &mut random, &queries, 25).await;
            assert!(history.last_forgot > 0);
            compare(&memory, &history, &queries, true).await;
            compare_everywhere(store, &history, &queries).await;
            let report = database.verify(|_| ()).await.unwrap();
            assert!(report.is_sound(), "{report:?}");
        });
    }
}

#[test]
fn from_a_folder_in_postgresql() {
    let server = dalsegno_pgtest::Server::shared();
    let database = PostgresOptions::new().open(&server.url()).unwrap();
    block_on(async {
        let mut random = Random::new(300);
        let store: Arc<dyn Store> = Arc::new(simulated(&SimDisk::new(1)));
        let memory = Memory::open(Arc::clone(&store), "life").await.unwrap();
        let queries = queries(&mut random);
        let history = History::live(&memory, &mut random, &queries, 30).await;
        let copied = transfer::copy(&*store, &database, false, &mut |_| true).await;
        assert!(copied.unwrap().differences.is_empty());
        let there = Memory::open(Arc::new(database.clone()), "life")
            .await
            .unwrap();
        compare(&there, &history, &queries, false).await;
        let report = database.verify(|_| ()).await.unwrap();
        assert!(report.is_sound(), "{report:?}");
    });
}

#[test]
fn after_ten_thousand_more() {
    let folder = Folder::new();
    let store = dalsegno_store::LocalStore::open(&folder.0).unwrap();
    let store = shared(&store);
    block_on(async {
        let mut random = Random::new(5);
        let memory = Memory::open(Arc::clone(&store), "life").await.unwrap();
        let queries = queries(&mut random);
        let history = History::live(&memory, &mut random, &queries, 30).await;
        for _ in 0..20 {
            let more = (0..500).map(|_| document(&mut random)).collect();
            memory.add_many(more).await.unwrap();
        }
        compare(&memory, &history, &queries, false).await;
        // Enough vectors for two threads.
        for _ in 0..50 {
            let more = (0..500).map(|_| NewDocument::plan("x").vector(vector(&mut random)));
            memory.add_many(more.collect()).await.unwrap();
        }
        let version = memory.version().await.unwrap();
        let now = all_hits(&memory, &queries, AsOf::Now).await;
        memory.keep().await.unwrap();
        for threads in [1, 2, 3] {
            for simd in [false, true] {
                let options = MemoryOptions::new().threads(threads).simd(simd);
                let other = options.open(Arc::clone(&store), "life").await.unwrap();
                assert_eq!(
                    all_hits(&other, &queries, AsOf::Version(version)).await,
                    now
                );
            }
        }
    });
}
