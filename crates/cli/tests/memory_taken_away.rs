//! `dalsegno memory add` of files of which somebody retracted or forgot something: it does not come back,
//! wherever the file has it by then, and nothing else is lost.

#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use std::path::Path;
use std::process::Stdio;

use common::adding::{add, added, counts, documents, id_of, listed, memory, texts, write};
use common::places::Place;
use common::{TempDir, run};
use serde_json::json;

in_both! {
    a_section_above_what_was_forgotten,
    a_section_above_what_was_retracted,
    what_is_forgotten_after_anew_counts_again,
}

/// A file of sections `# x`, `About x.`
fn sections(names: &str) -> String {
    let names = names.split_whitespace();
    names
        .map(|name| format!("# {name}\n\nAbout {name}.\n\n"))
        .collect()
}

fn about(names: &str) -> Vec<String> {
    let names = names.split_whitespace();
    let mut texts: Vec<String> = names.map(|name| format!("About {name}.")).collect();
    texts.sort();
    texts
}

fn forget(place: &Place, dir: &Path, name: &str) {
    let id = id_of(place, dir, &format!("About {name}."));
    let words = format!("forget kb {id} --reason asked --yes");
    run(memory(place, dir, &words)).ok();
}

fn retract(place: &Place, dir: &Path, name: &str) {
    let id = id_of(place, dir, &format!("About {name}."));
    let words = format!("retract kb {id} --reason wrong");
    run(memory(place, dir, &words)).ok();
}

fn a_section_above_what_was_forgotten(place: &Place) {
    let dir = TempDir::new();
    let dir = dir.path();
    write(dir, "a.md", sections("one secret two"));
    assert_eq!(added(place, dir, "a.md"), [3, 0, 0, 0, 0]);
    forget(place, dir, "secret");
    // The same file: the one that may be what was forgotten stays away.
    assert_eq!(added(place, dir, "a.md"), [0, 0, 0, 2, 1]);
    // Above it, and elsewhere: nothing of it comes back, nothing else goes.
    for names in ["new one secret two", "one new secret two", "secret one two"] {
        write(dir, "a.md", sections(names));
        let said = add(place, dir, "a.md").ok().json();
        let withheld = names.split(' ').count() as u64 - 2;
        assert_eq!(counts(&said), [0, 0, 0, 2, withheld], "{names}");
        assert_eq!(
            said["withheld"],
            json!([{"file": "a.md", "chunks": withheld}])
        );
        assert_eq!(texts(place, dir), about("one two"), "{names}");
    }
    // An edit elsewhere: what vanished goes, what is new may be the secret.
    write(dir, "a.md", sections("one zwei"));
    let said = run(memory(place, dir, "add kb a.md")).ok();
    assert_eq!(
        said.stderr,
        "note: a.md: 1 chunk left out: something of this file was forgotten, and may be among them; \
         once the file no longer has it: dalsegno memory add kb a.md --anew\n"
    );
    assert_eq!(texts(place, dir), about("one"));
    // The word of a person, and then all is as usual.
    assert_eq!(added(place, dir, "a.md --anew"), [1, 0, 0, 1, 0]);
    assert_eq!(texts(place, dir), about("one zwei"));
    assert_eq!(added(place, dir, "a.md"), [0, 0, 0, 2, 0]);
    write(dir, "a.md", sections("zero one drei vier"));
    assert_eq!(added(place, dir, "a.md"), [2, 1, 0, 1, 0]);
    assert_eq!(texts(place, dir), about("zero one drei vier"));
    // No two documents have one source.
    let sources = documents(place, dir).into_iter().map(|[source, ..]| source);
    let mut sources: Vec<String> = sources.collect();
    sources.sort();
    sources.dedup();
    assert_eq!(sources.len(), 4, "{sources:?}");
}

