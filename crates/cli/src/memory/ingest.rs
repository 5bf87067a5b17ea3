//! Bringing the chunks of a file into a memory: once, and again when the file has changed.
//!
//! Each chunk has a place: the name of its file and its number. What is at a place is found by a key
//! made of both, so a file that was added before is recognised without looking for it.
//!
//! | at the place is | and the file has there | then |
//! |---|---|---|
//! | nothing | a chunk | it is added |
//! | the same | the same | nothing |
//! | another text | a chunk | it is corrected |
//! | a text | nothing any more | it is retracted |
//! | what was retracted because it was gone | a chunk | it is added under the next key |
//! | what somebody retracted | the same text | it stays retracted |
//! | what somebody retracted | another text | it is added under the next key |
//! | what somebody forgot | a chunk | it stays forgotten |
//!
//! Invariant: documents are written in the order of files and chunks, each batch whole. So what an
//! interrupted command leaves is a beginning, and the same command goes on behind it.

use dalsegno_memory::{
    CERTAIN, Content, DocId, DocKind, HowEnded, Memory, MemoryError, NewDocument, Scope,
};
use dalsegno_store::Hash;

use super::chunk::{self, Chunk, Sizes};
use super::files;
use super::model::Model;
use super::opening::interrupted;
use crate::args::memory::About;
use crate::exit::{Error, Result};
use crate::interrupt;

/// Why a chunk was retracted whose file has fewer now.
const GONE: &str = "no longer in its file";
/// So many documents, or bytes of text, are written at a time.
const BATCH_DOCUMENTS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
/// So often a place is looked at again because others change it.
const TRIES: usize = 20;

/// What it came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Chunks that were added.
    pub added: u64,
    /// That were put in the place of others.
    pub corrected: u64,
    /// That are gone.
    pub retracted: u64,
    /// That were there.
    pub unchanged: u64,
    /// That somebody had retracted or forgotten.
    pub left_out: u64,
}

impl Counts {
    /// How many chunks were looked at.
    pub fn chunks(&self) -> u64 {
        self.added + self.corrected + self.unchanged + self.left_out
    }
}

/// What is at a place.
enum Place {
    /// Nothing, and never was: the key to add it under.
    Empty(String),
    /// Nothing any more: the key to add it under again.
    Over(String),
    There(DocId, DocKind, Box<Content>),
    /// Nothing, because somebody wanted it so.
    Left,
}

/// Brings files into a memory.
pub struct Ingest<'a> {
    memory: &'a Memory,
    model: Option<&'a Model>,
    about: &'a About,
    sizes: Sizes,
    batch: Vec<NewDocument>,
    batch_bytes: usize,
    /// What it came to so far.
    pub counts: Counts,
}

