//! What a sender and an owner see of a mailbox in a real folder.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dalsegno_log::fs::RealFs;
use dalsegno_store::mailbox::{Arrived, Inbox, Letter, MailboxError, NewLetter, Outbox};
use dalsegno_store::{Fields, Hash, Kind, LetterRef, StreamId, Value};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let name = format!("mailbox-{test}-{}", std::process::id());
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        drop(fs::remove_dir_all(&dir));
        Folder(dir)
    }

    fn outbox(&self) -> Outbox {
        Outbox::open(Arc::new(RealFs), &self.0).unwrap()
    }

    fn inbox(&self) -> Inbox {
        Inbox::open(Arc::new(RealFs), &self.0).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn letter() -> NewLetter {
    NewLetter::new(StreamId::run("order-42").unwrap(), Kind::CancelRequested, 5)
}

fn letters(arrived: Vec<Arrived>) -> Vec<Letter> {
    let only = |arrived| match arrived {
        Arrived::Letter(letter) => letter,
        other => panic!("{other:?}"),
    };
    arrived.into_iter().map(only).collect()
}

#[test]
fn a_letter_arrives_as_it_was_sent_and_is_gone_when_it_is_taken() {
    let folder = Folder::new("arrives");
    let (outbox, inbox) = (folder.outbox(), folder.inbox());
    let mut new = letter();
    new.fields = Fields::new().with(1, "why").with(2, 3);
    new.payload = Some(("application/json".into(), b"{}".to_vec()));
    let sent = outbox.send(new.clone()).unwrap();
    assert_eq!((sent.sender.as_str(), sent.number), (outbox.sender(), 1));
    let [arrived] = &letters(inbox.pending(&|_| 0, 9).unwrap())[..] else {
        panic!("not one letter");
    };
    assert_eq!(arrived.letter_ref(), sent);
    assert_eq!((&arrived.to, &arrived.kind), (&new.to, &new.kind));
    assert_eq!(
        (&arrived.fields, &arrived.payload),
        (&new.fields, &new.payload)
    );
    assert_eq!(arrived.sent_us, 5);
    assert!(!outbox.is_taken(&sent).unwrap());
    inbox.remove(std::slice::from_ref(&sent)).unwrap();
    assert!(outbox.is_taken(&sent).unwrap());
    // Once more does no harm.
    inbox.remove(&[sent]).unwrap();
    assert!(folder.names().is_empty());
}

#[test]
fn leftovers_are_removed_and_everything_foreign_is_left_alone() {
    let folder = Folder::new("foreign");
    let (outbox, inbox) = (folder.outbox(), folder.inbox());
    for _ in 0..3 {
        outbox.send(letter()).unwrap();
    }
    let foreign = [
        "notes.txt".to_owned(),
        format!("{}-{:016}.letter.tmp", outbox.sender(), 4),
        format!("{}-{:016}.letter.bad", outbox.sender(), 5),
        format!("{}-6.letter", outbox.sender()),
    ];
    for name in &foreign {
        fs::write(folder.0.join(name), b"x").unwrap();
    }
    let found = letters(inbox.pending(&|_| 2, 9).unwrap());
    assert_eq!(found.iter().map(|l| l.number).collect::<Vec<_>>(), [3]);
    inbox.remove(&[found[0].letter_ref()]).unwrap();
    let mut expected = foreign.to_vec();
    expected.sort();
    assert_eq!(folder.names(), expected);
    // The sender itself is not disturbed by what is in its way.
    assert_eq!(outbox.send(letter()).unwrap().number, 4);
}

#[test]
fn a_batch_is_bounded_and_every_sender_has_its_turn() {
    let folder = Folder::new("bounded");
    let inbox = folder.inbox();
    let boxes: Vec<_> = (0..3).map(|_| folder.outbox()).collect();
    for outbox in &boxes {
        for _ in 0..4 {
            outbox.send(letter()).unwrap();
        }
    }
    // Nothing is recorded in between, so each call could begin with the same ones.
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let batch = letters(inbox.pending(&|_| 0, 3).unwrap());
        let numbers: Vec<_> = batch.iter().map(|letter| letter.number).collect();
        assert_eq!(numbers, [1, 2, 3]);
        seen.insert(batch[0].sender.clone());
    }
    assert_eq!(seen.len(), 3);
    assert_eq!(letters(inbox.pending(&|_| 3, 9).unwrap()).len(), 3);
    assert_eq!(letters(inbox.pending(&|_| 0, 0).unwrap()).len(), 1);
}

