//! A transformer from a folder: BERT, the mean of its last layer.
//!
//! ```text
//! text ─► tokens, at most the model's limit ─► BERT ─► mean over the tokens ─► length one ─► int8
//! ```
//!
//! Invariant: one text at a time. In a batch, texts are padded to the longest and the matrices have
//! other sizes; then the last bits of a vector would depend on the texts beside it.
//!
//! Not promised: the same bits on another machine. Matrices are multiplied in floating point, in an
//! order that depends on the processor. Most vectors are the same byte by byte; some differ by one
//! in some components. Replay does not mind: it uses the vectors that were recorded.

use std::fmt;
use std::path::Path;

use serde_json::Value;
use tokenizers::{PostProcessor, TruncationParams};

use crate::bert::{Bert, Config};
use crate::error::{EmbedError, LoadError, read_file};
use crate::text::{self, TextLimit};
use crate::tokens::Tokens;
use crate::{Embedder, EmbedderId, Vector};

/// To be counted up with every change here that changes a vector.
const DEFINITION: &[u8] =
    b"transformer 1: bert, mean of tokens, batch of one, int8 scale 512 clamp 127";

/// Weights are read into memory.
const WEIGHTS_BYTES_MAX: u64 = 4 << 30;
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// An embedder of a BERT-like model, as all-MiniLM-L6-v2: it knows what sentences mean, and takes
/// from 15 ms for a short text to 250 ms for a long one.
///
/// It needs `config.json`, `tokenizer.json` and `model.safetensors`. A text counts up to the
/// `max_seq_length` of `sentence_bert_config.json`, else up to the positions that the model has.
///
/// The bits of a vector can differ between machines: see `docs/embedders.md`.
pub struct Transformer {
    id: EmbedderId,
    tokens: Tokens,
    tokens_max: usize,
    dimensions: usize,
    model: Bert,
}

impl Transformer {
    /// Loads a model from its folder.
    pub fn open(folder: impl AsRef<Path>) -> Result<Transformer, LoadError> {
        let folder = folder.as_ref();
        let (config, config_file) = config(&folder.join("config.json"))?;
        check_pooling(&folder.join("1_Pooling").join("config.json"))?;
        let tokenizer = folder.join("tokenizer.json");
        let mut tokens = Tokens::load(&tokenizer, config.vocab_size)?;
        let tokens_max = tokens_max(folder, &config)?;
        limit_tokens(&mut tokens, tokens_max).map_err(|why| LoadError::invalid(&tokenizer, why))?;

        let path = folder.join("model.safetensors");
        let weights = read_file(&path, WEIGHTS_BYTES_MAX)?;
        let limit = (tokens_max as u64).to_le_bytes();
        let decisive = [DEFINITION, &tokens.file, &config_file, &weights, &limit];
        let name = folder
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("transformer");
        let id = EmbedderId::new(name, decisive);
        let model = Bert::load(&weights, &config)
            .map_err(|error| LoadError::invalid(&path, one_line(error)))?;
        Ok(Transformer {
            id,
            tokens,
            tokens_max,
            dimensions: config.hidden_size,
            model,
        })
    }

    fn embed_one(&self, place: usize, text: &str) -> Result<Vector, EmbedError> {
        let text = text::cut(text, text::LOCAL_BYTES_MAX);
        let zero = Vector::zero(self.dimensions);
        if text::is_blank(text) {
            return Ok(zero);
        }
        let encoding = self
            .tokens
            .tokenizer
            .encode_fast(text, true)
            .map_err(|error| EmbedError::Tokens {
                text: place,
                why: one_line(error),
            })?;
        let mut own = encoding
            .get_ids()
            .iter()
            .zip(encoding.get_special_tokens_mask());
        if own.all(|(id, special)| *special == 1 || Some(*id) == self.tokens.unknown) {
            return Ok(zero);
        }
        let failed = |why| EmbedError::Model { text: place, why };
        let mean = self
            .mean(encoding.get_ids())
            .map_err(|error| failed(one_line(error)))?;
        Vector::from_f32(&mean).map_err(|error| failed(error.to_string()))
    }

