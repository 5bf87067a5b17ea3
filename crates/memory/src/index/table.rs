//! The documents of a memory: born, ended, forgotten; and what filters ask for.

use std::collections::{HashMap, HashSet};

use dalsegno_store::engine::{forgotten_by, roots_of};
use dalsegno_store::{Body, Event, Hash, Kind, Version};

use super::blob::{BlobReader, BlobWriter};
use crate::document::{Content, DocKind, Scope};
use crate::record;

/// Never.
pub(crate) const NEVER: u64 = u64::MAX;

/// One document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doc {
    /// The event that added it.
    pub sequence: u64,
    pub time_us: u64,
    pub kind: DocKind,
    /// Its content, and how many bytes that has as it is stored.
    pub root: Hash,
    pub payload_bytes: u64,
    /// The event it corrects, or 0.
    pub corrects: u64,
    /// It was ended by a correction, and not retracted.
    pub is_corrected: bool,
    /// The event that says it is forgotten.
    pub forgotten: u64,
    /// Its content can be read. False for what is forgotten.
    pub is_readable: bool,
    pub text_bytes: u32,
    pub confidence: u16,
    pub scope: u32,
    pub tags: Box<[u32]>,
    pub valid_from_us: i64,
    pub valid_until_us: i64,
}

/// What an event did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Folded {
    /// It added the document with this number.
    Added(u32),
    /// Documents were forgotten.
    Forgot,
    /// Anything else.
    Other,
}

/// What there was at a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub version: Version,
    /// Documents from 0 to here were born.
    pub born: u32,
    /// How many of those that ended, in the order in which they did, had ended.
    pub ended: usize,
    /// How many there were.
    pub documents: u64,
    /// How many of these are forgotten since.
    pub forgotten_since: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The hash of the stream after each event.
    hashes: Vec<Hash>,
    pub docs: Vec<Doc>,
    /// For each document, the event that ended it.
    pub deaths: Vec<u64>,
    /// How many of the documents before each one count.
    counted: Vec<u32>,
    /// Documents that count and ended, by the event that ended them.
    pub ends: Vec<(u64, u32)>,
    /// How many dimensions the vectors of this memory have, and the event that said so first.
    first_vector: Option<(usize, u64)>,
    pub keys: HashMap<String, u64>,
    /// Documents that are forgotten.
    forgotten: Vec<u32>,
    labels: Vec<String>,
    label_numbers: HashMap<String, u32>,
    /// Events that forget, and those up to which the store has removed what they name.
    pub forgets: Vec<u64>,
    pub erased_until: u64,
}

impl Table {
    pub fn new() -> Table {
        Table {
            counted: vec![0],
            ..Table::default()
        }
    }

    pub fn head(&self) -> Version {
        match self.hashes.last() {
            Some(hash) => Version {
                sequence: self.hashes.len() as u64,
                hash: *hash,
            },
            None => Version::START,
        }
    }

    /// The version at a sequence that there is.
    pub fn version(&self, sequence: u64) -> Option<Version> {
        let hash = match sequence.checked_sub(1) {
            None => Hash::ZERO,
            Some(at) => *self.hashes.get(usize::try_from(at).ok()?)?,
        };
        Some(Version { sequence, hash })
    }

    /// How many dimensions vectors have.
    pub fn dimension(&self) -> Option<usize> {
        self.first_vector.map(|(dimension, _)| dimension)
    }

    /// How many dimensions vectors have, as far as a version knew.
    pub fn dimension_at(&self, version: Version) -> Option<usize> {
        let known = self.first_vector.filter(|(_, at)| *at <= version.sequence);
        known.map(|(dimension, _)| dimension)
    }

    /// The event with the first vector.
    pub fn first_vector_at(&self) -> Option<u64> {
        self.first_vector.map(|(_, at)| at)
    }

    /// What there was then.
    pub fn at(&self, version: Version) -> At {
        let sequence = version.sequence;
        let born = self.docs.partition_point(|doc| doc.sequence <= sequence);
        let ended = self.ends.partition_point(|(end, _)| *end <= sequence);
        let was_there = |number: &&u32| {
            let at = **number as usize;
            at < born && self.docs[at].forgotten > sequence && self.deaths[at] > sequence
        };
        let forgotten_since = self.forgotten.iter().filter(was_there).count() as u64;
        At {
            version,
            born: born as u32,
            ended,
            documents: u64::from(self.counted[born]) - ended as u64,
            forgotten_since,
        }
    }

    /// Whether a document was there, and is not forgotten since.
    pub fn is_there(&self, at: &At, doc: u32) -> bool {
        doc < at.born
            && self.docs[doc as usize].is_readable
            && self.deaths[doc as usize] > at.version.sequence
    }

    /// The number of the document that an event added.
    pub fn find(&self, sequence: u64) -> Option<u32> {
        let found = self
            .docs
            .binary_search_by_key(&sequence, |doc| doc.sequence);
        found.ok().map(|at| at as u32)
    }

    /// The number of a tag that some document has had.
    pub fn tag(&self, tag: &str) -> Option<u32> {
        self.label_numbers.get(&tag_label(tag)).copied()
    }