#[test]
fn a_batch_is_bounded_in_bytes_too() {
    let folder = Folder::new("bytes");
    let outbox = folder.outbox().limit_bytes(u64::MAX);
    let mut large = letter();
    large.payload = Some(("x/y".into(), vec![7; 9 * 1024 * 1024]));
    for _ in 0..3 {
        outbox.send(large.clone()).unwrap();
    }
    let batch = letters(folder.inbox().pending(&|_| 0, 100).unwrap());
    assert_eq!(batch.len(), 2);
}

#[test]
fn a_letter_that_is_too_large_is_refused_with_limit_and_size() {
    let folder = Folder::new("large");
    let outbox = folder.outbox().limit_bytes(1000);
    let mut large = letter();
    large.payload = Some(("x/y".into(), vec![7; 1000]));
    let refused = outbox.send(large.clone()).unwrap_err();
    let MailboxError::TooLarge { bytes, limit_bytes } = refused else {
        panic!("{refused}");
    };
    assert!(bytes > 1000 && limit_bytes == 1000);
    assert!(
        refused.to_string().contains(&bytes.to_string()),
        "{refused}"
    );
    large.payload = Some(("x/y".into(), vec![7; 500]));
    assert_eq!(outbox.send(large).unwrap().number, 1);
}

#[test]
fn a_letter_that_nobody_could_read_is_not_sent() {
    let folder = Folder::new("unsendable");
    let outbox = folder.outbox();
    let mut deep = Value::List(vec![]);
    for _ in 0..20 {
        deep = Value::List(vec![deep]);
    }
    for value in [deep, Value::Other(vec![])] {
        let mut new = letter();
        new.fields = Fields::new().with(1, value);
        let refused = outbox.send(new).unwrap_err();
        assert!(matches!(refused, MailboxError::Unsendable(_)), "{refused}");
    }
    assert!(folder.names().is_empty());
}

#[test]
fn a_letter_from_a_newer_version_waits_with_those_behind_it() {
    let folder = Folder::new("newer");
    let (outbox, other, inbox) = (folder.outbox(), folder.outbox(), folder.inbox());
    for outbox in [&outbox, &outbox, &outbox, &other] {
        outbox.send(letter()).unwrap();
    }
    let path = folder
        .0
        .join(format!("{}-{:016}.letter", outbox.sender(), 2));
    make_newer(&path);
    let mut numbers = Vec::new();
    let mut held = Vec::new();
    for arrived in inbox.pending(&|_| 0, 9).unwrap() {
        match arrived {
            Arrived::Letter(letter) => numbers.push(letter.number),
            Arrived::Held { file, reason } => held.push((file, reason)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(numbers, [1, 1]);
    let [(file, reason)] = &held[..] else {
        panic!("{held:?}");
    };
    assert!(
        path.ends_with(file) && reason.contains("version 2"),
        "{reason}"
    );
    assert!(path.exists());
}

/// As a program of the next version would have written it.
fn make_newer(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes.truncate(bytes.len() - 32);
    bytes[16] = 2;
    let hash = Hash::of(&bytes);
    bytes.extend_from_slice(hash.as_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn references_from_outside_lead_nowhere_else() {
    let folder = Folder::new("outside");
    let (outbox, inbox) = (folder.outbox(), folder.inbox());
    for sender in [
        "",
        "../../../etc/passwd",
        "ABCDEFABCDEFABCD",
        &"a".repeat(999),
    ] {
        let letter = LetterRef {
            sender: sender.into(),
            number: 1,
        };
        let asked = outbox.is_taken(&letter);
        assert!(matches!(asked, Err(MailboxError::NoLetter(_))), "{asked:?}");
        let removed = inbox.remove(&[letter]);
        assert!(
            matches!(removed, Err(MailboxError::NoLetter(_))),
            "{removed:?}"
        );
    }
}