    /// The mean of the last layer over the tokens.
    fn mean(&self, ids: &[u32]) -> candle_core::Result<Vec<f32>> {
        let mut sums = vec![0f64; self.dimensions];
        // Added here and in this order, so that this part at least is the same everywhere.
        for row in self.model.forward(ids)?.to_vec2::<f32>()? {
            sums.iter_mut()
                .zip(row)
                .for_each(|(sum, number)| *sum += f64::from(number));
        }
        Ok(sums.into_iter().map(|sum| sum as f32).collect())
    }
}

impl Embedder for Transformer {
    fn id(&self) -> &EmbedderId {
        &self.id
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn limit(&self) -> TextLimit {
        TextLimit {
            bytes: text::LOCAL_BYTES_MAX,
            tokens: Some(self.tokens_max),
        }
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vector>, EmbedError> {
        texts
            .iter()
            .enumerate()
            .map(|(place, text)| self.embed_one(place, text))
            .collect()
    }
}

impl fmt::Debug for Transformer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transformer")
            .field("id", &self.id.to_string())
            .field("dimensions", &self.dimensions)
            .field("tokens_max", &self.tokens_max)
            .finish_non_exhaustive()
    }
}

/// The sizes of the model, and the file that says them.
fn config(path: &Path) -> Result<(Config, Vec<u8>), LoadError> {
    let file = read_file(path, CONFIG_BYTES_MAX)?;
    let config: Config = serde_json::from_slice(&file).map_err(|error| {
        let why =
            format!("not the configuration of a BERT model (is it that of 1_Pooling?): {error}");
        LoadError::invalid(path, why)
    })?;
    if let Some(why) = config.problem() {
        return Err(LoadError::invalid(path, why));
    }
    Ok((config, file))
}

/// A model that was trained with another way of pooling would give poor vectors without a word.
fn check_pooling(path: &Path) -> Result<(), LoadError> {
    if !path.exists() {
        return Ok(());
    }
    let file = read_file(path, CONFIG_BYTES_MAX)?;
    let pooling: Value = serde_json::from_slice(&file)
        .map_err(|error| LoadError::invalid(path, format!("not JSON: {error}")))?;
    match pooling["pooling_mode_mean_tokens"].as_bool() {
        Some(false) => Err(LoadError::invalid(
            path,
            "the model does not take the mean of its tokens",
        )),
        _ => Ok(()),
    }
}

/// How many tokens count, with the two that the model adds.
fn tokens_max(folder: &Path, config: &Config) -> Result<usize, LoadError> {
    let path = folder.join("sentence_bert_config.json");
    let positions = config.max_position_embeddings;
    if !path.exists() {
        return Ok(positions);
    }
    let file = read_file(&path, CONFIG_BYTES_MAX)?;
    let settings: Value = serde_json::from_slice(&file)
        .map_err(|error| LoadError::invalid(&path, format!("not JSON: {error}")))?;
    let length = settings["max_seq_length"]
        .as_u64()
        .and_then(|length| usize::try_from(length).ok());
    Ok(length.unwrap_or(positions).min(positions))
}

fn limit_tokens(tokens: &mut Tokens, tokens_max: usize) -> Result<(), String> {
    let processor = tokens.tokenizer.get_post_processor();
    let added = processor.map_or(0, |processor| processor.added_tokens(false));
    if tokens_max <= added {
        return Err(format!(
            "it adds {added} tokens, and the model takes {tokens_max}"
        ));
    }
    let limit = TruncationParams {
        max_length: tokens_max,
        ..TruncationParams::default()
    };
    tokens
        .tokenizer
        .with_truncation(Some(limit))
        .map(|_| ())
        .map_err(one_line)
}

/// Errors of others may have many lines.
fn one_line(error: impl fmt::Display) -> String {
    let text = error.to_string();
    text.lines()
        .next()
        .unwrap_or("no reason is given")
        .chars()
        .take(300)
        .collect()
}
