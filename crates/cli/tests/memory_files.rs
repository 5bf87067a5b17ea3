//! `dalsegno memory add PATH…`: files become chunks, once, and follow their files.

#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;
#[path = "common/pty.rs"]
mod pty;

use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::adding::{add, counts, documents, memory, write};
use common::places::Place;
use common::{TempDir, run};
use pty::Terminal;
use serde_json::json;

in_both! {
    a_folder_is_added_once,
    a_changed_file_is_followed,
    indexes_are_kept_for_the_next_command,
}

fn a_folder_is_added_once(place: &Place) {
    let dir = TempDir::new();
    let dir = dir.path();
    write(dir, "docs/b.txt", "Bananas are yellow.\n\nThey grow.\n");
    write(
        dir,
        "docs/a.md",
        "\u{feff}# Apples\n\nRed.\n\n## Taste\n\nSweet.\n",
    );
    write(dir, "docs/deep/c.markdown", "No heading.");
    write(dir, "docs/.hidden/x.md", "hidden");
    write(dir, "docs/empty.md", "");
    std::os::unix::fs::symlink("/etc", dir.join("docs/link")).unwrap();
    let added = add(place, dir, "./docs//").ok().json();
    assert_eq!(
        (counts(&added), &added["files"]),
        ([4, 0, 0, 0, 0], &json!(4))
    );
    let wanted = [
        ["docs/a.md#1", "Apples", "Red."],
        ["docs/a.md#2", "Apples > Taste", "Sweet."],
        ["docs/b.txt#1", "-", "Bananas are yellow.\n\nThey grow."],
        ["docs/deep/c.markdown#1", "-", "No heading."],
    ];
    assert_eq!(
        documents(place, dir),
        wanted.map(|document| document.map(str::to_owned))
    );
    // The same again, by other ways to name it: nothing.
    for again in ["docs", "docs/ docs/a.md", "docs/b.txt docs"] {
        let again = add(place, dir, again).ok().json();
        assert_eq!(counts(&again), [0, 0, 0, 4, 0]);
        assert_eq!(again["version"], added["version"]);
    }
    let only = add(place, dir, "docs --ext txt,.MARKDOWN").ok().json();
    assert_eq!(
        (counts(&only), &only["files"]),
        ([0, 0, 0, 2, 0], &json!(2))
    );
    // What is said about it belongs to it.
    let tagged = add(place, dir, "docs/b.txt --tag fruit --kind plan")
        .ok()
        .json();
    assert_eq!(counts(&tagged), [0, 1, 0, 0, 0]);
}

fn indexes_are_kept_for_the_next_command(place: &Place) {
    let dir = TempDir::new();
    let dir = dir.path();
    let part = |n: usize| format!("# Part {n}\n\nAbout {n}.\n\n");
    write(dir, "a.md", (0..600).map(part).collect::<String>());
    let added = add(place, dir, "a.md").ok().json();
    assert_eq!(counts(&added), [600, 0, 0, 0, 0]);
    let kept = match place.is_database() {
        true => place.sql("SELECT count(*) FROM helper WHERE name <> ''"),
        false => {
            let helpers = std::fs::read_dir(place.path().join("helpers"));
            helpers.unwrap().count().to_string()
        }
    };
    assert_eq!(kept.trim(), "2", "documents and words");
}

