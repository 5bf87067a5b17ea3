//! Random histories of a memory, and stores to live them in.

#![allow(dead_code)] // Not every test uses all of it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dalsegno_memory::{
    AsOf, Content, DocId, DocKind, Hits, Memory, MemoryOptions, NewDocument, Query, RankingConfig,
    Scope, Vector,
};
use dalsegno_simdisk::SimDisk;
use dalsegno_store::{LocalStore, Options, Store, Version};

pub const DIMENSION: usize = 24;

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

/// A folder that goes with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("memory-{}-{count}", std::process::id());
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        drop(std::fs::remove_dir_all(&dir));
        Folder(dir)
    }

    pub fn open(&self) -> LocalStore {
        options().open(&self.0).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Small segments, so that there are several.
pub fn options() -> Options {
    Options::new().segment_bytes(64 << 10)
}

/// A store in memory, the same every time.
pub fn simulated(disk: &SimDisk) -> LocalStore {
    let options = Options::new()
        .fs(Arc::new(disk.clone()))
        .without_threads()
        .segment_bytes(32 << 10);
    options.open("store").unwrap()
}

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    pub fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

const WORDS: [&str; 28] = [
    "oven",
    "ovens",
    "bread",
    "Bread",
    "salt",
    "knife",
    "kitchen",
    "guest",
    "guests",
    "allergic",
    "nuts",
    "menu",
    "Häuser",
    "Haus",
    "straße",
    "книга",
    "книги",
    "cheval",
    "chevaux",
    "東京",
    "menus",
    "baking",
    "bakes",
    "heat",
    "heating",
    "seven",
    "minutes",
    "the",
];

pub fn vector(random: &mut Random) -> Vector {
    let components = (0..DIMENSION).map(|_| random.below(255) as i32 - 127);
    Vector::from_i8(components.map(|c| c as i8).collect()).unwrap()
}

fn text(random: &mut Random, most: usize) -> String {
    let count = 1 + random.below(most);
    let words: Vec<&str> = (0..count).map(|_| *random.one(&WORDS)).collect();
    words.join(" ")
}

pub fn document(random: &mut Random) -> NewDocument {
    let kind = *random.one(&DocKind::ALL);
    // Some are long, and are stored in several pieces.
    let most = if random.below(12) == 0 { 900 } else { 12 };
    let mut new = NewDocument::new(kind, text(random, most))
        .confidence(random.below(1001) as u16)
        .source(format!("page {}", random.below(9)));
    if random.below(3) == 0 {
        new = new.title(text(random, 3));
    }
    if random.below(2) == 0 {
        new = new.vector(vector(random));
    }
    for tag in ["red", "green", "blue"] {
        if random.below(3) == 0 {
            new = new.tag(tag);
        }
    }
    match random.below(3) {
        0 => new.scope(Scope::Agent("cook".into())),
        1 => new.valid_from_us(100).valid_until_us(200),
        _ => new,
    }
}

pub fn queries(random: &mut Random) -> Vec<Query> {
    let words = text(random, 4);
    vec![
        Query::words(words.clone()).explain(),
        Query::words(text(random, 3)).tag("red").limit(3),
        Query::words("the oven heats bread")
            .valid_at_us(150)
            .confidence_from(300),
        Query::vector(vector(random)).limit(7).explain(),
        Query::hybrid(words, vector(random)).explain(),
        Query::hybrid(text(random, 2), vector(random))
            .kind(DocKind::Fact)
            .kind(DocKind::Plan)
            .scope(Scope::Shared)
            .context_bytes(120),
    ]
}

pub fn configs() -> Vec<RankingConfig> {
    let mut small = RankingConfig::default().bm25(900, 400).weights(700, 1300);
    small.depth = 4;
    small.analyser.language = dalsegno_memory::Language::None;
    vec![RankingConfig::default(), small]
}

/// A document of a history, and what became of it.
#[derive(Clone)]
pub struct Lived {
    pub id: DocId,
    pub kind: DocKind,
    pub content: Content,
    pub ended: u64,
    pub forgotten: u64,
}

impl Lived {
    pub fn was_there(&self, sequence: u64) -> bool {
        self.id.0 <= sequence && self.ended > sequence
    }
}

/// A history as it was lived, with what was found at each version.
#[derive(Default)]
pub struct History {
    pub lived: Vec<Lived>,
    pub found: Vec<(Version, Vec<Hits>)>,
    pub last_forgot: u64,
}

impl History {
    async fn note(&mut self, memory: &Memory, queries: &[Query]) {
        let version = memory.version().await.unwrap();
        let found = all_hits(memory, queries, AsOf::Now).await;
        self.found.push((version, found));
    }

    async fn lived(&mut self, memory: &Memory, id: DocId) {
        let document = memory.get(id).await.unwrap();
        self.lived.push(Lived {
            id,
            kind: document.kind,
            content: document.content,
            ended: u64::MAX,
            forgotten: u64::MAX,
        });
    }

    /// A document that has not ended, if there is one; or any that is not forgotten.
    fn some(&self, random: &mut Random, is_there: bool) -> Option<usize> {
        let fits =
            |lived: &Lived| lived.forgotten == u64::MAX && (!is_there || lived.ended == u64::MAX);
        let fit: Vec<usize> = (0..self.lived.len())
            .filter(|at| fits(&self.lived[*at]))
            .collect();
        (!fit.is_empty()).then(|| *random.one(&fit))
    }

    /// One step of a random life.
    pub async fn step(&mut self, memory: &Memory, random: &mut Random, queries: &[Query]) {
        match random.below(10) {
            0..=4 => {
                let id = memory.add(document(random)).await.unwrap();
                self.lived(memory, id).await;
            }
            5 => {
                let documents = (0..3).map(|_| document(random)).collect();
                for id in memory.add_many(documents).await.unwrap() {
                    self.lived(memory, id).await;
                }
            }
            6 | 7 => {
                let Some(at) = self.some(random, true) else {
                    return;
                };
                let new = memory.correct(self.lived[at].id, document(random)).await;
                let new = new.unwrap();
                self.lived[at].ended = new.0;
                self.lived(memory, new).await;
            }
            8 => {
                let Some(at) = self.some(random, true) else {
                    return;
                };
                let id = self.lived[at].id;
                let version = memory.retract(id, "it is not so").await.unwrap();
                self.lived[at].ended = version.sequence;
            }
            _ => {
                let Some(at) = self.some(random, false) else {
                    return;
                };
                let forgotten = memory.forget(&[self.lived[at].id], "asked for").await;
                let sequence = forgotten.unwrap().version.sequence;
                self.lived[at].forgotten = sequence;
                self.last_forgot = sequence;
            }
        }
        self.note(memory, queries).await;
    }

    pub async fn live(
        memory: &Memory,
        random: &mut Random,
        queries: &[Query],
        steps: usize,
    ) -> History {
        let mut history = History::default();
        for _ in 0..steps {
            history.step(memory, random, queries).await;
        }
        history
    }
}

pub async fn all_hits(memory: &Memory, queries: &[Query], as_of: AsOf) -> Vec<Hits> {
    let mut all = Vec::new();
    for config in configs() {
        for query in queries {
            let query = query.clone().as_of(as_of);
            all.push(memory.search(&query, &config).await.unwrap());
        }
    }
    all
}

/// What was found, without what is said about it.
pub fn ids_and_scores(hits: &[Hits]) -> Vec<Vec<(DocId, i64)>> {
    let each = |hits: &Hits| hits.hits.iter().map(|hit| (hit.id, hit.score)).collect();
    hits.iter().map(each).collect()
}

/// All ways of computing that must make no difference.
pub fn ways() -> Vec<MemoryOptions> {
    [(true, 2), (false, 1)]
        .map(|(simd, threads)| MemoryOptions::new().simd(simd).threads(threads))
        .to_vec()
}

pub fn shared(store: &LocalStore) -> Arc<dyn Store> {
    Arc::new(store.clone())
}
