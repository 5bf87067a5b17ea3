//! How good answers are on a collection: words by many settings, vectors of each model, and both.
//!
//! Everything is asked of a real memory in a store. Words are beside a textbook's BM25 in floating point
//! with the same analyser (and tantivy, if there are peers); vectors and both are beside words alone.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use dalsegno_embed::{Embedder, StaticTable};
use dalsegno_memory::{Analyser, DocId, Memory, NewDocument, Query, RankingConfig, Vector};
use dalsegno_store::LocalStore;
use tokio::runtime::Runtime;

use super::collection::{Collection, Quality, Text};
use super::peer::Peer;
use super::runtime;
use super::textbook::Textbook;
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::Round;
use crate::row::{Goal, Row};

const FOUND: usize = 100;
const AT_ONCE: usize = 1000;
const BYTES_AT_ONCE: usize = 4 << 20;
const EMBEDDED: usize = 25;
const TEXTBOOK: &str = "BM25 of a textbook, in floating point";
const WORDS_ALONE: &str = "words alone, by default";
/// k1 and b of BM25, in thousandths.
const BM25: [(u32, u32); 4] = [(900, 400), (1200, 750), (1500, 750), (2000, 750)];
/// The k of fusion, and the weights of words and of vectors.
const FUSION: [(u32, u32, u32); 6] = [
    (10, 1000, 1000),
    (60, 1000, 1000),
    (30, 1000, 1000),
    (5, 1000, 1000),
    (10, 1000, 700),
    (10, 1000, 1300),
];
/// "No worse": what rounding to integers may cost.
const AS_GOOD: f64 = 0.999;

/// All rows.
pub fn rows(setting: &Setting, folder: &Path, emit: &mut Emit<'_>) -> Result<(), Error> {
    let collection = Collection::read(folder)?;
    let runtime = runtime()?;
    let words = Asked::new(&runtime, &setting.dir.join("words"), &collection, None)?;
    for stop_words in [true, false] {
        words_rows(&collection, &words, stop_words, emit)?;
    }
    if let Some(program) = &setting.memory.peers {
        beside_tantivy(setting, program, &collection, &words, emit)?;
    }
    let alone = words.judge(&RankingConfig::default(), Way::Words)?;
    for (number, model) in setting.memory.models.iter().enumerate() {
        let embedder = open(model)?;
        let folder = setting.dir.join(format!("model-{number}"));
        let asked = Asked::new(&runtime, &folder, &collection, Some(&*embedder))?;
        let name = embedder.id().name().to_owned();
        emit(embedding(&name, &*embedder, &collection)?);
        emit_both(
            &format!("{name}, vectors"),
            asked.judge(&RankingConfig::default(), Way::Vectors)?,
            alone,
            WORDS_ALONE,
            Goal::Shown,
            emit,
        );
        for (k, words, vectors) in FUSION {
            for (k1, b) in [BM25[0], BM25[1]] {
                let mut ranking = RankingConfig::default().bm25(k1, b).weights(words, vectors);
                ranking.fusion_k = k;
                let row = format!(
                    "{name}, both, {}, fusion k {k}, weights {words}:{vectors}",
                    numbers(k1, b)
                );
                let found = asked.judge(&ranking, Way::Both)?;
                emit_both(&row, found, alone, WORDS_ALONE, Goal::Shown, emit);
            }
        }
    }
    Ok(())
}

