//! Small questions: which version was it at a time, what is under a key, whose vectors are these.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use dalsegno_memory::{
    AsOf, DocId, Memory, MemoryError, NewDocument, Query, RankingConfig, Vector,
};
use dalsegno_simdisk::SimDisk;
use dalsegno_store::{Answer, Hash, LocalStore, Over, Store, StoreError};

async fn empty() -> Memory {
    let store = Arc::new(simulated(&SimDisk::new(1)));
    Memory::open(store, "kitchen").await.unwrap()
}

fn vector(first: i8, dimensions: usize) -> Vector {
    let mut components = vec![0; dimensions];
    components[0] = first;
    Vector::from_i8(components).unwrap()
}

#[test]
fn a_time_is_a_version() {
    block_on(async {
        let memory = empty().await;
        assert_eq!(memory.version_at_us(u64::MAX).await.unwrap().sequence, 0);
        for text in ["one", "two", "three"] {
            memory.add(NewDocument::fact(text)).await.unwrap();
        }
        memory.retract(DocId(1), "gone").await.unwrap();
        memory.add(NewDocument::fact("four")).await.unwrap();
        memory.retract(DocId(2), "gone").await.unwrap();
        let changes = memory.changes(AsOf::Sequence(0), AsOf::Now).await.unwrap();
        let mut times: Vec<u64> = changes.iter().map(|change| change.at_us).collect();
        times.dedup();
        for time in &times {
            // The last event at that time.
            let last = changes
                .iter()
                .rfind(|change| change.at_us <= *time)
                .unwrap();
            let found = memory.version_at_us(*time).await.unwrap();
            assert_eq!(found.sequence, last.sequence);
            let same = memory.version_as_of(AsOf::Version(found)).await.unwrap();
            assert_eq!(found, same);
        }
        assert_eq!(
            memory.version_at_us(times[0] - 1).await.unwrap().sequence,
            0
        );
        assert_eq!(memory.version_at_us(u64::MAX).await.unwrap().sequence, 6);
        assert_eq!(memory.count(AsOf::Now).await.unwrap(), 2);
        assert_eq!(memory.count(AsOf::Sequence(3)).await.unwrap(), 3);
    });
}

#[test]
fn what_is_under_a_key_stays_there() {
    block_on(async {
        let memory = empty().await;
        assert_eq!(memory.under_key("oven").await.unwrap(), None);
        let oven = NewDocument::fact("12 minutes").key("oven");
        let id = memory.add(oven).await.unwrap();
        memory
            .correct(id, NewDocument::fact("7 minutes"))
            .await
            .unwrap();
        memory.forget(&[id], "asked").await.unwrap();
        assert_eq!(memory.under_key("oven").await.unwrap(), Some(id));
    });
}

/// The model of the first vector is that of the memory; another one is refused, and both are named.
#[test]
fn a_memory_has_one_model() {
    block_on(async {
        let store = Arc::new(simulated(&SimDisk::new(1)));
        let open = || Memory::open(store.clone(), "kitchen");
        let memory = open().await.unwrap();
        assert_eq!(memory.model().await.unwrap(), None);
        memory.add(NewDocument::fact("no vector")).await.unwrap();
        let first = NewDocument::fact("a").vector(vector(1, 4)).model("table#1");
        let first = memory.add(first).await.unwrap();
        let named = |memory: Memory| async move { memory.model().await.unwrap() };
        assert_eq!(named(memory.clone()).await.as_deref(), Some("table#1"));

        let other = || NewDocument::fact("b").vector(vector(2, 4)).model("table#2");
        let refused = [
            memory.add(other()).await.unwrap_err(),
            memory.correct(first, other()).await.unwrap_err(),
        ];
        let query = Query::vector(vector(1, 4));
        let ranking = RankingConfig::default().model("table#2");
        let searched = memory.search(&query, &ranking).await.unwrap_err();
        for error in refused.into_iter().chain([searched]) {
            assert!(matches!(error, MemoryError::Model { .. }), "{error}");
            let words = error.to_string();
            assert!(
                words.contains("table#1") && words.contains("table#2"),
                "{words}"
            );
        }
        // Who does not say is believed, as before there were models.
        memory
            .add(NewDocument::fact("c").vector(vector(3, 4)))
            .await
            .unwrap();
        let ranking = RankingConfig::default().model("table#1");
        assert_eq!(memory.search(&query, &ranking).await.unwrap().hits.len(), 2);

        // It is known after reopening, and after the first vector is forgotten.
        memory.forget(&[first], "asked").await.unwrap();
        let again = open().await.unwrap();
        assert_eq!(named(again).await.as_deref(), Some("table#1"));
    });
}

/// Whoever searched a version without vectors found the same as who does it since there are some,
/// whatever model made them.
#[test]
fn a_version_without_vectors_knows_no_model() {
    block_on(async {
        let memory = empty().await;
        memory.add(NewDocument::fact("the oven")).await.unwrap();
        let then = memory.version().await.unwrap();
        let query = Query::hybrid("oven", vector(1, 8)).as_of(then);
        let ranking = RankingConfig::default().model("table#2");
        let found = memory.search(&query, &ranking).await.unwrap();
        assert_eq!(found.hits.len(), 1);
        let first = NewDocument::fact("a").vector(vector(1, 4)).model("table#1");
        memory.add(first).await.unwrap();
        assert_eq!(memory.search(&query, &ranking).await.unwrap(), found);
        let error = memory.search(&query.as_of(AsOf::Now), &ranking).await;
        assert!(matches!(error.unwrap_err(), MemoryError::Model { .. }));
    });
}

/// A store that gives no contents while it is told so.
#[derive(Debug)]
struct Failing {
    store: LocalStore,
    fails: AtomicBool,
}

impl Over for Failing {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    fn pieces<'a>(&'a self, hashes: &'a [Hash]) -> Answer<'a, Vec<Vec<u8>>> {
        match self.fails.load(Ordering::Relaxed) {
            true => Box::pin(async { Err(StoreError::Backend("no contents now".into())) }),
            false => self.store.pieces(hashes),
        }
    }
}

/// Somebody began to make the index of vectors, and was stopped.
#[test]
fn a_version_without_vectors_is_searched_while_their_index_is_made() {
    block_on(async {
        let store = Arc::new(Failing {
            store: simulated(&SimDisk::new(1)),
            fails: AtomicBool::new(false),
        });
        let open = || Memory::open(store.clone(), "kitchen");
        let memory = open().await.unwrap();
        memory.add(NewDocument::fact("the oven")).await.unwrap();
        let then = memory.version().await.unwrap();
        let new = |text: &str| NewDocument::fact(text).vector(vector(1, 4));
        memory.add(new("a")).await.unwrap();
        memory.keep().await.unwrap();
        memory.add(new("b")).await.unwrap();

        let memory = open().await.unwrap();
        let ranking = RankingConfig::default();
        let query = Query::hybrid("oven", vector(1, 4));
        memory
            .search(&Query::words("oven"), &ranking)
            .await
            .unwrap();
        store.fails.store(true, Ordering::Relaxed);
        memory.search(&query, &ranking).await.unwrap_err();
        store.fails.store(false, Ordering::Relaxed);
        let found = memory.search(&query.as_of(then), &ranking).await.unwrap();
        assert_eq!(found.hits.len(), 1);
    });
}
