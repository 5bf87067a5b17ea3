//! A portable file brings back what was written into it, or says what is wrong with it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Read, Write};

use common::{
    Entry, Random, golden_history, payload, piece_hashes, random_history, write_portable,
};
use dalsegno_log::fs::{Fs, OpenMode, RealFs};
use dalsegno_store::payload::assemble;
use dalsegno_store::portable::{
    About, FsReader, FsWriter, Holds, Item, PortableError, PortableReader, PortableWriter, renamed,
    verify_portable,
};
use dalsegno_store::{Body, Event, EventRef, Hash, Kind, LetterRef, StreamId, Version};

const FRAME_HEAD: usize = 9;

/// Where each frame begins, and its tag.
fn frames(file: &[u8]) -> Vec<(usize, u8, usize)> {
    let mut all = Vec::new();
    let mut at = 24;
    while at < file.len() {
        let len = u32::from_le_bytes(file[at + 1..at + 5].try_into().unwrap()) as usize;
        all.push((at, file[at], FRAME_HEAD + len));
        at += FRAME_HEAD + len;
    }
    assert_eq!(at, file.len());
    all
}

/// A file of these frames: checksums and the hash in the end as a forger would set them.
fn forge(file: &[u8], order: &[(usize, u8, usize)], counts: Option<[u8; 3]>) -> Vec<u8> {
    let mut forged = file[..24].to_vec();
    for &(at, tag, len) in order {
        let mut frame = file[at..at + len].to_vec();
        if tag == 5 {
            let hash_at = frame.len() - 32;
            let hash = Hash::of(&forged);
            frame[hash_at..].copy_from_slice(hash.as_bytes());
            if let Some(counts) = counts {
                // Numbers up to 23 are one byte each: a4 01 n 02 n 03 n 04 ….
                for (count, at) in counts.iter().zip([11, 13, 15]) {
                    frame[at] = *count;
                }
            }
        }
        set_crc(&mut frame);
        forged.extend(frame);
    }
    forged
}

fn set_crc(frame: &mut [u8]) {
    let crc = crc32c::crc32c(&frame[..5]);
    let crc = crc32c::crc32c_append(crc, &frame[FRAME_HEAD..]);
    frame[5..9].copy_from_slice(&crc.to_le_bytes());
}

fn read_all(file: &[u8]) -> Result<Vec<Item>, PortableError> {
    let mut reader = PortableReader::open(file)?;
    let mut items = Vec::new();
    while let Some(item) = reader.next()? {
        items.push(item);
    }
    assert!(reader.next()?.is_none(), "the end stays the end");
    Ok(items)
}

/// The error, which has to say where.
fn damage(file: &[u8]) -> String {
    match verify_portable(file).unwrap_err() {
        PortableError::Damaged {
            offset,
            expected,
            found,
        } => {
            assert!(offset <= file.len() as u64);
            format!("expected {expected}, found {found}")
        }
        other => panic!("{other}"),
    }
}

fn small() -> Vec<u8> {
    let run = StreamId::run("r").unwrap();
    let mut history = Vec::new();
    for sequence in 1..=3 {
        let mut event = Event::new(run.clone(), sequence, sequence, 5, Kind::StepSucceeded);
        if sequence == 2 {
            let (output, pieces) = payload("text/plain", &[b'x'; 1500]);
            event.output = Some(output);
            history.extend(pieces.into_iter().map(Entry::Piece));
        }
        history.push(Entry::Event(event));
    }
    write_portable(&history, Holds::Streams([run].into())).0
}