fn a_changed_file_is_followed(place: &Place) {
    let dir = TempDir::new();
    let dir = dir.path();
    let text = |parts: &[&str]| -> String {
        let parts = parts.iter();
        parts
            .map(|part| format!("# {part}\n\nAbout {part}.\n\n"))
            .collect()
    };
    write(dir, "a.md", text(&["one", "two", "three"]));
    assert_eq!(
        counts(&add(place, dir, "a.md").ok().json()),
        [3, 0, 0, 0, 0]
    );
    write(dir, "a.md", text(&["one", "zwei"]));
    assert_eq!(
        counts(&add(place, dir, "a.md").ok().json()),
        [0, 1, 1, 1, 0]
    );
    // What was there before is in the history.
    let then = run(memory(place, dir, "search kb three --as-of 3 --json"))
        .ok()
        .json();
    assert_eq!(then["hits"][0]["sources"][0], "a.md#3");
    // What is back is added again, and again.
    for _ in 0..2 {
        write(dir, "a.md", text(&["one", "zwei", "three"]));
        assert_eq!(
            counts(&add(place, dir, "a.md").ok().json()),
            [1, 0, 0, 2, 0]
        );
        assert_eq!(
            counts(&add(place, dir, "a.md").ok().json()),
            [0, 0, 0, 3, 0]
        );
        write(dir, "a.md", text(&["one", "zwei"]));
        assert_eq!(
            counts(&add(place, dir, "a.md").ok().json()),
            [0, 0, 1, 2, 0]
        );
    }
    // What a person took away stays away. After forgetting, what is new may be that.
    let list = run(memory(place, dir, "ls kb --json")).ok().json();
    let id = |at: usize| list["documents"][at]["id"].to_string();
    run(memory(
        place,
        dir,
        &format!("retract kb {} --reason wrong", id(0)),
    ))
    .ok();
    run(memory(
        place,
        dir,
        &format!("forget kb {} --reason asked --yes", id(1)),
    ))
    .ok();
    assert_eq!(
        counts(&add(place, dir, "a.md").ok().json()),
        [0, 0, 0, 0, 2]
    );
    write(dir, "a.md", text(&["uno", "due"]));
    assert_eq!(
        counts(&add(place, dir, "a.md").ok().json()),
        [0, 0, 0, 0, 2]
    );
    assert_eq!(
        counts(&add(place, dir, "a.md --anew").ok().json()),
        [2, 0, 0, 0, 0]
    );
    // A file without text has no chunks; one that is gone only counts if that is asked.
    write(dir, "a.md", "\n \n");
    assert_eq!(
        counts(&add(place, dir, "a.md").ok().json()),
        [0, 0, 2, 0, 0]
    );
    write(dir, "d/b.md", "b");
    write(dir, "d/c.md", "c");
    assert_eq!(counts(&add(place, dir, "d").ok().json()), [2, 0, 0, 0, 0]);
    std::fs::remove_file(dir.join("d/b.md")).unwrap();
    assert_eq!(counts(&add(place, dir, "d").ok().json()), [0, 0, 0, 1, 0]);
    assert_eq!(
        counts(&add(place, dir, "a.md --prune").ok().json()),
        [0, 0, 0, 0, 0]
    );
    assert_eq!(
        counts(&add(place, dir, "d --prune").ok().json()),
        [0, 0, 1, 1, 0]
    );
    assert_eq!(
        documents(place, dir),
        [["d/c.md#1", "-", "c"].map(str::to_owned)]
    );
}

/// What somebody said about a chunk is not the chunk.
#[test]
fn what_only_cites_a_file_that_is_gone_stays() {
    let (place, dir) = (Place::folder(), TempDir::new());
    write(dir.path(), "d/b.md", "b");
    assert_eq!(
        counts(&add(&place, dir.path(), "d").ok().json()),
        [1, 0, 0, 0, 0]
    );
    add(&place, dir.path(), "--text noted --source d/b.md#1").ok();
    std::fs::remove_file(dir.join("d/b.md")).unwrap();
    assert_eq!(
        counts(&add(&place, dir.path(), "d --prune").ok().json()),
        [0, 0, 1, 0, 0]
    );
    assert_eq!(
        documents(&place, dir.path()),
        [["d/b.md#1", "-", "noted"].map(str::to_owned)]
    );
}

