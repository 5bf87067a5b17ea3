//! Indexes that are kept in a database: another process that opens the memory reads the tail of its
//! stream only, finds the same to the last bit, and nothing that was forgotten is in them, whoever
//! keeps them at that moment.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::*;
use dalsegno_memory::{AsOf, DocId, Memory, NewDocument};
use dalsegno_pgtest::Server;
use dalsegno_postgres::{PostgresOptions, PostgresStore};
use dalsegno_store::{Answer, Event, Hash, NewHelper, Over, Store, StoreError, StreamId};

const SECRET: &str = "zanzibarquux";

fn open(url: &str) -> PostgresStore {
    PostgresOptions::new().open(url).unwrap()
}

/// A store as one process has it, which counts what is asked of it.
#[derive(Debug)]
struct Counting {
    store: PostgresStore,
    /// Whether helpers are found.
    finds: bool,
    events: AtomicU64,
    pieces: AtomicU64,
    begun: AtomicU64,
}

impl Counting {
    fn new(url: &str, finds: bool) -> Arc<Counting> {
        Arc::new(Counting {
            store: open(url),
            finds,
            events: AtomicU64::new(0),
            pieces: AtomicU64::new(0),
            begun: AtomicU64::new(0),
        })
    }

    /// Events and pieces that were read, and how often somebody began to keep an index.
    fn counts(&self) -> (u64, u64, u64) {
        let counts = [&self.events, &self.pieces, &self.begun];
        let [events, pieces, begun] = counts.map(|count| count.swap(0, Ordering::SeqCst));
        (events, pieces, begun)
    }
}

impl Over for Counting {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    fn events<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Event>> {
        Box::pin(async move {
            let events = self.store.events(stream, from, limit).await?;
            let count = events.len() as u64;
            self.events.fetch_add(count, Ordering::SeqCst);
            Ok(events)
        })
    }

    fn pieces<'a>(&'a self, hashes: &'a [Hash]) -> Answer<'a, Vec<Vec<u8>>> {
        let count = hashes.len() as u64;
        self.pieces.fetch_add(count, Ordering::SeqCst);
        self.store.pieces(hashes)
    }

    fn begin_helpers<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<u64>> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.store.begin_helpers(stream)
    }

    fn helper<'a>(&'a self, stream: &'a StreamId, name: &'a str) -> Answer<'a, Option<Vec<u8>>> {
        match self.finds {
            true => self.store.helper(stream, name),
            false => Box::pin(async { Ok(None) }),
        }
    }
}

async fn life(store: &Arc<Counting>) -> Memory {
    let store: Arc<dyn Store> = Arc::clone(store) as _;
    Memory::open(store, "life").await.unwrap()
}

async fn fill(memory: &Memory, random: &mut Random, count: usize) {
    let documents = (0..count).map(|_| document(random)).collect();
    memory.add_many(documents).await.unwrap();
}

/// A server, and a memory of so many documents in it, of which nothing is kept.
fn filled(count: usize) -> (Server, String, Random) {
    let server = Server::shared();
    let url = server.url();
    let mut random = Random::new(count as u64);
    block_on(async {
        let memory = Memory::open(Arc::new(open(&url)), "life").await.unwrap();
        fill(&memory, &mut random, count).await;
        memory.retract(DocId(3), "").await.unwrap();
        let new = document(&mut random);
        memory.correct(DocId(4), new).await.unwrap();
    });
    (server, url, random)
}

fn helpers(server: &Server, url: &str) -> u64 {
    server.number(url, "SELECT count(*) FROM helper WHERE name <> ''")
}

