//! Bringing the chunks of a file into a memory: once, and again when the file has changed.
//!
//! ```text
//! file ─► chunks ─┐
//!                 ├─► plan ─► adds in batches, corrections, then retractions
//! memory ─► slots ┘
//! ```
//!
//! A chunk is known by what it says, and not by its place in the file: one that is put in above others is
//! one that is added, and what somebody retracted or forgot does not come back under another number.
//! `slots` has what the memory knows of a file, `plan` what follows from it.
//!
//! What others do at the same time: two who add the same file add it under the same keys. Whoever
//! sees that others wrote to the memory since it was looked at looks at the file again, until there is
//! nothing to do. If others took something away meanwhile, what was decided before is not written.
//!
//! Invariant: documents are written in the order of files and chunks, each batch whole; what has vanished
//! is retracted last. So what an interrupted command leaves is a beginning, and the same command goes
//! on behind it.

use std::collections::{BTreeMap, BTreeSet};

use dalsegno_memory::{
    AsOf, CERTAIN, Change, Changed, Content, DocId, DocKind, Memory, MemoryError, NewDocument,
    Scope,
};
use dalsegno_store::Version;

use super::chunk::{self, Chunk, Sizes};
use super::files;
use super::model::Model;
use super::plan::{Step, plan};
use super::slots::{GONE, Known, Origin, Place, go_on, is_live, said as what_is_said};
use crate::args::memory::About;
use crate::exit::Result;

/// So many documents, or bytes of text, are written at a time.
const BATCH_DOCUMENTS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;

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
    /// That somebody had retracted, or may have forgotten.
    pub left_out: u64,
}

impl Counts {
    /// How many chunks were looked at.
    pub fn chunks(&self) -> u64 {
        self.added + self.corrected + self.unchanged + self.left_out
    }
}

/// How files are brought in.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// What is said about every chunk.
    pub about: &'a About,
    /// How large they are.
    pub sizes: Sizes,
    /// Files are right as they are, also in what somebody retracted or forgot.
    pub anew: bool,
}

/// Brings files into a memory.
pub struct Ingest<'a> {
    memory: &'a Memory,
    model: Option<&'a Model>,
    how: How<'a>,
    batch: Vec<NewDocument>,
    batch_bytes: usize,
    /// The files that have something in the batch.
    pending: BTreeSet<String>,
    /// The version up to which nobody else can have written since what is pending was decided.
    seen: Version,
    /// Files that others may have changed at the same time.
    again: BTreeSet<String>,
    /// It is not the first time that the files are looked at.
    is_again: bool,
    /// What it came to so far.
    pub counts: Counts,
    /// Of each file, how many chunks were left out because something of it was forgotten.
    pub withheld: BTreeMap<String, u64>,
}

