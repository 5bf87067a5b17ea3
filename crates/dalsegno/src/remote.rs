//! The same orders as [`crate::Dalsegno`] takes, from a process that does not own the store.
//!
//! They are checked against what can be read, then put into the store's mailbox; the owner takes
//! them up, now or when it is next started.
//!
//! Invariant: an order is on disk when it was sent, and is taken up exactly once or refused with a
//! reason. It was checked against what the sender saw: if another answer came first, that one counts,
//! and the sender is told so.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{Event, Kind, LetterRef, Options, Store, StreamId};
use serde::Serialize;

use crate::budget::Budget;
use crate::ctx::encode;
use crate::error::Error;
use crate::journal::{self, Verdict};
use crate::orders::{self, Order, Said};
use crate::runtime::{Runtime, Tokio};

/// How often it is looked whether a letter was taken up.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// `LetterRefused`: why.
const REFUSED_WHY: u64 = 2;
/// Events read at once.
const PAGE: usize = 256;

/// A store that another process owns.
///
/// ```no_run
/// # async fn docs() -> Result<(), dalsegno::Error> {
/// use std::time::Duration;
///
/// let remote = dalsegno::Remote::open("./agents.dalsegno")?;
/// let sent = remote.approve("order-42", "refund#1", "ada").await?;
/// sent.taken_within(Duration::from_secs(5)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Remote {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runtime: Arc<dyn Runtime>,
}

/// An order that was sent. It is on disk.
#[derive(Clone, Debug)]
pub struct Sent {
    store: Arc<dyn Store>,
    runtime: Arc<dyn Runtime>,
    letter: LetterRef,
    run: StreamId,
    /// The run's last event before it was sent.
    before: u64,
    /// The store's own last event before it was sent.
    own_before: u64,
}

/// An order that the owner has taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The event of the run that it is now.
    pub sequence: u64,
}

impl Remote {
    /// Opens the store in a folder for reading, beside its owner.
    ///
    /// # Errors
    /// There is no store, it cannot be read, or there is no runtime.
    pub fn open(dir: impl AsRef<Path>) -> Result<Remote, Error> {
        let store = Options::new().existing_only().open_read_only(dir)?;
        Remote::with(Arc::new(store))
    }

    /// The same with a store that is open.
    ///
    /// # Errors
    /// There is no runtime.
    pub fn with(store: Arc<dyn Store>) -> Result<Remote, Error> {
        let runtime = Arc::new(Tokio::current().ok_or(Error::NoRuntime)?);
        Ok(Remote { store, runtime })
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Sends a signal to a run.
    ///
    /// # Errors
    /// There is no such run, it has ended, or the letter could not be written.
    pub async fn signal<T>(&self, run: &str, name: &str, value: &T) -> Result<Sent, Error>
    where
        T: Serialize + ?Sized,
    {
        let order = orders::signal(&*self.store, run, name, encode(value)?).await?;
        self.send(order).await
    }

    /// Approves what a run asks for.
    ///
    /// # Errors
    /// There is no such run or request, or it has its answer, or has expired.
    pub async fn approve(&self, run: &str, approval: &str, by: &str) -> Result<Sent, Error> {
        self.answer(run, approval, true, by, "").await
    }

    /// Rejects what a run asks for.
    ///
    /// # Errors
    /// As [`Remote::approve`].
    pub async fn reject(
        &self,
        run: &str,
        approval: &str,
        by: &str,
        why: &str,
    ) -> Result<Sent, Error> {
        self.answer(run, approval, false, by, why).await
    }

    async fn answer(
        &self,
        run: &str,
        approval: &str,
        approved: bool,
        by: &str,
        note: &str,
    ) -> Result<Sent, Error> {
        let said = Said { approved, by, note };
        let now_us = self.runtime.now_us();
        let order = orders::answer(&*self.store, run, approval, &said, now_us).await?;
        self.send(order).await
    }

    /// Says that a step in doubt happened, with this result.
    ///
    /// # Errors
    /// There is no such run, or the step is not in doubt.
    pub async fn resolve_happened<T>(
        &self,
        run: &str,
        step: &str,
        result: &T,
        by: &str,
    ) -> Result<Sent, Error>
    where
        T: Serialize + ?Sized,
    {
        let (result, verdict) = (Some(encode(result)?), Verdict::Happened);
        let order = orders::resolve(&*self.store, run, step, verdict, result, by).await?;
        self.send(order).await
    }

    /// Says that a step in doubt did not happen: it will be sent.
    ///
    /// # Errors
    /// As [`Remote::resolve_happened`].
    pub async fn resolve_not_happened(
        &self,
        run: &str,
        step: &str,
        by: &str,
    ) -> Result<Sent, Error> {
        let verdict = Verdict::DidNotHappen;
        let order = orders::resolve(&*self.store, run, step, verdict, None, by).await?;
        self.send(order).await
    }

    /// Says that a run fails because of a step in doubt.
    ///
    /// # Errors
    /// As [`Remote::resolve_happened`].
    pub async fn resolve_fail(&self, run: &str, step: &str, by: &str) -> Result<Sent, Error> {
        let verdict = Verdict::FailRun;
        let order = orders::resolve(&*self.store, run, step, verdict, None, by).await?;
        self.send(order).await
    }

    /// Asks a run and its children to end.
    ///
    /// # Errors
    /// There is no such run, or it has ended.
    pub async fn cancel(&self, run: &str, reason: &str) -> Result<Sent, Error> {
        let order = orders::cancel(&*self.store, run, reason).await?;
        self.send(order).await
    }

    /// Lets a run in attention try again: its cause is gone.
    ///
    /// # Errors
    /// There is no such run, or it has ended.
    pub async fn clear_attention(&self, run: &str) -> Result<Sent, Error> {
        let order = orders::clear_attention(&*self.store, run).await?;
        self.send(order).await
    }

    /// Changes what a run may use.
    ///
    /// # Errors
    /// There is no such run, or it has ended.
    pub async fn set_budget(&self, run: &str, budget: Budget) -> Result<Sent, Error> {
        let order = orders::set_budget(&*self.store, run, &budget).await?;
        self.send(order).await
    }

    pub(crate) async fn send(&self, (run, event): Order) -> Result<Sent, Error> {
        let mut letter = NewLetter::new(run.clone(), event.kind, self.runtime.now_us());
        letter.fields = event.fields;
        letter.payload = event.input.map(|input| (input.content_type, input.bytes));
        let before = last_of(&*self.store, &run).await?;
        let own_before = last_of(&*self.store, &StreamId::store()).await?;
        let letter = self.store.send(&letter).await?;
        Ok(Sent {
            store: Arc::clone(&self.store),
            runtime: Arc::clone(&self.runtime),
            letter,
            run,
            before,
            own_before,
        })
    }
}

async fn last_of(store: &dyn Store, stream: &StreamId) -> Result<u64, Error> {
    Ok(store.head(stream).await?.map_or(0, |head| head.sequence))
}

impl Sent {
    /// The letter that it is in.
    pub fn letter(&self) -> &LetterRef {
        &self.letter
    }