#[test]
fn random_streams_come_back_as_they_were() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let streams = random.below(6) + 1;
        let history = random_history(&mut random, streams, 60);
        let (file, written) = write_portable(&history, Holds::Store);
        assert_eq!(verify_portable(file.as_slice()).unwrap(), written);
        assert_eq!(written.bytes, file.len() as u64);

        let mut pieces = HashMap::new();
        let mut heads = BTreeMap::new();
        let mut events = history.iter().filter_map(|entry| match entry {
            Entry::Event(event) => Some(event),
            Entry::Piece(_) => None,
        });
        for item in read_all(&file).unwrap() {
            match item {
                Item::Piece { hash, bytes } => {
                    assert!(pieces.insert(hash, bytes).is_none(), "a piece came twice");
                }
                Item::Event {
                    event,
                    bytes,
                    version,
                } => {
                    assert_eq!(Some(&event), events.next());
                    assert_eq!(event.encode(), bytes);
                    let head = heads.entry(event.stream.clone()).or_insert(Version::START);
                    *head = head.after(&bytes);
                    assert_eq!(*head, version);
                    for payload in event.payloads() {
                        if let Body::Stored { root, bytes } = payload.body {
                            let fetch = |hash: &Hash| pieces.get(hash).ok_or("missing");
                            let whole = assemble(&root, bytes, bytes, fetch).unwrap();
                            assert_eq!(whole.len() as u64, bytes);
                        }
                    }
                }
            }
        }
        assert_eq!(events.next(), None);
        assert_eq!(heads, written.streams);
        let distinct: BTreeSet<Hash> = piece_hashes(&history).into_iter().collect();
        assert!(distinct.len() < piece_hashes(&history).len());
        assert_eq!(distinct.len(), pieces.len());
        assert_eq!(written.pieces, pieces.len() as u64);
    }
}

#[test]
fn an_empty_store_is_a_file_too_but_an_empty_list_of_streams_is_not() {
    let (file, report) = write_portable(&[], Holds::Store);
    assert_eq!(verify_portable(file.as_slice()).unwrap(), report);
    let about = About {
        holds: Holds::Streams(BTreeSet::new()),
        created_us: 0,
    };
    assert!(matches!(
        PortableWriter::new(Vec::new(), about),
        Err(PortableError::Refused { .. })
    ));
}

#[test]
fn more_streams_than_one_frame_of_heads_takes() {
    let event = |n: u64| {
        let run = StreamId::run(&format!("{n:0200}")).unwrap();
        Entry::Event(Event::new(run, 1, n, 0, Kind::RunCreated))
    };
    let history: Vec<Entry> = (1..=2500).map(event).collect();
    let (file, report) = write_portable(&history, Holds::Store);
    let heads = frames(&file).iter().filter(|frame| frame.1 == 4).count();
    assert_eq!((heads, report.streams.len()), (3, 2500));
    assert_eq!(verify_portable(file.as_slice()).unwrap(), report);
}

#[test]
fn every_changed_byte_is_noticed() {
    let file = small();
    assert!(verify_portable(file.as_slice()).is_ok());
    for at in 0..file.len() {
        for change in [1, 0x80, 0xff] {
            let mut changed = file.clone();
            changed[at] ^= change;
            let error = verify_portable(changed.as_slice()).expect_err("changed");
            assert!(error.to_string().len() < 1000, "{error}");
        }
    }
}

#[test]
fn every_cut_is_noticed_and_so_is_everything_appended() {
    let file = small();
    for len in 0..file.len() {
        assert!(verify_portable(&file[..len]).is_err(), "{len}");
    }
    for more in [&[0][..], &[5; 100], &file] {
        let longer = [&file, more].concat();
        assert!(damage(&longer).contains("nothing after the end"));
    }
}

#[test]
fn nothing_is_handed_out_after_an_error() {
    let file = small();
    let mut reader = PortableReader::open(&file[..file.len() - 1]).unwrap();
    while reader.next().is_ok() {}
    assert!(matches!(reader.next(), Err(PortableError::Stopped)));
    assert_eq!(reader.into_report(), None);
}

