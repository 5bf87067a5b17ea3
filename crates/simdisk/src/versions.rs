//! One value on a disk with a cache in front: a sector, or a file's length.
//!
//! Words: the *platter* holds what a power cut leaves; the *cache* is what reads see; the
//! *pending* values are those the cache had since the last sync and that are not the platter's.
//! The hardware may write any of them at any time, so after a crash the value is the platter's or
//! any pending one.
//!
//! Invariant: if nothing is pending, cache and platter are equal, or a failed sync took the value
//! out of the cache's care ("clean, but not on the platter").

use super::choose::Chooser;

/// What a failed sync does to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterFailure {
    /// Reads go on showing what was never written, as on ext4.
    Keep,
    /// Reads show the platter again.
    Revert,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Versions<T> {
    platter: T,
    cache: T,
    pending: Vec<T>,
}

impl<T: Clone + PartialEq> Versions<T> {
    pub(super) fn cache(&self) -> &T {
        &self.cache
    }

    pub(super) fn platter(&self) -> &T {
        &self.platter
    }

    pub(super) fn dirty(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The number of values a crash can leave.
    pub(super) fn outcomes(&self) -> usize {
        self.pending.len() + 1
    }

    /// A value that is already among the possible outcomes adds none, so zeros written over zeros
    /// cost nothing.
    pub(super) fn write(&mut self, value: T) {
        if value != self.platter && !self.pending.contains(&value) {
            self.pending.push(value.clone());
        }
        self.cache = value;
    }

    /// A clean value is left alone: after a failed sync this "succeeds" without writing it.
    pub(super) fn sync(&mut self) {
        if self.dirty() {
            self.platter = self.cache.clone();
            self.pending = Vec::new();
        }
    }

    pub(super) fn fail_sync(&mut self, chooser: &mut dyn Chooser, after: AfterFailure) {
        if self.dirty() {
            self.settle(chooser);
            if after == AfterFailure::Revert {
                self.cache = self.platter.clone();
            }
        }
    }

    pub(super) fn crash(&mut self, chooser: &mut dyn Chooser) {
        if self.dirty() {
            self.settle(chooser);
        }
        self.cache = self.platter.clone();
    }

    /// The platter ends with its own value (choice 0) or with a pending one, oldest first.
    fn settle(&mut self, chooser: &mut dyn Chooser) {
        let choice = chooser.choose(self.outcomes());
        if choice > 0 && choice <= self.pending.len() {
            self.platter = self.pending.swap_remove(choice - 1);
        }
        self.pending = Vec::new();
    }

    pub(super) fn change_platter(&mut self, change: impl Fn(&T) -> T) {
        self.platter = change(&self.platter);
    }

    pub(super) fn change_cache(&mut self, change: impl Fn(&T) -> T) {
        self.cache = change(&self.cache);
    }

    /// Changes the value wherever it is.
    pub(super) fn change_everywhere(&mut self, change: impl Fn(&T) -> T) {
        self.change_platter(&change);
        self.change_cache(&change);
        for value in &mut self.pending {
            *value = change(value);
        }
    }
}