fn a_section_above_what_was_retracted(place: &Place) {
    let dir = TempDir::new();
    let dir = dir.path();
    write(dir, "a.md", sections("one wrong two"));
    assert_eq!(added(place, dir, "a.md"), [3, 0, 0, 0, 0]);
    retract(place, dir, "wrong");
    assert_eq!(added(place, dir, "a.md"), [0, 0, 0, 2, 1]);
    // What comes above it is added, and it stays away, however often it is there.
    write(dir, "a.md", sections("new one wrong two wrong"));
    assert_eq!(added(place, dir, "a.md"), [1, 0, 0, 2, 2]);
    assert_eq!(texts(place, dir), about("new one two"));
    // An edit behind it is a correction.
    write(dir, "a.md", sections("new one wrong zwei"));
    assert_eq!(added(place, dir, "a.md"), [0, 1, 0, 2, 1]);
    // Also when it was away in between.
    write(dir, "a.md", sections("new one zwei"));
    assert_eq!(added(place, dir, "a.md"), [0, 0, 0, 3, 0]);
    write(dir, "a.md", sections("wrong new one zwei"));
    assert_eq!(added(place, dir, "a.md"), [0, 0, 0, 3, 1]);
    // Anew, it is right, and stays so when it was away again.
    assert_eq!(added(place, dir, "a.md --anew"), [1, 0, 0, 3, 0]);
    write(dir, "a.md", sections("new one zwei"));
    assert_eq!(added(place, dir, "a.md"), [0, 0, 1, 3, 0]);
    write(dir, "a.md", sections("wrong new one zwei"));
    assert_eq!(added(place, dir, "a.md"), [1, 0, 0, 3, 0]);
    retract(place, dir, "wrong");
    assert_eq!(added(place, dir, "a.md"), [0, 0, 0, 3, 1]);
}

/// Also of chunks that are older than the word.
fn what_is_forgotten_after_anew_counts_again(place: &Place) {
    let dir = TempDir::new();
    let dir = dir.path();
    write(dir, "a.md", sections("one secret two"));
    assert_eq!(added(place, dir, "a.md"), [3, 0, 0, 0, 0]);
    forget(place, dir, "secret");
    write(dir, "a.md", sections("one two three"));
    assert_eq!(added(place, dir, "a.md --anew"), [1, 0, 0, 2, 0]);
    forget(place, dir, "one");
    assert_eq!(added(place, dir, "a.md"), [0, 0, 0, 2, 1]);
    assert_eq!(texts(place, dir), about("two three"));
    write(dir, "a.md", sections("two three four"));
    assert_eq!(added(place, dir, "a.md --anew"), [1, 0, 0, 2, 0]);
    forget(place, dir, "four");
    assert_eq!(added(place, dir, "a.md"), [0, 0, 0, 2, 1]);
    assert_eq!(texts(place, dir), about("two three"));
}

/// Also what a document was before it was corrected, and what was gone from its file, may come back in it.
#[test]
fn what_was_forgotten_of_the_past_counts() {
    let (place, dir) = (Place::folder(), TempDir::new());
    let dir = dir.path();
    write(dir, "a.md", sections("one secret two"));
    assert_eq!(added(&place, dir, "a.md"), [3, 0, 0, 0, 0]);
    write(dir, "a.md", sections("one public two"));
    assert_eq!(added(&place, dir, "a.md"), [0, 1, 0, 2, 0]);
    run(memory(&place, dir, "forget kb 2 --reason asked --yes")).ok();
    assert_eq!(added(&place, dir, "a.md"), [0, 0, 0, 3, 0]);
    write(dir, "a.md", sections("one secret two"));
    assert_eq!(added(&place, dir, "a.md"), [0, 0, 1, 2, 1]);
    assert_eq!(texts(&place, dir), about("one two"));
}

