//! The transformer: a tiny one that is written here, and the real one where it is.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use dalsegno_embed::{Embedder, Transformer, Vector};
use serde_json::json;

/// One layer, two heads, eight components, 16 positions.
fn config() -> serde_json::Value {
    json!({
        "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 16, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
        "max_position_embeddings": 16, "type_vocab_size": 2, "initializer_range": 0.02,
        "layer_norm_eps": 1e-12, "pad_token_id": 0, "model_type": "bert",
    })
}

/// Weights that are not of use, and always the same.
fn weights() -> Vec<u8> {
    let layer = "encoder.layer.0";
    let mut tensors: Vec<(String, Vec<usize>)> = vec![
        ("embeddings.word_embeddings.weight".into(), vec![10, 8]),
        ("embeddings.position_embeddings.weight".into(), vec![16, 8]),
        ("embeddings.token_type_embeddings.weight".into(), vec![2, 8]),
    ];
    for (name, rows, columns) in [
        ("attention.self.query", 8, 8),
        ("attention.self.key", 8, 8),
        ("attention.self.value", 8, 8),
        ("attention.output.dense", 8, 8),
        ("intermediate.dense", 16, 8),
        ("output.dense", 8, 16),
    ] {
        tensors.push((format!("{layer}.{name}.weight"), vec![rows, columns]));
        tensors.push((format!("{layer}.{name}.bias"), vec![rows]));
    }
    for name in [
        "embeddings",
        "encoder.layer.0.attention.output",
        "encoder.layer.0.output",
    ] {
        tensors.push((format!("{name}.LayerNorm.weight"), vec![8]));
        tensors.push((format!("{name}.LayerNorm.bias"), vec![8]));
    }
    let mut state = 1u32;
    let mut number = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(name, shape)| {
            let numbers: Vec<f32> = (0..shape.iter().product()).map(|_| number()).collect();
            (name.as_str(), "F32", shape.as_slice(), f32_bytes(&numbers))
        })
        .collect();
    safetensors(&tensors)
}

fn tiny() -> Folder {
    let folder = Folder::new();
    folder.write("config.json", config().to_string());
    folder.write("tokenizer.json", tokenizer().to_string());
    folder.write("model.safetensors", weights());
    folder
}

fn embed(model: &Transformer, text: &str) -> Vec<i8> {
    model.embed(&[text]).unwrap().remove(0).into_vec()
}

#[test]
fn order_matters_and_company_does_not() {
    let folder = tiny();
    let model = Transformer::open(&folder.0).unwrap();
    assert_eq!(model.dimensions(), 8);
    assert_ne!(embed(&model, "red car the"), embed(&model, "the car red"));
    let texts = ["pear", "red car truck the apple red", "", "car"];
    let alone: Vec<Vec<i8>> = texts.iter().map(|text| embed(&model, text)).collect();
    let together = model.embed(&texts).unwrap();
    assert_eq!(
        together
            .into_iter()
            .map(Vector::into_vec)
            .collect::<Vec<_>>(),
        alone
    );
    let squares: i32 = alone[0].iter().map(|byte| i32::from(*byte).pow(2)).sum();
    assert!(squares > 0 && embed(&model, "Pear") == alone[0]);
}

#[test]
fn what_says_nothing_has_the_zero_vector() {
    let folder = tiny();
    let model = Transformer::open(&folder.0).unwrap();
    for text in ["", " \n", "zebra", "zebra !"] {
        let vector = model.embed(&[text]).unwrap().remove(0);
        assert!(vector.is_zero() && vector.dimensions() == 8, "{text:?}");
    }
    assert!(!model.embed(&["zebra car"]).unwrap()[0].is_zero());
}

