//! memvid: one file, as fast as it can be set: no extraction of dates, tags and triplets, no index of its
//! own for each text (the commit makes one), one sync for a batch, and no filter by sketches, which makes its
//! searches many times slower.

use std::path::{Path, PathBuf};

use memvid_core::{Memvid, PutManyOpts, PutOptions, SearchRequest};

use crate::{Failure, Peer};

pub struct Memory {
    file: PathBuf,
    memory: Option<Memvid>,
    in_batch: bool,
}

impl Memory {
    pub fn new(folder: &Path) -> Result<Memory, Failure> {
        let file = folder.join("memory.mv2");
        let mut memory = Memvid::create(&file)?;
        memory.enable_lex()?;
        Ok(Memory {
            file,
            memory: Some(memory),
            in_batch: false,
        })
    }

    fn memory(&mut self) -> Result<&mut Memvid, Failure> {
        Ok(self.memory.as_mut().ok_or("it is closed")?)
    }
}

impl Peer for Memory {
    fn add(&mut self, place: usize, text: &str) -> Result<(), Failure> {
        if !self.in_batch {
            self.memory()?.begin_batch(PutManyOpts::default())?;
            self.in_batch = true;
        }
        let options = PutOptions {
            uri: Some(format!("mv2://{place}")),
            auto_tag: false,
            extract_dates: false,
            extract_triplets: false,
            instant_index: false,
            ..PutOptions::default()
        };
        let memory = self.memory()?;
        memory.put_bytes_with_options(text.as_bytes(), options)?;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.in_batch = false;
        let memory = self.memory()?;
        memory.end_batch()?;
        Ok(memory.commit()?)
    }

    fn search(&mut self, limit: usize, words: &str) -> Result<Vec<usize>, Failure> {
        let request = SearchRequest {
            query: words.replace(' ', " OR "),
            top_k: limit,
            snippet_chars: 200,
            uri: None,
            scope: None,
            cursor: None,
            as_of_frame: None,
            as_of_ts: None,
            no_sketch: true,
            acl_context: None,
            acl_enforcement_mode: Default::default(),
        };
        let found = self.memory()?.search(request)?;
        let place = |uri: &str| uri.trim_start_matches("mv2://").parse().ok();
        Ok(found
            .hits
            .iter()
            .filter_map(|hit| place(&hit.uri))
            .collect())
    }

    fn reopen(&mut self) -> Result<(), Failure> {
        self.memory = None;
        self.memory = Some(Memvid::open(&self.file)?);
        Ok(())
    }
}
