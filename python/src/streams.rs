//! Streams that a Python module keeps for itself: what frameworks store through us.
//!
//! Such a stream is a memory's, under a name of the module's own: memories can forget, so that what is
//! deleted leaves the disk. Its events have a kind, a short text that says what they are (and that stays
//! when they are forgotten), and bytes.
//!
//! Invariant: what is appended survives a crash when the answer is there.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use dalsegno::{Dalsegno, Error};
use dalsegno_store::{
    Append, Event, Fields, INLINE_LIMIT_BYTES, Kind, NewEvent, NewPayload, Payload, StoreError,
    StreamId, StreamKind, Value,
};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

use crate::app::App;
use crate::pending::Pending;

/// What an event says it is; beside [`FORGOTTEN`], which has the same number and is of the store.
const WORDS: u64 = 1;
/// The events that an event says are forgotten.
const FORGOTTEN: u64 = 1;
/// So many names are asked for at a time.
const NAMES_PAGE: usize = 1000;
/// What an event says of one that said what is forgotten: it is gone.
const ERASED: &str = "erased";
/// So many events are forgotten by one event, at most: their numbers fit into it.
const FORGET_LIMIT: usize = 4000;
const CONTENT_TYPE: &str = "application/octet-stream";

/// An event as Python gives it: its kind, what it says it is, and its bytes.
type Given = (String, String, Option<PyBackedBytes>);
/// The same as Python is given it: its sequence first, and those that it says are forgotten.
type Told = (u64, String, String, Vec<u64>);

/// The streams of an open store, for modules that keep their own.
#[pyclass(frozen)]
pub struct Streams(Py<App>);

/// What was read, when it is there.
enum Got {
    Head(Option<u64>),
    Events(Vec<Told>),
    Payloads(Vec<Option<Vec<u8>>>),
    Names(Vec<String>),
}

/// Something that was asked of a stream, and is not answered yet.
#[pyclass(frozen)]
pub struct Asked {
    /// When it is answered, [`Asked::take`] has what was asked for.
    #[pyo3(get)]
    pending: Py<Pending>,
    got: Arc<Mutex<Option<Got>>>,
}

impl Streams {
    fn ask<F, Fut>(&self, py: Python<'_>, ask: F) -> PyResult<Asked>
    where
        F: FnOnce(Dalsegno) -> Fut,
        Fut: Future<Output = Result<Got, Error>> + Send + 'static,
    {
        let got = Arc::new(Mutex::new(None));
        let put = Arc::clone(&got);
        let pending = self.0.get().ask(py, |app| {
            let asked = ask(app);
            async move {
                let answer = asked.await?;
                *put.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
                Ok(None)
            }
        })?;
        let pending = Py::new(py, pending)?;
        Ok(Asked { pending, got })
    }
}

#[pymethods]
impl Streams {
    #[new]
    fn new(app: Py<App>) -> Streams {
        Streams(app)
    }

    /// The sequence of a stream's last event; 0 if there is none.
    fn head(&self, py: Python<'_>, stream: String) -> PyResult<Asked> {
        self.ask(py, |app| async move {
            let stream = named(&stream)?;
            let head = app.store().head(&stream).await?;
            Ok(Got::Head(Some(head.map_or(0, |head| head.sequence))))
        })
    }

    /// Appends events, all or none, and waits until they are durable: the new head, or nothing if the
    /// stream is not where it was expected.
    fn append(
        &self,
        py: Python<'_>,
        stream: String,
        expected: Option<u64>,
        events: Vec<Given>,
    ) -> PyResult<Asked> {
        self.ask(py, move |app| async move {
            let events = events.into_iter().map(new_event).collect();
            let head = durably(&app, &named(&stream)?, expected, events).await?;
            Ok(Got::Head(head))
        })
    }

    /// At most so many events, from a sequence on, without their bytes.
    fn read(&self, py: Python<'_>, stream: String, from: u64, limit: usize) -> PyResult<Asked> {
        self.ask(py, move |app| async move {
            let stream = named(&stream)?;
            let events = app.store().events(&stream, from, limit).await?;
            Ok(Got::Events(events.iter().map(told).collect()))
        })
    }

    /// The bytes of events; nothing where there are none, or where they are forgotten.
    fn payloads(&self, py: Python<'_>, stream: String, sequences: Vec<u64>) -> PyResult<Asked> {
        self.ask(py, move |app| async move {
            let stream = named(&stream)?;
            let mut found = Vec::with_capacity(sequences.len());
            for sequence in sequences {
                let events = app.store().events(&stream, sequence, 1).await?;
                let input = events.into_iter().next().and_then(|event| event.input);
                found.push(match input {
                    Some(payload) => bytes_of(&app, &payload).await?,
                    None => None,
                });
            }
            Ok(Got::Payloads(found))
        })
    }

    /// Forgets the bytes of events: when it answers, they are gone from the store. The answer is
    /// nothing, and nothing is forgotten, if the stream is not where it was expected.
    fn forget(
        &self,
        py: Python<'_>,
        stream: String,
        expected: Option<u64>,
        sequences: Vec<u64>,
    ) -> PyResult<Asked> {
        self.ask(py, move |app| async move {
            let stream = named(&stream)?;
            let says = |some: &[u64]| {
                let some = some.iter().map(|sequence| Value::Number(*sequence));
                let fields = Fields::new().with(FORGOTTEN, Value::List(some.collect()));
                NewEvent::new(Kind::MemoryForgotten).with_fields(fields)
            };
            let events: Vec<NewEvent> = sequences.chunks(FORGET_LIMIT).map(says).collect();
            let count = events.len() as u64;
            match durably(&app, &stream, expected, events).await? {
                Some(head) => erase(&app, &stream, (head + 1 - count..=head).collect()).await,
                None => Ok(Got::Head(None)),
            }
        })
    }

