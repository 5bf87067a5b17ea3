//! `docs/format.md` is enough to read everything: a reader that was written from it finds the same
//! as we do, in what is whole and in what is not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Entry, Random, random_history};
use dalsegno_log::{Log, Options, verify};
use dalsegno_store::portable::verify_portable;
use dalsegno_store::{Event, Kind, StreamId, Version};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What the other reader prints; an error is its last line.
fn read_format(path: &Path) -> Result<Vec<String>, String> {
    let output = Command::new("python3")
        .env("PYTHONIOENCODING", "utf-8")
        .arg(root().join("tools/read-format.py"))
        .arg(path)
        .output()
        .expect("python3 is needed to run this test");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let trouble = String::from_utf8_lossy(&output.stderr);
    assert!(trouble.is_empty(), "{trouble}");
    match output.status.code() {
        Some(0) => Ok(lines),
        Some(1) => Err(lines.last().cloned().unwrap_or_default()),
        other => panic!("{other:?}: {text}"),
    }
}

fn count(lines: &[String], what: &str) -> u64 {
    let found = lines.iter().find_map(|line| {
        let (word, number) = line.split_once(' ')?;
        (word == what).then(|| number.parse().ok())?
    });
    found.unwrap_or_else(|| panic!("no {what} in {lines:?}"))
}

fn heads(lines: &[String]) -> Vec<&str> {
    let heads = lines.iter().filter_map(|line| line.strip_prefix("head "));
    heads.collect()
}

fn as_printed(heads: &BTreeMap<StreamId, Version>) -> Vec<String> {
    let text = |(stream, head): (&StreamId, &Version)| {
        let Version { sequence, hash } = head;
        format!("{stream} {sequence} {hash}")
    };
    heads.iter().map(text).collect()
}

/// A folder that goes when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("dalsegno-format-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn open(dir: &Path) -> Log {
    Options::new().segment_bytes(8192).open(dir).unwrap()
}

/// As a store writes it.
fn record(entry: &Entry) -> Vec<u8> {
    match entry {
        Entry::Event(event) => [&[1][..], &event.encode()].concat(),
        Entry::Piece(piece) => [&[2], &piece.hash.as_bytes()[..], &piece.bytes].concat(),
    }
}

/// Appends the history in batches of so many records, each piece once.
fn append(log: &Log, history: &[Entry], per_batch: usize) -> BTreeMap<StreamId, Version> {
    let mut heads = BTreeMap::new();
    let mut known = std::collections::HashSet::new();
    let mut records = Vec::new();
    for entry in history {
        match entry {
            Entry::Piece(piece) if !known.insert(piece.hash) => continue,
            Entry::Piece(_) => {}
            Entry::Event(event) => {
                let head = heads.entry(event.stream.clone()).or_insert(Version::START);
                *head = head.after(&event.encode());
            }
        }
        records.push(record(entry));
    }
    for batch in records.chunks(per_batch) {
        let lsns = log.append_batch(batch).unwrap();
        log.wait_durable(*lsns.end()).unwrap();
    }
    heads
}

fn short_run(name: &str, events: u64) -> Vec<Entry> {
    let run = StreamId::run(name).unwrap();
    let event = |n| Entry::Event(Event::new(run.clone(), n, n, n, Kind::StepSucceeded));
    (1..=events).map(event).collect()
}

#[test]
fn the_golden_portable_file_is_read_from_the_page() {
    let path = root().join("crates/store/tests/golden/portable-1.dalsegno");
    let file = fs::read(&path).unwrap();
    let ours = verify_portable(file.as_slice()).unwrap();
    let lines = read_format(&path).unwrap();
    assert_eq!(heads(&lines), as_printed(&ours.streams));
    assert_eq!(count(&lines, "events"), ours.events);
    assert_eq!(count(&lines, "pieces"), ours.pieces);
    // Both long payloads of random bytes: the rule of cutting is on the page, too.
    assert_eq!(count(&lines, "payloads-cut-again"), 2);
    assert_eq!(count(&lines, "leaves-not-looked-into"), 1);
}

#[test]
fn a_changed_portable_file_is_refused_from_the_page() {
    let folder = Folder::new("portable");
    let path = folder.0.join("changed.dalsegno");
    let history = short_run("r", 3);
    let holds = dalsegno_store::portable::Holds::Store;
    let (file, report) = common::write_portable(&history, holds);
    fs::write(&path, &file).unwrap();
    assert_eq!(
        heads(&read_format(&path).unwrap()),
        as_printed(&report.streams)
    );
    for at in (0..file.len()).step_by(37) {
        let mut changed = file.clone();
        changed[at] ^= 0x20;
        fs::write(&path, &changed).unwrap();
        assert!(read_format(&path).is_err(), "byte {at}");
    }
    fs::write(&path, [&file[..], &[0]].concat()).unwrap();
    assert!(read_format(&path).is_err(), "appended");
    fs::write(&path, &file[..file.len() - 1]).unwrap();
    assert!(read_format(&path).is_err(), "cut");
}

