//! What becomes of answers when the file is not as it was written: right, or an error.

use super::super::header::{FORMAT_VERSION, HEADER_BYTES, VERSION_AT, stamp};
use super::*;

/// All sections.
fn small() -> Contents {
    let contents = contents(9, 9, 12);
    assert!(contents.streams.len() > 5 && contents.ended.len() > 1);
    contents
}

/// More than one block in each table.
fn larger() -> Contents {
    contents(10, 200, 120)
}

/// What may be read of a small file, however wrong the numbers in it are: each of the answers
/// reads a few parts of it once.
fn read_limit(contents: &Contents, file_bytes: usize) -> u64 {
    let answers = 2 * contents.streams.len() + contents.pieces.len() + 20;
    (answers * 2 * file_bytes) as u64
}

#[test]
fn every_flipped_bit_is_noticed() {
    let contents = small();
    let good = encode(&IDENTITY, &contents).unwrap();
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            let fs = fs_with(bytes);
            let Ok(index) = open(&fs) else {
                assert!(at < HEADER_BYTES);
                continue;
            };
            errors_among_answers(&index, &contents);
            assert!(fs.bytes_read() < read_limit(&contents, good.len()));
            let checked = index.check();
            let is_damage = matches!(checked, Err(IndexError::Damage { .. }));
            assert!(is_damage, "bit {bit} of byte {at}: {checked:?}");
        }
    }
}

#[test]
fn flipped_bytes_in_larger_tables_are_noticed() {
    let contents = larger();
    let good = encode(&IDENTITY, &contents).unwrap();
    for at in (0..good.len()).step_by(61) {
        let mut bytes = good.clone();
        bytes[at] = !bytes[at];
        let fs = fs_with(bytes);
        let Ok(index) = open(&fs) else { continue };
        errors_among_answers(&index, &contents);
        assert!(index.check().is_err());
    }
}

#[test]
fn another_length_is_noticed() {
    let contents = small();
    let good = encode(&IDENTITY, &contents).unwrap();
    for length in 0..good.len() {
        let error = open(&fs_with(good[..length].to_vec())).unwrap_err();
        assert!(matches!(error, IndexError::Damage { .. }), "{error}");
    }
    for more in [vec![0], vec![0; 4096], good.clone()] {
        let error = open(&fs_with([good.clone(), more].concat())).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains(&format!("at byte {}", good.len())),
            "{message}"
        );
    }
}

#[test]
fn a_file_that_changes_its_length_while_it_is_open_is_noticed() {
    let contents = small();
    for change in [-1_i64, 1, -5_000] {
        let (fs, index) = index_of(&contents);
        let length = fs.get(PATH).unwrap().len() as i64 + change;
        let file = fs.open(Path::new(PATH), OpenMode::Write).unwrap();
        file.truncate(length as u64).unwrap();
        errors_among_answers(&index, &contents);
        assert!(index.check().is_err());
    }
}

/// As after a crash, or a write that went to the wrong place.
#[test]
fn sectors_that_are_zero_or_from_elsewhere_are_noticed() {
    let contents = larger();
    let good = encode(&IDENTITY, &contents).unwrap();
    let other = Identity {
        segment_bytes: IDENTITY.segment_bytes + 1,
        ..IDENTITY
    };
    let others = encode(&other, &contents).unwrap();
    let sectors = good.len() / 512;
    for sector in 0..sectors {
        let range = sector * 512..(sector + 1) * 512;
        let elsewhere = (sector + 8) % sectors * 512;
        let foreign = [
            &[0; 512],
            &others[range.clone()],
            &good[elsewhere..elsewhere + 512],
        ];
        for content in foreign {
            let mut bytes = good.clone();
            bytes[range.clone()].copy_from_slice(content);
            if bytes == good {
                continue;
            }
            let Ok(index) = open(&fs_with(bytes)) else {
                continue;
            };
            errors_among_answers(&index, &contents);
            assert!(index.check().is_err(), "sector {sector}");
        }
    }
}

/// A whole block in the place of another is as good as damaged.
#[test]
fn blocks_in_each_others_place_are_noticed() {
    let contents = contents(11, 0, 500);
    let good = encode(&IDENTITY, &contents).unwrap();
    let mut bytes = good.clone();
    bytes[4096..8192].copy_from_slice(&good[8192..12288]);
    bytes[8192..12288].copy_from_slice(&good[4096..8192]);
    let index = open(&fs_with(bytes)).unwrap();
    assert!(errors_among_answers(&index, &contents) > 100);
    assert!(index.check().is_err());
}

#[test]
fn an_index_of_another_segment_is_refused() {
    let fs = fs_with(encode(&IDENTITY, &small()).unwrap());
    let changes: [fn(&mut Identity); 5] = [
        |identity| identity.store += 1,
        |identity| identity.segment += 1,
        |identity| identity.first_lsn += 1,
        |identity| identity.last_lsn += 1,
        |identity| identity.segment_bytes += 1,
    ];
    for change in changes {
        let mut expected = IDENTITY;
        change(&mut expected);
        let error = open_as(&fs, &expected).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(&IDENTITY.to_string()), "{message}");
        assert!(message.contains(&expected.to_string()), "{message}");
        assert!(matches!(
            error,
            IndexError::OtherSegment { expected: e, found: IDENTITY, .. } if e == expected
        ));
    }
}

#[test]
fn a_newer_version_is_told_from_damage() {
    let mut bytes = encode(&IDENTITY, &small()).unwrap();
    bytes[VERSION_AT] += 1;
    assert!(matches!(
        open(&fs_with(bytes.clone())),
        Err(IndexError::Damage { .. })
    ));
    stamp(&mut bytes[..HEADER_BYTES]);
    let found = FORMAT_VERSION + 1;
    let error = open(&fs_with(bytes)).unwrap_err();
    assert!(
        matches!(error, IndexError::Version { found: f, known: FORMAT_VERSION, .. } if f == found)
    );
}

#[test]
fn an_error_names_the_file_the_place_and_what_is_there() {
    let contents = small();
    let mut bytes = encode(&IDENTITY, &contents).unwrap();
    bytes[4096 + 40] ^= 1;
    let index = open(&fs_with(bytes)).unwrap();
    let message = index
        .stream(&contents.streams[0].stream)
        .unwrap_err()
        .to_string();
    for part in [
        PATH,
        "at byte 4096",
        "expected",
        "with checksum",
        "found checksum",
    ] {
        assert!(message.contains(part), "{message}");
    }
}
