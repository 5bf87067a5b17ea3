//! What a whole index answers.

use super::super::encode::encode_keyed;
use super::*;

#[test]
fn gives_back_what_it_was_made_from() {
    for seed in 0..60 {
        let contents = contents(seed, seed * seed % 401, seed * 7 % 311);
        let (_, index) = index_of(&contents);
        assert_all_right(&index, &contents);
    }
}

#[test]
fn an_empty_segment_has_an_index() {
    let (fs, index) = index_of(&Contents::default());
    assert_all_right(&index, &Contents::default());
    assert_eq!(fs.total_bytes(), 4096);
    let calls = fs.calls();
    assert!(index.piece(&Hash::of(b"any")).unwrap().is_none());
    assert_eq!(fs.calls(), calls);
}

#[test]
fn the_order_of_the_contents_does_not_matter() {
    let mut shuffled = contents(7, 150, 500);
    let bytes = encode(&IDENTITY, &shuffled).unwrap();
    let mut random = Random(1);
    for _ in 0..3 {
        random.shuffle(&mut shuffled.streams);
        random.shuffle(&mut shuffled.ended);
        random.shuffle(&mut shuffled.pieces);
        assert!(encode(&IDENTITY, &shuffled).unwrap() == bytes);
    }
}

/// If this fails, the format has changed: it needs a new version, and `docs/format.md` too.
#[test]
fn the_format_is_what_it_was() {
    let bytes = encode(&IDENTITY, &contents(1, 40, 300)).unwrap();
    assert_eq!(format!("{:?}", Hash::of(&bytes)), "Hash(6f0bb26a…)");
}

#[test]
fn a_hundred_thousand_pieces_take_one_read_each() {
    let contents = contents(2, 0, 100_000);
    let (fs, index) = index_of(&contents);
    let (_, absent) = absent(100_000);
    let (calls, read) = (fs.calls(), fs.bytes_read());
    for (hash, place) in &contents.pieces {
        assert_eq!(index.piece(hash).unwrap(), Some(*place));
    }
    for hash in &absent {
        assert_eq!(index.piece(hash).unwrap(), None);
    }
    let calls = fs.calls() - calls;
    assert!(calls < 202_000, "{calls} reads");
    assert_eq!(fs.bytes_read() - read, calls * 4096);
    index.check().unwrap();
}

#[test]
fn one_event_and_fifty_thousand() {
    let mut random = Random(3);
    let long = part(&mut random, run(1), 50_000);
    let contents = Contents {
        streams: vec![long.clone(), part(&mut random, run(2), 1)],
        ..Contents::default()
    };
    let (fs, index) = index_of(&contents);
    assert_all_right(&index, &contents);

    // Neither the summary nor the walk reads the places.
    let read = fs.bytes_read();
    assert_eq!(index.stream_summary(&run(1)).unwrap(), Some(summary(&long)));
    assert!(fs.bytes_read() - read < 5_000);
    // The table's block, then the part in one.
    let calls = fs.calls();
    assert_eq!(index.stream(&run(1)).unwrap(), Some(long));
    assert_eq!(fs.calls() - calls, 2);
}

#[test]
fn extreme_numbers_and_names() {
    let identity = Identity {
        store: u64::MAX,
        segment: u64::MAX,
        first_lsn: 0,
        last_lsn: u64::MAX,
        segment_bytes: u64::MAX,
    };
    let mut random = Random(4);
    let far = StreamPart {
        first: u64::MAX - 3,
        places: vec![0, 1, u64::MAX - 1],
        ..part(&mut random, StreamId::memory(&"😀".repeat(50)).unwrap(), 1)
    };
    let chatty = EndedRun {
        agent: Some("a".repeat(200_000)),
        ..ended(&mut random, run(1))
    };
    let contents = Contents {
        streams: vec![far],
        ended: vec![chatty, ended(&mut random, run(2))],
        pieces: vec![
            (Hash::ZERO, u64::MAX - 1),
            (Hash::from_bytes([0xff; 32]), 0),
        ],
    };
    let fs = fs_with(encode(&identity, &contents).unwrap());
    assert_all_right(&open_as(&fs, &identity).unwrap(), &contents);
}

