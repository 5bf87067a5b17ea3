//! What comes from outside is checked, and the answer says what was wrong and what the limit is.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::*;
use dalsegno_memory::{
    AsOf, DocId, DocKind, Language, Memory, MemoryError, NewDocument, Query, RankingConfig, Scope,
    Vector,
};
use dalsegno_simdisk::SimDisk;
use dalsegno_store::{Append, Fields, Hash, Kind, NewEvent, NewPayload, Store, Version};

async fn kitchen() -> Memory {
    let store = Arc::new(simulated(&SimDisk::new(1)));
    let memory = Memory::open(store, "kitchen").await.unwrap();
    for text in [
        "the oven heats up",
        "bread AND salt",
        "a guest is allergic to nuts",
    ] {
        memory.add(NewDocument::fact(text)).await.unwrap();
    }
    memory
}

async fn hits(memory: &Memory, query: Query) -> usize {
    let found = memory.search(&query, &RankingConfig::default()).await;
    found.unwrap().hits.len()
}

#[test]
fn a_query_without_words_finds_nothing_and_says_so() {
    block_on(async {
        let memory = kitchen().await;
        for text in ["", "   ", "\n\t", "!?…", "\u{0}", "()[]{}\"'"] {
            let query = Query::words(text);
            let found = memory
                .search(&query, &RankingConfig::default())
                .await
                .unwrap();
            assert!(found.hits.is_empty() && found.words.is_empty(), "{text:?}");
        }
        assert_eq!(hits(&memory, Query::default()).await, 0);
        assert_eq!(hits(&memory, Query::words("oven").limit(0)).await, 0);
    });
}

#[test]
fn there_is_no_syntax() {
    block_on(async {
        let memory = kitchen().await;
        for (text, expected) in [
            ("bread AND salt", 1),
            ("-bread", 1),
            ("+oven -oven", 1),
            ("\"salt bread\"", 1),
            ("oven OR nuts", 2),
            ("title:oven^4 ~2 *", 0),
            ("(oven) /nuts/ [salt TO bread]", 3),
            ("oven' --; DROP TABLE", 1),
        ] {
            assert_eq!(hits(&memory, Query::words(text)).await, expected, "{text}");
        }
    });
}

#[test]
fn a_long_query_is_bounded() {
    block_on(async {
        let memory = kitchen().await;
        let ranking = RankingConfig::default().language(Language::None);
        let many: String = (0..200_000).map(|n| format!("w{n:06} ")).collect();
        let text = format!("oven {}", &many[..(1 << 20) - 10]);
        let found = memory.search(&Query::words(text), &ranking).await.unwrap();
        assert_eq!(found.hits.len(), 1);
        assert_eq!(found.words.len(), 256);
        assert!(found.words_left_out > 100_000, "{}", found.words_left_out);
        let same = "oven ".repeat(200_000);
        let found = memory.search(&Query::words(same), &ranking).await.unwrap();
        assert_eq!((found.hits.len(), found.words.len()), (1, 1));
        let over = Query::words("x".repeat((1 << 20) + 1));
        let error = memory
            .search(&over, &ranking)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("1048577") && error.contains("1048576"),
            "{error}"
        );
        let error = memory
            .search(&Query::words("x").limit(10_001), &ranking)
            .await;
        assert!(error.unwrap_err().to_string().contains("10000"));
    });
}

