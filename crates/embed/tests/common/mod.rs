//! Models so small that a test can write them down.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

/// A folder that vanishes with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("dalsegno-embed-{}-{count}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// The folder with the real models, which `tools/get-models` fills. Says so if there is none.
pub fn real_model(name: &str) -> Option<PathBuf> {
    match std::env::var_os("DALSEGNO_MODELS") {
        Some(folder) => Some(Path::new(&folder).join(name)),
        None => {
            eprintln!("skipped: set DALSEGNO_MODELS to a folder that tools/get-models has filled");
            None
        }
    }
}

/// The ids are the places in this list.
pub const WORDS: [&str; 10] = [
    "[UNK]", "[CLS]", "[SEP]", "apple", "pear", "car", "truck", "red", "the", "naïve",
];

/// A tokenizer of whole words, in lower case.
pub fn tokenizer() -> serde_json::Value {
    let vocabulary: serde_json::Map<_, _> = WORDS
        .iter()
        .enumerate()
        .map(|(id, word)| (word.to_string(), json!(id)))
        .collect();
    json!({
        "version": "1.0",
        // Both must be ignored.
        "truncation": {"max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 3, "pad_type_id": 0, "pad_token": "apple",
        },
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {
                "[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]},
                "[SEP]": {"id": "[SEP]", "ids": [2], "tokens": ["[SEP]"]},
            },
        },
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    })
}

/// The rows of the tiny table: fruit, vehicles, colour, and one for everything.
pub const ROWS: [[f32; 4]; 10] = [
    [9.0, 9.0, 9.0, 9.0],
    [9.0, 9.0, 9.0, 9.0],
    [9.0, 9.0, 9.0, 9.0],
    [1.0, 0.0, 0.25, 0.0],
    [1.0, 0.0, 0.0, 0.0],
    [0.0, 1.0, 0.0, 0.0],
    [0.0, 1.0, 0.0, 0.5],
    [0.0, 0.0, 1.5, 0.0],
    [0.0, 0.0, 0.0, 0.125],
    [0.0, 0.0, -1.0, -1.0],
];

/// A safetensors file.
pub fn safetensors(tensors: &[(&str, &str, &[usize], Vec<u8>)]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let from = data.len();
        data.extend_from_slice(bytes);
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [from, data.len()]});
        header.insert(name.to_string(), entry);
    }
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    with_header(&serde_json::Value::Object(header).to_string(), &data)
}

pub fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        data,
    ]
    .concat()
}

pub fn f32_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

/// For numbers that are exact in a bf16.
pub fn bf16_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| ((number.to_bits() >> 16) as u16).to_le_bytes())
        .collect()
}

/// For numbers that are exact in an f16, and normal.
pub fn f16_bytes(numbers: &[f32]) -> Vec<u8> {
    let half = |number: &f32| {
        let bits = number.to_bits();
        let sign = (bits >> 16 & 0x8000) as u16;
        if *number == 0.0 {
            return sign;
        }
        sign | ((bits >> 23 & 255) as u16 + 15 - 127) << 10 | (bits >> 13 & 1023) as u16
    };
    numbers
        .iter()
        .flat_map(|number| half(number).to_le_bytes())
        .collect()
}

/// The tiny table in a folder.
pub fn tiny_table() -> Folder {
    let folder = Folder::new();
    folder.write("tokenizer.json", tokenizer().to_string());
    let matrix = safetensors(&[(
        "embedding.weight",
        "F32",
        &[10, 4],
        f32_bytes(&ROWS.concat()),
    )]);
    folder.write("tiny.safetensors", matrix);
    folder
}

/// The error must be one line that has all of these words.
pub fn says<T, E: std::fmt::Display>(result: Result<T, E>, words: &[&str]) {
    let Err(error) = result else {
        panic!("nothing went wrong, and {words:?} was expected")
    };
    let error = error.to_string();
    for word in words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
    assert!(!error.contains('\n') && error.len() < 1000, "{error}");
}
