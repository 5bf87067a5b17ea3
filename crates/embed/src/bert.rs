//! BERT, as far as embeddings need it: one text, no mask, no training.
//!
//! ```text
//! tokens ─► word + position + kind, normed ─► layers ─► one row for each token
//! layer:  x ─► attention ─► + x, normed ─► wider, activated, back ─► + x, normed
//! ```
//!
//! Written out here because the crate with this model has a hundred others, which take minutes to
//! build. The sizes of all tensors are compared with the configuration when they are loaded.

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{LayerNorm, Linear, VarBuilder, layer_norm, linear, ops::softmax};
use serde::Deserialize;

/// The sizes of a model: its `config.json`.
#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    pub(crate) vocab_size: usize,
    pub(crate) hidden_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) hidden_act: Activation,
    pub(crate) max_position_embeddings: usize,
    pub(crate) type_vocab_size: usize,
    pub(crate) layer_norm_eps: f64,
    /// Relatives of BERT have the same tensors and other meanings: positions that start at 2, say.
    pub(crate) model_type: Option<String>,
    pub(crate) position_embedding_type: Option<String>,
}

impl Config {
    /// What is asked of a model that cannot be computed here.
    pub(crate) fn problem(&self) -> Option<String> {
        let Config {
            hidden_size,
            num_attention_heads: heads,
            ..
        } = *self;
        let other =
            |found: &Option<String>, known: &str| found.clone().filter(|found| found != known);
        if heads == 0 || hidden_size == 0 || !hidden_size.is_multiple_of(heads) {
            return Some(format!(
                "{heads} attention heads do not divide {hidden_size} components"
            ));
        }
        if let Some(kind) = other(&self.model_type, "bert") {
            return Some(format!(
                "the model is a {kind}, and only bert can be computed"
            ));
        }
        other(&self.position_embedding_type, "absolute")
            .map(|kind| format!("positions are {kind}, and only absolute ones can be computed"))
    }
}

/// What stands between the two halves of a layer.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Activation {
    Gelu,
    Relu,
}

pub(crate) struct Bert {
    words: Tensor,
    positions: Tensor,
    /// That of the first sentence: there is no second one.
    kind: Tensor,
    norm: LayerNorm,
    layers: Vec<Layer>,
}

impl Bert {
    /// Takes the tensors out of a safetensors file.
    pub(crate) fn load(file: &[u8], config: &Config) -> Result<Bert> {
        let tensors = VarBuilder::from_slice_safetensors(file, DType::F32, &Device::Cpu)?;
        // Models for other tasks have theirs in a part of this name.
        let part = tensors.contains_tensor("bert.embeddings.word_embeddings.weight");
        let tensors = if part { tensors.pp("bert") } else { tensors };
        let size = config.hidden_size;
        let embeddings = tensors.pp("embeddings");
        let rows = |name, count| embeddings.pp(name).get((count, size), "weight");
        let words = rows("word_embeddings", config.vocab_size)?;
        let positions = rows("position_embeddings", config.max_position_embeddings)?;
        let kind = rows("token_type_embeddings", config.type_vocab_size)?.get(0)?;
        let norm = layer_norm(size, config.layer_norm_eps, embeddings.pp("LayerNorm"))?;
        let mut layers = Vec::new();
        for place in 0..config.num_hidden_layers {
            layers.push(Layer::load(&tensors.pp("encoder.layer").pp(place), config)?);
        }
        Ok(Bert {
            words,
            positions,
            kind,
            norm,
            layers,
        })
    }

    /// The last layer: one row for each token.
    pub(crate) fn forward(&self, ids: &[u32]) -> Result<Tensor> {
        let words = self
            .words
            .index_select(&Tensor::new(ids, &Device::Cpu)?, 0)?;
        let placed =
            (words.broadcast_add(&self.kind)? + self.positions.narrow(0, 0, ids.len())?)?;
        let start = self.norm.forward(&placed)?;
        self.layers
            .iter()
            .try_fold(start, |rows, layer| layer.forward(&rows))
    }
}

struct Layer {
    heads: usize,
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attended_norm: LayerNorm,
    wider: Linear,
    activation: Activation,
    back: Linear,
    back_norm: LayerNorm,
}

impl Layer {
    fn load(tensors: &VarBuilder<'_>, config: &Config) -> Result<Layer> {
        let (size, wide) = (config.hidden_size, config.intermediate_size);
        let own = |name| linear(size, size, tensors.pp(name));
        let norm = |name| layer_norm(size, config.layer_norm_eps, tensors.pp(name));
        Ok(Layer {
            heads: config.num_attention_heads,
            query: own("attention.self.query")?,
            key: own("attention.self.key")?,
            value: own("attention.self.value")?,
            attended: own("attention.output.dense")?,
            attended_norm: norm("attention.output.LayerNorm")?,
            wider: linear(size, wide, tensors.pp("intermediate.dense"))?,
            activation: config.hidden_act,
            back: linear(wide, size, tensors.pp("output.dense"))?,
            back_norm: norm("output.LayerNorm")?,
        })
    }

    fn forward(&self, rows: &Tensor) -> Result<Tensor> {
        let attended = self.attended.forward(&self.attention(rows)?)?;
        let rows = self.attended_norm.forward(&(attended + rows)?)?;
        let wide = self.wider.forward(&rows)?;
        let wide = match self.activation {
            Activation::Gelu => wide.gelu_erf()?,
            Activation::Relu => wide.relu()?,
        };
        self.back_norm.forward(&(self.back.forward(&wide)? + rows)?)
    }

    /// Each head mixes the rows by how well they answer each other.
    fn attention(&self, rows: &Tensor) -> Result<Tensor> {
        let (count, size) = rows.dims2()?;
        let by_head = |part: &Linear| {
            let part = part
                .forward(rows)?
                .reshape((count, self.heads, size / self.heads))?;
            part.transpose(0, 1)?.contiguous()
        };
        let (query, key, value) = (
            by_head(&self.query)?,
            by_head(&self.key)?,
            by_head(&self.value)?,
        );
        let scale = ((size / self.heads) as f64).sqrt();
        let weights = softmax(&(query.matmul(&key.t()?)? / scale)?, D::Minus1)?;
        weights
            .matmul(&value)?
            .transpose(0, 1)?
            .reshape((count, size))
    }
}