#[test]
fn another_process_reads_the_tail_and_finds_the_same() {
    let (server, url, mut random) = filled(1200);
    let queries = queries(&mut random);
    assert_eq!(helpers(&server, &url), 0, "nobody waited for it");
    block_on(async {
        // Who had to read it all keeps it.
        let first = Counting::new(&url, true);
        let memory = life(&first).await;
        let (events, pieces, begun) = first.counts();
        assert!(events >= 1202 && pieces >= 1201, "{events} {pieces}");
        assert_eq!((begun, helpers(&server, &url)), (1, 3));
        fill(&memory, &mut random, 7).await;
        memory.forget(&[], "").await.unwrap();
        let expected = all_hits(&memory, &queries, AsOf::Now).await;
        // With the index of another analyser, which it has kept by itself.
        assert_eq!(helpers(&server, &url), 4);

        for round in 0..2 {
            let second = Counting::new(&url, true);
            let memory = life(&second).await;
            // What was kept last is of the newest version: see above.
            assert_eq!(second.counts(), (0, 0, 0), "{round}");
            let found = all_hits(&memory, &queries, AsOf::Now).await;
            assert!(found == expected);
            let (_, pieces, begun) = second.counts();
            assert!(pieces < 300, "only what was found: {pieces}");
            assert_eq!(begun, 0);
        }
        fill(&memory, &mut random, 9).await;
        let expected = all_hits(&memory, &queries, AsOf::Now).await;
        let third = Counting::new(&url, true);
        let memory = life(&third).await;
        assert_eq!(
            third.counts(),
            (9, 9, 0),
            "the tail, and it is not worth writing"
        );
        assert!(all_hits(&memory, &queries, AsOf::Now).await == expected);
        let fourth = Counting::new(&url, false);
        let memory = life(&fourth).await;
        assert!(fourth.counts().0 > 1210);
        assert!(all_hits(&memory, &queries, AsOf::Now).await == expected);
        let then = AsOf::Sequence(1000);
        let expected = all_hits(&memory, &queries, then).await;
        let fifth = Counting::new(&url, true);
        assert!(all_hits(&life(&fifth).await, &queries, then).await == expected);
    });
}

#[test]
fn who_is_done_keeps_what_is_worth_it() {
    let server = Server::shared();
    let url = server.url();
    let mut random = Random::new(5);
    block_on(async {
        let store = Counting::new(&url, true);
        let memory = life(&store).await;
        fill(&memory, &mut random, 499).await;
        memory.keep_if_due().await.unwrap();
        assert_eq!((store.counts().2, helpers(&server, &url)), (0, 0));
        fill(&memory, &mut random, 1).await;
        memory.keep_if_due().await.unwrap();
        assert_eq!((store.counts().2, helpers(&server, &url)), (1, 3));
        memory.keep_if_due().await.unwrap();
        fill(&memory, &mut random, 100).await;
        drop(memory);
        assert_eq!(store.counts().2, 0);
        // Of the same version, others need not write it again.
        let writing = "SELECT sum(hashtext(writing::text)) + 10000000000 FROM helper";
        let before = server.number(&url, writing);
        let again = Counting::new(&url, false);
        life(&again).await;
        let kept = server.number(&url, writing);
        assert_ne!(kept, before, "a tail that was kept");
        life(&again).await;
        assert_eq!(again.counts().2, 2);
        assert_eq!(server.number(&url, writing), kept);
    });
}

/// Damaged, cut off, of another memory, of another time, of another history, or missing.
#[test]
fn those_that_do_not_fit_are_not_believed_and_made_again() {
    let (server, url, mut random) = filled(600);
    let queries = queries(&mut random);
    block_on(async {
        let other = Memory::open(Arc::new(open(&url)), "other").await.unwrap();
        fill(&other, &mut random, 700).await;
        other.keep().await.unwrap();
        let expected = {
            let store = Counting::new(&url, true);
            all_hits(&life(&store).await, &queries, AsOf::Now).await
        };
        assert_eq!(helpers(&server, &url), 7);
        let ours = "(SELECT no FROM stream WHERE name = 'life')";
        let mut changes = Vec::new();
        for name in ["docs", "vectors", "words-%"] {
            let (bad, whose) = (
                "bytes = set_byte(bytes, length(bytes) / 2, 255 - get_byte(bytes, length(bytes) / 2))",
                format!("SELECT writing FROM helper WHERE stream = {ours} AND name LIKE '{name}'"),
            );
            changes.push(format!(
                "UPDATE helper_part SET {bad} WHERE writing IN ({whose})"
            ));
            changes.push(format!(
                "DELETE FROM helper_part WHERE writing IN ({whose})"
            ));
            changes.push(format!(
                "UPDATE helper h SET writing = o.writing FROM helper o
                 WHERE h.stream = {ours} AND o.stream <> {ours} AND h.name = o.name
                     AND h.name LIKE '{name}'"
            ));
            changes.push(format!(
                "DELETE FROM helper WHERE stream = {ours} AND name LIKE '{name}'"
            ));
        }
        for change in &changes {
            server.sql(&url, change);
            let store = Counting::new(&url, true);
            let found = all_hits(&life(&store).await, &queries, AsOf::Now).await;
            assert!(found == expected, "{change}");
            // And it is there again for the next one.
            store.counts();
            let found = all_hits(&life(&store).await, &queries, AsOf::Now).await;
            assert!(found == expected, "{change}");
            let (events, pieces, begun) = store.counts();
            assert!(
                pieces < 300 && begun == 0,
                "{change}: {events} {pieces} {begun}"
            );
        }
        // A memory of the same name with a longer history.
        let there = server.url();
        let theirs = Memory::open(Arc::new(open(&there)), "life").await.unwrap();
        fill(&theirs, &mut random, 900).await;
        theirs.keep().await.unwrap();
        let schema = |url: &str| url.split_once("schema=").unwrap().1.to_owned();
        let (from, to) = (schema(&there), schema(&url));
        server.sql(
            &url,
            &format!(
                "DELETE FROM {to}.helper WHERE stream = {ours};
             INSERT INTO {to}.helper SELECT {ours}, name, sequence, writing FROM {from}.helper;
             INSERT INTO {to}.helper_part SELECT * FROM {from}.helper_part"
            ),
        );
        let store = Counting::new(&url, true);
        let found = all_hits(&life(&store).await, &queries, AsOf::Now).await;
        assert!(found == expected);
        store.counts();
        life(&store).await;
        assert_eq!(store.counts(), (0, 0, 0), "made again");
    });
}