    /// The same of a scope.
    pub fn scope(&self, scope: &Scope) -> Option<u32> {
        self.label_numbers.get(&scope_label(scope)).copied()
    }

    fn intern(&mut self, label: String) -> u32 {
        let next = self.labels.len() as u32;
        let number = *self.label_numbers.entry(label.clone()).or_insert(next);
        if number == next {
            self.labels.push(label);
        }
        number
    }

    /// Takes in the next event. `content` is what it added, if that can be read.
    pub fn fold(&mut self, event: &Event, hash: Hash, content: Option<&Content>) -> Folded {
        self.hashes.push(hash);
        if let Some(dimension) = record::dimension(event) {
            self.first_vector.get_or_insert((dimension, event.sequence));
        }
        if let Some(kind) = record::added(event) {
            return self.add(event, kind, content);
        }
        match event.kind {
            Kind::MemoryRetracted => self.end(record::subject(event), event.sequence, false),
            Kind::MemoryForgotten => {
                self.forgets.push(event.sequence);
                let named: HashSet<u64> = forgotten_by(event).collect();
                self.forget(&named, event.sequence);
                return Folded::Forgot;
            }
            _ => {}
        }
        Folded::Other
    }

    fn add(&mut self, event: &Event, kind: DocKind, content: Option<&Content>) -> Folded {
        let number = self.docs.len() as u32;
        let corrects = record::subject(event).unwrap_or(0);
        self.end(Some(corrects), event.sequence, true);
        if let Some(key) = record::key(event) {
            self.keys.entry(key.to_owned()).or_insert(event.sequence);
        }
        let body = event.input.as_ref().map(|payload| &payload.body);
        let mut doc = Doc {
            sequence: event.sequence,
            time_us: event.time_us,
            kind,
            root: roots_of(event).next().unwrap_or(Hash::ZERO),
            payload_bytes: match body {
                Some(Body::Stored { bytes, .. }) => *bytes,
                _ => 0,
            },
            corrects,
            is_corrected: false,
            forgotten: NEVER,
            is_readable: false,
            text_bytes: 0,
            confidence: 0,
            scope: 0,
            tags: Box::default(),
            valid_from_us: i64::MIN,
            valid_until_us: i64::MAX,
        };
        if let Some(content) = content {
            doc.is_readable = true;
            doc.text_bytes = content.text.len() as u32;
            doc.confidence = content.confidence;
            doc.scope = self.intern(scope_label(&content.scope));
            let tags = content.tags.iter();
            doc.tags = tags.map(|tag| self.intern(tag_label(tag))).collect();
            doc.valid_from_us = content.valid_from_us.unwrap_or(i64::MIN);
            doc.valid_until_us = content.valid_until_us.unwrap_or(i64::MAX);
        }
        let counted = self.counted.last().copied().unwrap_or(0);
        self.counted.push(counted + u32::from(doc.is_readable));
        self.docs.push(doc);
        self.deaths.push(NEVER);
        Folded::Added(number)
    }

    /// Ends a document. The first to end it has; what came second changes nothing.
    fn end(&mut self, subject: Option<u64>, sequence: u64, is_corrected: bool) {
        let Some(number) = subject.and_then(|subject| self.find(subject)) else {
            return;
        };
        let at = number as usize;
        if self.deaths[at] == NEVER && self.docs[at].forgotten == NEVER {
            self.deaths[at] = sequence;
            self.docs[at].is_corrected = is_corrected;
            if self.docs[at].is_readable {
                self.ends.push((sequence, number));
            }
        }
    }

    fn forget(&mut self, named: &HashSet<u64>, sequence: u64) {
        for subject in named {
            let Some(number) = self.find(*subject) else {
                continue;
            };
            let doc = &mut self.docs[number as usize];
            if doc.forgotten == NEVER {
                self.forgotten.push(number);
            }
            doc.forgotten = doc.forgotten.min(sequence);
            doc.is_readable = false;
            (doc.text_bytes, doc.confidence, doc.scope) = (0, 0, 0);
            doc.tags = Box::default();
            (doc.valid_from_us, doc.valid_until_us) = (i64::MIN, i64::MAX);
        }
        let docs = &self.docs;
        self.ends
            .retain(|(_, number)| docs[*number as usize].is_readable);
        self.recount();
    }

    fn recount(&mut self) {
        let mut count = 0;
        self.counted = vec![0];
        for doc in &self.docs {
            count += u32::from(doc.is_readable);
            self.counted.push(count);
        }
    }

    /// The documents that were forgotten after a version.
    pub fn forgotten_after(&self, sequence: u64) -> HashSet<u32> {
        let all = self.forgotten.iter().copied();
        all.filter(|number| self.docs[*number as usize].forgotten > sequence)
            .collect()
    }
}

/// Scopes and tags have one list of labels, and must not meet in it.
fn scope_label(scope: &Scope) -> String {
    format!("s{scope}")
}

fn tag_label(tag: &str) -> String {
    format!("t{tag}")
}

const READABLE: u64 = 1;
const CORRECTED: u64 = 2;

