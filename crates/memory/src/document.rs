//! What a memory keeps: documents of five kinds, with where they are from and when they hold.
//!
//! Invariant: a [`NewDocument`] that was checked can be stored and read again as it is. Everything
//! from outside has a limit, and the error names it.

use std::fmt;

use dalsegno_store::{EventRef, Kind};

use crate::error::MemoryError;
use crate::vector::Vector;

/// The longest text of a document, in bytes. Longer ones are cut into chunks by who adds them: what
/// is found is a whole document, and nobody wants to read that much.
pub const TEXT_LIMIT_BYTES: usize = 4 << 20;
/// The longest title, source, tag, name or reason, in bytes.
pub const LABEL_LIMIT_BYTES: usize = 1000;
/// The most sources, and the most tags.
pub const LABELS_LIMIT: usize = 64;
/// Confidence is in thousandths: this is certain.
pub const CERTAIN: u16 = 1000;

/// Which document: the sequence of the event that added it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocId(pub u64);

impl fmt::Display for DocId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DocKind {
    /// Something that is so.
    Fact,
    /// Something that must be observed.
    Constraint,
    /// Something that was decided.
    Decision,
    /// What is going to be done.
    Plan,
    /// A text.
    Document,
}

impl DocKind {
    /// All of them.
    pub const ALL: [DocKind; 5] = [
        DocKind::Fact,
        DocKind::Constraint,
        DocKind::Decision,
        DocKind::Plan,
        DocKind::Document,
    ];

    /// The kind of the event that adds one.
    pub(crate) fn event_kind(self) -> Kind {
        match self {
            DocKind::Fact => Kind::FactConfirmed,
            DocKind::Constraint => Kind::ConstraintAdded,
            DocKind::Decision => Kind::DecisionCommitted,
            DocKind::Plan => Kind::PlanUpdated,
            DocKind::Document => Kind::MemoryUpdated,
        }
    }

    pub(crate) fn of_event(kind: &Kind) -> Option<DocKind> {
        DocKind::ALL
            .into_iter()
            .find(|found| found.event_kind() == *kind)
    }

    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            DocKind::Fact => "fact",
            DocKind::Constraint => "constraint",
            DocKind::Decision => "decision",
            DocKind::Plan => "plan",
            DocKind::Document => "document",
        }
    }

    /// The kind of a word.
    pub fn from_word(word: &str) -> Option<DocKind> {
        DocKind::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl fmt::Display for DocKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// For whom a document is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// All who use the memory.
    #[default]
    Shared,
    /// One agent.
    Agent(String),
    /// One run.
    Run(String),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Shared => f.write_str("shared"),
            Scope::Agent(name) => write!(f, "agent/{name}"),
            Scope::Run(name) => write!(f, "run/{name}"),
        }
    }
}

/// What is said in a document: all of this goes when it is forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Content {
    /// The text that is searched and handed out.
    pub text: String,
    /// What it is called; searched with the text.
    pub title: Option<String>,
    /// Where it was taken from: files, addresses, runs.
    pub sources: Vec<String>,
    /// Words to filter by.
    pub tags: Vec<String>,
    /// How sure it is, in thousandths.
    pub confidence: u16,
    /// For whom it is.
    pub scope: Scope,
    /// Since when it holds, in microseconds since 1970; `None` for ever.
    pub valid_from_us: Option<i64>,
    /// Until when, this moment not included.
    pub valid_until_us: Option<i64>,
    /// What it means, as an embedder sees it.
    pub vector: Option<Vector>,
}

/// A document that is to be added.
///
/// ```
/// use dalsegno_memory::NewDocument;
///
/// let fact = NewDocument::fact("The oven takes 12 minutes to heat up.")
///     .title("Oven")
///     .source("manual.pdf")
///     .tag("kitchen")
///     .confidence(900);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDocument {
    pub(crate) kind: DocKind,
    pub(crate) content: Content,
    pub(crate) key: Option<String>,
    pub(crate) cause: Option<EventRef>,
    pub(crate) model: Option<String>,
}

impl NewDocument {
    /// Of some kind.
    pub fn new(kind: DocKind, text: impl Into<String>) -> NewDocument {
        NewDocument {
            kind,
            content: Content {
                text: text.into(),
                confidence: CERTAIN,
                ..Content::default()
            },
            key: None,
            cause: None,
            model: None,
        }
    }

    /// From bytes that should be text.
    ///
    /// # Errors
    /// They are not UTF-8; the error names the first byte that is not.
    pub fn from_bytes(kind: DocKind, bytes: Vec<u8>) -> Result<NewDocument, MemoryError> {
        match String::from_utf8(bytes) {
            Ok(text) => Ok(NewDocument::new(kind, text)),
            Err(e) => Err(MemoryError::NotText {
                at: e.utf8_error().valid_up_to(),
            }),
        }
    }

    /// Something that is so.
    pub fn fact(text: impl Into<String>) -> NewDocument {
        NewDocument::new(DocKind::Fact, text)
    }

    /// Something that must be observed.
    pub fn constraint(text: impl Into<String>) -> NewDocument {
        NewDocument::new(DocKind::Constraint, text)
    }

    /// Something that was decided.
    pub fn decision(text: impl Into<String>) -> NewDocument {
        NewDocument::new(DocKind::Decision, text)
    }

    /// What is going to be done.
    pub fn plan(text: impl Into<String>) -> NewDocument {
        NewDocument::new(DocKind::Plan, text)
    }

