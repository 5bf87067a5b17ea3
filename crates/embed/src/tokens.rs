//! Divides texts into the tokens of a model, by its `tokenizer.json`.
//!
//! Invariant: the settings in the file for cutting and padding are not used; the embedder that loads
//! it decides. So the tokens of a text do not depend on the texts beside it.

use std::path::Path;

use serde_json::Value;
use tokenizers::Tokenizer;

use crate::error::{LoadError, read_file};

/// The file is read into memory and then into maps; the largest known ones have 35 MB.
const FILE_BYTES_MAX: u64 = 256 << 20;

pub(crate) struct Tokens {
    pub(crate) tokenizer: Tokenizer,
    /// The token that stands for what the model does not know.
    pub(crate) unknown: Option<u32>,
    /// The file, for the hash.
    pub(crate) file: Vec<u8>,
}

impl Tokens {
    /// Loads a file whose tokens all have a row in a matrix.
    pub(crate) fn load(path: &Path, rows: usize) -> Result<Tokens, LoadError> {
        let file = read_file(path, FILE_BYTES_MAX)?;
        let mut tokenizer = Tokenizer::from_bytes(&file)
            .map_err(|error| LoadError::invalid(path, format!("not a tokenizer: {error}")))?;
        tokenizer
            .with_truncation(None)
            .map_err(|error| LoadError::invalid(path, error.to_string()))?;
        tokenizer.with_padding(None);
        let vocabulary = tokenizer.get_vocab(true);
        let highest = vocabulary.values().max().copied();
        if highest.is_none_or(|id| id as usize >= rows) {
            let highest = highest.map_or("no".into(), |id| format!("up to {id}"));
            let why =
                format!("it has {highest} tokens, and the matrix beside it {rows} rows from 0");
            return Err(LoadError::invalid(path, why));
        }
        let unknown = unknown(&file, &tokenizer);
        Ok(Tokens {
            tokenizer,
            unknown,
            file,
        })
    }
}

/// The kinds of tokenizers say it in one of two ways.
fn unknown(file: &[u8], tokenizer: &Tokenizer) -> Option<u32> {
    let file: Value = serde_json::from_slice(file).ok()?;
    let model = &file["model"];
    match (&model["unk_token"], &model["unk_id"]) {
        (Value::String(token), _) => tokenizer.token_to_id(token),
        (_, Value::Number(id)) => id.as_u64().and_then(|id| u32::try_from(id).ok()),
        _ => None,
    }
}
