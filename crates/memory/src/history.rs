//! Reading a memory: documents, lists, revisions, changes, and search.

use std::collections::HashMap;

use dalsegno_store::engine::forgotten_by;
use dalsegno_store::{Kind, StoreError, Version};

use crate::config::RankingConfig;
use crate::document::{Content, DocId, DocKind, Document, Ended, HowEnded, within};
use crate::error::MemoryError;
use crate::index::Table;
use crate::memory::Memory;
use crate::query::{AsOf, Filter, HITS_LIMIT, Hit, Hits, LeftOut, QUERY_LIMIT_BYTES, Query};
use crate::record;
use crate::search::{self, Asked, Found, Means, Searched};

/// So often a search is made again because others forget what it found.
const TRIES: usize = 100;
const NEVER: u64 = u64::MAX;
/// So many changes are read at a time.
const PAGE_EVENTS: usize = 1000;

/// One of several documents of which each corrects the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Revision {
    /// Which document.
    pub id: DocId,
    /// What it is.
    pub kind: DocKind,
    /// When it was recorded, in microseconds since 1970.
    pub recorded_us: u64,
    /// What it says; `None` if that is forgotten.
    pub content: Option<Content>,
    /// What became of it.
    pub ended: Option<Ended>,
}

/// Something that happened to a memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The version after it.
    pub sequence: u64,
    /// When, in microseconds since 1970.
    pub at_us: u64,
    /// Who did it.
    pub by: Option<String>,
    /// Why, if it was said.
    pub reason: Option<String>,
    /// What.
    pub what: Changed,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Changed {
    /// A document was added.
    Added(DocId),
    /// A document was put in the place of another.
    Corrected {
        /// The one before.
        old: DocId,
        /// The one there is now.
        new: DocId,
    },
    /// A document is not so any more.
    Retracted(DocId),
    /// Documents were forgotten.
    Forgotten(Vec<DocId>),
}

/// How a document ended and the event that says so; that it is forgotten counts before all else.
pub(crate) fn ending_of(table: &Table, number: u32) -> Option<(HowEnded, u64)> {
    let doc = &table.docs[number as usize];
    let death = table.deaths[number as usize];
    match (doc.forgotten, death) {
        (NEVER, NEVER) => None,
        (NEVER, death) if doc.is_corrected => Some((HowEnded::Corrected(DocId(death)), death)),
        (NEVER, death) => Some((HowEnded::Retracted, death)),
        (forgotten, _) => Some((HowEnded::Forgotten, forgotten)),
    }
}

fn too_busy() -> StoreError {
    StoreError::Backend("others forget all the time what it finds: try again".into())
}

impl Memory {
    pub(crate) async fn ended(&self, how: HowEnded, sequence: u64) -> Result<Ended, StoreError> {
        let stream = &self.inner.stream;
        let events = self.inner.store.events(stream, sequence, 1).await?;
        let event = events.first();
        Ok(Ended {
            how,
            sequence,
            at_us: event.map_or(0, |event| event.time_us),
            by: event.and_then(record::by).map(str::to_owned),
            reason: event.and_then(record::reason).map(str::to_owned),
        })
    }

    fn not_found(&self, id: DocId) -> MemoryError {
        let memory = self.inner.stream.clone();
        MemoryError::NotFound { memory, id }
    }

    /// A document, as it is now.
    ///
    /// # Errors
    /// It is not there, or forgotten: then [`MemoryError::Ended`] says by whom and when.
    pub async fn get(&self, id: DocId) -> Result<Document, MemoryError> {
        for _ in 0..TRIES {
            self.inner.follow(&HashMap::new()).await?;
            let number = self.inner.read().table.find(id.0);
            let number = number.ok_or_else(|| self.not_found(id))?;
            if let Some(found) = self.documents(&[number]).await? {
                return { found }.pop().ok_or_else(|| self.not_found(id));
            }
            let ended = ending_of(&self.inner.read().table, number);
            if let Some((HowEnded::Forgotten, sequence)) = ended {
                let ended = self.ended(HowEnded::Forgotten, sequence).await?;
                let ended = Box::new(ended);
                return Err(MemoryError::Ended { id, ended });
            }
        }
        Err(too_busy().into())
    }