#[test]
fn documents_have_limits() {
    block_on(async {
        let memory = kitchen().await;
        let before = memory.version().await.unwrap();
        let fact = || NewDocument::fact("x");
        let long = "x".repeat(1001);
        for (new, says) in [
            (NewDocument::fact(""), "needs text"),
            (NewDocument::fact("x".repeat(50 << 20)), "4194304"),
            (fact().title(long.clone()), "a title"),
            (fact().source(long.clone()), "a source"),
            (fact().tag(long.clone()), "a tag"),
            (fact().key(long.clone()), "a key"),
            (fact().scope(Scope::Run(long.clone())), "a scope"),
            ((0..65).fold(fact(), |new, n| new.tag(n.to_string())), "64"),
            (fact().confidence(1001), "1001"),
            (fact().valid_from_us(5).valid_until_us(5), "swap"),
        ] {
            let error = memory.add(new.clone()).await.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            // All or nothing.
            let error = memory.add_many(vec![fact(), new]).await.unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
        assert_eq!(memory.version().await.unwrap(), before);
        let folder = Folder::new();
        let store = dalsegno_store::LocalStore::open(&folder.0).unwrap();
        let memory = Memory::open(shared(&store), "long").await.unwrap();
        let id = memory
            .add(NewDocument::fact("word ".repeat(800_000)))
            .await
            .unwrap();
        assert_eq!(memory.get(id).await.unwrap().content.text.len(), 4_000_000);
        assert_eq!(hits(&memory, Query::words("word")).await, 1);
    });
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let error = NewDocument::from_bytes(DocKind::Document, b"abc\xff".to_vec()).unwrap_err();
    assert!(error.to_string().contains("byte 3"), "{error}");
    assert!(NewDocument::from_bytes(DocKind::Document, "täxt".into()).is_ok());
}

#[test]
fn vectors_must_fit() {
    block_on(async {
        let memory = kitchen().await;
        let vector = |dimension| Vector::from_i8(vec![1; dimension]).unwrap();
        // Before there are vectors, none is found.
        assert_eq!(hits(&memory, Query::vector(vector(9))).await, 0);
        let before = memory.version().await.unwrap();
        let new = NewDocument::fact("x").vector(vector(4));
        let first = memory.add(new).await.unwrap();
        let wrong = NewDocument::fact("x").vector(vector(5));
        let ranking = RankingConfig::default();
        for error in [
            memory.add(wrong.clone()).await.unwrap_err(),
            memory.correct(first, wrong).await.unwrap_err(),
            memory
                .search(&Query::vector(vector(5)), &ranking)
                .await
                .unwrap_err(),
        ] {
            assert!(matches!(
                error,
                MemoryError::Dimension {
                    expected: 4,
                    found: 5,
                    ..
                }
            ));
            let text = error.to_string();
            assert!(text.contains("of 5") && text.contains("have 4"), "{text}");
        }
        // As of then, it is as it was then.
        let then = Query::vector(vector(9)).as_of(before);
        assert_eq!(hits(&memory, then).await, 0);
        // The dimension stays, also if the first vector is forgotten.
        memory.forget(&[first], "").await.unwrap();
        assert!(
            memory
                .add(NewDocument::fact("x").vector(vector(5)))
                .await
                .is_err()
        );
        assert!(Vector::quantise(&[f32::NAN]).is_err());
    });
}

#[test]
fn versions_must_be_of_this_history() {
    block_on(async {
        let memory = kitchen().await;
        let ranking = RankingConfig::default();
        let search = |as_of: AsOf| {
            let query = Query::words("oven").as_of(as_of);
            let (memory, ranking) = (memory.clone(), ranking.clone());
            async move {
                memory
                    .search(&query, &ranking)
                    .await
                    .map(|found| found.hits.len())
            }
        };
        assert_eq!(search(AsOf::Sequence(0)).await.unwrap(), 0);
        assert_eq!(search(AsOf::Sequence(1)).await.unwrap(), 1);
        let error = search(AsOf::Sequence(9)).await.unwrap_err().to_string();
        assert!(error.contains("no version 9"), "{error}");
        let other = Version {
            sequence: 2,
            hash: Hash::of(b"other"),
        };
        let error = search(other.into()).await.unwrap_err().to_string();
        assert!(error.contains("another history"), "{error}");
    });
}

#[test]
fn settings_have_ranges() {
    block_on(async {
        let memory = kitchen().await;
        let mut deep = RankingConfig::default();
        deep.depth = 0;
        for config in [
            RankingConfig::default().bm25(10_001, 0),
            RankingConfig::default().bm25(0, 1001),
            RankingConfig::default().weights(100_001, 0),
            deep,
        ] {
            let error = memory
                .search(&Query::words("x"), &config)
                .await
                .unwrap_err();
            assert!(error.to_string().contains("may be from"), "{error}");
        }
        assert!(
            Memory::open(Arc::new(simulated(&SimDisk::new(1))), "a\nb")
                .await
                .is_err()
        );
    });
}

/// Events that others wrote into the stream are passed over.
#[test]
fn what_is_no_document_is_none() {
    let store = Arc::new(simulated(&SimDisk::new(1)));
    block_on(async {
        let memory = Memory::open(store.clone(), "kitchen").await.unwrap();
        let stream = memory.stream().clone();
        let content = "application/dalsegno-document";
        for event in [
            NewEvent::new(Kind::FactConfirmed),
            NewEvent::new(Kind::MemoryForgotten),
            NewEvent::new(Kind::MemoryRetracted),
            NewEvent::new(Kind::User("note".into())).with_input(NewPayload::json("{}")),
            NewEvent::new(Kind::FactConfirmed).with_input(NewPayload::json("{}")),
            NewEvent::new(Kind::FactConfirmed).with_input(NewPayload::new(content, *b"x")),
            NewEvent::new(Kind::FactConfirmed).with_input(NewPayload::new(content, *b"x").apart()),
        ] {
            store
                .append(vec![Append::to(stream.clone(), vec![event])])
                .await
                .unwrap();
        }
        let id = memory.add(NewDocument::fact("oven")).await.unwrap();
        for memory in [memory, Memory::open(store, "kitchen").await.unwrap()] {
            assert_eq!(hits(&memory, Query::words("oven")).await, 1);
            let list = memory
                .list(&Default::default(), AsOf::Now, None, 9)
                .await
                .unwrap();
            assert_eq!(list.iter().map(|d| d.id).collect::<Vec<_>>(), [id]);
        }
    });
}

/// A file from elsewhere can have events that no memory writes.
#[test]
fn what_corrects_itself_or_what_comes_later_corrects_nothing() {
    let store = Arc::new(simulated(&SimDisk::new(1)));
    block_on(async {
        let memory = Memory::open(store.clone(), "kitchen").await.unwrap();
        let corrects = |id: u64| {
            let content = NewPayload::new("application/dalsegno-document", *b"x").apart();
            let event = NewEvent::new(Kind::FactConfirmed).with_input(content);
            event.with_fields(Fields::new().with(1, id))
        };
        // One that corrects itself, and two that correct each other.
        let events = [1, 3, 2].map(corrects).to_vec();
        let append = Append::to(memory.stream().clone(), events);
        store.append(vec![append]).await.unwrap();
        for (id, revisions) in [(1, &[1][..]), (2, &[2, 3]), (3, &[2, 3])] {
            let history = memory.history(DocId(id)).await.unwrap();
            let ids: Vec<u64> = history.iter().map(|revision| revision.id.0).collect();
            assert_eq!(ids, revisions, "{id}");
        }
    });
}