#[test]
fn standard_input_is_a_file_too() {
    let (place, dir) = (Place::folder(), TempDir::new());
    let from = |text: &str, words: &str| {
        write(dir.path(), "input", text);
        let mut command = memory(&place, dir.path(), &format!("add kb - {words} --json"));
        command.stdin(std::fs::File::open(dir.join("input")).unwrap());
        run(command)
    };
    assert_eq!(
        counts(&from("# a\n\nb", "--source x.md").ok().json()),
        [1, 0, 0, 0, 0]
    );
    assert_eq!(
        counts(&from("# a\n\nc", "--source x.md").ok().json()),
        [0, 1, 0, 0, 0]
    );
    assert_eq!(counts(&from("plain", "").ok().json()), [1, 0, 0, 0, 0]);
    assert_eq!(
        documents(&place, dir.path()),
        [["x.md#1", "a", "c"], ["stdin#1", "-", "plain"]].map(|d| d.map(str::to_owned))
    );
    from("x", "input --source y").ends(2);
    from("x", "--title y").ends(2);
}

#[test]
fn what_is_no_text_is_named_and_left_out() {
    let (place, dir) = (Place::folder(), TempDir::new());
    write(dir.path(), "d/a.md", "good");
    write(dir.path(), "d/b.md", b"caf\xe9 ole");
    write(dir.path(), "d/c.png", b"\x89PNG\0\0");
    write(dir.path(), "d/d.md", "good, too");
    let ran = run(memory(&place, dir.path(), "add kb d")).ends(1);
    let text = "left out d/b.md: it is no text: byte 3 is not UTF-8\n\
                left out d/c.png: it is no text: byte 4 is zero\n\
                2 chunks added, of 2 files; kb is at version 2\n";
    assert_eq!(ran.stdout, text);
    assert!(
        ran.stderr.contains("left out 2 files: the rest is added"),
        "{ran:?}"
    );
    let ran = add(&place, dir.path(), "d --skip-bad").ok().json();
    assert_eq!(counts(&ran), [0, 0, 0, 2, 0]);
    assert_eq!(
        ran["bad"][0],
        json!({"file": "d/b.md", "why": "is no text: byte 3 is not UTF-8"})
    );
    // Names that are no text are told apart, and named.
    for byte in [0xe8, 0xe9] {
        let name = std::ffi::OsString::from_vec(vec![b'x', byte]);
        std::fs::write(dir.path().join("d").join(name), "text").unwrap();
    }
    let ran = add(&place, dir.path(), "d --skip-bad").ok().json();
    assert_eq!(ran["bad"].as_array().unwrap().len(), 4, "{ran}");
    assert_eq!(ran["bad"][3]["why"], "has a name that is no text");
    let missing = add(&place, dir.path(), "d nowhere").ends(1);
    assert!(
        missing.json_error()["error"]
            .as_str()
            .unwrap()
            .contains("nowhere")
    );
    add(&place, dir.path(), "").ends(2);
}

/// Under whatever names it is given.
#[test]
fn a_file_that_is_named_twice_is_taken_once() {
    let (place, dir) = (Place::folder(), TempDir::new());
    write(dir.path(), "a/x.md", "x");
    write(dir.path(), "b/y.md", "y");
    for (names, counted) in [
        ("a/x.md b/../a/x.md a ./a", [1, 0, 0, 0, 0]),
        ("b/../a/x.md a/x.md", [1, 0, 0, 0, 0]),
        ("a/x.md a/x.md b", [1, 0, 0, 1, 0]),
    ] {
        let added = add(&place, dir.path(), names).ok().json();
        assert_eq!(counts(&added), counted, "{names}");
        let files = 1 + names.ends_with('b') as u64;
        assert_eq!(added["files"], files, "{names}");
    }
}

