//! Several who write to one memory at the same time: everything that was acknowledged is there
//! once, and of two who change the same document the second is told who was first.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::*;
use dalsegno_memory::{AsOf, DocId, HowEnded, Memory, MemoryError, NewDocument, Vector};
use dalsegno_postgres::PostgresOptions;
use dalsegno_simdisk::SimDisk;
use dalsegno_store::{Append, EventRef, Kind, NewEvent, Store, StreamId};

/// Everything can be asked from a task of a runtime with many threads.
#[test]
fn futures_can_be_sent() {
    #[allow(dead_code)] // That it compiles is the test.
    fn sent<T: Send>(_: &T) {}
    #[allow(dead_code)]
    fn each(memory: &Memory, store: Arc<dyn Store>) {
        sent(&Memory::open(store, "x"));
        sent(&memory.add(NewDocument::fact("x")));
        sent(&memory.correct(DocId(1), NewDocument::fact("x")));
        sent(&memory.retract(DocId(1), ""));
        sent(&memory.forget(&[], ""));
        sent(&memory.history(DocId(1)));
        sent(&memory.changes(AsOf::Now, AsOf::Now));
        sent(&memory.keep());
        let (query, ranking) = (Default::default(), Default::default());
        sent(&memory.search(&query, &ranking));
    }
}

#[test]
fn the_second_is_told_who_was_first_and_when() {
    let store: Arc<dyn Store> = Arc::new(simulated(&SimDisk::new(1)));
    block_on(async {
        let cook = Memory::open(Arc::clone(&store), "life")
            .await
            .unwrap()
            .by("cook");
        let waiter = Memory::open(store, "life").await.unwrap().by("waiter");
        let ids = cook
            .add_many(vec![NewDocument::fact("x"), NewDocument::fact("y")])
            .await;
        let [one, two] = ids.unwrap()[..] else {
            panic!("two");
        };
        let new = cook.correct(one, NewDocument::fact("z")).await.unwrap();
        for error in [
            waiter
                .correct(one, NewDocument::fact("w"))
                .await
                .unwrap_err(),
            waiter.retract(one, "").await.unwrap_err(),
        ] {
            let MemoryError::Ended { id, ended } = &error else {
                panic!("{error}");
            };
            assert_eq!((*id, ended.how), (one, HowEnded::Corrected(new)));
            assert_eq!(ended.by.as_deref(), Some("cook"));
            assert!(ended.at_us > 0);
            assert!(error.to_string().contains("by cook at"), "{error}");
        }
        waiter.forget(&[two], "").await.unwrap();
        let error = cook.forget(&[two], "").await.unwrap_err().to_string();
        assert!(error.contains("forgotten by waiter"), "{error}");
        // What was corrected can still be forgotten.
        waiter.forget(&[one], "").await.unwrap();
        let error = cook
            .correct(DocId(99), NewDocument::fact("w"))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("no document 99"), "{error}");
    });
}

#[test]
fn who_expects_a_version_is_told_that_it_moved() {
    let store: Arc<dyn Store> = Arc::new(simulated(&SimDisk::new(1)));
    block_on(async {
        let memory = Memory::open(store, "life").await.unwrap();
        let before = memory.version().await.unwrap();
        let first = memory.add_if(before, vec![NewDocument::fact("x")]).await;
        assert_eq!(first.unwrap(), [DocId(1)]);
        let second = memory.add_if(before, vec![NewDocument::fact("y")]).await;
        assert!(matches!(
            second,
            Err(MemoryError::Moved { expected: 0, .. })
        ));
        assert_eq!(memory.version().await.unwrap().sequence, 1);
    });
}

#[test]
fn what_has_a_key_is_added_once() {
    let store: Arc<dyn Store> = Arc::new(simulated(&SimDisk::new(1)));
    block_on(async {
        let memory = Memory::open(Arc::clone(&store), "life").await.unwrap();
        let keyed = |key: &str| NewDocument::fact("x").key(key);
        let first = memory.add(keyed("a")).await.unwrap();
        let batch = vec![keyed("a"), keyed("b"), NewDocument::fact("y"), keyed("b")];
        let ids = memory.add_many(batch).await.unwrap();
        assert_eq!(ids, [first, DocId(2), DocId(3), DocId(2)]);
        memory.forget(&[first], "").await.unwrap();
        let other = Memory::open(store, "life").await.unwrap();
        assert_eq!(other.add(keyed("a")).await.unwrap(), first);
        assert_eq!(other.version().await.unwrap().sequence, 4);
    });
}