/// When somebody forgets something, as another process keeps its indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    BeforeItBegins,
    WhenItHasBegun,
    BeforeThe(usize),
    AfterThe(usize),
}

/// The store of a process that keeps indexes, while another forgets.
#[derive(Debug)]
struct Beside {
    store: PostgresStore,
    moment: Moment,
    /// Taken when the moment has come: what is forgotten, and the handle that does it.
    forgets: Mutex<Option<(Memory, DocId)>>,
    /// Whether the process is killed then.
    dies: bool,
    kept: AtomicU64,
}

impl Beside {
    async fn now(&self, moment: Moment) -> Result<(), StoreError> {
        let due = (moment == self.moment).then(|| self.forgets.lock().unwrap().take());
        if let Some((memory, id)) = due.flatten() {
            memory.forget(&[id], "asked").await.unwrap();
            if self.dies {
                return Err(StoreError::Closed);
            }
        }
        Ok(())
    }
}

impl Over for Beside {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    fn begin_helpers<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<u64>> {
        Box::pin(async move {
            self.now(Moment::BeforeItBegins).await?;
            let begun = self.store.begin_helpers(stream).await;
            self.now(Moment::WhenItHasBegun).await?;
            begun
        })
    }

    fn keep_helper<'a>(
        &'a self,
        stream: &'a StreamId,
        begun: u64,
        helper: NewHelper,
    ) -> Answer<'a, bool> {
        Box::pin(async move {
            let at = self.kept.fetch_add(1, Ordering::SeqCst) as usize;
            self.now(Moment::BeforeThe(at)).await?;
            let kept = self.store.keep_helper(stream, begun, helper).await;
            self.now(Moment::AfterThe(at)).await?;
            kept
        })
    }
}

/// Rows that have the secret in them. Words are kept without their endings.
fn with_the_secret(server: &Server, url: &str) -> u64 {
    let count = |table: &str| {
        let word = &SECRET[..8];
        let has =
            format!("SELECT count(*) FROM {table} WHERE position('{word}'::bytea in bytes) > 0");
        server.number(url, &has)
    };
    count("helper_part") + count("piece") + count("event")
}

#[test]
fn what_is_forgotten_is_in_none_whenever_another_keeps_them() {
    let server = Server::shared();
    let moments = [Moment::BeforeItBegins, Moment::WhenItHasBegun];
    let moments = moments
        .into_iter()
        .chain((0..3).flat_map(|at| [Moment::BeforeThe(at), Moment::AfterThe(at)]));
    for (moment, dies) in moments.flat_map(|moment| [(moment, false), (moment, true)]) {
        let url = server.url();
        block_on(async {
            let forgetter = Memory::open(Arc::new(open(&url)), "life").await.unwrap();
            let mut random = Random::new(6);
            fill(&forgetter, &mut random, 20).await;
            let secret = NewDocument::fact(SECRET).title(SECRET).tag(SECRET);
            let secret = secret.vector(vector(&mut random));
            let id = forgetter.add(secret).await.unwrap();
            fill(&forgetter, &mut random, 5).await;
            let beside = Arc::new(Beside {
                store: open(&url),
                moment,
                forgets: Mutex::new(Some((forgetter.clone(), id))),
                dies,
                kept: AtomicU64::new(0),
            });
            let store: Arc<dyn Store> = Arc::clone(&beside) as _;
            let keeper = Memory::open(store, "life").await.unwrap();
            assert!(with_the_secret(&server, &url) > 0);
            let kept = keeper.keep().await;
            assert_eq!(kept.is_err(), dies, "{moment:?}");
            assert!(beside.forgets.lock().unwrap().is_none(), "{moment:?}");
            assert_eq!(with_the_secret(&server, &url), 0, "{moment:?}, {dies}");
            let queries = queries(&mut random);
            let expected = all_hits(&forgetter, &queries, AsOf::Now).await;
            for finds in [true, false] {
                let store = Counting::new(&url, finds);
                let found = all_hits(&life(&store).await, &queries, AsOf::Now).await;
                assert!(found == expected, "{moment:?}");
            }
        });
    }
}

