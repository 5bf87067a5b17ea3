//! A folder that goes away, and a world that counts.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A folder of a test's own, removed with it.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new(name: &str) -> TempDir {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("dalsegno-{name}-{}-{count}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        drop(std::fs::remove_dir_all(&dir));
        TempDir(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// What was done to the outside, by what and how often.
#[derive(Clone, Debug, Default)]
pub struct World(Arc<Mutex<BTreeMap<String, u64>>>);

impl World {
    pub fn did(&self, what: &str) -> u64 {
        let mut done = self.0.lock().unwrap();
        let count = done.entry(what.to_owned()).or_default();
        *count += 1;
        *count
    }

    pub fn reset(&self) {
        self.0.lock().unwrap().clear();
    }

    /// Nothing was done.
    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }

    /// What was done.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }

    pub fn count(&self, what: &str) -> u64 {
        self.0.lock().unwrap().get(what).copied().unwrap_or(0)
    }
}
