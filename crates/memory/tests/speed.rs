//! How long things take with 100,000 documents. Run it with
//! `cargo test --release -p dalsegno-memory --test speed -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use dalsegno_memory::{AsOf, Memory, MemoryOptions, NewDocument, Query, RankingConfig, Vector};
use dalsegno_store::LocalStore;

const DOCUMENTS: usize = 100_000;
const AT_ONCE: usize = 1000;
const DIMENSION: usize = 384;

/// Words as texts have them: few that come often, many that come rarely.
fn word(random: &mut Random) -> String {
    let spread = [30, 300, 3000, 60_000][random.below(4)];
    format!("w{}", random.below(spread))
}

fn text(random: &mut Random, words: usize) -> String {
    (0..words)
        .map(|_| word(random))
        .collect::<Vec<_>>()
        .join(" ")
}

fn noise(random: &mut Random) -> Vector {
    let components = (0..DIMENSION).map(|_| random.below(101) as i32 - 50);
    Vector::from_i8(components.map(|c| c as i8).collect()).unwrap()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

async fn p50(memory: &Memory, random: &mut Random, what: &str, as_of: AsOf) -> Duration {
    let mut times = Vec::new();
    for _ in 0..200 {
        let query = match what {
            "words" => Query::words(text(random, 4)),
            "vectors" => Query::vector(noise(random)),
            _ => Query::hybrid(text(random, 4), noise(random)),
        };
        let begun = Instant::now();
        let found = memory
            .search(&query.as_of(as_of), &RankingConfig::default())
            .await;
        times.push(begun.elapsed());
        assert_eq!(found.unwrap().hits.len(), 10);
    }
    median(times)
}

#[test]
#[ignore = "takes a minute, and is of use only in release"]
fn a_hundred_thousand_documents() {
    let folder = Folder::new();
    let mut random = Random::new(1);
    let store = Arc::new(LocalStore::open(&folder.0).unwrap());
    block_on(async {
        let memory = Memory::open(store.clone(), "life").await.unwrap();
        let begun = Instant::now();
        for _ in 0..DOCUMENTS / AT_ONCE {
            let new = (0..AT_ONCE)
                .map(|_| NewDocument::document(text(&mut random, 60)).vector(noise(&mut random)));
            memory.add_many(new.collect()).await.unwrap();
        }
        println!("added in {:?}", begun.elapsed());
        for n in 0..100 {
            let id = dalsegno_memory::DocId(1 + n * 900);
            memory
                .correct(id, NewDocument::document(text(&mut random, 60)))
                .await
                .unwrap();
        }
        let begun = Instant::now();
        memory.keep().await.unwrap();
        println!("kept in {:?}", begun.elapsed());
    });
    store.close().unwrap();
    drop(store);

    let begun = Instant::now();
    let store = Arc::new(LocalStore::open(&folder.0).unwrap());
    println!("store opened in {:?}", begun.elapsed());
    block_on(async {
        let begun = Instant::now();
        let memory = Memory::open(store.clone(), "life").await.unwrap();
        println!("memory opened in {:?}", begun.elapsed());
        let begun = Instant::now();
        memory
            .search(&Query::words("w1"), &RankingConfig::default())
            .await
            .unwrap();
        println!("first search by words in {:?}", begun.elapsed());
        let begun = Instant::now();
        let query = Query::vector(noise(&mut random));
        memory
            .search(&query, &RankingConfig::default())
            .await
            .unwrap();
        println!("first search by vector in {:?}", begun.elapsed());
        for what in ["words", "vectors", "both"] {
            for threads in [1, 2] {
                let options = MemoryOptions::new().threads(threads);
                let memory = options.open(store.clone(), "life").await.unwrap();
                let now = p50(&memory, &mut random, what, AsOf::Now).await;
                let then = AsOf::Sequence(DOCUMENTS as u64 + 50);
                let then = p50(&memory, &mut random, what, then).await;
                println!("{what}, {threads} threads: p50 now {now:?}, as of then {then:?}");
            }
        }
        let begun = Instant::now();
        memory.add(NewDocument::fact("one more")).await.unwrap();
        println!("one more added in {:?}", begun.elapsed());
        let begun = Instant::now();
        memory
            .forget(&[dalsegno_memory::DocId(77)], "")
            .await
            .unwrap();
        println!("one forgotten in {:?}", begun.elapsed());
    });
}