    /// What documents say, in the order given; of each that is forgotten, by whom and when. For who
    /// has noted ids, as a run has of what it found.
    ///
    /// # Errors
    /// One of them was never there, or the store failed.
    pub async fn contents_of(
        &self,
        ids: &[DocId],
    ) -> Result<Vec<Result<Content, Ended>>, MemoryError> {
        for _ in 0..TRIES {
            self.inner.follow(&HashMap::new()).await?;
            let mut readable = Vec::new();
            let mut endings = Vec::with_capacity(ids.len());
            {
                let state = self.inner.read();
                let table = &state.table;
                for id in ids {
                    let number = table.find(id.0).ok_or_else(|| self.not_found(*id))?;
                    let ending = ending_of(table, number);
                    let ending = ending.filter(|(how, _)| *how == HowEnded::Forgotten);
                    if ending.is_none() {
                        readable.push(number);
                    }
                    endings.push(ending);
                }
            }
            let Some(contents) = self.contents(&readable).await? else {
                continue;
            };
            let mut contents = contents.into_iter();
            let mut said = Vec::with_capacity(ids.len());
            for (id, ending) in ids.iter().zip(endings) {
                said.push(match ending {
                    Some((how, sequence)) => Err(self.ended(how, sequence).await?),
                    None => Ok(contents.next().ok_or_else(|| self.not_found(*id))?),
                });
            }
            return Ok(said);
        }
        Err(too_busy().into())
    }

    /// The version that is meant, if this memory has or had it.
    ///
    /// # Errors
    /// There is no such version, or it is of another history.
    pub async fn version_at(&self, as_of: AsOf) -> Result<Version, MemoryError> {
        self.inner.follow(&HashMap::new()).await?;
        self.version_of(&self.inner.read().table, as_of)
    }

    /// Documents by their numbers; `None` if one of them cannot be read any more.
    async fn documents(&self, numbers: &[u32]) -> Result<Option<Vec<Document>>, MemoryError> {
        let Some(contents) = self.contents(numbers).await? else {
            return Ok(None);
        };
        let mut documents = Vec::with_capacity(numbers.len());
        for (number, content) in numbers.iter().zip(contents) {
            let (doc, ending) = {
                let state = self.inner.read();
                let doc = state.table.docs[*number as usize].clone();
                (doc, ending_of(&state.table, *number))
            };
            let stream = &self.inner.stream;
            let events = self.inner.store.events(stream, doc.sequence, 1).await?;
            let ended = match ending {
                Some((how, sequence)) => Some(self.ended(how, sequence).await?),
                None => None,
            };
            documents.push(Document {
                id: DocId(doc.sequence),
                number: *number,
                kind: doc.kind,
                content,
                by: events.first().and_then(record::by).map(str::to_owned),
                recorded_us: doc.time_us,
                corrects: (doc.corrects > 0).then_some(DocId(doc.corrects)),
                ended,
            });
        }
        Ok(Some(documents))
    }

    /// The contents of documents; `None` if one of them is forgotten by now.
    async fn contents(&self, numbers: &[u32]) -> Result<Option<Vec<Content>>, MemoryError> {
        let roots = {
            let state = self.inner.read();
            let docs = numbers.iter().map(|n| &state.table.docs[*n as usize]);
            let roots = docs.map(|doc| doc.is_readable.then_some((doc.root, doc.payload_bytes)));
            roots.collect::<Option<Vec<_>>>()
        };
        let Some(roots) = roots else {
            return Ok(None);
        };
        match self.inner.contents(&roots).await {
            Ok(contents) => Ok(contents.into_iter().collect()),
            Err(e) => {
                // Forgotten while it was read?
                self.inner.follow(&HashMap::new()).await?;
                let state = self.inner.read();
                let mut docs = numbers.iter().map(|n| &state.table.docs[*n as usize]);
                match docs.all(|doc| doc.is_readable) {
                    true => Err(e.into()),
                    false => Ok(None),
                }
            }
        }
    }

    /// The documents of a version that a filter wants, in the order in which they were added: after
    /// this one, at most so many.
    ///
    /// # Errors
    /// There is no such version, or the store failed.
    pub async fn list(
        &self,
        filter: &Filter,
        as_of: AsOf,
        after: Option<DocId>,
        limit: usize,
    ) -> Result<Vec<Document>, MemoryError> {
        for _ in 0..TRIES {
            self.inner.follow(&HashMap::new()).await?;
            let numbers = {
                let state = self.inner.read();
                let searched = Searched {
                    table: &state.table,
                    words: None,
                    vectors: None,
                    at: state.table.at(self.version_of(&state.table, as_of)?),
                };
                let mut numbers = search::list(&searched, filter, after.map(|id| id.0));
                numbers.truncate(limit);
                numbers
            };
            if let Some(documents) = self.documents(&numbers).await? {
                return Ok(documents);
            }
        }
        Err(too_busy().into())
    }