#[test]
fn a_text_counts_up_to_the_limit() {
    let folder = tiny();
    let model = Transformer::open(&folder.0).unwrap();
    assert_eq!(model.limit().tokens, Some(16));
    let long = "pear ".repeat(1 << 18);
    assert_eq!(embed(&model, &long), embed(&model, &"pear ".repeat(14)));
    assert_ne!(embed(&model, &long), embed(&model, &"pear ".repeat(13)));
    folder.write("sentence_bert_config.json", r#"{"max_seq_length": 5}"#);
    let shorter = Transformer::open(&folder.0).unwrap();
    assert_eq!(
        shorter.limit().to_string(),
        "the first 65536 bytes, and of them the first 5 tokens"
    );
    assert_eq!(embed(&shorter, &long), embed(&shorter, "pear pear pear"));
    assert_ne!(model.id(), shorter.id());
    folder.write("sentence_bert_config.json", r#"{"max_seq_length": 2}"#);
    says(Transformer::open(&folder.0), &["adds 2 tokens", "takes 2"]);
}

#[test]
fn wrong_models_are_refused() {
    let folder = tiny();
    let refused = |name: &str, file: &[u8], words: &[&str]| {
        let path = folder.0.join(name);
        let good = std::fs::read(&path).ok();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        folder.write(name, file);
        says(Transformer::open(&folder.0), words);
        match good {
            Some(good) => std::fs::write(path, good).unwrap(),
            None => std::fs::remove_file(path).unwrap(),
        }
    };
    let mut other = config();
    other["num_attention_heads"] = 0.into();
    refused(
        "config.json",
        other.to_string().as_bytes(),
        &["0 attention heads"],
    );
    other["num_attention_heads"] = 3.into();
    refused(
        "config.json",
        other.to_string().as_bytes(),
        &["3 attention heads do not divide 8"],
    );
    let mut other = config();
    other["hidden_size"] = 16.into();
    refused(
        "config.json",
        other.to_string().as_bytes(),
        &["model.safetensors", "shape"],
    );
    let mut other = config();
    other["num_hidden_layers"] = 1_000_000_000_000u64.into();
    refused(
        "config.json",
        other.to_string().as_bytes(),
        &["encoder.layer.1"],
    );
    let mut other = config();
    other["vocab_size"] = 9.into();
    refused(
        "config.json",
        other.to_string().as_bytes(),
        &["up to 9 tokens", "9 rows"],
    );
    let mut other = config();
    other["model_type"] = "roberta".into();
    refused(
        "config.json",
        other.to_string().as_bytes(),
        &["is a roberta"],
    );
    let mut other = config();
    other["position_embedding_type"] = "relative_key".into();
    refused(
        "config.json",
        other.to_string().as_bytes(),
        &["positions are relative_key"],
    );
    let mut other = config();
    other["hidden_act"] = "silu".into();
    refused("config.json", other.to_string().as_bytes(), &["silu"]);
    let mut other = config();
    other["type_vocab_size"] = 0.into();
    refused(
        "config.json",
        other.to_string().as_bytes(),
        &["model.safetensors"],
    );
    let pooling = br#"{"word_embedding_dimension": 8, "pooling_mode_mean_tokens": true}"#;
    refused("config.json", pooling, &["is it that of 1_Pooling?"]);
    let pooling = br#"{"pooling_mode_mean_tokens": false, "pooling_mode_cls_token": true}"#;
    refused(
        "1_Pooling/config.json",
        pooling,
        &["does not take the mean"],
    );
    refused("tokenizer.json", b"{}", &["not a tokenizer"]);
    refused("model.safetensors", b"", &["model.safetensors"]);
    let whole = weights();
    for length in (0..whole.len()).step_by(97) {
        refused(
            "model.safetensors",
            &whole[..length],
            &["model.safetensors", "get the model again"],
        );
    }
    let empty = safetensors(&[]);
    refused(
        "model.safetensors",
        &empty,
        &["embeddings.word_embeddings.weight"],
    );
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        let folder = tiny();
        std::fs::remove_file(folder.0.join(name)).unwrap();
        says(Transformer::open(&folder.0), &[name, "cannot be read"]);
    }
}

#[test]
fn weights_that_are_not_numbers_fail_in_words() {
    let folder = tiny();
    let mut weights = weights();
    let end = weights.len();
    weights[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    folder.write("model.safetensors", weights);
    let model = Transformer::open(&folder.0).unwrap();
    says(
        model.embed(&["", "pear"]),
        &["failed on text 1", "not finite"],
    );
}

/// What sentence-transformers gives, within what other arithmetic may change.
#[test]
fn a_real_model_knows_what_sentences_mean() {
    let Some(folder) = real_model("all-minilm-l6-v2") else {
        return;
    };
    let model = Transformer::open(folder).unwrap();
    assert_eq!((model.dimensions(), model.limit().tokens), (384, Some(256)));
    let texts = [
        "A man is eating food.",
        "Someone eats a meal.",
        "The stock market fell today.",
    ];
    let vectors = model.embed(&texts).unwrap();
    let near = vectors[0].dot(&vectors[1]).unwrap() as f64 / (512.0 * 512.0);
    let far = vectors[0].dot(&vectors[2]).unwrap() as f64 / (512.0 * 512.0);
    assert!(near > 0.6 && far < 0.15, "{near} {far}");
}
