//! The content of one sector, the unit that a disk writes whole or not at all.
//!
//! Invariant: a sector of zeros is always `Zero`, so equality of content is equality of values
//! and a file filled with zeros costs no memory. Copies share their bytes.

use std::sync::Arc;

/// Bytes in a sector.
pub const SECTOR: usize = 512;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Sector {
    #[default]
    Zero,
    Data(Arc<[u8; SECTOR]>),
}

impl Sector {
    pub(super) fn new(bytes: &[u8; SECTOR]) -> Self {
        if bytes.iter().all(|b| *b == 0) {
            Self::Zero
        } else {
            Self::Data(Arc::new(*bytes))
        }
    }

    /// Copies the bytes from `start` on into `out`, which must end within the sector.
    pub(super) fn read(&self, start: usize, out: &mut [u8]) {
        match self {
            Self::Zero => out.fill(0),
            Self::Data(bytes) => out.copy_from_slice(&bytes[start..start + out.len()]),
        }
    }

    /// The whole sector as it is after `part` has been written at `start`: a disk cannot write
    /// less.
    pub(super) fn patched(&self, start: usize, part: &[u8]) -> Self {
        let mut bytes = self.bytes();
        bytes[start..start + part.len()].copy_from_slice(part);
        Self::new(&bytes)
    }

    /// With zeros from `start` to the end.
    pub(super) fn cut(&self, start: usize) -> Self {
        match self {
            Self::Zero => Self::Zero,
            Self::Data(_) if start >= SECTOR => self.clone(),
            Self::Data(_) => {
                let mut bytes = self.bytes();
                bytes[start..].fill(0);
                Self::new(&bytes)
            }
        }
    }

    pub(super) fn flipped(&self, at: usize, bit: u32) -> Self {
        let mut bytes = self.bytes();
        bytes[at] ^= 1 << (bit % 8);
        Self::new(&bytes)
    }

    fn bytes(&self) -> [u8; SECTOR] {
        match self {
            Self::Zero => [0; SECTOR],
            Self::Data(bytes) => **bytes,
        }
    }
}