#[test]
fn a_forged_order_is_refused_although_all_checksums_are_right() {
    let file = small();
    let all = frames(&file);
    let tags: Vec<u8> = all.iter().map(|frame| frame.1).collect();
    let pieces = tags.iter().filter(|tag| **tag == 2).count() as u8;
    assert_eq!(tags.first(), Some(&1));
    assert_eq!(tags[tags.len() - 2..], [4, 5]);
    assert!(verify_portable(forge(&file, &all, None).as_slice()).is_ok());

    let events: Vec<usize> = (0..all.len()).filter(|at| all[*at].1 == 3).collect();
    let piece = all.iter().position(|frame| frame.1 == 2).unwrap();
    let without = |at: usize| {
        let mut order = all.clone();
        order.remove(at);
        order
    };
    let with = |at: usize, twice: usize| {
        let mut order = all.clone();
        order.insert(at, all[twice]);
        order
    };
    for (order, counts, says) in [
        (without(piece), [3, pieces - 1, 1], "no such piece"),
        (
            without(events[1]),
            [2, pieces, 1],
            "expected event 2 of run/r",
        ),
        (
            without(events[2]),
            [2, pieces, 1],
            "the head of run/r at event 2",
        ),
        (
            with(events[1], events[0]),
            [4, pieces, 1],
            "expected event 2 of run/r",
        ),
        (
            with(piece, piece),
            [3, pieces + 1, 1],
            "the same piece again",
        ),
        (without(all.len() - 2), [3, pieces, 1], "found the end"),
        (
            with(all.len() - 1, all.len() - 2),
            [3, pieces, 1],
            "expected the end",
        ),
        (
            with(all.len() - 1, piece),
            [3, pieces, 1],
            "heads or the end",
        ),
        (with(1, 0), [3, pieces, 1], "found about"),
        (without(0), [3, pieces, 1], "an about frame"),
        (all.clone(), [4, pieces, 1], "an end with 3 events"),
        (all.clone(), [3, pieces + 1, 1], "an end with 3 events"),
        (all.clone(), [3, pieces, 2], "an end with 3 events"),
        (
            vec![all[0], all[all.len() - 1]],
            [0, 0, 0],
            "events of run/r",
        ),
    ] {
        let found = damage(&forge(&file, &order, Some(counts)));
        assert!(found.contains(says), "{found:?} does not say {says:?}");
    }
}

/// What a forger can do who sets all checksums right: any content, in any frame.
#[test]
fn no_content_of_a_frame_panics() {
    let file = small();
    let all = frames(&file);
    let mut random = Random(11);
    for _ in 0..20_000 {
        let mut changed = file.clone();
        let (at, _, len) = all[random.below(all.len() - 1)];
        for _ in 0..=random.below(3) {
            let byte = at + FRAME_HEAD + random.below(len - FRAME_HEAD);
            changed[byte] = match random.below(3) {
                0 => random.next() as u8,
                1 => changed[byte] ^ 1 << random.below(8),
                _ => [0x00, 0x18, 0x1b, 0x5f, 0x80, 0x9b, 0xa0, 0xbf, 0xff][random.below(9)],
            };
        }
        if let Ok(report) = verify_portable(forge(&changed, &all, None).as_slice()) {
            // About can say another time; pieces, events and heads hold each other.
            assert_eq!((report.events, report.streams.len()), (3, 1));
        }
    }
}

#[test]
fn a_newer_version_is_called_that() {
    let mut file = small();
    file[16] = 2;
    assert!(damage(&file).contains("checksum"), "changed, not newer");
    let crc = crc32c::crc32c(&file[..20]);
    file[20..24].copy_from_slice(&crc.to_le_bytes());
    let error = verify_portable(file.as_slice()).unwrap_err();
    assert!(error.to_string().contains("use a newer version"), "{error}");
    assert!(matches!(
        error,
        PortableError::Newer {
            found: 2,
            known: 1,
            ..
        }
    ));

    // The same for the format of events, which is the about frame's third field, before 04 01.
    let file = small();
    let all = frames(&file);
    let (at, _, len) = all[0];
    let mut newer = file.clone();
    assert_eq!(newer[at + len - 4..at + len], [3, 1, 4, 1]);
    newer[at + len - 3] = 2;
    let error = verify_portable(forge(&newer, &all, None).as_slice()).unwrap_err();
    assert!(matches!(error, PortableError::Newer { what: "events", .. }));

    let other = verify_portable(&b"PK\x03\x04 and something else"[..]).unwrap_err();
    assert!(matches!(other, PortableError::OtherFile { .. }), "{other}");
}