/// Several who add, forget and keep at once: when all are done, what was forgotten is nowhere.
#[test]
fn many_who_keep_and_forget_at_once() {
    let server = Server::shared();
    let url = server.url();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let url = &url;
            scope.spawn(move || {
                let store = open(url);
                block_on(async {
                    let memory = Memory::open(Arc::new(store), "life").await.unwrap();
                    let mut random = Random::new(seed);
                    for _ in 0..8 {
                        fill(&memory, &mut random, 3).await;
                        let secret = NewDocument::fact(SECRET).title(SECRET);
                        let id = memory.add(secret).await.unwrap();
                        memory.keep().await.unwrap();
                        memory.forget(&[id], "").await.unwrap();
                        memory.keep().await.unwrap();
                    }
                });
            });
        }
    });
    assert_eq!(with_the_secret(&server, &url), 0);
    let queries = queries(&mut Random::new(3));
    block_on(async {
        let kept = Counting::new(&url, true);
        let found = all_hits(&life(&kept).await, &queries, AsOf::Now).await;
        let made = Counting::new(&url, false);
        assert!(found == all_hits(&life(&made).await, &queries, AsOf::Now).await);
    });
}

/// A user that may only read uses what others keep, and keeps and removes nothing itself.
#[test]
fn who_may_only_read() {
    let (server, url, mut random) = filled(600);
    let queries = queries(&mut random);
    let (address, schema) = url.split_once("?schema=").unwrap();
    let role = format!("reader_{schema}");
    server.sql(
        &url,
        &format!(
            "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role};
             GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"
        ),
    );
    let reader = format!(
        "{}?schema={schema}",
        address.replace("postgres@", &format!("{role}@"))
    );
    block_on(async {
        let writer = Counting::new(&url, false);
        let expected = {
            let store = Counting::new(&reader, true);
            let memory = life(&store).await;
            assert_eq!(helpers(&server, &url), 0);
            all_hits(&memory, &queries, AsOf::Now).await
        };
        let memory = life(&writer).await;
        assert_eq!(helpers(&server, &url), 3);
        let store = Counting::new(&reader, true);
        let theirs = life(&store).await;
        assert_eq!(store.counts(), (0, 0, 0));
        assert!(all_hits(&theirs, &queries, AsOf::Now).await == expected);
        // Said by somebody who was stopped before it was done: the indexes that are kept have it.
        let draft = memory.draft_forget(&[DocId(9)], "").await.unwrap();
        let appended = writer
            .store
            .append(vec![draft.append().unwrap()])
            .await
            .unwrap();
        writer.store.durable(appended.position).await.unwrap();
        let theirs = life(&store).await;
        let found = all_hits(&theirs, &queries, AsOf::Now).await;
        // The same where nothing is kept: the contents are somebody else's to remove.
        writer.store.drop_helpers(memory.stream()).await.unwrap();
        assert!(all_hits(&life(&store).await, &queries, AsOf::Now).await == found);
        let ids = |hits: &[dalsegno_memory::Hits]| ids_and_scores(hits).concat();
        assert!(ids(&found).iter().all(|(id, _)| *id != DocId(9)));
        memory.finish_forgetting().await.unwrap();
        let memory = life(&Counting::new(&url, true)).await;
        assert!(all_hits(&memory, &queries, AsOf::Now).await == found);
        // Without a right on the tables of helpers.
        server.sql(
            &url,
            &format!("REVOKE ALL ON helper, helper_part FROM {role}"),
        );
        let theirs = life(&store).await;
        assert!(all_hits(&theirs, &queries, AsOf::Now).await == found);
    });
}