impl<'a> Ingest<'a> {
    /// With what is said about every chunk.
    pub fn new(
        memory: &'a Memory,
        model: Option<&'a Model>,
        about: &'a About,
        sizes: Sizes,
    ) -> Ingest<'a> {
        Ingest {
            memory,
            model,
            about,
            sizes,
            batch: Vec::new(),
            batch_bytes: 0,
            counts: Counts::default(),
        }
    }

    /// Brings in what a file says now. `progress` is called with the chunk that is done.
    ///
    /// # Errors
    /// The memory cannot be written, or the command is to end.
    pub async fn file(
        &mut self,
        name: &str,
        text: &str,
        mut progress: impl FnMut(usize, usize, &Counts),
    ) -> Result<()> {
        let chunks = match files::is_markdown(name) {
            true => chunk::markdown(text, self.sizes),
            false => chunk::plain(text, self.sizes),
        };
        for (number, chunk) in (1..).zip(&chunks) {
            go_on()?;
            self.chunk(name, number, chunk).await?;
            progress(number, chunks.len(), &self.counts);
        }
        for number in chunks.len() + 1.. {
            go_on()?;
            match self.place(name, number, None).await? {
                Place::Empty(_) => return Ok(()),
                Place::There(id, ..) => self.retract(id).await?,
                Place::Over(_) | Place::Left => {}
            }
        }
        Ok(())
    }

    /// Writes what is not written yet.
    ///
    /// # Errors
    /// The memory cannot be written.
    pub async fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let count = batch.len() as u64;
        self.memory.add_many(batch).await?;
        self.counts.added += count;
        Ok(())
    }

    /// Retracts a chunk whose file has gone, if it is one.
    ///
    /// # Errors
    /// The memory cannot be written.
    pub async fn gone(&mut self, name: &str, number: usize, id: DocId) -> Result<()> {
        go_on()?;
        match self.place(name, number, None).await? {
            // Not what only names the chunk as its source, as somebody's note may.
            Place::There(there, ..) if there == id => self.retract(id).await,
            _ => Ok(()),
        }
    }

    async fn chunk(&mut self, name: &str, number: usize, chunk: &Chunk) -> Result<()> {
        let source = format!("{name}#{number}");
        for _ in 0..TRIES {
            match self.place(name, number, Some(chunk)).await? {
                Place::Empty(key) | Place::Over(key) => {
                    let new = self.document(&source, chunk)?.key(key);
                    self.batch_bytes += chunk.text.len();
                    self.batch.push(new);
                    if self.batch.len() >= BATCH_DOCUMENTS || self.batch_bytes >= BATCH_BYTES {
                        self.flush().await?;
                    }
                    return Ok(());
                }
                Place::There(_, kind, content) if self.is_same(&source, chunk, kind, &content) => {
                    self.counts.unchanged += 1;
                    return Ok(());
                }
                Place::There(id, ..) => {
                    self.flush().await?;
                    let new = self.document(&source, chunk)?;
                    match self.memory.correct(id, new).await {
                        // Somebody else was faster: look again.
                        Err(MemoryError::Ended { .. }) => {}
                        corrected => {
                            corrected?;
                            self.counts.corrected += 1;
                            return Ok(());
                        }
                    }
                }
                Place::Left => {
                    self.counts.left_out += 1;
                    return Ok(());
                }
            }
        }
        Err(Error::failed(format!("others change {source} all the time")).hint("try again later"))
    }

    async fn retract(&mut self, id: DocId) -> Result<()> {
        self.flush().await?;
        match self.memory.retract(id, GONE).await {
            Err(MemoryError::Ended { .. }) => Ok(()),
            retracted => {
                retracted?;
                self.counts.retracted += 1;
                Ok(())
            }
        }
    }

    async fn place(&self, name: &str, number: usize, chunk: Option<&Chunk>) -> Result<Place> {
        for time in 0.. {
            let key = key(name, number, time);
            let Some(id) = self.memory.under_key(&key).await? else {
                return Ok(match time {
                    0 => Place::Empty(key),
                    _ => Place::Over(key),
                });
            };
            let Some(last) = self.memory.history(id).await?.pop() else {
                return Ok(Place::Left);
            };
            match (last.ended, last.content) {
                (None, Some(content)) => {
                    return Ok(Place::There(last.id, last.kind, Box::new(content)));
                }
                (Some(ended), Some(content)) if ended.how == HowEnded::Retracted => {
                    let was = (content.title.as_ref(), &content.text);
                    let same = chunk.is_some_and(|new| (new.title.as_ref(), &new.text) == was);
                    if same && ended.reason.as_deref() != Some(GONE) {
                        return Ok(Place::Left);
                    }
                }
                _ => return Ok(Place::Left),
            }
        }
        Ok(Place::Left)
    }

    fn kind(&self) -> DocKind {
        let kind = self.about.kind.map(|kind| kind.kind());
        kind.unwrap_or(DocKind::Document)
    }

    fn document(&self, source: &str, chunk: &Chunk) -> Result<NewDocument> {
        let mut new = NewDocument::new(self.kind(), &chunk.text).source(source);
        if let Some(title) = &chunk.title {
            new = new.title(title);
        }
        new = said(new, self.about);
        match self.model {
            Some(model) => model.apply(new, chunk.title.as_deref(), &chunk.text),
            None => Ok(new),
        }
    }

    fn is_same(&self, source: &str, chunk: &Chunk, kind: DocKind, there: &Content) -> bool {
        let about = self.about;
        kind == self.kind()
            && there.text == chunk.text
            && there.title == chunk.title
            && there.sources == [source]
            && there.tags == about.tag
            && there.confidence == about.confidence.unwrap_or(CERTAIN)
            && there.scope == about.scope.clone().unwrap_or(Scope::Shared)
            && there.valid_from_us == about.valid_from.map(|time| time.start_us())
            && there.valid_until_us == about.valid_until.map(|time| time.start_us())
            && (self.model.is_none() || there.vector.is_some())
    }
}

/// What is said about a document beside its kind, text, title and sources.
pub fn said(mut new: NewDocument, about: &About) -> NewDocument {
    for tag in &about.tag {
        new = new.tag(tag);
    }
    if let Some(confidence) = about.confidence {
        new = new.confidence(confidence);
    }
    if let Some(scope) = &about.scope {
        new = new.scope(scope.clone());
    }
    if let Some(from) = about.valid_from {
        new = new.valid_from_us(from.start_us());
    }
    if let Some(until) = about.valid_until {
        new = new.valid_until_us(until.start_us());
    }
    new
}

/// Under which a chunk is added for the first, second, … time. A hash: the key stays when the
/// document is forgotten, so it should say nothing.
fn key(name: &str, number: usize, time: u32) -> String {
    let place = format!("dalsegno chunk {number} {time} {name}");
    let hash = Hash::of(place.as_bytes()).to_string();
    format!("chunk-{}", &hash[..32])
}

fn go_on() -> Result<()> {
    interrupt::check().map_err(|e| interrupted(e.into()))
}