/// A folder that cannot be read: as root that is one whose path is too long.
#[test]
fn a_folder_that_cannot_be_read_is_named_and_left_out() {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let (place, dir) = (Place::folder(), TempDir::new());
    write(dir.path(), "d/a.md", "good");
    write(dir.path(), "d/z.md", "good, too");
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let mut folder = openat(CWD, dir.join("d"), flags, Mode::empty()).unwrap();
    for _ in 0..20 {
        let name = "n".repeat(250);
        mkdirat(&folder, &name, Mode::RWXU).unwrap();
        folder = openat(&folder, &name, flags, Mode::empty()).unwrap();
    }
    let ran = run(memory(&place, dir.path(), "add kb d")).ends(1);
    assert!(ran.stdout.contains("it cannot be read: "), "{ran:?}");
    assert!(ran.stdout.contains("2 chunks added, of 2 files"), "{ran:?}");
    let ran = add(&place, dir.path(), "d --skip-bad --prune").ok().json();
    assert_eq!((counts(&ran), &ran["files"]), ([0, 0, 0, 2, 0], &json!(2)));
    assert_eq!(ran["bad"].as_array().unwrap().len(), 1, "{ran}");
}

/// Who writes to standard input may take their time: nobody else has to wait for it.
#[test]
fn nothing_is_locked_while_standard_input_is_read() {
    let (place, dir) = (Place::folder(), TempDir::new());
    let mut command = memory(&place, dir.path(), "add kb - --json");
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"begun").unwrap();
    for _ in 0..10 {
        add(&place, dir.path(), "--text meanwhile").ok();
    }
    let pid = child.id().to_string();
    drop(Command::new("kill").args(["-INT", &pid]).output());
    // Its end of the pipe stays open.
    let input = child.stdin.take();
    let ended = child.wait_with_output().unwrap();
    drop(input);
    assert_eq!(ended.status.code(), Some(130));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("nothing was added"), "{said}");
    assert_eq!(documents(&place, dir.path()).len(), 10);
}

/// Fifty megabytes are one file like any other, and nothing is one, too.
#[test]
fn large_and_empty_files() {
    let (place, dir) = (Place::folder(), TempDir::new());
    let line = "The quick brown fox jumps over the lazy dog near the river bank.\n\n";
    let mut text = line.repeat(50 * 1_000_000 / line.len());
    text.push_str("A needle.");
    write(dir.path(), "large.txt", &text);
    write(dir.path(), "empty.txt", "");
    let words = "large.txt empty.txt --chunk-bytes 100000 --overlap-bytes 0";
    let added = add(&place, dir.path(), words).ok().json();
    assert!(counts(&added)[0] >= 500, "{added}");
    assert_eq!(added["files"], 2);
    let found = run(memory(
        &place,
        dir.path(),
        "search kb needle --limit 1 --json",
    ));
    let found = found.ok().json();
    assert_eq!(found["hits"].as_array().unwrap().len(), 1);
    let again = add(&place, dir.path(), words).ok().json();
    assert_eq!(counts(&again), [0, 0, 0, counts(&added)[0], 0]);
}

fn segment(place: &Place) -> PathBuf {
    place.path().join("log/0000000000000001.seg")
}

/// How far the log of a folder is written.
fn written(place: &Place) -> u64 {
    let bytes = std::fs::read(segment(place)).unwrap_or_default();
    bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64
}

/// Whether it is written that far. Quicker than to look how far.
fn is_written(place: &Place, until: u64) -> bool {
    let mut bytes = [0; 4096];
    let read = std::fs::File::open(segment(place)).and_then(|file| file.read_at(&mut bytes, until));
    read.is_ok() && bytes.iter().any(|byte| *byte != 0)
}

