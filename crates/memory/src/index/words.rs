//! Which words are in which documents, for one analyser.
//!
//! Each word has a list of the documents that have it, by number, and how often. Lists only grow at
//! their end, but for what is forgotten. So the documents of a version are a prefix of each list.
//!
//! Invariant: the lengths and lists are those of the documents that can be read, in their order,
//! whatever was forgotten in between.

use std::collections::{HashMap, HashSet};

use dalsegno_store::{Hash, Version};

use super::blob::{BlobReader, BlobWriter};
use super::table::{At, Table};
use crate::analyser::Analyser;
use crate::bm25::TF_LIMIT;
use crate::document::Content;

/// The documents that have a word.
#[derive(Debug, Default)]
pub(crate) struct List {
    pub docs: Vec<u32>,
    pub counts: Vec<u16>,
}

#[derive(Debug)]
pub(crate) struct WordIndex {
    pub analyser: Analyser,
    words: HashMap<Box<str>, u32>,
    lists: Vec<List>,
    /// How many words each document has.
    pub lengths: Vec<u32>,
    /// The same of all documents before each one.
    lengths_before: Vec<u64>,
    /// The same of all that ended, in the order in which they did.
    ended_before: Vec<u64>,
    /// How often each word comes in the document at hand: kept for its memory.
    counting: HashMap<u32, u32>,
}

impl WordIndex {
    pub fn new(analyser: Analyser) -> WordIndex {
        WordIndex {
            analyser,
            words: HashMap::new(),
            lists: Vec::new(),
            lengths: Vec::new(),
            lengths_before: vec![0],
            ended_before: vec![0],
            counting: HashMap::new(),
        }
    }

    /// How many documents it knows.
    pub fn documents(&self) -> u32 {
        self.lengths.len() as u32
    }

    /// Adds the next document; one without content has no words.
    pub fn add(&mut self, content: Option<&Content>) {
        let number = self.documents();
        let mut length = 0_u32;
        let mut counting = std::mem::take(&mut self.counting);
        if let Some(content) = content {
            let analyser = self.analyser;
            let mut count = |word: &str| {
                length = length.saturating_add(1);
                let number = match self.words.get(word) {
                    Some(number) => *number,
                    None => {
                        let next = self.lists.len() as u32;
                        self.words.insert(word.into(), next);
                        self.lists.push(List::default());
                        next
                    }
                };
                let seen = counting.entry(number).or_insert(0);
                *seen = seen.saturating_add(1);
            };
            if let Some(title) = &content.title {
                analyser.words(title, &mut count);
            }
            analyser.words(&content.text, &mut count);
        }
        for (word, count) in counting.drain() {
            let list = &mut self.lists[word as usize];
            list.docs.push(number);
            list.counts.push(count.min(TF_LIMIT) as u16);
        }
        self.counting = counting;
        self.lengths.push(length);
        let before = self.lengths_before.last().copied().unwrap_or(0);
        self.lengths_before.push(before + u64::from(length));
    }

    /// Counts what ended from the beginning: for an index that has just come to know all documents.
    pub fn restart(&mut self, table: &Table) {
        self.ended_before = vec![0];
        self.follow(table);
    }

    /// Takes notice of documents that ended.
    pub fn follow(&mut self, table: &Table) {
        for (_, doc) in table.ends.iter().skip(self.ended_before.len() - 1) {
            let before = self.ended_before.last().copied().unwrap_or(0);
            let length = self.lengths.get(*doc as usize).copied().unwrap_or(0);
            self.ended_before.push(before + u64::from(length));
        }
    }

