//! Searching, opening and adding with many documents, each of about 300 bytes with a vector.
//!
//! The anchors do the same work in the simplest way that a program could, with all in its memory and no
//! history; a search as of then is beside a search now.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use dalsegno_memory::{AsOf, Memory, NewDocument, Query, RankingConfig, Vector};
use dalsegno_store::LocalStore;
use tokio::runtime::Runtime;

use super::peer::Peer;
use super::textbook::Textbook;
use super::texts::Chance;
use super::{beside, runtime};
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::{alternate, median_micros};
use crate::raw::{self, RawLoop};
use crate::row::{Goal, Row};

const DOCUMENTS: usize = 100_000;
/// How many are added in one go, and how many are corrected, so that there is a history.
pub const AT_ONCE: usize = 1000;
const CORRECTED: usize = 1000;
const HITS: usize = 10;
const QUERY_WORDS: usize = 4;
const QUERIES: usize = 200;
/// Opening a large one takes seconds elsewhere.
const OPENING_ROUNDS: usize = 7;
const NAME: &str = "bench";

/// A memory full of documents, and what the anchors have of them.
pub struct Filled {
    pub runtime: Runtime,
    pub memory: Memory,
    pub texts: Vec<String>,
    pub chance: Chance,
    pub queries: Vec<String>,
    folder: PathBuf,
    vectors: Vec<Vector>,
    query_vectors: Vec<Vector>,
}

/// All rows.
pub fn rows(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    let documents = setting.memory.documents.unwrap_or(DOCUMENTS);
    let mut filled = Filled::new(&setting.dir.join("memory"), documents)?;
    searching(setting, &filled, emit)?;
    adding(setting, &mut filled, emit)?;
    let peers = match &setting.memory.peers {
        Some(program) => beside::rows(setting, program, &mut filled, emit)?,
        None => Vec::new(),
    };
    opening(setting, filled, peers, emit)
}

impl Filled {
    fn new(folder: &Path, documents: usize) -> Result<Filled, Error> {
        let runtime = runtime()?;
        let mut chance = Chance::new(1);
        let (mut texts, mut vectors) = (Vec::new(), Vec::new());
        for _ in 0..documents {
            texts.push(chance.text());
            vectors.push(chance.vector()?);
        }
        let memory = runtime.block_on(async {
            let memory = Memory::open(Arc::new(LocalStore::open(folder)?), NAME).await?;
            let mut ids = Vec::new();
            for (texts, vectors) in texts.chunks(AT_ONCE).zip(vectors.chunks(AT_ONCE)) {
                let new = texts
                    .iter()
                    .zip(vectors)
                    .map(|(text, vector)| document(text, vector));
                ids.extend(memory.add_many(new.collect()).await?);
            }
            for n in 0..CORRECTED {
                let at = n * documents / CORRECTED;
                memory
                    .correct(ids[at], document(&texts[at], &vectors[at]))
                    .await?;
            }
            Ok::<_, Error>(memory)
        })?;
        let queries = (0..QUERIES).map(|_| chance.words(QUERY_WORDS)).collect();
        let query_vectors = (0..QUERIES).map(|_| chance.vector());
        Ok(Filled {
            runtime,
            memory,
            texts,
            queries,
            folder: folder.to_owned(),
            vectors,
            query_vectors: query_vectors.collect::<Result<_, _>>()?,
            chance,
        })
    }

    /// The next document.
    pub fn new_document(&mut self) -> Result<NewDocument, Error> {
        Ok(document(&self.chance.text(), &self.chance.vector()?))
    }

    pub fn search(&self, query: Query) -> Result<(), Error> {
        let ranking = RankingConfig::default();
        let found = self.memory.search(&query, &ranking);
        match self.runtime.block_on(found)?.hits.len() {
            HITS => Ok(()),
            found => Err(format!("{found} hits instead of {HITS}").into()),
        }
    }
}

fn document(text: &str, vector: &Vector) -> NewDocument {
    NewDocument::document(text).vector(vector.clone())
}

