//! Files that are added to the memory `kb`, and what it has of them.

#![allow(dead_code, clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::places::Place;
use super::{Ran, command, run};

/// `dalsegno memory WORDS…` in a folder.
pub fn memory(place: &Place, dir: &Path, words: &str) -> Command {
    let mut command = command();
    command
        .current_dir(dir)
        .arg("--store")
        .arg(place.path())
        .arg("memory");
    command.args(words.split_whitespace());
    command
}

pub fn add(place: &Place, dir: &Path, words: &str) -> Ran {
    run(memory(place, dir, &format!("add kb {words} --json")))
}

/// Added, corrected, retracted, unchanged, left out.
pub fn counts(added: &Value) -> [u64; 5] {
    ["added", "corrected", "retracted", "unchanged", "left_out"]
        .map(|name| added[name].as_u64().unwrap())
}

/// Adds, and gives the counts.
#[track_caller]
pub fn added(place: &Place, dir: &Path, words: &str) -> [u64; 5] {
    counts(&add(place, dir, words).ok().json())
}

/// The documents that there are.
pub fn listed(place: &Place, dir: &Path) -> Vec<Value> {
    let listed = run(memory(place, dir, "ls kb --limit 0 --json")).ok();
    listed.json()["documents"].as_array().unwrap().clone()
}

/// The first source, title and text of every document.
pub fn documents(place: &Place, dir: &Path) -> Vec<[String; 3]> {
    let listed = listed(place, dir).into_iter();
    let texts = listed.map(|document| {
        let source = &document["sources"][0];
        [source, &document["title"], &document["text"]]
            .map(|value| value.as_str().unwrap_or("-").to_owned())
    });
    texts.collect()
}

/// The texts of every document, in the order of their words.
pub fn texts(place: &Place, dir: &Path) -> Vec<String> {
    let documents = documents(place, dir).into_iter();
    let mut texts: Vec<String> = documents.map(|[_, _, text]| text).collect();
    texts.sort();
    texts
}

/// The document with this text.
#[track_caller]
pub fn id_of(place: &Place, dir: &Path, text: &str) -> String {
    let listed = listed(place, dir);
    let mut found = listed.iter().filter(|document| document["text"] == text);
    found.next().unwrap()["id"].to_string()
}

pub fn write(dir: &Path, name: &str, text: impl AsRef<[u8]>) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
