//! A table of token vectors: a text is the mean of its rows.
//!
//! ```text
//! text ─► tokens ─► sum of their rows, i64 ─► length one ─► int8
//! ```
//!
//! The mean is a sum here: what it would be divided by vanishes when the length becomes one.
//!
//! Invariant: from the file to the bytes there are only integers, and sums of integers do not depend
//! on their order. One model and one text give the same bytes on every machine, in every build.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{EmbedError, LoadError, read_file};
use crate::safetensors::{Matrix, read_matrix};
use crate::text::{self, TextLimit};
use crate::tokens::Tokens;
use crate::{Embedder, EmbedderId, Vector};

/// To be counted up with every change of the arithmetic that changes a vector.
const DEFINITION: &[u8] =
    b"static table 1: mean of rows, shared exponent, int8 scale 512 clamp 127";

/// Weights are read into memory; the largest table in use has 1 GB.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// What may be chosen when a [`StaticTable`] is loaded.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TableOptions {
    /// Only so many components of each row. For tables trained to be cut ("Matryoshka"): half as
    /// many bytes to store and to search, for a little quality.
    pub dimensions: Option<usize>,
    /// What people call it. Without, the name of the matrix file.
    pub name: Option<String>,
}

impl TableOptions {
    /// Only the first components of each row.
    pub fn dimensions(mut self, dimensions: usize) -> TableOptions {
        self.dimensions = Some(dimensions);
        self
    }

    /// What people call it.
    pub fn name(mut self, name: impl Into<String>) -> TableOptions {
        self.name = Some(name.into());
        self
    }
}

/// An embedder of one table and no neural network: the mean of the vectors of a text's tokens.
///
/// It takes well below a millisecond for a paragraph, and it is bit-exact on every machine. It knows
/// words and not sentences: use it together with a search for words.
///
/// Tokens that are unknown to the model are left out. A text of which nothing is left has the zero
/// vector. The first 64 KiB of a text count.
pub struct StaticTable {
    id: EmbedderId,
    tokens: Tokens,
    dimensions: usize,
    /// Row by row, `dimensions` numbers each.
    rows: Vec<i32>,
}

impl StaticTable {
    /// Loads `tokenizer.json` and the one `*.safetensors` of a folder.
    pub fn open(folder: impl AsRef<Path>) -> Result<StaticTable, LoadError> {
        StaticTable::open_with(folder, TableOptions::default())
    }

    /// The same with options.
    pub fn open_with(
        folder: impl AsRef<Path>,
        options: TableOptions,
    ) -> Result<StaticTable, LoadError> {
        let folder = folder.as_ref();
        StaticTable::from_files(folder.join("tokenizer.json"), only_matrix(folder)?, options)
    }

    /// Loads a tokenizer and a matrix from files of any name.
    pub fn from_files(
        tokenizer: impl AsRef<Path>,
        matrix: impl AsRef<Path>,
        options: TableOptions,
    ) -> Result<StaticTable, LoadError> {
        let path = matrix.as_ref();
        let file = read_file(path, FILE_BYTES_MAX)?;
        let matrix = read_matrix(&file).map_err(|why| LoadError::invalid(path, why))?;
        let tokens = Tokens::load(tokenizer.as_ref(), matrix.rows)?;
        let dimensions = options.dimensions.unwrap_or(matrix.columns);
        if !(1..=matrix.columns).contains(&dimensions) {
            let available = matrix.columns;
            return Err(LoadError::Dimensions {
                asked: dimensions,
                available,
            });
        }
        let name = options
            .name
            .or_else(|| Some(path.file_stem()?.to_str()?.to_owned()));
        let decisive = [
            DEFINITION,
            &tokens.file,
            &file,
            &(dimensions as u64).to_le_bytes(),
        ];
        Ok(StaticTable {
            id: EmbedderId::new(name.unwrap_or_else(|| "table".into()), decisive),
            rows: first_columns(matrix, dimensions),
            tokens,
            dimensions,
        })
    }

    fn embed_one(&self, place: usize, text: &str) -> Result<Vector, EmbedError> {
        let text = text::cut(text, text::LOCAL_BYTES_MAX);
        if text::is_blank(text) {
            return Ok(Vector::zero(self.dimensions));
        }
        let encoding = self
            .tokens
            .tokenizer
            .encode_fast(text, false)
            .map_err(|error| EmbedError::Tokens {
                text: place,
                why: error.to_string(),
            })?;
        let mut sums = vec![0i64; self.dimensions];
        for id in encoding.get_ids() {
            if Some(*id) == self.tokens.unknown {
                continue;
            }
            let start = *id as usize * self.dimensions;
            // Every token has a row: this was checked when they were loaded.
            let row = self
                .rows
                .get(start..start + self.dimensions)
                .unwrap_or_default();
            // At most 2^30 each, and a text of 2^16 bytes has few more tokens than that.
            sums.iter_mut()
                .zip(row)
                .for_each(|(sum, number)| *sum += i64::from(*number));
        }
        Ok(Vector::unit(&sums))
    }
}

impl Embedder for StaticTable {
    fn id(&self) -> &EmbedderId {
        &self.id
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn limit(&self) -> TextLimit {
        TextLimit {
            bytes: text::LOCAL_BYTES_MAX,
            tokens: None,
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

impl fmt::Debug for StaticTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticTable")
            .field("id", &self.id.to_string())
            .field("dimensions", &self.dimensions)
            .finish_non_exhaustive()
    }
}

/// The one file of weights in a folder.
fn only_matrix(folder: &Path) -> Result<PathBuf, LoadError> {
    let failed = |source| LoadError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "safetensors")
        {
            found.push(path);
        }
    }
    match <[PathBuf; 1]>::try_from(found) {
        Ok([path]) => Ok(path),
        Err(found) => Err(LoadError::NotOneMatrix {
            folder: folder.to_owned(),
            found: found.len(),
        }),
    }
}

fn first_columns(matrix: Matrix, columns: usize) -> Vec<i32> {
    if columns == matrix.columns {
        return matrix.numbers;
    }
    let rows = matrix.numbers.chunks_exact(matrix.columns);
    rows.flat_map(|row| &row[..columns]).copied().collect()
}