fn searching(setting: &Setting, filled: &Filled, emit: &mut Emit<'_>) -> Result<(), Error> {
    let size = filled.texts.len();
    let ranking = RankingConfig::default();
    let book = Textbook::new(ranking.analyser, filled.texts.iter().map(String::as_str));
    // Nine tenths of the documents were there, and no correction.
    let then = AsOf::Sequence(size as u64 * 9 / 10);
    let mut turn = (0..QUERIES).cycle();
    let mut next = || turn.next().unwrap_or_default();
    let words = |n: usize| Query::words(&*filled.queries[n]);
    let vector = |n: usize| Query::vector(filled.query_vectors[n].clone());
    let both = |n: usize| Query::hybrid(&*filled.queries[n], filled.query_vectors[n].clone());

    let mut pair = |name: String,
                    anchor_name,
                    goal,
                    ours: &dyn Fn(usize) -> Result<(), Error>,
                    anchor: &dyn Fn(usize) -> Result<(), Error>|
     -> Result<(), Error> {
        let next = std::cell::RefCell::new(&mut next);
        let rounds = alternate(
            setting.rounds,
            || median_micros(|| ours((next.borrow_mut())())),
            || median_micros(|| anchor((next.borrow_mut())())),
        )?;
        emit(Row {
            name,
            unit: "us",
            anchor_name,
            goal,
            rounds,
        });
        Ok(())
    };
    let now = |query: Query| filled.search(query);
    pair(
        format!("search by words, {size} documents"),
        "a textbook's index in memory",
        below(size, 2000.0),
        &|n| now(words(n)),
        &|n| {
            std::hint::black_box(book.search(&filled.queries[n], 1.2, 0.75, HITS));
            Ok(())
        },
    )?;
    pair(
        "the same as of then".into(),
        "search now",
        Goal::RatioAtMost(1.5),
        &|n| now(words(n).as_of(then)),
        &|n| now(words(n)),
    )?;
    pair(
        format!("search by vector, {size} documents"),
        "a plain scan in memory",
        below(size, 10_000.0),
        &|n| now(vector(n)),
        &|n| {
            std::hint::black_box(scan(&filled.query_vectors[n], &filled.vectors));
            Ok(())
        },
    )?;
    pair(
        "the same as of then".into(),
        "search now",
        Goal::RatioAtMost(1.5),
        &|n| now(vector(n).as_of(then)),
        &|n| now(vector(n)),
    )?;
    pair(
        format!("search by both, {size} documents"),
        "one search by each",
        Goal::Shown,
        &|n| now(both(n)),
        &|n| now(words(n)).and_then(|()| now(vector(n))),
    )
}

/// The goals are for the usual number of documents. With others, the figure is there to be known.
fn below(documents: usize, micros: f64) -> Goal {
    match documents {
        DOCUMENTS => Goal::OursBelow(micros),
        _ => Goal::Shown,
    }
}

/// The place of the nearest.
fn scan(query: &Vector, vectors: &[Vector]) -> usize {
    let dot = |other: &Vector| -> i32 {
        let pairs = query.components().iter().zip(other.components());
        pairs.map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
    };
    let best = vectors
        .iter()
        .enumerate()
        .max_by_key(|(_, vector)| dot(vector));
    best.map_or(0, |(place, _)| place)
}

fn adding(setting: &Setting, filled: &mut Filled, emit: &mut Emit<'_>) -> Result<(), Error> {
    let bytes = filled.chance.text().len() + super::texts::DIMENSION;
    let mut raw = RawLoop::new(&setting.dir, bytes)?;
    let rounds = alternate(
        setting.rounds,
        || {
            median_micros(|| {
                let document = filled.new_document()?;
                filled.runtime.block_on(filled.memory.add(document))?;
                Ok(())
            })
        },
        || median_micros(|| raw.append()),
    )?;
    emit(Row {
        name: "one document added, durable".into(),
        unit: "us",
        anchor_name: raw::NAME,
        goal: Goal::Shown,
        rounds,
    });
    Ok(())
}

fn opening(
    setting: &Setting,
    filled: Filled,
    peers: Vec<(&'static str, Peer)>,
    emit: &mut Emit<'_>,
) -> Result<(), Error> {
    let Filled {
        runtime,
        memory,
        texts,
        folder,
        ..
    } = filled;
    runtime.block_on(memory.keep())?;
    drop(memory);
    let open = |searches: bool| {
        let begun = Instant::now();
        let memory = runtime.block_on(async {
            let memory = Memory::open(Arc::new(LocalStore::open(&folder)?), NAME).await?;
            if searches {
                let query = Query::words("w1");
                memory.search(&query, &RankingConfig::default()).await?;
            }
            Ok::<_, Error>(memory)
        })?;
        let taken = begun.elapsed();
        drop(memory);
        Ok(taken.as_secs_f64() * 1e3)
    };
    let read = || {
        let begun = Instant::now();
        read_all(&folder)?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    };
    let mut row = |name: &str, anchor_name, goal, rounds| {
        emit(Row {
            name: format!("{name}, {} documents", texts.len()),
            unit: "ms",
            anchor_name,
            goal,
            rounds,
        });
    };
    const OPENED: &str = "store and memory opened";
    const SEARCHED: &str = "the same with a first search";
    let goal = below(texts.len(), 200.0);
    let rounds = setting.rounds.min(OPENING_ROUNDS);
    row(
        OPENED,
        "reading its files",
        goal,
        alternate(rounds, || open(false), read)?,
    );
    row(
        SEARCHED,
        "reading its files",
        goal,
        alternate(rounds, || open(true), read)?,
    );
    for (name, mut peer) in peers {
        let theirs = || Ok(peer.reopen()? / 1e3);
        row(
            SEARCHED,
            name,
            Goal::Shown,
            alternate(rounds, || open(true), theirs)?,
        );
    }
    Ok(())
}

fn read_all(folder: &Path) -> Result<(), Error> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => read_all(&path)?,
            false => drop(std::hint::black_box(std::fs::read(&path)?)),
        }
    }
    Ok(())
}
