//! The static table: a text is the mean of the rows of its tokens, in bytes that never change.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use dalsegno_embed::{Embedder, StaticTable, TableOptions, Vector};

fn embed(table: &StaticTable, text: &str) -> Vec<i8> {
    table.embed(&[text]).unwrap().remove(0).into_vec()
}

#[test]
fn a_text_is_the_mean_of_its_rows() {
    let folder = tiny_table();
    let table = StaticTable::open(&folder.0).unwrap();
    assert_eq!(table.dimensions(), 4);
    // By hand: 512 × component / length, at most 127.
    let cases: [(&str, [i8; 4]); 7] = [
        ("pear", [127, 0, 0, 0]),
        ("apple", [127, 0, 124, 0]),     // 512 × 0.25 / 1.0308 = 124.18
        ("Apple PEAR", [127, 0, 64, 0]), // 2, 0, 0.25, 0: length 2.0156; 63.5 rounds up
        ("truck car car car car car car car", [0, 127, 0, 32]), // 8 and 0.5: 31.9
        ("naïve", [0, 0, -127, -127]),
        ("the", [0, 0, 0, 127]),
        ("red red red red red red the", [0, 0, 127, 7]), // 9 and 0.125: 7.11
    ];
    for (text, expected) in cases {
        assert_eq!(embed(&table, text), expected, "{text}");
    }
}

#[test]
fn order_and_company_do_not_matter() {
    let folder = tiny_table();
    let table = StaticTable::open(&folder.0).unwrap();
    assert_eq!(embed(&table, "the red car"), embed(&table, "car the red"));
    let together = table
        .embed(&["pear", "", "red car truck the apple", "pear"])
        .unwrap();
    let alone = ["pear", "", "red car truck the apple", "pear"].map(|text| embed(&table, text));
    assert_eq!(
        together
            .into_iter()
            .map(Vector::into_vec)
            .collect::<Vec<_>>(),
        alone
    );
    assert!(table.embed(&[]).unwrap().is_empty());
}

#[test]
fn what_says_nothing_has_the_zero_vector() {
    let folder = tiny_table();
    let table = StaticTable::open(&folder.0).unwrap();
    for text in ["", " \n\t", "\u{3000}", "zebra", "zebra ! ?", "\0\u{fffd}"] {
        let vector = table.embed(&[text]).unwrap().remove(0);
        assert!(vector.is_zero() && vector.dimensions() == 4, "{text:?}");
    }
    // Unknown words beside a known one change nothing.
    assert_eq!(embed(&table, "zebra pear zebra"), embed(&table, "pear"));
}

#[test]
fn the_kind_of_number_does_not_matter() {
    let folder = tiny_table();
    let expected = embed(
        &StaticTable::open(&folder.0).unwrap(),
        "the red apple truck naïve",
    );
    let rows = ROWS.concat();
    for (dtype, bytes) in [("F16", f16_bytes(&rows)), ("BF16", bf16_bytes(&rows))] {
        folder.write(
            "tiny.safetensors",
            safetensors(&[("x", dtype, &[10, 4], bytes)]),
        );
        let table = StaticTable::open(&folder.0).unwrap();
        assert_eq!(
            embed(&table, "the red apple truck naïve"),
            expected,
            "{dtype}"
        );
    }
}

#[test]
fn fewer_dimensions_are_the_first_ones() {
    let folder = tiny_table();
    let open = |options| StaticTable::open_with(&folder.0, options);
    let table = open(TableOptions::default().dimensions(2)).unwrap();
    assert_eq!(table.dimensions(), 2);
    assert_eq!(embed(&table, "apple"), [127, 0]);
    assert_eq!(embed(&table, "naïve"), [0, 0]); // Nothing of it is left.
    says(
        open(TableOptions::default().dimensions(5)),
        &["4 components", "not 5"],
    );
    says(
        open(TableOptions::default().dimensions(0)),
        &["ask for 1 to 4"],
    );
}

#[test]
fn the_id_changes_with_all_that_decides() {
    let folder = tiny_table();
    let table = StaticTable::open(&folder.0).unwrap();
    let id = table.id().clone();
    assert_eq!(id.name(), "tiny");
    assert_eq!(&id, StaticTable::open(&folder.0).unwrap().id());
    let cut = TableOptions::default().dimensions(3);
    assert_ne!(
        id.hash(),
        StaticTable::open_with(&folder.0, cut).unwrap().id().hash()
    );
    let named = TableOptions::default().name("other");
    let named = StaticTable::open_with(&folder.0, named).unwrap();
    assert_eq!((named.id().name(), named.id().hash()), ("other", id.hash()));
    let mut rows = ROWS.concat();
    rows[39] = -1.5;
    folder.write(
        "tiny.safetensors",
        safetensors(&[("x", "F32", &[10, 4], f32_bytes(&rows))]),
    );
    assert_ne!(id.hash(), StaticTable::open(&folder.0).unwrap().id().hash());
}

#[test]
fn a_text_counts_up_to_the_limit() {
    let folder = tiny_table();
    let table = StaticTable::open(&folder.0).unwrap();
    assert_eq!(table.limit().to_string(), "the first 65536 bytes");
    let mut text = "pear ".repeat((1 << 20) / 5);
    let expected = embed(&table, &text[..64 << 10]);
    assert_eq!(embed(&table, &text), expected);
    text.replace_range(70_000..70_004, "cars");
    assert_eq!(embed(&table, &text), expected);
    // A character across the limit is left out whole.
    let text = format!("{}é{}", "a".repeat((64 << 10) - 1), " pear".repeat(10));
    assert!(table.embed(&[&text]).unwrap()[0].is_zero());
}

/// Guards against a change of the arithmetic or of the tokenizer, between versions and machines.
#[test]
fn a_real_table_gives_the_recorded_bytes() {
    let Some(folder) = real_model("wordllama-256") else {
        return;
    };
    let table = StaticTable::open(folder).unwrap();
    let long = "The quick brown fox jumps over the lazy dog. ".repeat(2000);
    let texts = [
        "an apple a day",
        "What similarity laws must be obeyed when constructing aeroelastic models?",
        "naïve Übergrößen, 漢字 and 🎼",
        "fn main() { println!(\"{}\", 0x1f); }",
        "\u{0}\u{7f}\u{200b}",
        &long,
    ];
    let vectors = table.embed(&texts).unwrap();
    let bytes: Vec<u8> = vectors
        .iter()
        .flat_map(|vector| vector.as_slice())
        .map(|byte| *byte as u8)
        .collect();
    assert_eq!(vectors[0].as_slice()[..8], GOLDEN_START);
    assert_eq!(blake3::hash(&bytes).to_hex().as_str(), GOLDEN_HASH);
}

/// Computed apart from this crate, with exact rational numbers.
const GOLDEN_START: [i8; 8] = [90, 9, 18, 43, -30, -44, -1, -65];
const GOLDEN_HASH: &str = "4614875339a74938263d1b73516f2445685990222e7b497f5c5fad2d1649148e";
