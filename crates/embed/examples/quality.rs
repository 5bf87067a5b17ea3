//! How well vectors alone find what is relevant, on a collection with known answers.
//!
//! ```text
//! cargo run --release -p dalsegno-embed --example quality -- COLLECTION table FOLDER [DIMENSIONS]
//! cargo run --release -p dalsegno-embed --features transformer --example quality -- COLLECTION transformer FOLDER
//! cargo run --release -p dalsegno-embed --features http --example quality -- COLLECTION http URL MODEL DIMENSIONS
//! ```
//!
//! A collection is a folder in the layout of BEIR: `corpus.jsonl` (`_id`, `title`, `text`),
//! `queries.jsonl` (`_id`, `text`) and `qrels.tsv` or `qrels/test.tsv` (query, document, relevance).
//! Prints nDCG@10 and recall@100, each as the mean over the queries that have relevant documents.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use dalsegno_embed::{Embedder, StaticTable, TableOptions, Vector};
use serde_json::Value;

type Failure = Box<dyn Error>;

const USAGE: &str = "usage: quality COLLECTION table FOLDER [DIMENSIONS] | transformer FOLDER | http URL MODEL DIMENSIONS";

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [collection, embedder @ ..] = arguments.as_slice() else {
        return Err(USAGE.into());
    };
    let embedder = open(embedder)?;
    let collection = Collection::read(Path::new(collection))?;
    println!(
        "{}, {} dimensions, {}",
        embedder.id(),
        embedder.dimensions(),
        Vector::QUANTISATION
    );

    let (documents, spent) = embed(&*embedder, &collection.documents)?;
    let each = spent.as_secs_f64() * 1e3 / documents.len().max(1) as f64;
    println!("{} documents, {each:.3} ms each", documents.len());
    println!("hash of their vectors: {}", hash(&documents));
    let (queries, _) = embed(&*embedder, &collection.queries)?;

    let (mut gain, mut recall, mut count) = (0.0, 0.0, 0.0);
    for ((id, _), query) in collection.queries.iter().zip(&queries) {
        let Some(relevant) = collection.relevance.get(id) else {
            continue;
        };
        let found = search(query, &documents);
        let found = found
            .iter()
            .map(|place| collection.documents[*place].0.as_str());
        let found: Vec<u32> = found
            .map(|id| relevant.get(id).copied().unwrap_or(0))
            .collect();
        gain += ndcg(&found[..found.len().min(10)], relevant);
        let hits = found.iter().take(100).filter(|grade| **grade > 0).count();
        recall += hits as f64 / relevant.len() as f64;
        count += 1.0;
    }
    println!(
        "{count} queries: nDCG@10 {:.4}, recall@100 {:.4}",
        gain / count,
        recall / count
    );
    Ok(())
}

fn open(arguments: &[&str]) -> Result<Box<dyn Embedder>, Failure> {
    match arguments {
        ["table", folder] => Ok(Box::new(StaticTable::open(folder)?)),
        ["table", folder, dimensions] => {
            let options = TableOptions::default().dimensions(dimensions.parse()?);
            Ok(Box::new(StaticTable::open_with(folder, options)?))
        }
        #[cfg(feature = "transformer")]
        ["transformer", folder] => Ok(Box::new(dalsegno_embed::Transformer::open(folder)?)),
        #[cfg(feature = "http")]
        ["http", url, model, dimensions] => {
            let mut options = dalsegno_embed::HttpOptions::new(*url, *model, dimensions.parse()?);
            if let Ok(key) = std::env::var("OPENAI_API_KEY") {
                options = options.api_key(key);
            }
            Ok(Box::new(dalsegno_embed::HttpEmbedder::new(options)?))
        }
        ["transformer" | "http", ..] => Err("build with --features of that name".into()),
        _ => Err(USAGE.into()),
    }
}

/// Texts with their ids, and which document is how relevant to which query.
struct Collection {
    documents: Vec<(String, String)>,
    queries: Vec<(String, String)>,
    relevance: HashMap<String, HashMap<String, u32>>,
}

impl Collection {
    fn read(folder: &Path) -> Result<Collection, Failure> {
        let judged = [
            folder.join("qrels.tsv"),
            folder.join("qrels").join("test.tsv"),
        ];
        let judged = judged
            .iter()
            .find(|path| path.exists())
            .ok_or("the folder has no qrels.tsv")?;
        let mut relevance: HashMap<String, HashMap<String, u32>> = HashMap::new();
        for line in std::fs::read_to_string(judged)?.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let [query, document, grade] = fields[..] else {
                return Err(format!("not a judgement: {line}").into());
            };
            match grade.trim().parse() {
                Ok(grade @ 1..) => {
                    relevance
                        .entry(query.into())
                        .or_default()
                        .insert(document.into(), grade);
                }
                // The first line may name the columns.
                _ => continue,
            }
        }
        Ok(Collection {
            documents: read_texts(&folder.join("corpus.jsonl"))?,
            queries: read_texts(&folder.join("queries.jsonl"))?,
            relevance,
        })
    }
}

fn read_texts(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let mut texts = Vec::new();
    for line in std::fs::read_to_string(path)?.lines() {
        let line: Value = serde_json::from_str(line)?;
        let field = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let text = format!("{} {}", field("title"), field("text"));
        texts.push((field("_id"), text.trim().to_owned()));
    }
    Ok(texts)
}

fn embed(
    embedder: &dyn Embedder,
    texts: &[(String, String)],
) -> Result<(Vec<Vector>, Duration), Failure> {
    let texts: Vec<&str> = texts.iter().map(|(_, text)| text.as_str()).collect();
    let start = Instant::now();
    let vectors = embedder.embed(&texts)?;
    Ok((vectors, start.elapsed()))
}

/// The places of the hundred nearest documents: best first, the earlier one first where equal.
fn search(query: &Vector, documents: &[Vector]) -> Vec<usize> {
    let mut scored: Vec<_> = documents
        .iter()
        .enumerate()
        .map(|(place, document)| (std::cmp::Reverse(query.dot(document)), place))
        .collect();
    scored.sort_unstable();
    scored
        .into_iter()
        .take(100)
        .map(|(_, place)| place)
        .collect()
}

fn ndcg(found: &[u32], relevant: &HashMap<String, u32>) -> f64 {
    let mut best: Vec<u32> = relevant.values().copied().collect();
    best.sort_unstable_by(|a, b| b.cmp(a));
    let gain = |grades: &[u32]| -> f64 {
        let discounted =
            |(rank, grade): (usize, &u32)| f64::from(*grade) / (rank as f64 + 2.0).log2();
        grades.iter().take(10).enumerate().map(discounted).sum()
    };
    gain(found) / gain(&best)
}

/// To compare two machines or two builds.
fn hash(vectors: &[Vector]) -> String {
    let mut hasher = blake3::Hasher::new();
    for vector in vectors {
        let bytes: Vec<u8> = vector
            .as_slice()
            .iter()
            .map(|byte| byte.cast_unsigned())
            .collect();
        hasher.update(&bytes);
    }
    hasher.finalize().to_hex().to_string()
}