    /// Removes documents that are forgotten. Call after the table has forgotten them.
    pub fn remove(&mut self, forgotten: &HashSet<u32>, table: &Table) {
        for doc in forgotten {
            if let Some(length) = self.lengths.get_mut(*doc as usize) {
                *length = 0;
            }
        }
        for list in &mut self.lists {
            if list.docs.iter().any(|doc| forgotten.contains(doc)) {
                let kept = list.docs.iter().zip(&list.counts);
                let kept = kept.filter(|(doc, _)| !forgotten.contains(doc));
                let (docs, counts) = kept.map(|(doc, count)| (*doc, *count)).unzip();
                *list = List { docs, counts };
            }
        }
        // A word that nothing has any more is nowhere.
        let lists = &self.lists;
        self.words
            .retain(|_, number| !lists[*number as usize].docs.is_empty());
        let mut before = 0;
        self.lengths_before = vec![0];
        for length in &self.lengths {
            before += u64::from(*length);
            self.lengths_before.push(before);
        }
        self.restart(table);
    }

    /// How many words the documents of a version had together.
    pub fn total(&self, at: &At) -> u64 {
        self.lengths_before[at.born as usize] - self.ended_before[at.ended]
    }

    /// The documents that have a word.
    pub fn list(&self, word: &str) -> Option<&List> {
        let number = self.words.get(word)?;
        self.lists.get(*number as usize)
    }
}

impl List {
    /// Those that were born at a version, and how many of them were there.
    pub fn at(&self, table: &Table, at: &At) -> (usize, u64) {
        let born = self.docs.partition_point(|doc| *doc < at.born);
        if at.ended == 0 {
            return (born, born as u64);
        }
        let sequence = at.version.sequence;
        let there = self.docs[..born].iter();
        let there = there.filter(|doc| table.deaths[**doc as usize] > sequence);
        (born, there.count() as u64)
    }
}

impl WordIndex {
    /// As bytes; words in their order, so that the same index gives the same bytes.
    pub fn encode(&self, of: &Hash, version: Version) -> Vec<u8> {
        let mut writer = BlobWriter::new(of, version);
        writer.number(self.lengths.len() as u64);
        writer.numbers_u32(&self.lengths);
        let mut words: Vec<(&str, &List)> = self
            .words
            .iter()
            .map(|(word, number)| (&**word, &self.lists[*number as usize]))
            .collect();
        words.sort_unstable_by_key(|(word, _)| *word);
        writer.number(words.len() as u64);
        let lengths: Vec<u16> = words.iter().map(|(word, _)| word.len() as u16).collect();
        writer.numbers_u16(&lengths);
        let counts: Vec<u32> = words.iter().map(|(_, l)| l.docs.len() as u32).collect();
        writer.numbers_u32(&counts);
        words
            .iter()
            .for_each(|(word, _)| writer.bytes(word.as_bytes()));
        words
            .iter()
            .for_each(|(_, list)| writer.numbers_u32(&list.docs));
        words
            .iter()
            .for_each(|(_, list)| writer.numbers_u16(&list.counts));
        writer.finish()
    }

    /// The index and the version that it is of; `None` if the bytes are anything else.
    pub fn decode(bytes: &[u8], of: &Hash, analyser: Analyser) -> Option<(WordIndex, Version)> {
        let mut reader = BlobReader::open(bytes, of)?;
        let mut index = WordIndex::new(analyser);
        let documents = reader.count(4)?;
        index.lengths = reader.numbers_u32(documents)?;
        let mut before = 0;
        for length in &index.lengths {
            before += u64::from(*length);
            index.lengths_before.push(before);
        }
        let words = reader.count(6)?;
        let lengths = reader.numbers_u16(words)?;
        let counts = reader.numbers_u32(words)?;
        index.words.reserve(words);
        for (length, number) in lengths.iter().zip(0..) {
            let word = std::str::from_utf8(reader.take(usize::from(*length))?).ok()?;
            index.words.insert(word.into(), number);
        }
        for count in &counts {
            let docs = reader.numbers_u32(*count as usize)?;
            if docs.last().is_some_and(|last| *last as usize >= documents) {
                return None;
            }
            let counts = Vec::new();
            index.lists.push(List { docs, counts });
        }
        for (list, count) in index.lists.iter_mut().zip(&counts) {
            list.counts = reader.numbers_u16(*count as usize)?;
        }
        reader.end()?;
        Some((index, reader.version))
    }
}
