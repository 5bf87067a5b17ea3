//! Helpers in a database: several handles keep and drop them at once, connections are lost, and what is
//! there is always whole and never from before a drop.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::*;
use dalsegno_contract::world::{block_on, noted};
use dalsegno_pgtest::Server;
use dalsegno_postgres::PostgresStore;
use dalsegno_store::{Append, NewHelper, Store, StoreError, StreamId};

/// Several parts.
const LENGTH: usize = 3_500_000;

fn memory(store: &PostgresStore, name: &str) -> StreamId {
    let stream = StreamId::memory(name).unwrap();
    let append = Append::to(stream.clone(), vec![noted(1)]);
    block_on(store.append(vec![append])).unwrap();
    stream
}

fn begin(store: &PostgresStore, stream: &StreamId) -> u64 {
    block_on(store.begin_helpers(stream)).unwrap().unwrap()
}

/// A helper that is the same number from its first byte to its last.
fn filled(of: u64, with: u64, length: usize) -> NewHelper {
    let bytes = with.to_le_bytes().into_iter().cycle().take(length / 8 * 8);
    NewHelper {
        name: "docs".into(),
        of,
        bytes: bytes.collect(),
    }
}

/// The number that a helper is filled with: it must be whole.
fn found(store: &PostgresStore, stream: &StreamId) -> Option<u64> {
    let bytes = block_on(store.helper(stream, "docs")).unwrap()?;
    let (numbers, rest) = bytes.as_chunks::<8>();
    let first = u64::from_le_bytes(numbers[0]);
    let is_whole = numbers.iter().all(|n| u64::from_le_bytes(*n) == first);
    assert!(is_whole && rest.is_empty(), "a mixture of two");
    Some(first)
}

fn keep(store: &PostgresStore, stream: &StreamId, begun: u64, helper: NewHelper) -> bool {
    block_on(store.keep_helper(stream, begun, helper)).unwrap()
}

/// Parts that no helper has.
const LEFT: &str = "SELECT count(*) FROM helper_part p
     WHERE NOT EXISTS (SELECT 1 FROM helper h WHERE h.writing = p.writing)";

