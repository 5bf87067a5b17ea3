//! A person at another process, who answers the runs of a store.
//!
//! They read the store beside its owner and write letters to it: yes to every approval, and for a
//! step in doubt what the world's ledger says about it.
//!
//! Invariant: what is answered is exactly what was asked: an answer repeats the hash of its request,
//! and each request is answered once.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use dalsegno::record;
use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{Event, Fields, Kind, Options, RunQuery, Status, Store, StoreError, StreamId};

use crate::http::Request;
use crate::ledger::now_us;

/// Kinds of attention, as `docs/format.md` numbers them.
const IN_DOUBT: u64 = 1;
const CRASH_LOOP: u64 = 6;
const NAME: &str = "ann";

/// What a person said, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Approvals.
    pub approved: u64,
    /// Steps in doubt of which the ledger says that they happened.
    pub happened: u64,
    /// Steps in doubt of which it says that they did not.
    pub did_not_happen: u64,
    /// Runs that are to go on although the process died in one step again and again.
    pub go_on: u64,
}

/// A person.
#[derive(Debug)]
pub struct Person {
    store: Arc<dyn Store>,
    world: String,
    /// Runs as they were when last looked at.
    heads: HashMap<StreamId, u64>,
    /// Requests that have their answer.
    answered: HashSet<(StreamId, u64)>,
    /// What was said.
    pub said: Said,
}

/// Why a person is at a loss.
#[derive(Debug)]
pub struct AtALoss(pub String);

impl From<StoreError> for AtALoss {
    fn from(error: StoreError) -> AtALoss {
        AtALoss(error.to_string())
    }
}

impl Person {
    /// Opens a store for reading, and knows the world to ask.
    ///
    /// # Errors
    /// There is no store yet, or it cannot be read.
    pub fn open(store: &Path, world: &str) -> Result<Person, StoreError> {
        let store = Options::new().open_read_only(store)?;
        Ok(Person::at(Arc::new(store), world))
    }

    /// The same at a store that is open.
    pub fn at(store: Arc<dyn Store>, world: &str) -> Person {
        Person {
            store,
            world: world.to_owned(),
            heads: HashMap::new(),
            answered: HashSet::new(),
            said: Said::default(),
        }
    }

    /// Answers all that is asked now.
    ///
    /// # Errors
    /// The store or the world cannot be asked, or a run needs more than this person can give.
    pub async fn look(&mut self) -> Result<(), AtALoss> {
        let query = RunQuery {
            status: vec![Status::Running, Status::Checkpointed],
            ..RunQuery::default()
        };
        for info in self.store.runs(&query).await? {
            let known = self.heads.insert(info.run.clone(), info.head.sequence);
            if known == Some(info.head.sequence) {
                continue;
            }
            let events = self.store.read(&info.run, 1, usize::MAX).await?;
            let events: Vec<Event> = events.into_iter().map(|recorded| recorded.event).collect();
            self.answer(&info.run, &events).await?;
        }
        Ok(())
    }

    async fn answer(&mut self, run: &StreamId, events: &[Event]) -> Result<(), AtALoss> {
        for asked in open_approvals(events) {
            if !self.answered.insert((run.clone(), asked.sequence)) {
                continue;
            }
            let mut fields = asked.fields.clone();
            fields = fields
                .with(record::approval::VERDICT, 1)
                .with(record::approval::BY, NAME)
                .with(record::approval::NOTE, "");
            self.write(run, Kind::ApprovalAnswered, fields, None)
                .await?;
            self.said.approved += 1;
        }
        if let Some(raised) = open_attention(events)
            && self.answered.insert((run.clone(), raised.sequence))
        {
            self.attend(run, raised).await?;
        }
        Ok(())
    }

    async fn attend(&mut self, run: &StreamId, raised: &Event) -> Result<(), AtALoss> {
        let fields = &raised.fields;
        match fields.number(record::attention::KIND) {
            Some(IN_DOUBT) => {
                let step = fields.text(record::attention::STEP).unwrap_or_default();
                let fields = Fields::new()
                    .with(record::step::STEP, step)
                    .with(record::resolved::BY, NAME);
                let key = key_in(raised)?;
                let (verdict, result) = match self.look_up(&key)? {
                    Some(result) => (1, Some(result)),
                    None => (2, None),
                };
                let fields = fields.with(record::resolved::VERDICT, verdict);
                self.write(run, Kind::StepResolved, fields, result).await?;
                self.said.happened += u64::from(verdict == 1);
                self.said.did_not_happen += u64::from(verdict == 2);
                Ok(())
            }
            Some(CRASH_LOOP) => {
                self.write(run, Kind::AttentionCleared, Fields::new(), None)
                    .await?;
                self.said.go_on += 1;
                Ok(())
            }
            _ => {
                let reason = fields.text(record::attention::REASON);
                let reason = reason.unwrap_or("no reason given");
                Err(AtALoss(format!("{}: {reason}", run.name())))
            }
        }
    }

    /// What the world says to a notification, if there was one.
    fn look_up(&self, key: &str) -> Result<Option<String>, AtALoss> {
        let seen = Request::get(format!("/seen/{key}")).send(&self.world);
        match seen {
            Ok(reply) if reply.status == 200 => Ok(Some(reply.text())),
            Ok(reply) if reply.status == 404 => Ok(None),
            Ok(reply) => Err(AtALoss(format!("{}: {}", reply.status, reply.text()))),
            Err(e) => Err(AtALoss(e.to_string())),
        }
    }

    async fn write(
        &self,
        run: &StreamId,
        kind: Kind,
        fields: Fields,
        result: Option<String>,
    ) -> Result<(), AtALoss> {
        let mut letter = NewLetter::new(run.clone(), kind, now_us());
        letter.fields = fields;
        if let Some(result) = result {
            let json = serde_json::json!(result).to_string();
            letter.payload = Some(("application/json".into(), json.into_bytes()));
        }
        self.store.send(&letter).await?;
        Ok(())
    }
}

/// Requests without an answer. Their fields are those of the answer: which step, which hash.
fn open_approvals(events: &[Event]) -> impl Iterator<Item = &Event> {
    let step = |event: &Event| event.fields.text(record::step::STEP).map(str::to_owned);
    let answers = events.iter().filter(|e| e.kind == Kind::ApprovalAnswered);
    let answered: HashSet<_> = answers.filter_map(step).collect();
    let asked = events.iter().filter(|e| e.kind == Kind::ApprovalRequested);
    asked.filter(move |event| step(event).is_some_and(|step| !answered.contains(&step)))
}

/// The attention that a run is in.
fn open_attention(events: &[Event]) -> Option<&Event> {
    let last = events.iter().rev().find(|event| {
        matches!(
            event.kind,
            Kind::AttentionRaised | Kind::AttentionCleared | Kind::StepResolved | Kind::RunStarted
        )
    });
    last.filter(|event| event.kind == Kind::AttentionRaised)
}

/// The key of the step in doubt, from the evidence.
fn key_in(raised: &Event) -> Result<String, AtALoss> {
    let evidence = raised.fields.text(record::attention::EVIDENCE);
    let evidence = evidence.unwrap_or_default();
    let evidence: serde_json::Value = serde_json::from_str(evidence).unwrap_or_default();
    match evidence["idempotency_key"].as_str() {
        Some(key) => Ok(key.to_owned()),
        None => Err(AtALoss("a doubt without a key to look for".into())),
    }
}