#[test]
fn a_section_put_in_above_is_one_that_is_added() {
    let (place, dir) = (Place::folder(), TempDir::new());
    let dir = dir.path();
    write(dir, "a.md", sections("one two three"));
    assert_eq!(added(&place, dir, "a.md"), [3, 0, 0, 0, 0]);
    write(dir, "a.md", sections("new one two three"));
    assert_eq!(added(&place, dir, "a.md"), [1, 0, 0, 3, 0]);
    let sources = |text: &str| {
        let documents = documents(&place, dir).into_iter();
        let mut found = documents.filter(|[_, _, said]| said == text);
        found.next().unwrap()[0].clone()
    };
    assert_eq!(sources("About three."), "a.md#3");
    assert_eq!(sources("About new."), "a.md#4");
    // Moved, it is the same.
    write(dir, "a.md", sections("three new two one"));
    assert_eq!(added(&place, dir, "a.md"), [0, 0, 0, 4, 0]);
    // What is gone makes room for what comes.
    write(dir, "a.md", sections("three two one"));
    assert_eq!(added(&place, dir, "a.md"), [0, 0, 1, 3, 0]);
    write(dir, "a.md", sections("three two one more"));
    assert_eq!(added(&place, dir, "a.md"), [1, 0, 0, 3, 0]);
    assert_eq!(sources("About more."), "a.md#4");
}

#[test]
fn an_edited_chunk_is_one_document_with_a_history() {
    let (place, dir) = (Place::folder(), TempDir::new());
    let dir = dir.path();
    write(dir, "a.md", sections("one two three"));
    assert_eq!(added(&place, dir, "a.md"), [3, 0, 0, 0, 0]);
    for (edited, counted) in [
        ("one zwei three", [0, 1, 0, 2, 0]),
        ("eins deux three", [0, 2, 0, 1, 0]),
        ("eins deux trois", [0, 1, 0, 2, 0]),
        // The second is gone, and the one behind it differs: the first that is free is corrected.
        ("eins tre", [0, 1, 1, 1, 0]),
    ] {
        write(dir, "a.md", sections(edited));
        assert_eq!(added(&place, dir, "a.md"), counted, "{edited}");
        assert_eq!(texts(&place, dir), about(edited));
    }
    let id = id_of(&place, dir, "About tre.");
    let history = run(memory(&place, dir, &format!("history kb {id} --json")));
    let history = history.ok().json();
    let revisions = history["revisions"].as_array().unwrap().iter();
    let said: Vec<_> = revisions.map(|of| of["content"]["text"].clone()).collect();
    assert_eq!(
        said,
        ["two", "zwei", "deux", "tre"].map(|name| json!(format!("About {name}.")))
    );
}

#[test]
fn what_a_file_says_twice_is_there_twice() {
    let (place, dir) = (Place::folder(), TempDir::new());
    let dir = dir.path();
    for (names, counted) in [
        ("one one two", [3, 0, 0, 0, 0]),
        ("two one one", [0, 0, 0, 3, 0]),
        ("one two", [0, 0, 1, 2, 0]),
        ("one two one one", [2, 0, 0, 2, 0]),
        ("one two one one", [0, 0, 0, 4, 0]),
    ] {
        write(dir, "a.md", sections(names));
        assert_eq!(added(&place, dir, "a.md"), counted, "{names}");
        assert_eq!(texts(&place, dir), about(names));
    }
    // Of one that was taken away, the others stay, and no more come.
    retract(&place, dir, "one");
    assert_eq!(added(&place, dir, "a.md"), [0, 0, 0, 3, 1]);
    forget(&place, dir, "one");
    assert_eq!(added(&place, dir, "a.md"), [0, 0, 0, 2, 2]);
    assert_eq!(texts(&place, dir), about("one two"));
}

/// Killed anywhere between the batches of a file that has changed, the same command goes on.
#[test]
fn who_is_killed_in_the_middle_goes_on() {
    let (place, dir) = (Place::folder(), TempDir::new());
    let dir = dir.path();
    let numbers = |every: usize, word: &str| {
        let names = (0..1200).map(|n| match n % every {
            0 => format!("{word}{n} "),
            _ => format!("n{n} "),
        });
        names.collect::<String>()
    };
    write(dir, "a.md", sections(&numbers(1, "n")));
    let mut killed = 0;
    for (round, names) in [numbers(1, "n"), numbers(3, "x"), numbers(2, "y")]
        .iter()
        .enumerate()
    {
        write(dir, "a.md", sections(names));
        for events in [1, 400, 800] {
            let before = version(&place, dir);
            let mut command = memory(&place, dir, "add kb a.md");
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            while version(&place, dir) < before + events && child.try_wait().unwrap().is_none() {}
            child.kill().unwrap();
            killed += u32::from(!child.wait().unwrap().success());
        }
        add(&place, dir, "a.md").ok();
        assert_eq!(texts(&place, dir), about(names), "round {round}");
        assert_eq!(added(&place, dir, "a.md"), [0, 0, 0, 1200, 0]);
    }
    assert!(killed > 0, "it was never in the middle");
    common::dalsegno(place.path(), ["verify"]).ok();
}