#[test]
fn a_piece_that_is_there_twice_is_found_at_its_first_place() {
    let hash = Hash::of(b"piece");
    let contents = Contents {
        pieces: vec![(hash, 900), (hash, 600), (hash, 700)],
        ..Contents::default()
    };
    let (_, index) = index_of(&contents);
    assert_eq!(index.piece(&hash).unwrap(), Some(600));
    index.check().unwrap();
}

/// All the same, the greatest there is, or one of a few: what hashes are not, unless somebody
/// makes names until they are.
#[test]
fn names_that_share_their_key_are_told_apart() {
    let keys: [fn(&str) -> [u8; KEY_BYTES]; 4] = [
        |_| [0; 8],
        |_| [0xff; 8],
        |name| [(name.len() % 3) as u8 * 127; 8],
        |name| [0xff, 0xff, 0xff, 0xff, 0, 0, 0, part::key_of(name)[0]],
    ];
    let contents = contents(5, 700, 0);
    let (absent, _) = absent(200);
    for key_of in keys {
        let fs = fs_with(encode_keyed(&IDENTITY, &contents, key_of).unwrap());
        let mut index = open(&fs).unwrap();
        index.key_of = key_of;
        assert_all_right(&index, &contents);
        for name in &absent {
            assert!(index.stream(name).unwrap().is_none());
        }
    }
}

#[test]
fn pieces_that_share_their_block_are_told_apart() {
    let mut random = Random(6);
    let mut contents = Contents::default();
    let alike = |number: u64| {
        let mut bytes = *Hash::of(&number.to_le_bytes()).as_bytes();
        bytes[..8].fill(0x80);
        Hash::from_bytes(bytes)
    };
    for number in 0..1_000 {
        contents.pieces.push((alike(number), number));
        contents.pieces.push((random.hash(), number));
    }
    contents.pieces.sort();
    let (_, index) = index_of(&contents);
    assert_all_right(&index, &contents);
    for number in 1_000..2_000 {
        assert_eq!(index.piece(&alike(number)).unwrap(), None);
    }
}

#[test]
fn contents_that_contradict_themselves_are_refused() {
    let mut random = Random(8);
    let mut good = part(&mut random, run(1), 5);
    good.first = 1;
    let ended = ended(&mut random, run(1));
    let part_with = |places: &[u64]| StreamPart {
        places: places.to_vec(),
        ..good.clone()
    };
    let too_high = StreamPart {
        first: u64::MAX - 1,
        ..good.clone()
    };
    let streams = [
        vec![good.clone(), good.clone()],
        vec![part_with(&[])],
        vec![part_with(&[600, 500])],
        vec![part_with(&[600, IDENTITY.segment_bytes])],
        vec![too_high],
    ];
    let unended = EndedRun {
        status: Status::Running,
        ..ended.clone()
    };
    let mut wrong: Vec<Contents> = Vec::new();
    wrong.extend(streams.map(|streams| Contents {
        streams,
        ..Contents::default()
    }));
    wrong.extend(
        [vec![ended.clone(), ended], vec![unended]].map(|ended| Contents {
            ended,
            ..Contents::default()
        }),
    );
    wrong.push(Contents {
        pieces: vec![(Hash::ZERO, IDENTITY.segment_bytes)],
        ..Contents::default()
    });
    for contents in &wrong {
        let error = encode(&IDENTITY, contents).unwrap_err();
        assert!(matches!(error, IndexError::Contents { segment: 3, .. }));
        assert!(
            error.to_string().starts_with("segment 3 cannot be indexed"),
            "{error}"
        );
    }
}
