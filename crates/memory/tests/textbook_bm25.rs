//! Integer BM25 ranks as the formula of the textbook does in floating point.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::HashMap;
use std::sync::Arc;

use common::*;
use dalsegno_memory::{Analyser, Language, Memory, NewDocument, Query, RankingConfig};
use dalsegno_store::LocalStore;

/// Scores of all documents that have one of the words, by number.
fn textbook(texts: &[String], query: &str, k1: f64, b: f64) -> HashMap<u32, f64> {
    let analyser = Analyser {
        language: Language::English,
        english_stop_words: false,
    };
    let words = |text: &str| {
        let mut words: Vec<String> = Vec::new();
        analyser.words(text, |word| words.push(word.to_owned()));
        words
    };
    let documents: Vec<Vec<String>> = texts.iter().map(|text| words(text)).collect();
    let n = documents.len() as f64;
    let average = documents.iter().map(Vec::len).sum::<usize>() as f64 / n;
    let mut scores = HashMap::new();
    for word in words(query) {
        let df = documents.iter().filter(|d| d.contains(&word)).count() as f64;
        let idf = ((n + 1.0) / (df + 0.5)).log2();
        for (document, number) in documents.iter().zip(0..) {
            let tf = document.iter().filter(|found| **found == word).count() as f64;
            if tf > 0.0 {
                let norm = k1 * (1.0 - b + b * document.len() as f64 / average);
                *scores.entry(number).or_insert(0.0) += idf * tf * (k1 + 1.0) / (tf + norm);
            }
        }
    }
    scores
}

#[test]
fn ranks_are_those_of_the_textbook() {
    let folder = Folder::new();
    let store = Arc::new(LocalStore::open(&folder.0).unwrap());
    let mut random = Random::new(77);
    // Rare and common words, short and long texts.
    let text = |random: &mut Random, most: usize| {
        let words = 1 + random.below(most);
        let words = (0..words).map(|_| {
            let spread = 1 + random.below(3000);
            format!("w{}", random.below(spread))
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let texts: Vec<String> = (0..1500).map(|_| text(&mut random, 80)).collect();
    block_on(async {
        let memory = Memory::open(store, "life").await.unwrap();
        let new = texts.iter().map(|text| NewDocument::document(text.clone()));
        memory.add_many(new.collect()).await.unwrap();
        for (k1, b) in [(900, 400), (1200, 750), (1500, 750), (0, 0), (2000, 1000)] {
            let ranking = RankingConfig::default().bm25(k1, b);
            for _ in 0..40 {
                let query = text(&mut random, 6);
                let (k1, b) = (f64::from(k1) / 1000.0, f64::from(b) / 1000.0);
                let expected = textbook(&texts, &query, k1, b);
                let all = Query::words(query.clone()).limit(1500);
                let found = memory.search(&all, &ranking).await.unwrap();
                assert_eq!(found.hits.len(), expected.len(), "{query}");
                let mut before = f64::INFINITY;
                for hit in &found.hits {
                    let score = expected[&hit.number];
                    let ours = hit.score as f64 / 2_f64.powi(32);
                    assert!((ours / score - 1.0).abs() < 1e-5, "{ours} {score}");
                    // Equal to five digits is equal.
                    assert!(
                        score <= before * (1.0 + 1e-5),
                        "{query}: {score} after {before}"
                    );
                    before = score;
                }
            }
        }
    });
}

#[test]
fn an_explanation_adds_up() {
    let folder = Folder::new();
    let store = Arc::new(LocalStore::open(&folder.0).unwrap());
    block_on(async {
        let mut random = Random::new(5);
        let memory = Memory::open(store, "life").await.unwrap();
        let new = (0..200).map(|_| document(&mut random));
        memory.add_many(new.collect()).await.unwrap();
        for query in queries(&mut random) {
            let ranking = RankingConfig::default();
            let query = query.explain();
            let found = memory.search(&query, &ranking).await.unwrap();
            let is_hybrid = query.text.is_some() && query.vector.is_some();
            for hit in found.hits {
                let why = hit.explanation.unwrap();
                let words = why.words.as_ref();
                if let Some(words) = words {
                    let sum: i64 = words.terms.iter().map(|term| term.score).sum();
                    assert_eq!(sum, words.score);
                    assert_eq!(words.documents, 200);
                    assert!(words.terms.iter().all(|term| term.tf > 0 && term.df > 0));
                }
                let fused = words.map_or(0, |words| words.fused)
                    + why.vector.map_or(0, |vector| vector.fused);
                match is_hybrid {
                    true => assert_eq!(hit.score, fused),
                    false => assert_eq!(
                        hit.score,
                        words.map_or_else(|| why.vector.unwrap().dot, |words| words.score)
                    ),
                }
            }
        }
    });
}