    /// A text.
    pub fn document(text: impl Into<String>) -> NewDocument {
        NewDocument::new(DocKind::Document, text)
    }

    /// What it is called.
    pub fn title(mut self, title: impl Into<String>) -> NewDocument {
        self.content.title = Some(title.into());
        self
    }

    /// One more place it was taken from.
    pub fn source(mut self, source: impl Into<String>) -> NewDocument {
        self.content.sources.push(source.into());
        self
    }

    /// One more word to filter by.
    pub fn tag(mut self, tag: impl Into<String>) -> NewDocument {
        self.content.tags.push(tag.into());
        self
    }

    /// How sure it is, in thousandths; 1000 unless it is said.
    pub fn confidence(mut self, per_mille: u16) -> NewDocument {
        self.content.confidence = per_mille;
        self
    }

    /// For whom it is; for all unless it is said.
    pub fn scope(mut self, scope: Scope) -> NewDocument {
        self.content.scope = scope;
        self
    }

    /// Since when it holds, in microseconds since 1970.
    pub fn valid_from_us(mut self, us: i64) -> NewDocument {
        self.content.valid_from_us = Some(us);
        self
    }

    /// Until when it holds, this moment not included.
    pub fn valid_until_us(mut self, us: i64) -> NewDocument {
        self.content.valid_until_us = Some(us);
        self
    }

    /// What it means, as an embedder sees it.
    pub fn vector(mut self, vector: Vector) -> NewDocument {
        self.content.vector = Some(vector);
        self
    }

    /// What made its vector: a name and a hash. The model of the first vector is that of the memory,
    /// and another one is refused. It stays when the document is forgotten.
    pub fn model(mut self, model: impl Into<String>) -> NewDocument {
        self.model = Some(model.into());
        self
    }

    /// Adds it once: if a document was added under this key before, that one is the answer. For who
    /// does not know whether an earlier attempt succeeded. The key stays when the document is
    /// forgotten, so it should say nothing.
    pub fn key(mut self, key: impl Into<String>) -> NewDocument {
        self.key = Some(key.into());
        self
    }

    /// The event that led to it, as of a run.
    pub fn caused_by(mut self, event: EventRef) -> NewDocument {
        self.cause = Some(event);
        self
    }

    /// What it is.
    pub fn kind(&self) -> DocKind {
        self.kind
    }

    /// What it says.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// The key that it is added under, if it has one.
    pub fn key_name(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Fails if it cannot be kept.
    pub(crate) fn check(&self) -> Result<(), MemoryError> {
        let content = &self.content;
        if content.text.is_empty() {
            return Err(MemoryError::Empty);
        }
        within(
            "the text of a document",
            content.text.len(),
            TEXT_LIMIT_BYTES,
        )?;
        within(
            "the sources of a document",
            content.sources.len(),
            LABELS_LIMIT,
        )?;
        within("the tags of a document", content.tags.len(), LABELS_LIMIT)?;
        let scope = match &content.scope {
            Scope::Shared => None,
            Scope::Agent(name) | Scope::Run(name) => Some(name),
        };
        let labels = [
            ("a title", &content.title),
            ("a key", &self.key),
            ("a model", &self.model),
        ];
        let labels = labels
            .into_iter()
            .filter_map(|(what, label)| Some((what, label.as_ref()?)));
        let sources = content.sources.iter().map(|source| ("a source", source));
        let tags = content.tags.iter().map(|tag| ("a tag", tag));
        let scopes = scope.into_iter().map(|name| ("the name of a scope", name));
        for (what, label) in labels.chain(sources).chain(tags).chain(scopes) {
            within(what, label.len(), LABEL_LIMIT_BYTES)?;
        }
        if content.confidence > CERTAIN {
            let found = content.confidence;
            return Err(MemoryError::Confidence { found });
        }
        match (content.valid_from_us, content.valid_until_us) {
            (Some(from), Some(until)) if until <= from => Err(MemoryError::NeverValid),
            _ => Ok(()),
        }
    }
}

pub(crate) fn within(what: &'static str, size: usize, limit: usize) -> Result<(), MemoryError> {
    match size <= limit {
        true => Ok(()),
        false => Err(MemoryError::TooLarge { what, size, limit }),
    }
}

/// A document, as the memory has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Document {
    /// Which.
    pub id: DocId,
    /// Its place among all documents of the memory, from 0.
    pub number: u32,
    /// What it is.
    pub kind: DocKind,
    /// What it says.
    pub content: Content,
    /// Who recorded it.
    pub by: Option<String>,
    /// When, in microseconds since 1970.
    pub recorded_us: u64,
    /// What it corrects.
    pub corrects: Option<DocId>,
    /// What became of it since.
    pub ended: Option<Ended>,
}

/// That a document is not what the memory says any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// How.
    pub how: HowEnded,
    /// The sequence of the event that says so.
    pub sequence: u64,
    /// When, in microseconds since 1970.
    pub at_us: u64,
    /// Who said so.
    pub by: Option<String>,
    /// Why, if it was said.
    pub reason: Option<String>,
}

/// How a document ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowEnded {
    /// Another one is there instead.
    Corrected(DocId),
    /// It is not so any more.
    Retracted,
    /// Its content is gone.
    Forgotten,
}

impl fmt::Display for HowEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HowEnded::Corrected(by) => write!(f, "corrected by {by}"),
            HowEnded::Retracted => f.write_str("retracted"),
            HowEnded::Forgotten => f.write_str("forgotten"),
        }
    }
}