    /// Whether the owner has taken it up or refused it.
    ///
    /// # Errors
    /// The mailbox could not be read.
    pub async fn is_taken(&self) -> Result<bool, Error> {
        Ok(self.store.is_taken(&self.letter).await?)
    }

    /// Waits until the owner has taken it up.
    ///
    /// # Errors
    /// It was not taken up in this time, which does not take it back; or it was refused.
    pub async fn taken_within(&self, time: Duration) -> Result<Taken, Error> {
        let every_us = LOOK_EVERY.as_micros() as u64;
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let until_us = self.runtime.now_us().saturating_add(time_us);
        while !self.is_taken().await? {
            let now_us = self.runtime.now_us();
            if now_us >= until_us {
                return Err(Error::NotTaken {
                    run: self.run.name().to_owned(),
                    waited: time,
                });
            }
            let next_us = until_us.min(now_us + every_us);
            self.runtime.sleep_until(next_us).await;
        }
        self.outcome().await
    }

    /// What became of a letter that is no longer in the mailbox.
    async fn outcome(&self) -> Result<Taken, Error> {
        if let Some(event) = self.find(&self.run, self.before).await? {
            let sequence = event.sequence;
            // What the run had heard before decides whether it counts.
            let before = Some(sequence.saturating_sub(1));
            let journal = journal::load(&*self.store, &self.run, before).await?;
            return match orders::does_not_count(&journal, &event) {
                None => Ok(Taken { sequence }),
                Some(why) => Err(Error::Refused {
                    run: self.run.name().to_owned(),
                    why,
                }),
            };
        }
        let refused = self.find(&StreamId::store(), self.own_before).await?;
        let refused = refused.filter(|event| event.kind == Kind::LetterRefused);
        let why = refused.and_then(|event| event.fields.text(REFUSED_WHY).map(str::to_owned));
        Err(Error::Refused {
            run: self.run.name().to_owned(),
            why: why.unwrap_or_else(|| {
                "the store does not say why: see its own events, and the folder of letters that \
                 were set aside"
                    .to_owned()
            }),
        })
    }

    /// The event that a stream made of the letter.
    async fn find(&self, stream: &StreamId, before: u64) -> Result<Option<Event>, Error> {
        let mut from = before + 1;
        loop {
            let page = self.store.events(stream, from, PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(None);
            };
            from = last.sequence + 1;
            let mut events = page.into_iter();
            if let Some(found) = events.find(|event| event.letter.as_ref() == Some(&self.letter)) {
                return Ok(Some(found));
            }
        }
    }
}
