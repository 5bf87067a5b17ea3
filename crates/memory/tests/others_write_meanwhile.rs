//! Others write to a memory while it is read: who reads finds what there was, or is told that it
//! cannot be read just now. Never is a list without what there is.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use common::*;
use dalsegno_memory::{AsOf, DocId, Filter, HowEnded, Memory, MemoryError, NewDocument};
use dalsegno_simdisk::SimDisk;
use dalsegno_store::{Answer, Hash, Over, Store};

/// A store behind which another process puts a document in the place of any that is read for the
/// second time, and forgets that one.
#[derive(Debug)]
struct Restless {
    store: Arc<dyn Store>,
    /// What was read before.
    known: Mutex<HashSet<Hash>>,
    other: Memory,
    /// The last document that there is.
    last: Mutex<DocId>,
}

impl Over for Restless {
    fn below(&self) -> &dyn Store {
        &*self.store
    }

    fn pieces<'a>(&'a self, hashes: &'a [Hash]) -> Answer<'a, Vec<Vec<u8>>> {
        Box::pin(async move {
            let count_new = {
                let mut known = self.known.lock().unwrap();
                hashes.iter().filter(|hash| known.insert(**hash)).count()
            };
            if count_new == 0 && !hashes.is_empty() {
                let added = self.other.add(NewDocument::fact("the oven")).await.unwrap();
                let before = std::mem::replace(&mut *self.last.lock().unwrap(), added);
                self.other.forget(&[before], "").await.unwrap();
            }
            self.store.pieces(hashes).await
        })
    }
}

async fn restless() -> Memory {
    let store: Arc<dyn Store> = Arc::new(simulated(&SimDisk::new(1)));
    let other = Memory::open(Arc::clone(&store), "kitchen").await.unwrap();
    let other = other.by("another");
    let first = other.add(NewDocument::fact("the oven")).await.unwrap();
    let store = Arc::new(Restless {
        store,
        known: Mutex::default(),
        other,
        last: Mutex::new(first),
    });
    Memory::open(store, "kitchen").await.unwrap()
}

#[test]
fn a_list_that_cannot_be_read_is_not_an_empty_one() {
    block_on(async {
        let memory = restless().await;
        let listed = memory.list(&Filter::default(), AsOf::Now, None, 10).await;
        let error = listed.unwrap_err().to_string();
        assert!(error.contains("others forget all the time"), "{error}");
    });
}

#[test]
fn of_what_is_forgotten_while_it_is_read_it_is_said_by_whom() {
    block_on(async {
        let memory = restless().await;
        let error = memory.get(DocId(1)).await.unwrap_err();
        let MemoryError::Ended { id, ended } = &error else {
            panic!("{error}");
        };
        assert_eq!((*id, ended.how), (DocId(1), HowEnded::Forgotten));
        assert_eq!(ended.by.as_deref(), Some("another"));
    });
}
