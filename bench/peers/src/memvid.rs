//! memvid: one file. Its filter by sketches is off, which makes its searches many times quicker.

use std::path::{Path, PathBuf};

use memvid_core::{Memvid, PutOptions, SearchRequest};

use crate::{Failure, Peer};

pub struct Memory {
    file: PathBuf,
    memory: Option<Memvid>,
}

impl Memory {
    pub fn new(folder: &Path) -> Result<Memory, Failure> {
        let file = folder.join("memory.mv2");
        let mut memory = Memvid::create(&file)?;
        memory.enable_lex()?;
        Ok(Memory {
            file,
            memory: Some(memory),
        })
    }

    fn memory(&mut self) -> Result<&mut Memvid, Failure> {
        Ok(self.memory.as_mut().ok_or("it is closed")?)
    }
}

impl Peer for Memory {
    fn add(&mut self, place: usize, text: &str) -> Result<(), Failure> {
        let options = PutOptions::builder().uri(format!("mv2://{place}")).build();
        let memory = self.memory()?;
        memory.put_bytes_with_options(text.as_bytes(), options)?;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        Ok(self.memory()?.commit()?)
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
