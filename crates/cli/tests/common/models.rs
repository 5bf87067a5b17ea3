//! A model so small that a test can write it down: each word has a row.

#![allow(dead_code, clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use serde_json::json;

/// Fruit and vehicles.
const ROWS: [(&str, [f32; 4]); 7] = [
    ("[UNK]", [0.0, 0.0, 0.0, 0.0]),
    ("apple", [1.0, 0.0, 0.25, 0.0]),
    ("pear", [1.0, 0.0, 0.0, 0.0]),
    ("fruit", [1.0, 0.0, 0.1, 0.0]),
    ("car", [0.0, 1.0, 0.0, 0.0]),
    ("truck", [0.0, 1.0, 0.0, 0.5]),
    ("vehicle", [0.0, 1.0, 0.0, 0.2]),
];

/// A static table of so many dimensions, at most 4, in a folder of this name.
pub fn table(dir: &Path, name: &str, dimensions: usize) -> PathBuf {
    let folder = dir.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let ids = ROWS.iter().enumerate();
    let vocabulary: serde_json::Map<_, _> = ids
        .map(|(id, (word, _))| (word.to_string(), json!(id)))
        .collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    });
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let rows = ROWS.iter().flat_map(|(_, row)| &row[..dimensions]);
    let bytes: Vec<u8> = rows.flat_map(|number| number.to_le_bytes()).collect();
    let head = json!({"x": {
        "dtype": "F32", "shape": [ROWS.len(), dimensions], "data_offsets": [0, bytes.len()],
    }});
    let head = head.to_string();
    let mut file = (head.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(head.as_bytes());
    file.extend_from_slice(&bytes);
    std::fs::write(folder.join(format!("{name}.safetensors")), file).unwrap();
    folder
}
