//! `dalsegno memory forget`: what is left of it elsewhere is named, and what was cut off is finished.

#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use std::path::Path;
use std::sync::Arc;

use common::adding::{add, listed, memory, write};
use common::places::Place;
use common::{Ran, TempDir, block_on, dalsegno, run};
use dalsegno_memory::{DocId, Memory};
use dalsegno_store::{LocalStore, Store};
use serde_json::{Value, json};

in_both! {
    neighbours_that_have_a_part_are_named,
    another_memory_that_has_it_is_named,
}

fn forget(place: &Place, dir: &Path, words: &str) -> Ran {
    run(memory(
        place,
        dir,
        &format!("forget {words} --reason asked"),
    ))
}

fn ids(parts: &Value) -> Vec<u64> {
    let parts = parts.as_array().unwrap().iter();
    parts.map(|part| part["id"].as_u64().unwrap()).collect()
}

fn neighbours_that_have_a_part_are_named(place: &Place) {
    let dir = TempDir::new();
    let dir = dir.path();
    let lines = (0..60).map(|n| format!("Sentence {n} tells where number {n} lives.\n"));
    write(dir, "a.txt", lines.collect::<String>());
    write(dir, "b.txt", "Sentence 20 tells where number 20 lives.");
    add(place, dir, "a.txt b.txt --chunk-bytes 600").ok();
    let chunks = listed(place, dir);
    let text = |at: usize| chunks[at]["text"].as_str().unwrap();
    assert!(chunks.len() > 4, "{}", chunks.len());
    // As long as nothing is done, too.
    let would = forget(place, dir, "kb 3 --json").ends(3).json();
    assert_eq!(ids(&would["still_in"]), [2, 4]);
    let done = forget(place, dir, "kb 3 --yes --json").ok().json();
    assert_eq!(done["still_in"], would["still_in"]);
    let bytes = |at: usize| done["still_in"][at]["bytes"].as_u64().unwrap() as usize;
    assert!(text(1).ends_with(&text(2)[..bytes(0)]));
    assert!(text(2).ends_with(&text(3)[..bytes(1)]));
    assert_eq!(done["still_in"][0]["of"], 3);
    // Together with them there is only what they have in common with others.
    let ran = forget(place, dir, "kb 1 2 4 --yes").ok();
    let said = "note: document 5 of the same file still has a part of document 4, up to ";
    assert!(ran.stderr.starts_with(said), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    // What was corrected has it, too, in the history.
    write(
        dir,
        "c.md",
        "# c\n\nThe harbour is where she lives.\n\n# d\n\nd\n",
    );
    add(place, dir, "c.md").ok();
    write(
        dir,
        "c.md",
        "# c\n\nShe has moved.\n\n# d\n\nThe harbour is where she lives.\n",
    );
    add(place, dir, "c.md").ok();
    let all = listed(place, dir);
    let last = all.iter().map(|document| document["id"].as_u64().unwrap());
    let last = last.max().unwrap();
    let done = forget(place, dir, &format!("kb {last} --yes --json"));
    assert_eq!(ids(&done.ok().json()["still_in"]), [last - 3]);
}

fn another_memory_that_has_it_is_named(place: &Place) {
    let dir = TempDir::new();
    let dir = dir.path();
    for text in ["harbour", "station", "market"] {
        run(memory(place, dir, &format!("add kb --text {text}"))).ok();
    }
    run(memory(place, dir, "export kb kb.dalsegno")).ok();
    run(memory(place, dir, "import kb.dalsegno --as other")).ok();
    run(memory(place, dir, "add kb --text later")).ok();
    run(memory(place, dir, "add other --text different")).ok();
    let done = forget(place, dir, "kb 2 4 --yes --json").ok().json();
    assert_eq!(done["also_in"], json!([{"memory": "other", "id": 2}]));
    let done = forget(place, dir, "kb 1 --yes").ok();
    assert_eq!(
        done.stderr,
        "note: memory other has document 1 with the same text: dalsegno memory forget other 1\n"
    );
    // Again, it is still there.
    let done = forget(place, dir, "kb 1 2 --yes --json").ok().json();
    assert_eq!(ids(&done["also_in"]), [1, 2]);
    // What is gone there is nowhere.
    let done = forget(place, dir, "other 2 --yes --json").ok().json();
    assert_eq!(done["also_in"], json!([]));
    forget(place, dir, "other 3 --yes").ok();
    let done = forget(place, dir, "kb 3 --yes --json").ok().json();
    assert_eq!(done["also_in"], json!([]));
}

/// The event is written, and the process dies before anything is removed.
#[test]
fn what_was_cut_off_is_finished_by_the_same_command() {
    let (place, dir) = (Place::folder(), TempDir::new());
    let dir = dir.path();
    let text = "harbourharbourharbour";
    run(memory(&place, dir, &format!("add kb --text {text}"))).ok();
    block_on(async {
        let local = LocalStore::open(place.path()).unwrap();
        let store: Arc<dyn Store> = Arc::new(local.clone());
        let memory = Memory::open(store.clone(), "kb").await.unwrap();
        let draft = memory.draft_forget(&[DocId(1)], "asked").await.unwrap();
        let append = draft.append().unwrap();
        let appended = store.append(vec![append]).await.unwrap();
        store.durable(appended.position).await.unwrap();
        drop(memory);
        local.close().unwrap();
    });
    assert!(has(place.path(), text), "it was to be cut off");
    let again = forget(&place, dir, "kb 1 --yes").ok();
    assert_eq!(
        again.stdout,
        "document 1 was forgotten before, and gone from this memory\n"
    );
    assert!(!has(place.path(), text), "nothing of it is left");
    dalsegno(place.path(), ["verify"]).ok();
}

/// Whether a file under a folder has this in it.
fn has(dir: &Path, text: &str) -> bool {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    { entries }.any(|entry| match entry.file_type().unwrap().is_dir() {
        true => has(&entry.path(), text),
        false => {
            let bytes = std::fs::read(entry.path()).unwrap();
            bytes
                .windows(text.len())
                .any(|window| window == text.as_bytes())
        }
    })
}