#[test]
fn a_log_is_read_from_the_page() {
    let folder = Folder::new("log");
    let log = open(&folder.0);
    let expected = append(&log, &random_history(&mut Random(3), 4, 24), 1);
    assert!(log.segments().len() > 3);
    log.close().unwrap();
    drop(log);
    let lines = read_format(&folder.0).unwrap();
    assert_eq!(heads(&lines), as_printed(&expected));
    assert_eq!(count(&lines, "records"), verify(&folder.0).unwrap().records);
    assert!(count(&lines, "payloads-cut-again") > 0);
    assert!(lines.iter().all(|line| !line.starts_with("torn")));
}

#[test]
fn a_log_with_gaps_and_dropped_segments_is_read_from_the_page() {
    let folder = Folder::new("gaps");
    let log = open(&folder.0);
    append(&log, &short_run("dropped", 300), 3);
    log.seal().unwrap();
    let first_kept = log.last_lsn() + 1;
    let removed = append(&log, &short_run("removed", 3), 3);
    let mut expected = append(&log, &short_run("kept", 5), 3);
    log.seal().unwrap();
    expected.extend(append(&log, &short_run("later", 4), 3));
    assert!(log.drop_before(first_kept).unwrap() > 1);
    let number = log.segments()[0].number;
    let last_removed = first_kept + removed.values().next().unwrap().sequence - 1;
    log.rewrite_segment(number, |lsn, _| lsn > last_removed)
        .unwrap();
    log.close().unwrap();
    drop(log);
    let lines = read_format(&folder.0).unwrap();
    assert_eq!(heads(&lines), as_printed(&expected));
    let gap = format!("gap {first_kept} {last_removed} removed");
    assert!(lines.contains(&gap), "{lines:?}");
}

/// Bytes change anywhere in a log: both readers say the same about it.
#[test]
fn torn_and_damaged_are_told_apart_by_the_page_as_by_us() {
    let folder = Folder::new("damage");
    let log = open(&folder.0);
    append(&log, &short_run("r", 250), 3);
    // Not closed, as after a crash: the last group is one of records.
    let copy = Folder::new("damage-copy");
    for entry in fs::read_dir(&folder.0).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.0.join(path.file_name().unwrap())).unwrap();
    }
    drop(log);
    let folder = copy;
    let mut files: Vec<PathBuf> = fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "seg"))
        .collect();
    files.sort();
    let used = |path: &PathBuf| fs::read(path).unwrap()[512..].iter().any(|byte| *byte != 0);
    files.retain(used);
    assert!(files.len() > 2);
    let mut random = Random(7);
    let mut seen = BTreeMap::new();
    for round in 0..32 {
        // Mostly near the end of the log, where it matters.
        let among = if random.below(4) == 0 {
            0
        } else {
            files.len() - 1
        };
        let path = &files[among + random.below(files.len() - among)];
        let whole = fs::read(path).unwrap();
        let written = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let mut changed = whole.clone();
        match round % 4 {
            0 => changed[random.below(written)] ^= 1 << random.below(8),
            1 => changed[written - 1 - random.below(100.min(written))] ^= 0x10,
            2 => changed[written.saturating_sub(random.below(300))..].fill(0),
            _ => {
                let at = random.below(whole.len());
                changed.truncate(at);
            }
        }
        fs::write(path, &changed).unwrap();
        let ours = verify(&folder.0).unwrap();
        let what = format!("round {round}, {path:?}: {ours:?}");
        let verdict = match (ours.is_sound(), &ours.torn, read_format(&folder.0)) {
            (true, torn, Ok(lines)) => {
                assert_eq!(count(&lines, "records"), ours.records, "{what}");
                let tail = torn
                    .as_ref()
                    .map(|torn| format!("torn {} {}", torn.segment, torn.offset));
                let found = lines.into_iter().find(|line| line.starts_with("torn"));
                assert_eq!(found, tail, "{what}");
                if torn.is_some() { "torn" } else { "whole" }
            }
            (false, _, Err(_)) => "damaged",
            (_, _, theirs) => panic!("{what}; the other reader says {theirs:?}"),
        };
        *seen.entry(verdict).or_insert(0) += 1;
        fs::write(path, &whole).unwrap();
    }
    for verdict in ["torn", "damaged"] {
        assert!(seen.contains_key(verdict), "{seen:?}");
    }
}

#[test]
fn every_kind_is_on_the_page() {
    let page = fs::read_to_string(root().join("docs/format.md")).unwrap();
    for kind in Kind::ALL {
        let line = format!("\n| {} | {kind} | ", kind.number().unwrap());
        assert!(page.contains(&line), "no {kind} in docs/format.md");
    }
}