fn words_rows(
    collection: &Collection,
    words: &Asked<'_>,
    stop_words: bool,
    emit: &mut Emit<'_>,
) -> Result<(), Error> {
    let mut ranking = RankingConfig::default();
    ranking.analyser.english_stop_words = stop_words;
    let texts: Vec<String> = collection.documents.iter().map(|d| d.whole()).collect();
    let book = Textbook::new(ranking.analyser, texts.iter().map(String::as_str));
    for (k1, b) in BM25 {
        let ours = words.judge(&ranking.clone().bm25(k1, b), Way::Words)?;
        let (k1_f, b_f) = (f64::from(k1) / 1e3, f64::from(b) / 1e3);
        let answers: Vec<_> = collection
            .queries
            .iter()
            .map(|query| book.search(query.asked(), k1_f, b_f, FOUND))
            .collect();
        let without = match stop_words {
            true => "",
            false => ", stop words too",
        };
        let name = format!("words, {}{without}", numbers(k1, b));
        let book = collection.judge(&answers);
        emit_both(
            &name,
            ours,
            book,
            TEXTBOOK,
            Goal::RatioAtLeast(AS_GOOD),
            emit,
        );
    }
    Ok(())
}

/// tantivy is given the words as our analyser makes them. Its k1 and b cannot be set.
fn beside_tantivy(
    setting: &Setting,
    program: &Path,
    collection: &Collection,
    words: &Asked<'_>,
    emit: &mut Emit<'_>,
) -> Result<(), Error> {
    let analyser = Analyser::default();
    let analysed = |text: &str| {
        let mut words = Vec::new();
        analyser.words(text, |word| words.push(word.to_owned()));
        words.join(" ")
    };
    let texts: Vec<String> = collection
        .documents
        .iter()
        .map(|d| analysed(&d.whole()))
        .collect();
    let file = setting.dir.join("analysed");
    std::fs::write(&file, texts.join("\n"))?;
    let folder = setting.dir.join("tantivy");
    let mut tantivy = Peer::start(program, "tantivy-words", &file, &folder)?;
    tantivy.add(texts.len())?;
    let mut answers = Vec::new();
    for query in &collection.queries {
        answers.push(tantivy.search(FOUND, &analysed(query.asked()))?.places);
    }
    let ours = words.judge(&RankingConfig::default().bm25(1200, 750), Way::Words)?;
    let name = format!("words, {}", numbers(1200, 750));
    let theirs = collection.judge(&answers);
    emit_both(
        &name,
        ours,
        theirs,
        "tantivy, same words",
        Goal::RatioAtLeast(AS_GOOD),
        emit,
    );
    Ok(())
}

fn numbers(k1: u32, b: u32) -> String {
    format!("k1 {} b {}", f64::from(k1) / 1e3, f64::from(b) / 1e3)
}

fn emit_both(
    name: &str,
    ours: Quality,
    anchor: Quality,
    anchor_name: &'static str,
    goal: Goal,
    emit: &mut Emit<'_>,
) {
    for (unit, goal, ours, anchor) in [
        ("nDCG@10", goal, ours.ndcg_at_10, anchor.ndcg_at_10),
        (
            "recall@100",
            Goal::Shown,
            ours.recall_at_100,
            anchor.recall_at_100,
        ),
    ] {
        emit(Row {
            name: name.into(),
            unit,
            anchor_name,
            goal,
            rounds: vec![Round { ours, anchor }],
        });
    }
}

/// How long a document takes, on the first few.
fn embedding(name: &str, embedder: &dyn Embedder, collection: &Collection) -> Result<Row, Error> {
    let mut rounds = Vec::new();
    for document in collection.documents.iter().take(EMBEDDED) {
        let text = document.whole();
        let begun = Instant::now();
        embedder.embed(&[&text])?;
        let ours = begun.elapsed().as_secs_f64() * 1e3;
        let begun = Instant::now();
        Analyser::default().words(&text, |word| {
            std::hint::black_box(word);
        });
        let anchor = begun.elapsed().as_secs_f64() * 1e3;
        rounds.push(Round { ours, anchor });
    }
    Ok(Row {
        name: format!("{name}, the vector of a document"),
        unit: "ms",
        anchor_name: "its words",
        goal: Goal::Shown,
        rounds,
    })
}

