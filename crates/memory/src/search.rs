//! Search: from a query to ranked documents, as a pure function of version, query and ranking.
//!
//! ```text
//! words  ─► lists of the index, cut at the version ─► BM25 ─► the best ─┐
//! vector ─► all vectors of the version, dot products ───────► the best ─┴► fused by rank ─► hits
//! ```
//!
//! Invariants: nothing here depends on what was added after the version, on the order in which
//! things were indexed, on threads or on the processor. Equal scores are in the order of numbers.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::bm25::{self, Norms};
use crate::config::RankingConfig;
use crate::dot::Way;
use crate::index::{At, Table, VectorIndex, WordIndex};
use crate::query::{ByVector, ByWords, Explanation, Filter, QUERY_LIMIT_WORDS, Query, Term};
use crate::top::Top;

/// A word that a query has more often counts only so often.
const ASKED_LIMIT: u32 = 255;
/// The numerator of fusion by rank.
const FUSION_ONE: u64 = 1 << 40;

/// What is searched, at one moment.
pub(crate) struct Searched<'a> {
    pub table: &'a Table,
    pub words: Option<&'a WordIndex>,
    pub vectors: Option<&'a VectorIndex>,
    pub at: At,
}

/// How it is done, which makes no difference to what is found.
pub(crate) struct Means<'a> {
    pub way: Way,
    pub threads: usize,
    pub scratch: &'a Scratch,
}

/// A document that was found.
pub(crate) struct Found {
    pub number: u32,
    pub score: i64,
    pub explanation: Option<Explanation>,
}

/// The words of a query: each once, with how often it comes, in the order in which they come.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub words: Vec<(String, u32)>,
    pub left_out: u64,
}

impl Asked {
    pub fn new(config: &RankingConfig, text: &str) -> Asked {
        let mut asked = Asked::default();
        let mut places: HashMap<String, usize> = HashMap::new();
        config.analyser.words(text, |word| {
            let next = asked.words.len() + asked.left_out as usize;
            let place = *places.entry(word.to_owned()).or_insert(next);
            if let Some((_, count)) = asked.words.get_mut(place) {
                *count = (*count + 1).min(ASKED_LIMIT);
            } else if place == next && asked.words.len() < QUERY_LIMIT_WORDS {
                asked.words.push((word.to_owned(), 1));
            } else if place == next {
                asked.left_out += 1;
            }
        });
        asked
    }
}

/// The documents that a query finds, the best first; at most so many.
pub(crate) fn search(
    searched: &Searched<'_>,
    query: &Query,
    config: &RankingConfig,
    asked: &Asked,
    means: &Means<'_>,
) -> Vec<Found> {
    let wants = filter(searched, &query.filter);
    let limit = query.hits();
    let vector = query.vector.as_ref().zip(searched.vectors);
    // By the query alone: whether the memory has vectors yet is no part of it.
    let is_hybrid = !asked.words.is_empty() && query.vector.is_some();
    let depth = match is_hybrid {
        true => config.depth as usize,
        false => limit,
    };
    let by_words = match searched.words {
        Some(words) if !asked.words.is_empty() => best_words(
            searched,
            words,
            config,
            asked,
            means.scratch,
            depth,
            &*wants,
        ),
        _ => Vec::new(),
    };
    let by_vector = match vector {
        Some((query, vectors)) => vectors.best(
            searched.table,
            &searched.at,
            query.components(),
            means.way,
            means.threads,
            depth,
            &*wants,
        ),
        None => Vec::new(),
    };
    let best = match is_hybrid {
        true => fuse(&by_words, &by_vector, config, limit),
        false if by_words.is_empty() => by_vector.clone(),
        false => by_words.clone(),
    };
    let explain = |number| {
        explain(
            searched, config, asked, number, &by_words, &by_vector, is_hybrid,
        )
    };
    let found = best.into_iter().map(|(score, number)| Found {
        number,
        score,
        explanation: query.explain.then(|| explain(number)),
    });
    found.collect()
}