    /// Removes what events say is forgotten, if a crash has left it there.
    fn erase(&self, py: Python<'_>, stream: String, said_at: Vec<u64>) -> PyResult<Asked> {
        self.ask(py, move |app| async move {
            erase(&app, &named(&stream)?, said_at).await
        })
    }

    /// The names of all streams that begin so: a word and `/`.
    fn names(&self, py: Python<'_>, prefix: String) -> PyResult<Asked> {
        self.ask(py, move |app| async move {
            // They stand together, somewhere behind the word alone.
            let mut after = named(prefix.trim_end_matches('/'))?;
            let mut names = Vec::new();
            loop {
                let of = StreamKind::Memory;
                let page = app.store().streams(of, Some(&after), NAMES_PAGE).await?;
                let Some((last, _)) = page.last().cloned() else {
                    return Ok(Got::Names(names));
                };
                after = last;
                let found = page.iter().map(|(stream, _)| stream.name());
                names.extend(
                    found
                        .filter(|name| name.starts_with(&prefix))
                        .map(str::to_owned),
                );
                let is_behind =
                    after.name() > prefix.as_str() && !after.name().starts_with(&prefix);
                if is_behind || page.len() < NAMES_PAGE {
                    return Ok(Got::Names(names));
                }
            }
        })
    }
}

#[pymethods]
impl Asked {
    /// What was asked for; once.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let got = {
            let mut got = self.got.lock().unwrap_or_else(PoisonError::into_inner);
            got.take()
        };
        match got {
            Some(Got::Head(head)) => Ok(head.into_pyobject(py)?.into_any()),
            Some(Got::Events(events)) => events.into_pyobject(py).map(Bound::into_any),
            Some(Got::Names(names)) => names.into_pyobject(py).map(Bound::into_any),
            Some(Got::Payloads(all)) => {
                let all = all
                    .into_iter()
                    .map(|bytes| bytes.map(|bytes| PyBytes::new(py, &bytes)));
                PyList::new(py, all).map(Bound::into_any)
            }
            None => Ok(py.None().into_bound(py)),
        }
    }
}

fn named(stream: &str) -> Result<StreamId, Error> {
    Ok(StreamId::memory(stream).map_err(StoreError::from)?)
}

fn new_event((kind, words, bytes): Given) -> NewEvent {
    let fields = Fields::new().with(WORDS, words);
    let event = NewEvent::new(Kind::User(kind)).with_fields(fields);
    match bytes {
        Some(bytes) => {
            let payload = NewPayload::new(CONTENT_TYPE, bytes.to_vec());
            // In its event it could not be forgotten. What is longer is apart anyway, and shared.
            let is_short = payload.bytes.len() <= INLINE_LIMIT_BYTES;
            event.with_input(if is_short { payload.apart() } else { payload })
        }
        None => event,
    }
}

fn told(event: &Event) -> Told {
    let words = event.fields.text(WORDS).unwrap_or_default().to_owned();
    match &event.kind {
        Kind::MemoryForgotten => {
            let forgotten = match event.fields.get(FORGOTTEN) {
                Some(Value::List(all)) => all.as_slice(),
                _ => &[],
            };
            let number = |value: &Value| match value {
                Value::Number(sequence) => Some(*sequence),
                _ => None,
            };
            let forgotten = forgotten.iter().filter_map(number).collect();
            (event.sequence, "forgotten".to_owned(), words, forgotten)
        }
        Kind::User(kind) => (event.sequence, kind.clone(), words, Vec::new()),
        _ => (event.sequence, String::new(), words, Vec::new()),
    }
}

/// Removes what these events say is forgotten, and says that it is done.
async fn erase(app: &Dalsegno, stream: &StreamId, said_at: Vec<u64>) -> Result<Got, Error> {
    for said_at in said_at {
        app.store().erase_forgotten(stream, said_at).await?;
        let event = new_event((ERASED.to_owned(), said_at.to_string(), None));
        durably(app, stream, None, vec![event]).await?;
    }
    Ok(Got::Head(Some(0)))
}

/// Appends, and waits until it is durable: the new head, or nothing if the stream is elsewhere.
async fn durably(
    app: &Dalsegno,
    stream: &StreamId,
    expected: Option<u64>,
    events: Vec<NewEvent>,
) -> Result<Option<u64>, Error> {
    let mut append = Append::to(stream.clone(), events);
    append.expected = expected;
    let appended = match app.store().append(vec![append]).await {
        Err(e) if e.is_conflict() && expected.is_some() => return Ok(None),
        appended => appended?,
    };
    app.store().durable(appended.position).await?;
    Ok(appended.heads.first().map(|head| head.sequence))
}

/// The bytes of a payload, if they are there: somebody may just have forgotten them.
async fn bytes_of(app: &Dalsegno, payload: &Payload) -> Result<Option<Vec<u8>>, Error> {
    match app.store().payload(payload).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(StoreError::Damaged { .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}