impl<'a> Ingest<'a> {
    /// Into this memory.
    pub fn new(memory: &'a Memory, model: Option<&'a Model>, how: How<'a>) -> Ingest<'a> {
        Ingest {
            memory,
            model,
            how,
            batch: Vec::new(),
            batch_bytes: 0,
            pending: BTreeSet::new(),
            seen: Version::START,
            again: BTreeSet::new(),
            is_again: false,
            counts: Counts::default(),
            withheld: BTreeMap::new(),
        }
    }

    /// Brings in what a file says now. `progress` is called with the chunk that is done.
    ///
    /// # Errors
    /// The memory cannot be written, or the command is to end.
    pub async fn file(
        &mut self,
        origin: Origin<'_>,
        text: &str,
        mut progress: impl FnMut(usize, usize, &Counts),
    ) -> Result<()> {
        let name = origin.name;
        let chunks = match files::is_markdown(name) {
            true => chunk::markdown(text, self.how.sizes),
            false => chunk::plain(text, self.how.sizes),
        };
        if self.batch.is_empty() {
            self.seen = self.memory.version().await?;
        }
        let known = Known::read(self.memory, origin, |kind, there| {
            self.is_as_asked(name, kind, there)
        });
        let known = known.await?;
        let said = chunks.iter().map(|chunk| {
            let title = chunk.title.as_deref();
            what_is_said(title, &chunk.text)
        });
        let plan = plan(&known, &said.collect::<Vec<_>>(), self.how.anew);
        let mut withheld = 0;
        for (at, (chunk, step)) in chunks.iter().zip(plan.steps).enumerate() {
            go_on()?;
            let first = u64::from(!self.is_again);
            let holds = match step {
                Step::Correct { id, number } => self.correct(name, id, number, chunk).await?,
                Step::Add { place, number } => self.add(origin, place, number, chunk).await?,
                Step::Keep => {
                    self.counts.unchanged += first;
                    true
                }
                Step::Leave | Step::Withhold => {
                    self.counts.left_out += first;
                    withheld += u64::from(step == Step::Withhold);
                    true
                }
            };
            if !holds {
                self.again.insert(name.to_owned());
                return Ok(());
            }
            progress(at + 1, chunks.len(), &self.counts);
        }
        if withheld > 0 {
            self.withheld.insert(name.to_owned(), withheld);
        }
        for id in plan.vanished {
            go_on()?;
            self.retract(name, id).await?;
        }
        Ok(())
    }

    /// Writes what is not written yet.
    ///
    /// # Errors
    /// The memory cannot be written.
    pub async fn flush(&mut self) -> Result<()> {
        self.write().await.map(drop)
    }

    /// The same; false if that was given up, as `still_holds` says: then what follows in the
    /// same file must be, too.
    async fn write(&mut self) -> Result<bool> {
        let batch = std::mem::take(&mut self.batch);
        let pending = std::mem::take(&mut self.pending);
        self.batch_bytes = 0;
        if batch.is_empty() {
            return Ok(true);
        }
        let ids = loop {
            match self.memory.add_if(self.seen, batch.clone()).await {
                Err(MemoryError::Moved { .. }) => {
                    self.again.extend(pending.iter().cloned());
                    let head = self.memory.version().await?;
                    if !self.still_holds(head.sequence).await? {
                        return Ok(false);
                    }
                }
                added => break added?,
            }
        };
        let seen = self.seen.sequence;
        let new = ids.iter().filter(|id| id.0 > seen).count();
        if new < ids.len() {
            // A key was taken, for whatever others found in the file.
            self.again.extend(pending);
        }
        self.counts.added += new as u64;
        let until = AsOf::Sequence(seen + new as u64);
        self.seen = self.memory.version_as_of(until).await?;
        Ok(true)
    }

    /// Looks at what others wrote up to here. False if something was taken away: it may be what is about
    /// to be written, so all of it is decided anew.
    async fn still_holds(&mut self, until: u64) -> Result<bool> {
        let (since, until) = (AsOf::Version(self.seen), AsOf::Sequence(until));
        let changes = self.memory.changes(since, until).await?;
        self.seen = self.memory.version_as_of(until).await?;
        let took_away =
            |change: &Change| matches!(change.what, Changed::Forgotten(_) | Changed::Retracted(_));
        Ok(!changes.iter().any(took_away))
    }

    /// The files that are to be brought in once more: others wrote to the memory at the same time.
    /// Whatever is brought in from now on was looked at before.
    pub fn take_again(&mut self) -> BTreeSet<String> {
        self.is_again = true;
        std::mem::take(&mut self.again)
    }

    /// Retracts the chunks of a file that is gone. What only names it as its source, as somebody's
    /// note may, is none.
    ///
    /// # Errors
    /// The memory cannot be written, or the command is to end.
    pub async fn gone(&mut self, name: &str) -> Result<()> {
        let origin = Origin {
            name,
            is_input: false,
        };
        let mut live = Vec::new();
        let walked = origin.walk(self.memory, |_, revisions| {
            let last = revisions.last().filter(|last| is_live(last));
            live.extend(last.map(|last| last.id));
        });
        walked.await?;
        for id in live {
            go_on()?;
            self.retract(name, id).await?;
        }
        Ok(())
    }

    async fn add(
        &mut self,
        origin: Origin<'_>,
        place: Place,
        number: usize,
        chunk: &Chunk,
    ) -> Result<bool> {
        let new = self.document(origin.name, number, chunk)?;
        self.batch.push(new.key(origin.key(place)));
        self.batch_bytes += chunk.text.len();
        self.pending.insert(origin.name.to_owned());
        if self.batch.len() >= BATCH_DOCUMENTS || self.batch_bytes >= BATCH_BYTES {
            return self.write().await;
        }
        Ok(true)
    }

    async fn correct(
        &mut self,
        name: &str,
        id: DocId,
        number: usize,
        chunk: &Chunk,
    ) -> Result<bool> {
        let head = match self.write().await? {
            true => self.memory.version().await?,
            false => return Ok(false),
        };
        if head != self.seen {
            self.again.insert(name.to_owned());
            if !self.still_holds(head.sequence).await? {
                return Ok(false);
            }
        }
        let new = self.document(name, number, chunk)?;
        match self.memory.correct(id, new).await {
            Err(MemoryError::Ended { .. }) => {
                self.again.insert(name.to_owned());
            }
            corrected => {
                let written = corrected?.0;
                self.counts.corrected += 1;
                return self.wrote(name, written).await;
            }
        }
        Ok(true)
    }

    async fn retract(&mut self, name: &str, id: DocId) -> Result<()> {
        self.flush().await?;
        match self.memory.retract(id, GONE).await {
            Err(MemoryError::Ended { .. }) => {
                self.again.insert(name.to_owned());
            }
            retracted => {
                let written = retracted?.sequence;
                self.wrote(name, written).await?;
                self.counts.retracted += 1;
            }
        }
        Ok(())
    }

    /// An event of its own; if it does not follow what was seen, others wrote, too. As `still_holds`.
    async fn wrote(&mut self, name: &str, sequence: u64) -> Result<bool> {
        let mut holds = true;
        if sequence != self.seen.sequence + 1 {
            self.again.insert(name.to_owned());
            holds = self.still_holds(sequence - 1).await?;
        }
        let until = AsOf::Sequence(sequence);
        self.seen = self.memory.version_as_of(until).await?;
        Ok(holds)
    }

    fn kind(&self) -> DocKind {
        let kind = self.how.about.kind.map(|kind| kind.kind());
        kind.unwrap_or(DocKind::Document)
    }

    fn document(&self, name: &str, number: usize, chunk: &Chunk) -> Result<NewDocument> {
        let source = format!("{name}#{number}");
        let mut new = NewDocument::new(self.kind(), &chunk.text).source(source);
        if let Some(title) = &chunk.title {
            new = new.title(title);
        }
        new = said(new, self.how.about);
        match self.model {
            Some(model) => model.apply(new, chunk.title.as_deref(), &chunk.text),
            None => Ok(new),
        }
    }

    /// Whether a chunk has what is said about it, but for its text.
    fn is_as_asked(&self, name: &str, kind: DocKind, there: &Content) -> bool {
        let about = self.how.about;
        let is_source = |source: &String| {
            let named = source.rsplit_once('#');
            named.is_some_and(|(file, _)| file == name)
        };
        kind == self.kind()
            && there.sources.len() == 1
            && there.sources.iter().all(is_source)
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