/// Whether a document is one of those that are wanted.
fn filter<'a>(searched: &Searched<'a>, filter: &'a Filter) -> Box<dyn Fn(u32) -> bool + Sync + 'a> {
    let table = searched.table;
    if *filter == Filter::default() {
        return Box::new(|_| true);
    }
    let tag = |tag: &String| table.tag(tag);
    let all: Option<Vec<u32>> = filter.all_tags.iter().map(tag).collect();
    let any: Vec<u32> = filter.any_tags.iter().filter_map(tag).collect();
    let scopes: Vec<u32> = filter
        .scopes
        .iter()
        .filter_map(|s| table.scope(s))
        .collect();
    Box::new(move |number| {
        let doc = &table.docs[number as usize];
        // A tag that nothing has is in no document.
        let Some(all) = &all else {
            return false;
        };
        (filter.kinds.is_empty() || filter.kinds.contains(&doc.kind))
            && (filter.scopes.is_empty() || scopes.contains(&doc.scope))
            && all.iter().all(|tag| doc.tags.contains(tag))
            && (filter.any_tags.is_empty() || any.iter().any(|tag| doc.tags.contains(tag)))
            && doc.confidence >= filter.confidence_from
            && filter
                .recorded_from_us
                .is_none_or(|from| doc.time_us >= from)
            && filter
                .recorded_until_us
                .is_none_or(|until| doc.time_us < until)
            && filter
                .valid_at_us
                .is_none_or(|at| doc.valid_from_us <= at && at < doc.valid_until_us)
    })
}

/// All documents of a version that a filter wants, in their order.
pub(crate) fn list(searched: &Searched<'_>, wanted: &Filter, after: Option<u64>) -> Vec<u32> {
    let wants = filter(searched, wanted);
    let (table, at) = (searched.table, &searched.at);
    let from = match after {
        Some(after) => table.docs.partition_point(|doc| doc.sequence <= after) as u32,
        None => 0,
    };
    let there = (from..at.born).filter(|number| table.is_there(at, *number));
    there.filter(|number| wants(*number)).collect()
}

fn best_words(
    searched: &Searched<'_>,
    words: &WordIndex,
    config: &RankingConfig,
    asked: &Asked,
    scratch: &Scratch,
    depth: usize,
    wants: &(dyn Fn(u32) -> bool + Sync),
) -> Vec<(i64, u32)> {
    let (table, at) = (searched.table, &searched.at);
    let norms = norms(searched, words, config);
    let sequence = at.version.sequence;
    let mut sheet = scratch.take(at.born as usize);
    for (word, count) in &asked.words {
        let Some(list) = words.list(word) else {
            continue;
        };
        let (born, df) = list.at(table, at);
        if df == 0 {
            continue;
        }
        let all_there = df == born as u64;
        let idf = bm25::idf(at.documents, df);
        for (doc, tf) in list.docs[..born].iter().zip(&list.counts) {
            if all_there || table.deaths[*doc as usize] > sequence {
                let norm = norms.of(words.lengths[*doc as usize]);
                let part = norms.part(idf, u32::from(*tf), norm);
                sheet.add(*doc, part * u64::from(*count));
            }
        }
    }
    let mut top = Top::new(depth);
    for doc in &sheet.touched {
        top.offer(sheet.scores[*doc as usize] as i64, *doc, wants);
    }
    scratch.give_back(sheet);
    top.finish()
}

fn norms(searched: &Searched<'_>, words: &WordIndex, config: &RankingConfig) -> Norms {
    let at = &searched.at;
    let (k1, b) = (config.k1_per_mille, config.b_per_mille);
    Norms::new(k1, b, at.documents, words.total(at))
}