#[test]
fn forged_lengths_are_refused_before_anything_is_set_aside() {
    /// Fails the test if more is asked for than anybody may have believed.
    struct Endless<'a>(&'a [u8], usize);
    impl Read for Endless<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let len = to.len().min(self.0.len());
            let (now, later) = self.0.split_at(len);
            to[..len].copy_from_slice(now);
            self.0 = later;
            to[len..].fill(0);
            self.1 += to.len();
            assert!(self.1 < 2 << 20, "read on and on");
            Ok(to.len())
        }
    }
    let file = small();
    for (at, tag, _) in frames(&file) {
        for length in [u32::MAX, 64 << 20, (1 << 20) + 1] {
            let mut forged = file[..at + FRAME_HEAD].to_vec();
            forged[at + 1..at + 5].copy_from_slice(&length.to_le_bytes());
            let error = verify_portable(Endless(&forged, 0)).unwrap_err();
            assert!(error.to_string().contains("at most"), "{tag}: {error}");
        }
        // As long as is allowed, but the file ends: no more than there is was set aside.
        let mut forged = file[..at + FRAME_HEAD].to_vec();
        forged[at + 1..at + 5].copy_from_slice(&1000_u32.to_le_bytes());
        assert!(damage(&forged).contains("end of the file"));
    }
}

#[test]
fn the_writer_refuses_what_could_not_be_read() {
    let (run, other) = (StreamId::run("r").unwrap(), StreamId::run("s").unwrap());
    let about = About {
        holds: Holds::Streams([run.clone()].into()),
        created_us: 0,
    };
    let mut writer = PortableWriter::new(Vec::new(), about.clone()).unwrap();
    let event =
        |stream: &StreamId, sequence| Event::new(stream.clone(), sequence, 1, 0, Kind::RunStarted);
    let refused = |result: Result<Version, PortableError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, PortableError::Refused { .. }), "{error}");
    };
    refused(writer.event(b"no event"));
    refused(writer.event(&event(&run, 2).encode()));
    refused(writer.event(&event(&other, 1).encode()));
    let mut long = event(&run, 1);
    long.sources = vec!["x".repeat(1 << 20)];
    refused(writer.event(&long.encode()));

    let (input, pieces) = payload("text/plain", &Random(1).bytes(30_000));
    let mut first = event(&run, 1);
    first.input = Some(input);
    refused(writer.event(&first.encode()));
    let root = pieces.last().unwrap();
    assert!(
        writer.piece(&root.hash, &root.bytes).is_err(),
        "children first"
    );
    assert!(writer.piece(&Hash::ZERO, &pieces[0].bytes).is_err());
    for piece in &pieces {
        assert!(writer.piece(&piece.hash, &piece.bytes).unwrap());
        assert!(!writer.piece(&piece.hash, &piece.bytes).unwrap());
    }
    let mut wrong = first.clone();
    if let Some(Body::Stored { bytes, .. }) = wrong.input.as_mut().map(|input| &mut input.body) {
        *bytes += 1;
    }
    refused(writer.event(&wrong.encode()));
    writer.event(&first.encode()).unwrap();
    refused(writer.event(&first.encode()));
    // None of what was refused is in the file.
    let (file, report) = writer.finish().unwrap();
    assert_eq!(verify_portable(file.as_slice()).unwrap(), report);

    let empty = PortableWriter::new(Vec::new(), about).unwrap().finish();
    assert!(matches!(empty, Err(PortableError::Refused { .. })));
}

#[test]
fn a_failed_write_ends_the_writing() {
    struct Small(usize);
    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let some = bytes.len().min(self.0);
            self.0 -= some;
            Ok(some)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let about = About {
        holds: Holds::Store,
        created_us: 0,
    };
    let mut writer = PortableWriter::new(Small(60), about).unwrap();
    let event = |n| Event::new(StreamId::store(), n, n, 0, Kind::StoreRecovered).encode();
    assert!(matches!(
        writer.event(&event(1)),
        Err(PortableError::Io { .. })
    ));
    assert!(matches!(
        writer.event(&event(2)),
        Err(PortableError::Stopped)
    ));
    assert!(matches!(writer.finish(), Err(PortableError::Stopped)));
}

