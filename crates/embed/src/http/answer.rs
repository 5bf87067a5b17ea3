//! Reads what a server answers, and believes none of it unchecked.
//!
//! ```text
//! {"data": [{"index": 0, "embedding": [0.1, …]}, …], …}
//! ```

use serde::Deserialize;

use crate::{EmbedError, Vector};

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    /// Some servers leave it out, and keep the order.
    index: Option<usize>,
    /// JSON has no word for what is not a number: servers write null.
    embedding: Vec<Option<f64>>,
}

/// What is wrong with an answer.
pub(super) enum Wrong {
    Form(String),
    Count { expected: usize, found: usize },
    Dimensions { expected: usize, found: usize },
    NotANumber { text: usize, place: usize },
}

impl Wrong {
    pub(super) fn into_error(self, url: &str, shown: impl Fn(&str) -> String) -> EmbedError {
        let url = url.to_owned();
        match self {
            Wrong::Form(why) => EmbedError::NotAnAnswer {
                url,
                why: shown(&why),
            },
            Wrong::Count { expected, found } => EmbedError::WrongCount {
                url,
                expected,
                found,
            },
            Wrong::Dimensions { expected, found } => EmbedError::WrongDimensions {
                url,
                expected,
                found,
            },
            Wrong::NotANumber { text, place } => EmbedError::NotANumber { url, text, place },
        }
    }
}

/// The most that an answer may take: 48 bytes for a number, which is twice what any needs, and some
/// for the words around.
pub(super) fn bytes_max(texts: usize, dimensions: usize) -> u64 {
    (64 << 10) + texts as u64 * (1 << 10) + texts as u64 * dimensions as u64 * 48
}

/// The vectors for texts, in their order. `places` are where the texts stand in the call.
pub(super) fn vectors(
    body: &[u8],
    places: &[usize],
    dimensions: usize,
) -> Result<Vec<Vector>, Wrong> {
    let answer: Answer =
        serde_json::from_slice(body).map_err(|error| Wrong::Form(error.to_string()))?;
    let (expected, found) = (places.len(), answer.data.len());
    if found != expected {
        return Err(Wrong::Count { expected, found });
    }
    let mut vectors = vec![None; expected];
    for (position, item) in answer.data.into_iter().enumerate() {
        let index = item.index.unwrap_or(position);
        let (Some(slot), Some(text)) = (vectors.get_mut(index), places.get(index)) else {
            return Err(Wrong::Form(format!("index {index} of {expected}")));
        };
        *slot = Some(vector(&item.embedding, *text, dimensions)?);
    }
    // As many as there are places: if one is free, another one was taken twice.
    let vectors: Option<Vec<Vector>> = vectors.into_iter().collect();
    vectors.ok_or_else(|| Wrong::Form("an index comes twice".into()))
}

fn vector(numbers: &[Option<f64>], text: usize, dimensions: usize) -> Result<Vector, Wrong> {
    if numbers.len() != dimensions {
        return Err(Wrong::Dimensions {
            expected: dimensions,
            found: numbers.len(),
        });
    }
    // What is too large for an f32 becomes infinite, and is refused like null.
    let numbers: Vec<f32> = numbers
        .iter()
        .map(|number| number.map_or(f32::NAN, |number| number as f32))
        .collect();
    let finite = |place: Option<usize>| match place {
        Some(place) => Err(Wrong::NotANumber { text, place }),
        None => Ok(()),
    };
    finite(numbers.iter().position(|number| !number.is_finite()))?;
    Vector::from_f32(&numbers).map_err(|error| Wrong::Form(error.to_string()))
}