/// Every helper says how often they had been dropped when its making was begun; so after the next drop
/// none may be there that says less.
#[test]
fn nothing_from_before_a_drop_is_there_after_it() {
    let server = Server::shared();
    let url = server.url();
    let store = open(&url);
    let stream = memory(&store, "notes");
    let (drops, of, is_over) = (AtomicU64::new(1), AtomicU64::new(1), AtomicBool::new(false));
    let kept = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for length in [8, LENGTH, LENGTH] {
            let (url, stream) = (&url, &stream);
            let (drops, of, is_over, kept) = (&drops, &of, &is_over, &kept);
            scope.spawn(move || {
                let store = open(url);
                while !is_over.load(Ordering::SeqCst) {
                    let begun = begin(&store, stream);
                    let helper = filled(
                        of.fetch_add(1, Ordering::SeqCst),
                        drops.load(Ordering::SeqCst),
                        length,
                    );
                    if keep(&store, stream, begun, helper) {
                        kept.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        // Until many were kept, between drops and beside them.
        let mut seen = 0;
        while kept.load(Ordering::SeqCst) < 60 || seen < 5 {
            let dropped = drops.fetch_add(1, Ordering::SeqCst) + 1;
            block_on(store.drop_helpers(&stream)).unwrap();
            // Some get through, and what was under way before comes to its end.
            let enough = kept.load(Ordering::SeqCst) + 3;
            while kept.load(Ordering::SeqCst) < enough {
                let left = found(&store, &stream);
                seen += u64::from(left.is_some());
                if left.is_some_and(|begun_after| begun_after < dropped) {
                    is_over.store(true, Ordering::SeqCst);
                    panic!("{left:?} came back after drop {dropped}");
                }
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert_eq!(server.number(&url, LEFT), 0);
    block_on(store.drop_helpers(&stream)).unwrap();
    assert_eq!(server.number(&url, "SELECT count(*) FROM helper_part"), 0);
    assert_eq!(server.number(&url, "SELECT count(*) FROM helper"), 0);
}

/// Who keeps the first one has got so far that nothing stops it: then who drops it waits, and removes it.
#[test]
fn a_drop_waits_for_who_is_about_to_be_done() {
    let server = Server::shared();
    let url = server.url();
    let store = open(&url);
    let stream = memory(&store, "notes");
    begin(&store, &stream);
    let keeps = "BEGIN; SELECT * FROM helper WHERE name = '' FOR UPDATE;
         DO $$ BEGIN WHILE NOT EXISTS (SELECT 1 FROM pg_locks
                 WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))) LOOP
             PERFORM pg_sleep(0.01);
         END LOOP; END $$;
         INSERT INTO helper_part VALUES (7, 0, 'a secret');
         INSERT INTO helper SELECT stream, 'docs', 1, 7 FROM helper WHERE name = ''; COMMIT";
    std::thread::scope(|scope| {
        scope.spawn(|| server.sql(&url, keeps));
        let is_locked = "SELECT count(*) FROM pg_stat_activity
             WHERE query LIKE 'BEGIN; SELECT * FROM helper WHERE%' AND wait_event = 'PgSleep'";
        while server.number(&url, is_locked) == 0 {
            std::thread::yield_now();
        }
        block_on(store.drop_helpers(&stream)).unwrap();
        assert_eq!(server.number(&url, "SELECT count(*) FROM helper"), 0);
        assert_eq!(server.number(&url, "SELECT count(*) FROM helper_part"), 0);
    });
}

/// The connections of who keeps one are cut all the time: there is the one before or the new one, and
/// nothing else is left.
#[test]
fn what_is_cut_off_leaves_the_one_before() {
    let server = Server::start();
    let url = server.url();
    let store = open(&url);
    let stream = memory(&store, "notes");
    let begun = begin(&store, &stream);
    assert!(keep(&store, &stream, begun, filled(1, 1, LENGTH)));
    let is_over = AtomicBool::new(false);
    let (mut last, mut failed) = (1, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                       WHERE query LIKE '%helper_part%' AND pid <> pg_backend_pid()";
            while !is_over.load(Ordering::SeqCst) {
                server.sql(&url, cut);
            }
        });
        for of in 2..20 {
            let length = [8, LENGTH, 4 * LENGTH][of as usize % 3];
            match block_on(store.keep_helper(&stream, begun, filled(of, of, length))) {
                Ok(true) => last = of,
                Ok(false) => panic!("nobody else keeps one"),
                Err(StoreError::Backend(why)) => {
                    assert!(why.contains("not kept"), "{why}");
                    failed += 1;
                }
                Err(e) => panic!("{e}"),
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(failed >= 1, "nothing was cut");
    // Of a commit nobody may have heard.
    assert!(found(&store, &stream).is_some_and(|found| found >= last));
    assert_eq!(server.number(&url, LEFT), 0);
    let left = filled(1_000_000, 9, LENGTH);
    assert!(keep(&store, &stream, begun, left));
    assert_eq!(found(&store, &stream), Some(9));
}

/// One that is kept while somebody appends, and the other way round: nobody waits.
#[test]
fn appends_do_not_wait_for_who_keeps_one() {
    let server = Server::shared();
    let url = server.url();
    let store = open(&url);
    let stream = memory(&store, "notes");
    begin(&store, &stream);
    // Somebody has locked all that can be locked of helpers, until something was appended.
    let lock = "BEGIN; SELECT * FROM helper FOR UPDATE;
         DO $$ BEGIN WHILE NOT EXISTS (SELECT 1 FROM event WHERE sequence = 2) LOOP
             PERFORM pg_sleep(0.01);
         END LOOP; END $$; COMMIT";
    std::thread::scope(|scope| {
        scope.spawn(|| server.sql(&url, lock));
        let is_locked = "SELECT count(*) FROM pg_stat_activity
             WHERE query LIKE 'BEGIN; SELECT * FROM helper FOR UPDATE;%'
                 AND wait_event = 'PgSleep'";
        while server.number(&url, is_locked) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(found(&store, &stream), None);
        let append = Append::to(stream.clone(), vec![noted(2)]);
        block_on(store.append(vec![append])).unwrap();
    });
    assert_eq!(all(&store, &stream).len(), 2);
}

#[test]
fn one_that_is_too_large_is_not_kept() {
    let server = Server::shared();
    let url = server.url();
    let store = open(&url);
    let stream = memory(&store, "notes");
    let begun = begin(&store, &stream);
    let mut helper = filled(1, 1, 8);
    helper.bytes = vec![0; (1 << 30) + 1];
    assert!(!keep(&store, &stream, begun, helper));
    assert_eq!(found(&store, &stream), None);
}

/// A store that was made before there were helpers.
#[test]
fn an_older_store_gets_their_tables_when_it_is_opened() {
    let server = Server::shared();
    let url = server.url();
    let stream = memory(&open(&url), "notes");
    let before = "DROP TABLE helper, helper_part; UPDATE meta SET version = 1";
    server.sql(&url, before);
    let store = open(&url);
    let begun = begin(&store, &stream);
    assert!(keep(&store, &stream, begun, filled(1, 1, 80)));
    assert_eq!(found(&store, &stream), Some(1));
    assert_eq!(all(&store, &stream).len(), 1);
}