/// Ctrl-C leaves a beginning, and the same command goes on behind it.
#[test]
fn who_is_interrupted_goes_on() {
    let (place, dir) = (Place::folder(), TempDir::new());
    for file in 0..40 {
        let parts = (0..150).map(|part| format!("Paragraph {part} of file {file}.\n\n"));
        write(
            dir.path(),
            &format!("d/{file:03}.txt"),
            parts.collect::<String>(),
        );
    }
    let words = "add kb d --chunk-bytes 100 --overlap-bytes 0 --json";
    let whole = Place::folder();
    let wanted = run(memory(&whole, dir.path(), words)).ok().json();
    let mut interrupted = 0;
    for _ in 0..3 {
        let some = written(&place) + 20_000;
        let mut command = memory(&place, dir.path(), words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // As soon as some of it is there, and not only that the store was opened.
        while !is_written(&place, some) && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let pid = child.id().to_string();
        drop(Command::new("kill").args(["-INT", &pid]).output());
        interrupted += u32::from(child.wait().unwrap().code() == Some(130));
    }
    assert!(interrupted > 0, "it was never in the middle");
    let rest = run(memory(&place, dir.path(), words)).ok().json();
    assert_eq!(rest["version"]["sequence"], wanted["version"]["sequence"]);
    assert_eq!(documents(&place, dir.path()), documents(&whole, dir.path()));
    common::dalsegno(place.path(), ["verify"]).ok();
}

#[test]
fn a_terminal_sees_how_far_it_is() {
    let (place, dir) = (Place::folder(), TempDir::new());
    // Enough for a quick machine, too: what is done in a moment shows nothing.
    let parts = (0..120_000).map(|part| format!("Paragraph {part}.\n\n"));
    write(dir.path(), "large.txt", parts.collect::<String>());
    let script = "\"$0\" --store \"$1\" memory add kb \"$2\" --chunk-bytes 100; echo ended";
    let (store, file) = (place.path(), dir.join("large.txt"));
    let args = [
        env!("CARGO_BIN_EXE_dalsegno"),
        store.to_str().unwrap(),
        file.to_str().unwrap(),
    ];
    let mut terminal = Terminal::run(script, &args, (24, 100));
    terminal.sees("adding: [");
    let (_, screen) = terminal.ends();
    assert!(screen.contains("ended"), "{screen}");
    assert!(!screen.contains("adding: ["), "it is taken away again");
}

/// Chunks get vectors when a model is named, also those that were there without.
#[test]
fn a_model_that_comes_later_gives_vectors() {
    let (place, dir) = (Place::folder(), TempDir::new());
    write(
        dir.path(),
        "a.md",
        "# fruit\n\nan apple\n\n# vehicle\n\na truck\n",
    );
    assert_eq!(
        counts(&add(&place, dir.path(), "a.md").ok().json()),
        [2, 0, 0, 0, 0]
    );
    let model = common::models::table(dir.path(), "tiny", 4);
    let words = format!("a.md --model {}", model.display());
    let added = add(&place, dir.path(), &words).ok().json();
    assert_eq!(counts(&added), [0, 2, 0, 0, 0]);
    assert!(
        added["model"].as_str().unwrap().starts_with("tiny#"),
        "{added}"
    );
    // The model may also be in the environment.
    let mut again = memory(&place, dir.path(), "add kb a.md --json");
    again.env("DALSEGNO_MODEL", &model);
    assert_eq!(counts(&run(again).ok().json()), [0, 0, 0, 2, 0]);
    let mut search = memory(&place, dir.path(), "search kb pear --json");
    search.env("DALSEGNO_MODEL", &model);
    assert_eq!(run(search).ok().json()["hits"][0]["text"], "an apple");
    // Without it nothing is written, unless words are enough.
    write(dir.path(), "a.md", "# fruit\n\na pear\n");
    let refused = add(&place, dir.path(), "a.md").ends(2);
    assert!(refused.stderr.contains("tiny#"), "{refused:?}");
    let words = add(&place, dir.path(), "a.md --no-vectors").ok().json();
    assert_eq!(counts(&words), [0, 1, 1, 0, 0]);
}

/// Two who add the same at the same time add it once.
#[test]
fn two_at_once_add_it_once() {
    let (place, dir) = (Place::database(), TempDir::new());
    for file in 0..10 {
        write(
            dir.path(),
            &format!("d/{file}.md"),
            format!("# {file}\n\ntext\n\n# more\n\ntext"),
        );
    }
    let children: Vec<_> = (0..3)
        .map(|_| memory(&place, dir.path(), "add kb d --json"))
        .map(|mut command| command.stdout(Stdio::null()).spawn().unwrap())
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(documents(&place, dir.path()).len(), 20);
}
