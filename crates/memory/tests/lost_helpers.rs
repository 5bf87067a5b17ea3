//! What is kept beside the store makes opening fast and nothing else: damaged, stale, foreign or
//! gone, the answers are the same.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::path::PathBuf;

use common::*;
use dalsegno_memory::{AsOf, Memory};
use dalsegno_store::Store;

fn helpers(folder: &Folder) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder.0.join("helpers")).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn answers_do_not_depend_on_them() {
    let folder = Folder::new();
    let store = folder.open();
    let mut random = Random::new(31);
    let queries = queries(&mut random);
    block_on(async {
        let memory = Memory::open(shared(&store), "life").await.unwrap();
        let mut history = History::live(&memory, &mut random, &queries, 30).await;
        memory.keep().await.unwrap();
        let old: Vec<_> = helpers(&folder)
            .into_iter()
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect();
        assert_eq!(
            old.len(),
            4,
            "documents, vectors, and the words of two analysers"
        );
        for _ in 0..30 {
            history.step(&memory, &mut random, &queries).await;
        }
        let expected = all_hits(&memory, &queries, AsOf::Now).await;
        memory.keep().await.unwrap();
        let now: Vec<_> = helpers(&folder)
            .into_iter()
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect();
        let place = |files: &[(PathBuf, Vec<u8>)]| {
            for (path, bytes) in files {
                std::fs::write(path, bytes).unwrap();
            }
        };
        let compare = async |what: &str| {
            let memory = Memory::open(shared(&store), "life").await.unwrap();
            let found = all_hits(&memory, &queries, AsOf::Now).await;
            assert!(found == expected, "{what}");
        };
        compare("as kept").await;
        // Each of another time, in every mixture.
        for mixture in 0..16 {
            place(&now);
            for (at, (path, bytes)) in old.iter().enumerate() {
                if mixture & 1 << at != 0 {
                    std::fs::write(path, bytes).unwrap();
                }
            }
            compare("old and new").await;
        }
        // Each with a byte that is another, or cut off.
        for (path, bytes) in &now {
            for _ in 0..8 {
                place(&now);
                let mut bad = bytes.clone();
                let at = random.below(bad.len());
                match random.below(3) {
                    0 => bad.truncate(at),
                    1 => bad.extend_from_slice(b"more"),
                    _ => bad[at] ^= 1 << random.below(8),
                }
                std::fs::write(path, bad).unwrap();
                compare("damaged").await;
            }
            place(&now);
            std::fs::remove_file(path).unwrap();
            compare("gone").await;
        }
        // Of another memory of the same store.
        let other = Memory::open(shared(&store), "other").await.unwrap();
        History::live(&other, &mut random, &queries, 30).await;
        other.keep().await.unwrap();
        let others: Vec<PathBuf> = helpers(&folder)
            .into_iter()
            .filter(|path| !now.iter().any(|(known, _)| known == path))
            .collect();
        assert!(!others.is_empty());
        for (theirs, (ours, _)) in others.iter().zip(&now) {
            std::fs::copy(theirs, ours).unwrap();
        }
        compare("of another").await;
        for memory in [&memory, &other] {
            store.drop_helpers(memory.stream()).await.unwrap();
        }
        assert!(helpers(&folder).is_empty());
        compare("all gone").await;
    });
}

/// Of another store, which has a memory of the same name with another history.
#[test]
fn those_of_another_store_are_not_believed() {
    let (here, there) = (Folder::new(), Folder::new());
    let mut random = Random::new(32);
    let queries = queries(&mut random);
    let (store, other) = (here.open(), there.open());
    block_on(async {
        let memory = Memory::open(shared(&store), "life").await.unwrap();
        let history = History::live(&memory, &mut random, &queries, 20).await;
        let theirs = Memory::open(shared(&other), "life").await.unwrap();
        for steps in [10, 60] {
            History::live(&theirs, &mut random, &queries, steps).await;
            theirs.keep().await.unwrap();
            std::fs::create_dir_all(here.0.join("helpers")).unwrap();
            for path in helpers(&there) {
                let name = path.file_name().unwrap();
                std::fs::copy(&path, here.0.join("helpers").join(name)).unwrap();
            }
            let again = Memory::open(shared(&store), "life").await.unwrap();
            let found = all_hits(&again, &queries, AsOf::Now).await;
            assert!(found == history.found.last().unwrap().1);
        }
    });
}
