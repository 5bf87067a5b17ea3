//! The form of letters is fixed, and nothing else is read as one.

#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;

fn name(sender: &str, number: u64) -> LetterRef {
    LetterRef {
        sender: sender.into(),
        number,
    }
}

fn full() -> Letter {
    Letter {
        sender: "00ff00ff00ff00ff".into(),
        number: 7,
        to: StreamId::run("order-42").unwrap(),
        kind: Kind::ApprovalAnswered,
        fields: Fields::new().with(1, "yes").with(2, true),
        payload: Some(("text/plain".into(), b"go on".to_vec())),
        sent_us: 1_700_000_000_000_000,
    }
}

/// With another version, or another body, under a hash that is right.
fn sealed(version: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = [MAGIC.as_slice(), &version.to_le_bytes(), body].concat();
    let hash = Hash::of(&bytes);
    bytes.extend_from_slice(hash.as_bytes());
    bytes
}

#[test]
fn what_is_written_is_read() {
    let plain = NewLetter::new(StreamId::store(), Kind::User("x".into()), 0);
    for letter in [full(), plain.from(&name("0000000000000000", LAST_NUMBER))] {
        let read = Letter::decode(&letter.encode(), &letter.letter_ref()).unwrap();
        assert_eq!(read, letter);
    }
}

#[test]
fn the_form_is_fixed() {
    let bytes = full().encode();
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    // The example in docs/format.md.
    let expected = concat!(
        "64616c7365676e6f2d6c65747465720a01000000",
        "a70170303066663030666630306666303066660207",
        "036c72756e2f6f726465722d3432041825",
        "051b00060a24181e4000",
        "0648a2016379657302f5",
        "07826a746578742f706c61696e45676f206f6e",
        "4d6989bb4e71090ed376c937cf8c10f651fa125707c79657b58a3b298473826a",
    );
    assert_eq!(hex, expected);
}

#[test]
fn names_are_parsed_strictly() {
    let letter = name("0123456789abcdef", 42);
    let file = file_name(&letter).unwrap();
    assert_eq!(file, "0123456789abcdef-0000000000000042.letter");
    assert_eq!(parse_name(&file), Some(letter));
    for other in [
        "",
        "lock",
        ".letter",
        "0123456789abcdef-0000000000000000.letter",
        "0123456789abcdef-42.letter",
        "0123456789abcdef-+000000000000042.letter",
        "0123456789ABCDEF-0000000000000042.letter",
        "0123456789abcde-0000000000000042.letter",
        "0123456789abcdef-0000000000000042.letter.tmp",
        "0123456789abcdef-0000000000000042.letter.bad",
        "../3456789abcdef-0000000000000042.letter",
    ] {
        assert_eq!(parse_name(other), None, "{other}");
    }
    for (sender, number) in [("../../etc", 1), ("0123456789abcdef", 0), ("", 1)] {
        assert_eq!(file_name(&name(sender, number)), None);
    }
    assert_eq!(file_name(&name("0123456789abcdef", u64::MAX)), None);
}

#[test]
fn no_prefix_and_no_changed_byte_is_a_letter() {
    let bytes = full().encode();
    for end in 0..bytes.len() {
        let read = Letter::decode(&bytes[..end], &full().letter_ref());
        assert!(matches!(read, Err(Unreadable::Bad(_))), "{end}");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        let read = Letter::decode(&changed, &full().letter_ref());
        assert!(matches!(read, Err(Unreadable::Bad(_))), "{at}");
    }
}

#[test]
fn a_body_that_is_changed_and_sealed_again_never_panics() {
    let body = full().encode_body();
    for at in 0..body.len() {
        for bit in 0..8 {
            let mut changed = body.clone();
            changed[at] ^= 1 << bit;
            let bytes = sealed(1, &changed);
            if let Ok(letter) = Letter::decode(&bytes, &full().letter_ref()) {
                assert_ne!(letter, full());
                assert_eq!(letter.encode(), bytes);
            }
        }
    }
    let long = [0xbb, 255, 255, 255, 255, 255, 255, 255, 255];
    assert!(Letter::decode(&sealed(1, &long), &full().letter_ref()).is_err());
}

#[test]
fn a_letter_under_another_name_and_an_unknown_field_are_bad() {
    let (bytes, other) = (full().encode(), name("00ff00ff00ff00ff", 8));
    let Err(Unreadable::Bad(why)) = Letter::decode(&bytes, &other) else {
        panic!("it was taken for another");
    };
    assert!(why.contains("letter 7"), "{why}");
    let mut body = full().encode_body();
    body[0] += 1;
    body.extend_from_slice(&[8, 0]);
    let Err(Unreadable::Bad(why)) = Letter::decode(&sealed(1, &body), &full().letter_ref()) else {
        panic!("a field was passed over");
    };
    assert!(why.contains("field 8"), "{why}");
}

#[test]
fn a_newer_format_is_told_from_damage() {
    let newer = sealed(2, b"whatever");
    let read = Letter::decode(&newer, &full().letter_ref());
    assert!(matches!(read, Err(Unreadable::Newer(2))));
    let mut damaged = newer;
    damaged[25] ^= 1;
    let read = Letter::decode(&damaged, &full().letter_ref());
    assert!(matches!(read, Err(Unreadable::Bad(_))));
}
