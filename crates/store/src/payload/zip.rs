//! Compression of leaves: zstd, one context per thread, since making one costs more than a leaf.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

const LEVEL: i32 = 3;
/// Below this there is nothing to gain.
const LEAST_BYTES: usize = 128;

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> =
        RefCell::new(Compressor::new(LEVEL).ok());
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> =
        RefCell::new(Decompressor::new().ok());
}

/// The bytes as a zstd frame, if that saves a tenth of them.
pub(super) fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < LEAST_BYTES {
        return None;
    }
    COMPRESSOR.with_borrow_mut(|compressor| {
        let frame = compressor.as_mut()?.compress(bytes).ok()?;
        (frame.len() <= bytes.len() / 10 * 9).then_some(frame)
    })
}

/// What the frame holds. No more than about `len` bytes are ever made of it.
pub(super) fn decompress(frame: &[u8], len: usize) -> Result<Vec<u8>, String> {
    DECOMPRESSOR.with_borrow_mut(|decompressor| match decompressor {
        Some(decompressor) => decompressor
            .decompress(frame, len)
            .map_err(|error| error.to_string()),
        None => Err("no memory for zstd".to_owned()),
    })
}
