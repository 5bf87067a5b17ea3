//! The content of one file, whatever it is called.
//!
//! Invariants: cached bytes at or after the cached length are zero, and platter bytes at or after
//! the platter's length are zero whenever that length has just been settled by a crash or a failed
//! sync. So a file that grows shows zeros, never what was once cut off.

use super::choose::Chooser;
use super::sector::{SECTOR, Sector};
use super::versions::{AfterFailure, Versions};

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    len: Versions<u64>,
    /// Covers the cached length and the platter's; what is beyond it is zero.
    sectors: Vec<Versions<Sector>>,
    /// Bytes from the start for which the disk has given room. A file made longer by `truncate`
    /// has length without room.
    allocated: u64,
    /// The most room it had since the last sync: a crash may bring back what was cut off.
    allocated_peak: u64,
    /// Open handles of the running process.
    pub(super) opens: u32,
}

impl Inode {
    /// Makes `bytes` the whole content, on the platter at once. They take room on the disk, or not.
    pub(super) fn replace(&mut self, bytes: &[u8], takes_room: bool) {
        *self = Self {
            opens: self.opens,
            ..Self::default()
        };
        self.write(bytes, 0);
        self.sync();
        if !takes_room {
            self.allocated = 0;
            self.allocated_peak = 0;
        }
    }

    pub(super) fn len(&self) -> u64 {
        *self.len.cache()
    }

    pub(super) fn allocated(&self) -> u64 {
        self.allocated
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let left = self.len().saturating_sub(offset);
        let total = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        for (at, start, range) in pieces(offset, total) {
            match self.sectors.get(at) {
                Some(sector) => sector.cache().read(start, &mut buf[range]),
                None => buf[range].fill(0),
            }
        }
        total
    }

    pub(super) fn write(&mut self, buf: &[u8], offset: u64) {
        if buf.is_empty() {
            return;
        }
        let end = offset + buf.len() as u64;
        self.reach(end);
        for (at, start, range) in pieces(offset, buf.len()) {
            let sector = &mut self.sectors[at];
            let value = match <&[u8; SECTOR]>::try_from(&buf[range.clone()]) {
                Ok(whole) => Sector::new(whole),
                Err(_) => sector.cache().patched(start, &buf[range]),
            };
            sector.write(value);
        }
        // Also when only the platter's length is behind, as it is after a failed sync: writing the
        // sector back takes the length with it.
        if end > self.len().min(*self.len.platter()) {
            self.len.write(self.len().max(end));
        }
        self.set_allocated(self.allocated.max(end));
    }

    pub(super) fn truncate(&mut self, len: u64) {
        for (at, keep) in self.tail(len) {
            let sector = &mut self.sectors[at];
            let cut = sector.cache().cut(keep);
            if cut != *sector.cache() {
                sector.write(cut);
            }
        }
        self.reach(len);
        if len != self.len() {
            self.len.write(len);
        }
        self.set_allocated(self.allocated.min(len));
    }

    pub(super) fn sync(&mut self) {
        self.len.sync();
        self.sectors.iter_mut().for_each(Versions::sync);
        self.allocated_peak = self.allocated;
        self.shrink();
    }

    /// A sync that reported an error: each dirty sector and the length reached the platter or did
    /// not, and none of them is dirty any more.
    pub(super) fn fail_sync(&mut self, chooser: &mut dyn Chooser, after: AfterFailure) {
        self.len.fail_sync(chooser, after);
        for sector in &mut self.sectors {
            sector.fail_sync(chooser, after);
        }
        self.cut_platter();
        for (at, keep) in self.tail(self.len()) {
            self.sectors[at].change_cache(|sector| sector.cut(keep));
        }
        if after == AfterFailure::Revert {
            self.allocated = self.allocated_peak.min(self.len());
        }
    }

    pub(super) fn crash(&mut self, chooser: &mut dyn Chooser) {
        if self.dirty_sectors() > 0 || self.len.dirty() {
            chooser.subject();
        }
        self.len.crash(chooser);
        // Those beyond the length vanish, and there is nothing to choose about them.
        self.sectors.truncate(sectors_in(self.len()));
        for sector in &mut self.sectors {
            sector.crash(chooser);
        }
        for (at, keep) in self.tail(self.len()) {
            self.sectors[at].change_everywhere(|sector| sector.cut(keep));
        }
        self.allocated = self.allocated_peak.min(self.len());
        self.allocated_peak = self.allocated;
        self.opens = 0;
    }

    /// Flips one bit in every version of its sector; false if the file has no such byte.
    pub(super) fn flip_bit(&mut self, offset: u64, bit: u32) -> bool {
        if offset >= self.len() {
            return false;
        }
        self.reach(offset + 1);
        let (at, start) = place(offset);
        self.sectors[at].change_everywhere(|sector| sector.flipped(start, bit));
        true
    }

    pub(super) fn dirty_sectors(&self) -> usize {
        self.sectors.iter().filter(|sector| sector.dirty()).count()
    }

    pub(super) fn dirty_len(&self) -> bool {
        self.len.dirty()
    }

    /// At most how many states a crash can leave.
    pub(super) fn outcomes(&self) -> u64 {
        let len = self.len.outcomes() as u64;
        self.sectors
            .iter()
            .fold(len, |n, s| n.saturating_mul(s.outcomes() as u64))
    }

    fn set_allocated(&mut self, bytes: u64) {
        self.allocated = bytes;
        self.allocated_peak = self.allocated_peak.max(bytes);
    }

    /// Makes the table of sectors cover a file of `len` bytes.
    fn reach(&mut self, len: u64) {
        if sectors_in(len) > self.sectors.len() {
            self.sectors.resize_with(sectors_in(len), Versions::default);
        }
    }

    fn shrink(&mut self) {
        let len = self.len().max(*self.len.platter());
        self.sectors.truncate(sectors_in(len));
    }

    fn cut_platter(&mut self) {
        for (at, keep) in self.tail(*self.len.platter()) {
            self.sectors[at].change_platter(|sector| sector.cut(keep));
        }
    }

    /// The sectors that hold bytes at or after `len`, with the number of bytes before it in each.
    fn tail(&self, len: u64) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (first, keep) = place(len);
        (first..self.sectors.len()).map(move |at| (at, if at == first { keep } else { 0 }))
    }
}

fn place(offset: u64) -> (usize, usize) {
    (
        (offset / SECTOR as u64) as usize,
        (offset % SECTOR as u64) as usize,
    )
}

fn sectors_in(len: u64) -> usize {
    len.div_ceil(SECTOR as u64) as usize
}

/// Cuts `total` bytes at `offset` of a file at the sector boundaries: the sector, the place in it,
/// and the range of the caller's buffer.
fn pieces(
    offset: u64,
    total: usize,
) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == total {
            return None;
        }
        let (at, start) = place(offset + done as u64);
        let end = total.min(done + SECTOR - start);
        let piece = (at, start, done..end);
        done = end;
        Some(piece)
    })
}