/// What a rank from 1 on adds to a fused score.
fn fused(config: &RankingConfig, weight: u32, rank: usize) -> i64 {
    let each = FUSION_ONE / (u64::from(config.fusion_k) + rank as u64);
    (u64::from(weight) * each) as i64
}

fn fuse(
    by_words: &[(i64, u32)],
    by_vector: &[(i64, u32)],
    config: &RankingConfig,
    limit: usize,
) -> Vec<(i64, u32)> {
    let mut sums: HashMap<u32, i64> = HashMap::new();
    let legs = [
        (by_words, config.words_weight),
        (by_vector, config.vectors_weight),
    ];
    for (leg, weight) in legs {
        for ((_, number), rank) in leg.iter().zip(1..) {
            *sums.entry(*number).or_default() += fused(config, weight, rank);
        }
    }
    let mut top = Top::new(limit);
    for (number, score) in sums {
        top.offer(score, number, &|_| true);
    }
    top.finish()
}

fn explain(
    searched: &Searched<'_>,
    config: &RankingConfig,
    asked: &Asked,
    number: u32,
    by_words: &[(i64, u32)],
    by_vector: &[(i64, u32)],
    is_hybrid: bool,
) -> Explanation {
    let place = |leg: &[(i64, u32)]| leg.iter().position(|(_, found)| *found == number);
    let fused = |weight, rank| match is_hybrid {
        true => fused(config, weight, rank),
        false => 0,
    };
    let words = searched.words.zip(place(by_words)).map(|(words, at)| {
        let norms = norms(searched, words, config);
        let length = words.lengths[number as usize];
        ByWords {
            score: by_words[at].0,
            rank: at as u32 + 1,
            fused: fused(config.words_weight, at + 1),
            documents: searched.at.documents,
            total_words: words.total(&searched.at),
            length,
            norm: norms.of(length),
            terms: terms(searched, words, &norms, asked, number),
        }
    });
    let vector = place(by_vector).map(|at| ByVector {
        dot: by_vector[at].0,
        rank: at as u32 + 1,
        fused: fused(config.vectors_weight, at + 1),
    });
    Explanation { words, vector }
}

fn terms(
    searched: &Searched<'_>,
    words: &WordIndex,
    norms: &Norms,
    asked: &Asked,
    number: u32,
) -> Vec<Term> {
    let norm = norms.of(words.lengths[number as usize]);
    let each = asked.words.iter().filter_map(|(word, count)| {
        let list = words.list(word)?;
        let at = list.docs.binary_search(&number).ok()?;
        let (_, df) = list.at(searched.table, &searched.at);
        let (tf, idf) = (
            u32::from(list.counts[at]),
            bm25::idf(searched.at.documents, df),
        );
        Some(Term {
            word: word.clone(),
            asked: *count,
            tf,
            df,
            idf,
            score: (norms.part(idf, tf, norm) * u64::from(*count)) as i64,
        })
    });
    each.collect()
}

/// Memory for scores, which is used again: one number for each document.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Mutex<Vec<Sheet>>);

/// Scores by document. All are 0 but for those that were touched.
#[derive(Debug, Default)]
struct Sheet {
    scores: Vec<u64>,
    touched: Vec<u32>,
}

impl Sheet {
    #[inline]
    fn add(&mut self, doc: u32, part: u64) {
        let score = &mut self.scores[doc as usize];
        if *score == 0 {
            self.touched.push(doc);
        }
        *score += part;
    }
}

impl Scratch {
    fn take(&self, documents: usize) -> Sheet {
        let mut sheets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sheet = sheets.pop().unwrap_or_default();
        if sheet.scores.len() < documents {
            sheet.scores.resize(documents, 0);
        }
        sheet
    }

    fn give_back(&self, mut sheet: Sheet) {
        for doc in sheet.touched.drain(..) {
            sheet.scores[doc as usize] = 0;
        }
        let mut sheets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sheets.len() < 4 {
            sheets.push(sheet);
        }
    }
}
