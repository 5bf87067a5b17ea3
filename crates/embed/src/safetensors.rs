//! Reads one matrix out of a safetensors file.
//!
//! ```text
//! 8 bytes  length of the header, little-endian
//! header   JSON: {"name": {"dtype": "F16", "shape": [rows, columns], "data_offsets": [from, to]}, …}
//! data     the numbers, row by row; offsets count from here
//! ```
//!
//! Invariant: whatever the file says, nothing outside of it is read and nothing larger than it is
//! allocated.

use serde_json::{Map, Value};

use crate::fixed::{self, Format};

/// Rows of integers that share one unit.
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Row by row.
    pub(crate) numbers: Vec<i32>,
}

/// The only matrix in a file.
pub(crate) fn read_matrix(file: &[u8]) -> Result<Matrix, String> {
    let (header, data) = split(file)?;
    let header: Map<String, Value> = serde_json::from_slice(header)
        .map_err(|error| format!("its header is not valid: {error}"))?;
    let mut tensors = header.iter().filter(|(name, _)| *name != "__metadata__");
    let (Some((name, tensor)), None) = (tensors.next(), tensors.next()) else {
        let count = header.keys().filter(|name| *name != "__metadata__").count();
        return Err(format!(
            "it has {count} tensors, and a table has one matrix"
        ));
    };
    let (format, rows, columns) = form(tensor).map_err(|why| format!("tensor {name} {why}"))?;
    let numbers =
        place(tensor, data, format, rows, columns).map_err(|why| format!("tensor {name} {why}"))?;
    let numbers = fixed::read_block(numbers, format).map_err(|place| {
        format!(
            "tensor {name} has no number in row {}, column {}",
            place / columns,
            place % columns
        )
    })?;
    Ok(Matrix {
        rows,
        columns,
        numbers,
    })
}

/// The header and what follows it.
fn split(file: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let cut_off = || format!("it ends after {} bytes, within its header", file.len());
    let (length, rest) = file.split_first_chunk::<8>().ok_or_else(cut_off)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| cut_off())?;
    rest.split_at_checked(length).ok_or_else(cut_off)
}

fn form(tensor: &Value) -> Result<(Format, usize, usize), String> {
    let dtype = tensor["dtype"].as_str().unwrap_or("without a type");
    let format = Format::named(dtype)
        .ok_or_else(|| format!("is {dtype}, and only F16, BF16 and F32 are read"))?;
    let shape: Option<Vec<usize>> = tensor["shape"]
        .as_array()
        .and_then(|sizes| sizes.iter().map(as_size).collect());
    match shape.as_deref() {
        Some(&[rows, columns]) if rows > 0 && columns > 0 => Ok((format, rows, columns)),
        _ => Err(format!(
            "has the shape {}, and a table has rows and columns",
            tensor["shape"]
        )),
    }
}

/// The bytes of a tensor.
fn place<'a>(
    tensor: &Value,
    data: &'a [u8],
    format: Format,
    rows: usize,
    columns: usize,
) -> Result<&'a [u8], String> {
    let offsets = &tensor["data_offsets"];
    let (Some(from), Some(to)) = (as_size(&offsets[0]), as_size(&offsets[1])) else {
        return Err(format!("has no place in the file but {offsets}"));
    };
    let found = data.get(from..to).ok_or_else(|| {
        format!(
            "is at {from} to {to}, and the file has {} bytes for it",
            data.len()
        )
    })?;
    let expected = rows
        .checked_mul(columns)
        .and_then(|count| count.checked_mul(format.bytes()));
    if expected != Some(found.len()) {
        return Err(format!(
            "has {} bytes, which {rows} rows of {columns} are not",
            found.len()
        ));
    }
    Ok(found)
}

fn as_size(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|size| usize::try_from(size).ok())
}
