//! What is no table is refused in one sentence that says what is wrong, and never by a panic.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use dalsegno_embed::StaticTable;

#[test]
fn missing_files() {
    let folder = Folder::new();
    says(
        StaticTable::open(folder.0.join("nowhere")),
        &["nowhere", "cannot be read", "check the folder"],
    );
    says(StaticTable::open(&folder.0), &["has 0 files *.safetensors"]);
    folder.write("a.safetensors", good_matrix());
    says(
        StaticTable::open(&folder.0),
        &["tokenizer.json", "cannot be read"],
    );
    folder.write("b.safetensors", good_matrix());
    says(StaticTable::open(&folder.0), &["has 2 files *.safetensors"]);
}

fn good_matrix() -> Vec<u8> {
    safetensors(&[("x", "F32", &[10, 4], f32_bytes(&ROWS.concat()))])
}

#[test]
fn wrong_matrices() {
    let folder = tiny_table();
    let zeros = |count: usize| vec![0; count];
    let mut nan = f32_bytes(&ROWS.concat());
    nan[4 * 9..4 * 10].copy_from_slice(&f32::NAN.to_le_bytes());
    let cases: Vec<(Vec<u8>, &[&str])> = vec![
        (safetensors(&[]), &["0 tensors"]),
        (
            safetensors(&[
                ("a", "F32", &[1, 1], zeros(4)),
                ("b", "F32", &[1, 1], zeros(4)),
            ]),
            &["2 tensors", "one matrix"],
        ),
        (
            safetensors(&[("a", "I64", &[10, 4], zeros(320))]),
            &["tensor a is I64", "F16"],
        ),
        (
            safetensors(&[("a", "F32", &[40], zeros(160))]),
            &["shape [40]", "rows and columns"],
        ),
        (
            safetensors(&[("a", "F32", &[10, 2, 2], zeros(160))]),
            &["shape [10,2,2]"],
        ),
        (
            safetensors(&[("a", "F32", &[0, 4], zeros(0))]),
            &["shape [0,4]"],
        ),
        (
            safetensors(&[("a", "F32", &[10, 4], zeros(156))]),
            &["156 bytes", "10 rows of 4"],
        ),
        (
            safetensors(&[("a", "F32", &[9, 4], zeros(144))]),
            &["up to 9 tokens", "9 rows"],
        ),
        (
            safetensors(&[("a", "F32", &[usize::MAX, 8], zeros(8))]),
            &["8 bytes"],
        ),
        (
            safetensors(&[("a", "F32", &[10, 4], nan)]),
            &["no number in row 2, column 1"],
        ),
        (with_header("[]", b""), &["header is not valid"]),
        (
            with_header("{\"a\": 7}", b""),
            &["tensor a is without a type"],
        ),
        (
            with_header("{\"a\": {\"dtype\":\"F32\",\"shape\":[1,1]}}", b"1234"),
            &["no place"],
        ),
        (
            with_header(
                r#"{"a":{"dtype":"F32","shape":[1,1],"data_offsets":[4,0]}}"#,
                b"1234",
            ),
            &["4 to 0"],
        ),
        (
            with_header(
                r#"{"a":{"dtype":"F32","shape":[1,1],"data_offsets":[-1,3]}}"#,
                b"1234",
            ),
            &["no place"],
        ),
        (
            u64::MAX.to_le_bytes().to_vec(),
            &["8 bytes, within its header"],
        ),
        (b"PK".to_vec(), &["2 bytes, within its header"]),
        (Vec::new(), &["0 bytes"]),
    ];
    for (file, words) in cases {
        folder.write("tiny.safetensors", file);
        says(StaticTable::open(&folder.0), words);
    }
}

#[test]
fn every_truncation_of_a_matrix_is_refused() {
    let folder = tiny_table();
    let whole = good_matrix();
    for length in 0..whole.len() {
        folder.write("tiny.safetensors", &whole[..length]);
        says(
            StaticTable::open(&folder.0),
            &["tiny.safetensors", "get the model again"],
        );
    }
}

#[test]
fn wrong_tokenizers() {
    let folder = tiny_table();
    let mut too_many = tokenizer();
    too_many["model"]["vocab"]["zebra"] = 10.into();
    let mut empty = tokenizer();
    empty["model"]["vocab"] = serde_json::json!({});
    empty["post_processor"] = serde_json::Value::Null;
    let cases: [(String, &[&str]); 6] = [
        (String::new(), &["tokenizer.json", "not a tokenizer"]),
        ("{}".into(), &["not a tokenizer"]),
        ("[1, 2".into(), &["not a tokenizer"]),
        (
            r#"{"version":"1.0","model":{"type":"Oracle"}}"#.into(),
            &["not a tokenizer"],
        ),
        (too_many.to_string(), &["up to 10 tokens", "10 rows"]),
        (empty.to_string(), &["no tokens"]),
    ];
    for (file, words) in cases {
        folder.write("tokenizer.json", file);
        says(StaticTable::open(&folder.0), words);
    }
    folder.write("tokenizer.json", [0xff, 0xfe]);
    says(StaticTable::open(&folder.0), &["not a tokenizer"]);
}