    /// All documents of which each corrects the one before, the oldest first: the one that is asked
    /// for, what came before it, and what came after.
    ///
    /// # Errors
    /// There is no such document, or the store failed.
    pub async fn history(&self, id: DocId) -> Result<Vec<Revision>, MemoryError> {
        self.inner.follow(&HashMap::new()).await?;
        let numbers = {
            let state = self.inner.read();
            let table = &state.table;
            let mut first = table.find(id.0).ok_or_else(|| self.not_found(id))?;
            while let Some(before) = table.find(table.docs[first as usize].corrects) {
                first = before;
            }
            let mut all = vec![first];
            let mut at = first;
            while let (true, Some(next)) = (
                table.docs[at as usize].is_corrected,
                table.find(table.deaths[at as usize]),
            ) {
                all.push(next);
                at = next;
            }
            all
        };
        let mut revisions = Vec::new();
        for number in numbers {
            let content = self.contents(&[number]).await?;
            let (doc, ending) = {
                let state = self.inner.read();
                let doc = state.table.docs[number as usize].clone();
                (doc, ending_of(&state.table, number))
            };
            revisions.push(Revision {
                id: DocId(doc.sequence),
                kind: doc.kind,
                recorded_us: doc.time_us,
                content: content.and_then(|mut content| content.pop()),
                ended: match ending {
                    Some((how, sequence)) => Some(self.ended(how, sequence).await?),
                    None => None,
                },
            });
        }
        Ok(revisions)
    }

    /// What happened after one version, up to another one that may be the newest.
    ///
    /// # Errors
    /// There is no such version, or the store failed.
    pub async fn changes(&self, after: AsOf, until: AsOf) -> Result<Vec<Change>, MemoryError> {
        self.inner.follow(&HashMap::new()).await?;
        let (after, until) = {
            let state = self.inner.read();
            let after = self.version_of(&state.table, after)?;
            (
                after.sequence,
                self.version_of(&state.table, until)?.sequence,
            )
        };
        let mut changes = Vec::new();
        let mut at = after;
        while at < until {
            let limit = PAGE_EVENTS.min(usize::try_from(until - at).unwrap_or(usize::MAX));
            let stream = &self.inner.stream;
            let page = self.inner.store.events(stream, at + 1, limit).await?;
            if page.is_empty() {
                break;
            }
            at += page.len() as u64;
            for event in &page {
                let id = DocId(event.sequence);
                let subject = record::subject(event).map(DocId);
                let what = match (record::added(event), subject) {
                    (Some(_), Some(old)) => Changed::Corrected { old, new: id },
                    (Some(_), None) => Changed::Added(id),
                    (None, Some(old)) if event.kind == Kind::MemoryRetracted => {
                        Changed::Retracted(old)
                    }
                    _ if event.kind == Kind::MemoryForgotten => {
                        Changed::Forgotten(forgotten_by(event).map(DocId).collect())
                    }
                    _ => continue,
                };
                changes.push(Change {
                    sequence: event.sequence,
                    at_us: event.time_us,
                    by: record::by(event).map(str::to_owned),
                    reason: record::reason(event).map(str::to_owned),
                    what,
                });
            }
        }
        Ok(changes)
    }

    /// The version that is meant, if this memory has or had it.
    pub(crate) fn version_of(&self, table: &Table, as_of: AsOf) -> Result<Version, MemoryError> {
        let head = table.head();
        let memory = || self.inner.stream.clone();
        let (sequence, hash) = match as_of {
            AsOf::Now => return Ok(head),
            AsOf::Sequence(sequence) => (sequence, None),
            AsOf::Version(version) => (version.sequence, Some(version.hash)),
        };
        let Some(found) = table.version(sequence) else {
            return Err(MemoryError::NoVersion {
                memory: memory(),
                asked: sequence,
                head: head.sequence,
            });
        };
        match hash.filter(|asked| *asked != found.hash) {
            None => Ok(found),
            Some(asked) => Err(MemoryError::OtherHistory {
                memory: memory(),
                sequence,
                asked,
                found: found.hash,
            }),
        }
    }