/// Eight who add, correct and forget; then everybody reads the same.
fn many(stores: Vec<Arc<dyn Store>>) {
    let added: Vec<BTreeSet<DocId>> = std::thread::scope(|scope| {
        let writers: Vec<_> = stores
            .iter()
            .zip(0..)
            .map(|(store, n)| {
                scope.spawn(move || {
                    block_on(async {
                        let memory = Memory::open(Arc::clone(store), "life").await.unwrap();
                        let memory = memory.by(&format!("agent {n}"));
                        let mut random = Random::new(1000 + n);
                        let mut mine = BTreeSet::new();
                        for round in 0..12 {
                            let new = document(&mut random).key(format!("{n}-{round}"));
                            let id = memory.add(new.clone()).await.unwrap();
                            assert_eq!(memory.add(new).await.unwrap(), id);
                            mine.insert(id);
                            if round % 5 == 4 {
                                let new = memory.correct(id, document(&mut random)).await.unwrap();
                                memory.forget(&[id], "").await.unwrap();
                                mine.remove(&id);
                                mine.insert(new);
                            }
                        }
                        mine
                    })
                })
            })
            .collect();
        writers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    let all: BTreeSet<DocId> = added.iter().flatten().copied().collect();
    assert_eq!(all.len(), added.iter().map(BTreeSet::len).sum::<usize>());
    let queries = queries(&mut Random::new(1));
    let mut found = None;
    for store in &stores {
        block_on(async {
            let memory = Memory::open(Arc::clone(store), "life").await.unwrap();
            let list = memory
                .list(&Default::default(), AsOf::Now, None, 10_000)
                .await
                .unwrap();
            let there: BTreeSet<DocId> = list.iter().map(|document| document.id).collect();
            assert_eq!(there, all);
            let hits = all_hits(&memory, &queries, AsOf::Now).await;
            assert_eq!(found.get_or_insert(hits.clone()), &hits);
        });
    }
}

#[test]
fn eight_agents_in_one_folder() {
    let folder = Folder::new();
    let store = folder.open();
    many((0..8).map(|_| shared(&store)).collect());
}

#[test]
fn eight_agents_with_one_database() {
    let server = dalsegno_pgtest::Server::shared();
    let url = server.url();
    let open = |_| -> Arc<dyn Store> { Arc::new(PostgresOptions::new().open(&url).unwrap()) };
    many((0..8).map(open).collect());
}

#[test]
fn vectors_of_two_dimensions_do_not_begin_together() {
    let folder = Folder::new();
    let store = folder.open();
    let tried: Vec<Result<DocId, MemoryError>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=8)
            .map(|dimension| {
                let store = shared(&store);
                scope.spawn(move || {
                    let memory = block_on(Memory::open(store, "life")).unwrap();
                    let vector = Vector::from_i8(vec![1; dimension]).unwrap();
                    block_on(memory.add(NewDocument::fact("x").vector(vector)))
                })
            })
            .collect();
        writers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    let refused = tried.iter().filter(|tried| match tried {
        Err(MemoryError::Dimension {
            expected, found, ..
        }) => expected != found,
        Err(e) => panic!("{e}"),
        Ok(_) => false,
    });
    assert_eq!(refused.count(), 7);
}

/// Two who draft on the same version: the second append is refused, changes nothing, and is drafted
/// again; what is appended with it is whole or absent.
#[test]
fn a_draft_and_the_events_beside_it_are_appended_together_or_not_at_all() {
    let store: Arc<dyn Store> = Arc::new(simulated(&SimDisk::new(1)));
    block_on(async {
        let memory = Memory::open(Arc::clone(&store), "life").await.unwrap();
        let run = StreamId::run("r").unwrap();
        let step = EventRef {
            stream: run.clone(),
            sequence: 1,
        };
        let memory = memory.by("r").caused_by(step.clone());
        let beside = |kind: &str| Append::to(run.clone(), vec![NewEvent::new(user(kind))]);
        let new = NewEvent::new(Kind::RunCreated);
        let created = Append::to(run.clone(), vec![new]);
        store.append(vec![created]).await.unwrap();

        let one = memory.draft_add(&NewDocument::fact("one")).await.unwrap();
        let two = memory.draft_add(&NewDocument::fact("two")).await.unwrap();
        let both = vec![beside("one"), one.append().unwrap()];
        store.append(both).await.unwrap();
        memory.written(one).await.unwrap();
        let both = vec![beside("two"), two.append().unwrap()];
        assert!(store.append(both).await.unwrap_err().is_conflict());
        assert_eq!(store.head(&run).await.unwrap().unwrap().sequence, 2);

        let two = memory.draft_add(&NewDocument::fact("two")).await.unwrap();
        assert_eq!((two.seen().sequence, two.sequence()), (1, 2));
        store.append(vec![two.append().unwrap()]).await.unwrap();
        memory.written(two).await.unwrap();
        let gone = memory.draft_forget(&[DocId(1)], "why").await.unwrap();
        store.append(vec![gone.append().unwrap()]).await.unwrap();
        memory.written(gone).await.unwrap();

        let said = memory.contents_of(&[DocId(2), DocId(1)]).await.unwrap();
        assert_eq!(said[0].as_ref().unwrap().text, "two");
        assert_eq!(said[1].as_ref().unwrap_err().by.as_deref(), Some("r"));
        let events = store.events(memory.stream(), 1, 9).await.unwrap();
        assert!(
            events
                .iter()
                .all(|event| event.cause.as_ref() == Some(&step))
        );
    });
}

fn user(kind: &str) -> Kind {
    Kind::User(kind.to_owned())
}