impl Table {
    /// As bytes; only with labels that a document still has.
    pub fn encode(&self, of: &Hash) -> Vec<u8> {
        let mut writer = BlobWriter::new(of, self.head());
        writer.number(self.hashes.len() as u64);
        self.hashes.iter().for_each(|hash| writer.hash(hash));
        let mut used: Vec<u32> = Vec::new();
        let mut renumbered: HashMap<u32, u64> = HashMap::new();
        let mut renumber = |label: u32| {
            *renumbered.entry(label).or_insert_with(|| {
                used.push(label);
                used.len() as u64 - 1
            })
        };
        let mut docs = BlobWriter::new(of, Version::START);
        let start = docs.len();
        for (doc, death) in self.docs.iter().zip(&self.deaths) {
            let kind = doc.kind.event_kind().number().unwrap_or(0);
            let flags =
                u64::from(doc.is_readable) * READABLE + u64::from(doc.is_corrected) * CORRECTED;
            for number in [
                doc.sequence,
                doc.time_us,
                kind,
                flags,
                *death,
                doc.forgotten,
                doc.corrects,
                doc.payload_bytes,
            ] {
                docs.number(number);
            }
            docs.hash(&doc.root);
            if doc.is_readable {
                docs.number(u64::from(doc.text_bytes));
                docs.number(u64::from(doc.confidence));
                docs.number(renumber(doc.scope));
                docs.number(doc.valid_from_us as u64);
                docs.number(doc.valid_until_us as u64);
                docs.number(doc.tags.len() as u64);
                doc.tags.iter().for_each(|tag| docs.number(renumber(*tag)));
            }
        }
        writer.number(used.len() as u64);
        for label in used {
            writer.text(&self.labels[label as usize]);
        }
        writer.number(self.docs.len() as u64);
        writer.bytes(docs.from(start));
        let (dimension, at) = self.first_vector.unwrap_or((0, 0));
        writer.number(dimension as u64);
        writer.number(at);
        let mut keys: Vec<_> = self.keys.iter().collect();
        keys.sort_unstable();
        writer.number(keys.len() as u64);
        for (key, sequence) in keys {
            writer.text(key);
            writer.number(*sequence);
        }
        writer.number(self.forgets.len() as u64);
        self.forgets.iter().for_each(|at| writer.number(*at));
        writer.number(self.erased_until);
        writer.finish()
    }

    /// `None` if the bytes are anything else.
    pub fn decode(bytes: &[u8], of: &Hash) -> Option<Table> {
        let mut reader = BlobReader::open(bytes, of)?;
        let mut table = Table::new();
        for _ in 0..reader.count(32)? {
            table.hashes.push(reader.hash()?);
        }
        if table.head() != reader.version {
            return None;
        }
        for _ in 0..reader.count(8)? {
            let label = reader.text()?.to_owned();
            table.intern(label);
        }
        let docs = reader.count(96)?;
        table.docs.reserve(docs);
        for _ in 0..docs {
            let (doc, death) = read_doc(&mut reader)?;
            if doc.forgotten != NEVER {
                table.forgotten.push(table.docs.len() as u32);
            }
            if death != NEVER && doc.is_readable {
                table.ends.push((death, table.docs.len() as u32));
            }
            table.docs.push(doc);
            table.deaths.push(death);
        }
        table.ends.sort_unstable();
        table.recount();
        let dimension = usize::try_from(reader.number()?).ok()?;
        let at = reader.number()?;
        table.first_vector = (dimension > 0).then_some((dimension, at));
        for _ in 0..reader.count(16)? {
            let key = reader.text()?.to_owned();
            table.keys.insert(key, reader.number()?);
        }
        for _ in 0..reader.count(8)? {
            table.forgets.push(reader.number()?);
        }
        table.erased_until = reader.number()?;
        reader.end()?;
        Some(table)
    }
}

fn read_doc(reader: &mut BlobReader<'_>) -> Option<(Doc, u64)> {
    let sequence = reader.number()?;
    let time_us = reader.number()?;
    let kind = DocKind::of_event(&Kind::from_number(reader.number()?))?;
    let flags = reader.number()?;
    let death = reader.number()?;
    let mut doc = Doc {
        sequence,
        time_us,
        kind,
        forgotten: reader.number()?,
        corrects: reader.number()?,
        payload_bytes: reader.number()?,
        root: reader.hash()?,
        is_corrected: flags & CORRECTED != 0,
        is_readable: flags & READABLE != 0,
        text_bytes: 0,
        confidence: 0,
        scope: 0,
        tags: Box::default(),
        valid_from_us: i64::MIN,
        valid_until_us: i64::MAX,
    };
    if doc.is_readable {
        doc.text_bytes = u32::try_from(reader.number()?).ok()?;
        doc.confidence = u16::try_from(reader.number()?).ok()?;
        doc.scope = u32::try_from(reader.number()?).ok()?;
        doc.valid_from_us = reader.number()? as i64;
        doc.valid_until_us = reader.number()? as i64;
        let mut tags = Vec::new();
        for _ in 0..reader.count(8)? {
            tags.push(u32::try_from(reader.number()?).ok()?);
        }
        doc.tags = tags.into();
    }
    Some((doc, death))
}