    /// Finds documents. A pure function of the version, the query and the ranking: the same hits in
    /// the same order with the same scores, today and in ten years, on every machine and store.
    ///
    /// What was forgotten is the exception: it is gone at every version, and
    /// [`Hits::forgotten_since`] says how much that is.
    ///
    /// # Errors
    /// There is no such version, the query or the configuration is over its limits, its vector has
    /// another dimension or is of another model, or the store failed. A query without words is no error: it has no hits.
    pub async fn search(&self, query: &Query, config: &RankingConfig) -> Result<Hits, MemoryError> {
        config.check()?;
        let text = query.text.as_deref().unwrap_or_default();
        within("a query", text.len(), QUERY_LIMIT_BYTES)?;
        within("what a search is to find", query.hits(), HITS_LIMIT)?;
        let asked = Asked::new(config, text);
        let model = config.model.as_deref().filter(|_| query.vector.is_some());
        let hash = config.hash();
        for _ in 0..TRIES {
            self.inner.follow(&HashMap::new()).await?;
            let has_vectors = {
                let state = self.inner.read();
                let version = self.version_of(&state.table, query.as_of)?;
                state.table.dimension_at(version).is_some()
            };
            // A version before the first vector knew no model, and took any.
            self.check_model(model.filter(|_| has_vectors)).await?;
            self.prepare(query, config, &asked).await?;
            let Some((found, mut hits)) = self.find(query, config, &asked)? else {
                continue;
            };
            hits.config = hash;
            let numbers: Vec<u32> = found.iter().map(|found| found.number).collect();
            let Some(contents) = self.contents(&numbers).await? else {
                continue;
            };
            let state = self.inner.read();
            let ranked = (1..).zip(found).zip(contents);
            hits.hits = ranked
                .map(|((rank, found), content)| {
                    let doc = &state.table.docs[found.number as usize];
                    Hit {
                        rank,
                        id: DocId(doc.sequence),
                        number: found.number,
                        score: found.score,
                        kind: doc.kind,
                        recorded_us: doc.time_us,
                        content,
                        explanation: found.explanation,
                    }
                })
                .collect();
            hits.words = asked.words.into_iter().map(|(word, _)| word).collect();
            hits.words_left_out = asked.left_out;
            return Ok(hits);
        }
        Err(too_busy().into())
    }

    /// Sees to it that the indexes that a search needs know all documents.
    async fn prepare(
        &self,
        query: &Query,
        config: &RankingConfig,
        asked: &Asked,
    ) -> Result<(), MemoryError> {
        let (words, vectors) = {
            let state = self.inner.read();
            let documents = state.table.docs.len() as u32;
            let words = state.words.get(&config.analyser);
            let words = words.is_some_and(|words| words.documents() == documents);
            let vectors = state.vectors.as_ref();
            let vectors = vectors.is_some_and(|vectors| vectors.documents() == documents);
            (words, vectors)
        };
        if !asked.words.is_empty() && !words {
            self.inner.complete_words(config.analyser).await?;
        }
        let Some(vector) = &query.vector else {
            return Ok(());
        };
        let dimension = {
            let state = self.inner.read();
            let version = self.version_of(&state.table, query.as_of)?;
            state.table.dimension_at(version)
        };
        match dimension {
            Some(expected) if expected != vector.dimension() => Err(MemoryError::Dimension {
                memory: self.inner.stream.clone(),
                expected,
                found: vector.dimension(),
            }),
            // Also for a version without vectors: an index that somebody is just making is not searched.
            _ if !vectors => Ok(self.inner.complete_vectors().await?),
            _ => Ok(()),
        }
    }

    /// The documents that fit, and what is known of the search so far; `None` if an index has
    /// fallen behind since it was looked at.
    fn find(
        &self,
        query: &Query,
        config: &RankingConfig,
        asked: &Asked,
    ) -> Result<Option<(Vec<Found>, Hits)>, MemoryError> {
        let state = self.inner.read();
        let table = &state.table;
        let at = table.at(self.version_of(table, query.as_of)?);
        let searched = Searched {
            table,
            words: state.words.get(&config.analyser),
            vectors: state.vectors.as_ref(),
            at,
        };
        let behind = |known: u32| known < table.docs.len() as u32;
        let words = searched.words.filter(|_| !asked.words.is_empty());
        let vectors = searched.vectors.filter(|_| query.vector.is_some());
        if words.is_some_and(|words| behind(words.documents()))
            || vectors.is_some_and(|vectors| behind(vectors.documents()))
        {
            return Ok(None);
        }
        let means = Means {
            way: self.inner.way,
            threads: self.inner.threads,
            scratch: &self.inner.scratch,
        };
        let mut found = search::search(&searched, query, config, asked, &means);
        let mut left_out = Vec::new();
        if let Some(limit) = query.context_bytes {
            let mut bytes = 0;
            let fits = found.iter().take_while(|found| {
                bytes += u64::from(table.docs[found.number as usize].text_bytes);
                bytes <= limit
            });
            let fits = fits.count();
            let over = found.split_off(fits);
            left_out = (fits as u32 + 1..)
                .zip(over)
                .map(|(rank, found)| {
                    let doc = &table.docs[found.number as usize];
                    LeftOut {
                        id: DocId(doc.sequence),
                        rank,
                        bytes: u64::from(doc.text_bytes),
                    }
                })
                .collect();
        }
        let hits = Hits {
            version: at.version,
            config: dalsegno_store::Hash::ZERO,
            hits: Vec::new(),
            left_out,
            forgotten_since: at.forgotten_since,
            words: Vec::new(),
            words_left_out: 0,
        };
        Ok(Some((found, hits)))
    }
}
