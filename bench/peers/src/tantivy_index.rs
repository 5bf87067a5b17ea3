//! tantivy: one field, BM25 with its fixed k1 1.2 and b 0.75.

use std::path::{Path, PathBuf};

use tantivy::collector::TopDocs;
use tantivy::query::{BooleanQuery, Occur, Query, TermQuery};
use tantivy::schema::{
    FAST, Field, IndexRecordOption, STORED, Schema, TextFieldIndexing, TextOptions, Value,
};
use tantivy::{Index, IndexReader, IndexWriter, TantivyDocument, Term};

use crate::{Failure, Peer};

const WRITER_BYTES: usize = 100_000_000;

pub struct Texts {
    index: Index,
    writer: IndexWriter,
    reader: IndexReader,
    text: Field,
    place: Field,
    folder: PathBuf,
    tokenizer: &'static str,
}

impl Texts {
    pub fn new(folder: &Path, tokenizer: &'static str) -> Result<Texts, Failure> {
        let mut schema = Schema::builder();
        let indexing = TextFieldIndexing::default()
            .set_tokenizer(tokenizer)
            .set_index_option(IndexRecordOption::WithFreqs);
        let options = TextOptions::default().set_indexing_options(indexing);
        let text = schema.add_text_field("text", options.set_stored());
        let place = schema.add_u64_field("place", FAST | STORED);
        let index = Index::create_in_dir(folder, schema.build())?;
        Ok(Texts {
            writer: index.writer_with_num_threads(1, WRITER_BYTES)?,
            reader: index.reader()?,
            index,
            text,
            place,
            folder: folder.to_owned(),
            tokenizer,
        })
    }
}

impl Peer for Texts {
    fn add(&mut self, place: usize, text: &str) -> Result<(), Failure> {
        let mut document = TantivyDocument::default();
        document.add_text(self.text, text);
        document.add_u64(self.place, place as u64);
        self.writer.add_document(document)?;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.writer.commit()?;
        self.reader.reload()?;
        Ok(())
    }

    fn search(&mut self, limit: usize, words: &str) -> Result<Vec<usize>, Failure> {
        let tokenizer = self.index.tokenizers().get(self.tokenizer);
        let mut tokenizer = tokenizer.ok_or("no such tokenizer")?;
        let mut parts: Vec<(Occur, Box<dyn Query>)> = Vec::new();
        let mut tokens = tokenizer.token_stream(words);
        while let Some(token) = tokens.next() {
            let term = Term::from_field_text(self.text, &token.text);
            let part = TermQuery::new(term, IndexRecordOption::WithFreqs);
            parts.push((Occur::Should, Box::new(part)));
        }
        let searcher = self.reader.searcher();
        let best = TopDocs::with_limit(limit).order_by_score();
        let mut places = Vec::new();
        for (_, address) in searcher.search(&BooleanQuery::new(parts), &best)? {
            // Read whole, as our hits are.
            let document: TantivyDocument = searcher.doc(address)?;
            std::hint::black_box(document.get_first(self.text));
            let place = document.get_first(self.place).and_then(|v| v.as_u64());
            places.push(place.ok_or("a text without a place")? as usize);
        }
        Ok(places)
    }

    fn reopen(&mut self) -> Result<(), Failure> {
        self.index = Index::open_in_dir(&self.folder)?;
        self.reader = self.index.reader()?;
        Ok(())
    }
}