#[test]
fn renaming_keeps_everything_else() {
    let (from, to) = (StreamId::run("r").unwrap(), StreamId::run("copy").unwrap());
    let third = StreamId::memory("r").unwrap();
    let mut event = Event::new(from.clone(), 3, 9, 5, Kind::StepFailed);
    event.input = Some(payload("text/plain", b"r").0);
    event.sources = vec!["run/r".into()];
    event.letter = Some(LetterRef {
        sender: "r".into(),
        number: 1,
    });
    for (cause, expected) in [(&from, &to), (&third, &third)] {
        let cause_of = |stream: &StreamId| {
            Some(EventRef {
                stream: stream.clone(),
                sequence: 2,
            })
        };
        event.cause = cause_of(cause);
        let copy = renamed(&event, &from, &to);
        assert_eq!((&copy.stream, &copy.cause), (&to, &cause_of(expected)));
        assert_eq!(renamed(&copy, &to, &from), event);
        assert_eq!(renamed(&event, &to, &third), event);
    }
    // What a newer version wrote stays, too: an event with a field 99.
    let mut bytes = Event::new(from.clone(), 1, 1, 1, Kind::RunCreated).encode();
    bytes[0] += 1;
    bytes.extend([0x18, 99, 0xf6]);
    let newer = Event::decode(&bytes).unwrap();
    let copy = renamed(&newer, &from, &to).encode();
    assert!(copy.ends_with(&[0x18, 99, 0xf6]));
}

#[test]
fn a_file_system_takes_and_gives_the_same() {
    let dir = std::env::temp_dir().join(format!("dalsegno-portable-{}", std::process::id()));
    RealFs.create_dir(&dir).unwrap();
    let path = dir.join("whole.dalsegno");
    let history = random_history(&mut Random(9), 4, 400);
    let about = About {
        holds: Holds::Store,
        created_us: 1_700_000_000_000_000,
    };
    let file = RealFs.open(&path, OpenMode::CreateNew).unwrap();
    let to = FsWriter::new(file.as_ref());
    let mut writer = PortableWriter::new(to, about).unwrap();
    for entry in &history {
        match entry {
            Entry::Piece(piece) => drop(writer.piece(&piece.hash, &piece.bytes).unwrap()),
            Entry::Event(event) => drop(writer.event(&event.encode()).unwrap()),
        }
    }
    let (mut to, report) = writer.finish().unwrap();
    to.flush().unwrap();
    assert_eq!(file.len().unwrap(), report.bytes);
    let from = FsReader::new(RealFs.open(&path, OpenMode::Read).unwrap());
    assert_eq!(verify_portable(from).unwrap(), report);
    let in_memory = write_portable(&history, Holds::Store).0;
    assert!(in_memory.len() > 300_000, "more than one buffer");
    assert_eq!(std::fs::read(&path).unwrap(), in_memory);
    std::fs::remove_dir_all(&dir).unwrap();
}

fn golden_path() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/portable-1.dalsegno")
}

/// The file was made by the first version that could. Every later one has to read it.
#[test]
fn the_first_portable_file_is_still_read() {
    let file = std::fs::read(golden_path()).unwrap();
    let report = verify_portable(file.as_slice()).unwrap();
    let (again, expected) = write_portable(&golden_history(), Holds::Store);
    assert_eq!(report.streams, expected.streams);
    assert_eq!(
        (report.events, report.pieces),
        (expected.events, expected.pieces)
    );
    assert_eq!(report.about, expected.about);
    let (old, new) = (read_all(&file).unwrap(), read_all(&again).unwrap());
    assert_eq!(old.len(), new.len());
    for pair in old.iter().zip(&new) {
        match pair {
            // Another version of zstd may compress it otherwise.
            (Item::Piece { hash, .. }, Item::Piece { hash: other, .. }) => assert_eq!(hash, other),
            (old, new) => assert_eq!(old, new),
        }
    }
}

#[test]
#[ignore = "makes the golden file anew, which only a new format may need"]
fn make_the_golden_file() {
    let (file, _) = write_portable(&golden_history(), Holds::Store);
    std::fs::write(golden_path(), file).unwrap();
}