/// A folder with a `config.json` has a transformer, one without a table.
fn open(folder: &Path) -> Result<Box<dyn Embedder>, Error> {
    match folder.join("config.json").exists() {
        false => Ok(Box::new(StaticTable::open(folder)?)),
        #[cfg(feature = "transformer")]
        true => Ok(Box::new(dalsegno_embed::Transformer::open(folder)?)),
        #[cfg(not(feature = "transformer"))]
        true => Err(format!(
            "{} has a transformer: build with --features transformer",
            folder.display()
        )
        .into()),
    }
}

/// A memory with all documents, and the vectors of the queries.
struct Asked<'c> {
    runtime: &'c Runtime,
    collection: &'c Collection,
    memory: Memory,
    /// Where in the collection a document is.
    places: HashMap<DocId, usize>,
    vectors: Vec<Vector>,
}

/// Which way a query is asked.
#[derive(Clone, Copy)]
enum Way {
    Words,
    Vectors,
    Both,
}

impl Way {
    fn query(self, text: &str, vector: Option<&Vector>) -> Result<Query, Error> {
        let vector = || vector.cloned().ok_or("there is no model");
        Ok(match self {
            Way::Words => Query::words(text),
            Way::Vectors => Query::vector(vector()?),
            Way::Both => Query::hybrid(text, vector()?),
        })
    }
}

impl<'c> Asked<'c> {
    fn new(
        runtime: &'c Runtime,
        folder: &Path,
        collection: &'c Collection,
        embedder: Option<&dyn Embedder>,
    ) -> Result<Asked<'c>, Error> {
        let embed = |texts: &[&str]| -> Result<Vec<Vector>, Error> {
            let Some(embedder) = embedder else {
                return Ok(Vec::new());
            };
            let vectors = embedder.embed(texts)?.into_iter();
            let vectors = vectors.map(|vector| Vector::from_i8(vector.into_vec()));
            Ok(vectors.collect::<Result<_, _>>()?)
        };
        let store = Arc::new(LocalStore::open(folder)?);
        let memory = runtime.block_on(Memory::open(store, "collection"))?;
        let mut places = HashMap::new();
        // A document without any text is in some collections, and nothing finds it.
        let texts = collection.documents.iter().map(|document| document.whole());
        let texts = texts.enumerate().filter(|(_, text)| !text.is_empty());
        let mut texts = texts.peekable();
        while texts.peek().is_some() {
            // Not all at once: a collection may be as large as the machine.
            let mut bytes = 0;
            let mut some: Vec<(usize, String)> = Vec::new();
            while some.len() < AT_ONCE && bytes < BYTES_AT_ONCE {
                let Some(text) = texts.next() else {
                    break;
                };
                bytes += text.1.len();
                some.push(text);
            }
            let words: Vec<&str> = some.iter().map(|(_, text)| text.as_str()).collect();
            let mut vectors = embed(&words)?.into_iter();
            let documents = words.iter().map(|text| {
                let new = NewDocument::document(*text);
                match vectors.next() {
                    Some(vector) => new.vector(vector),
                    None => new,
                }
            });
            let ids = runtime.block_on(memory.add_many(documents.collect()))?;
            places.extend(ids.into_iter().zip(some.iter().map(|(place, _)| *place)));
        }
        let queries: Vec<&str> = collection.queries.iter().map(Text::asked).collect();
        Ok(Asked {
            runtime,
            collection,
            memory,
            places,
            vectors: embed(&queries)?,
        })
    }

    fn judge(&self, ranking: &RankingConfig, way: Way) -> Result<Quality, Error> {
        let mut answers = Vec::new();
        for (place, query) in self.collection.queries.iter().enumerate() {
            let query = way.query(query.asked(), self.vectors.get(place))?;
            let query = query.limit(FOUND);
            let found = self.runtime.block_on(self.memory.search(&query, ranking))?;
            answers.push(found.hits.iter().map(|hit| self.places[&hit.id]).collect());
        }
        Ok(self.collection.judge(&answers))
    }
}