fn version(place: &Place, dir: &Path) -> u64 {
    let listed = run(memory(place, dir, "ls --json"));
    match listed.code {
        Some(0) => listed.json()["memories"][0]["version"]["sequence"]
            .as_u64()
            .unwrap_or(0),
        _ => 0,
    }
}

/// Of different versions of a file, whoever was last has it right, and nothing is there twice.
#[test]
fn two_at_once_end_with_one_of_them() {
    let (place, dir) = (Place::database(), TempDir::new());
    let dir = dir.path();
    write(dir, "a.md", sections("one two three four five"));
    assert_eq!(added(&place, dir, "a.md"), [5, 0, 0, 0, 0]);
    for names in [
        "six one three seven seven eight",
        "nine two six five ten",
        "a b c one b",
    ] {
        write(dir, "a.md", sections(names));
        let children: Vec<_> = (0..3)
            .map(|_| memory(&place, dir, "add kb a.md --json"))
            .map(|mut command| command.stdout(Stdio::null()).spawn().unwrap())
            .collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        assert_eq!(texts(&place, dir), about(names));
    }
}

/// What each of them says has been there, and one of them is there in the end.
#[test]
fn two_versions_of_a_file_at_once() {
    let (place, dir) = (Place::database(), TempDir::new());
    let dir = dir.path();
    let mut version_before = 0;
    for file in 0..4 {
        let name = format!("{file}.md");
        let versions = ["a", "b"].map(|version| {
            let names = (0..30).map(|n| format!("{version}{file}-{n} "));
            names.collect::<String>()
        });
        for (folder, names) in ["x", "y"].iter().zip(&versions) {
            write(&dir.join(folder), &name, sections(names));
        }
        let children: Vec<_> = ["x", "y"]
            .iter()
            .map(|folder| memory(&place, &dir.join(folder), &format!("add kb {name}")))
            .map(|mut command| command.stdout(Stdio::null()).spawn().unwrap())
            .collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        let documents = documents(&place, dir).into_iter();
        let of_file = documents.filter(|[source, ..]| source.starts_with(&name));
        let mut there: Vec<String> = of_file.map(|[_, _, text]| text).collect();
        there.sort();
        assert!(versions.iter().any(|names| there == about(names)));
        let after = version(&place, dir);
        assert!(after >= version_before + 60, "one of them was not added");
        version_before = after;
    }
}

/// What came through a pipe belongs to no folder.
#[test]
fn pruning_a_folder_leaves_what_came_from_standard_input() {
    let (place, dir) = (Place::folder(), TempDir::new());
    write(dir.path(), "here/a.md", "a");
    write(dir.path(), "here/b.md", "b");
    let here = dir.join("here");
    assert_eq!(added(&place, &here, "."), [2, 0, 0, 0, 0]);
    for words in ["add kb -", "add kb - --source notes.md"] {
        write(dir.path(), "input", words);
        let mut command = memory(&place, &here, words);
        command.stdin(std::fs::File::open(dir.join("input")).unwrap());
        run(command).ok();
    }
    std::fs::remove_file(here.join("b.md")).unwrap();
    assert_eq!(added(&place, &here, ". --prune"), [0, 0, 1, 1, 0]);
    let sources = documents(&place, &here)
        .into_iter()
        .map(|[source, ..]| source);
    assert_eq!(
        sources.collect::<Vec<_>>(),
        ["a.md#1", "stdin#1", "notes.md#1"]
    );
    // A file of that name is another thing.
    write(&here, "notes.md", "a file");
    assert_eq!(added(&place, &here, "notes.md"), [1, 0, 0, 0, 0]);
    assert_eq!(listed(&place, &here).len(), 4);
}
