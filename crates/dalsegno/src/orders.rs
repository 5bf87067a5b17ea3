//! What people and other programs may say to runs, checked against what the run has done.
//!
//! The process that owns a store records it at once (`engine/control.rs`); others send it as a
//! letter (`remote.rs`). Both ask here first.
//!
//! Invariant: what cannot be meant is an error here, before anything is recorded or sent: an unknown
//! run, one that has ended, an approval that nobody asked for or that has its answer, a step that
//! is not in doubt.

use dalsegno_store::{
    Event, Fields, Kind, NewEvent, NewPayload, Store, StoreError, StreamId, Value,
};

use crate::budget::Budget;
use crate::error::Error;
use crate::journal::{self, ApprovalRecord, Journal, StepRecord, Verdict};
use crate::record;
use crate::step::StepId;

/// Something to be said, and to whom.
pub(crate) type Order = (StreamId, NewEvent);

/// The journal of a run.
pub(crate) async fn journal(store: &dyn Store, name: &str) -> Result<(StreamId, Journal), Error> {
    let id = StreamId::run(name)?;
    match journal::load(store, &id, None).await {
        Ok(journal) => Ok((id, journal)),
        Err(StoreError::NotFound { .. }) => Err(Error::RunNotFound(name.to_owned())),
        Err(e) => Err(e.into()),
    }
}

/// The journal of a run that has not ended.
async fn live(store: &dyn Store, name: &str) -> Result<(StreamId, Journal), Error> {
    let (id, journal) = journal(store, name).await?;
    if journal.status.is_final() {
        return Err(Error::RunEnded {
            run: name.to_owned(),
            status: journal.status.to_string(),
        });
    }
    Ok((id, journal))
}

/// A signal. Only the run's last event is looked at: a run may get very many.
pub(crate) async fn signal(
    store: &dyn Store,
    run: &str,
    name: &str,
    value: NewPayload,
) -> Result<Order, Error> {
    let id = StreamId::run(run)?;
    let Some(head) = store.head(&id).await? else {
        return Err(Error::RunNotFound(run.to_owned()));
    };
    let mut last = Journal::default();
    for event in store.events(&id, head.sequence, 1).await? {
        last.apply(event);
    }
    if last.status.is_final() {
        return Err(Error::RunEnded {
            run: run.to_owned(),
            status: last.status.to_string(),
        });
    }
    let fields = Fields::new().with(record::signal::NAME, name);
    let event = NewEvent::new(Kind::SignalReceived).with_fields(fields);
    Ok((id, event.with_input(value)))
}

/// What a person says to a request.
pub(crate) struct Said<'a> {
    pub approved: bool,
    pub by: &'a str,
    pub note: &'a str,
}

/// An answer to a request for approval.
pub(crate) async fn answer(
    store: &dyn Store,
    run: &str,
    approval: &str,
    said: &Said<'_>,
    now_us: u64,
) -> Result<Order, Error> {
    let (id, journal) = live(store, run).await?;
    let asked = journal.approvals.iter();
    let unanswered = asked.filter(|(_, asked)| asked.answer.is_none() && !asked.used);
    let mut open: Vec<_> = unanswered.map(|(id, _)| id.as_str()).collect();
    open.sort_unstable();
    let approval = only_one_named(approval, &open);
    let Some(asked) = journal.approvals.get(&StepId::new(approval)) else {
        return Err(Error::NoSuchApproval {
            run: run.to_owned(),
            approval: approval.to_owned(),
            open: match open.is_empty() {
                true => "it asks for none".to_owned(),
                false => format!("it asks for {}", open.join(", ")),
            },
        });
    };
    if let Some(why) = closed(asked, now_us) {
        return Err(Error::ApprovalClosed {
            run: run.to_owned(),
            approval: approval.to_owned(),
            why,
        });
    }
    let fields = Fields::new()
        .with(record::step::STEP, approval)
        .with(record::approval::HASH, asked.hash.clone())
        .with(record::approval::VERDICT, if said.approved { 1 } else { 2 })
        .with(record::approval::BY, said.by)
        .with(record::approval::NOTE, record::bounded(said.note));
    let event = NewEvent::new(Kind::ApprovalAnswered).with_fields(fields);
    Ok((id, event))
}

/// The identity that is meant by a name as it is in the code, as in `publish`, if only one of these
/// has it; else what was said.
fn only_one_named<'a>(said: &'a str, open: &[&'a str]) -> &'a str {
    let named = |id: &&&str| {
        let last = id.rsplit('/').next().unwrap_or(id);
        last.split('#').next() == Some(said)
    };
    let mut found = open.iter().filter(named);
    match (found.next(), found.next()) {
        (Some(only), None) => only,
        _ => said,
    }
}

/// Why an answer would not count.
fn closed(asked: &ApprovalRecord, now_us: u64) -> Option<String> {
    if let Some(answer) = &asked.answer {
        let said = if answer.approved {
            "approved"
        } else {
            "rejected"
        };
        return Some(format!("{} has {said} it", answer.by));
    }
    if asked.expires_us.is_some_and(|at| now_us > at) {
        return Some("it has expired".to_owned());
    }
    asked
        .used
        .then(|| "the run has gone on without an answer".to_owned())
}

/// Why an order that was recorded changes nothing, if it does not: another was faster.
pub(crate) fn does_not_count(before: &Journal, order: &Event) -> Option<String> {
    let step = order.fields.text(record::step::STEP).map(StepId::new)?;
    match order.kind {
        Kind::ApprovalAnswered => {
            let Some(asked) = before.approvals.get(&step) else {
                return Some(format!("{step} is not asked for any more"));
            };
            let hash = order.fields.get(record::approval::HASH);
            if !matches!(hash, Some(Value::Bytes(hash)) if *hash == asked.hash) {
                return Some(format!("{step} asks for something else by now"));
            }
            closed(asked, order.time_us)
        }
        Kind::StepResolved => {
            let found = before.steps.get(&step);
            let attempt = order.fields.number(record::resolved::ATTEMPT);
            let is_it = |found: &StepRecord| attempt.is_none_or(|meant| meant == found.attempts);
            let is_open = found.is_some_and(|found| found.is_open() && is_it(found));
            let is_open = is_open && before.fail.is_none();
            (!is_open).then(|| format!("{step} is not in doubt any more: another has resolved it"))
        }
        _ => None,
    }
}

/// What became of a step in doubt.
pub(crate) async fn resolve(
    store: &dyn Store,
    run: &str,
    step: &str,
    verdict: Verdict,
    result: Option<NewPayload>,
    by: &str,
) -> Result<Order, Error> {
    let (id, journal) = live(store, run).await?;
    let doubtful = journal.in_doubt().map(StepId::as_str);
    let step = only_one_named(step, doubtful.as_slice());
    let found = journal.steps.get(&StepId::new(step));
    if doubtful != Some(step) || !found.is_some_and(|found| found.is_open()) {
        return Err(Error::NotInDoubt {
            run: run.to_owned(),
            step: step.to_owned(),
            open: match doubtful {
                Some(step) => format!("{step} is"),
                None => "no step of it is".to_owned(),
            },
        });
    }
    let fields = Fields::new()
        .with(record::step::STEP, step)
        .with(record::resolved::VERDICT, verdict.number())
        .with(record::resolved::BY, by)
        .with(
            record::resolved::ATTEMPT,
            found.map_or(0, |found| found.attempts),
        );
    let mut event = NewEvent::new(Kind::StepResolved).with_fields(fields);
    event.input = result;
    Ok((id, event))
}

/// The wish that a run ends.
pub(crate) async fn cancel(store: &dyn Store, run: &str, reason: &str) -> Result<Order, Error> {
    let (id, _) = live(store, run).await?;
    let fields = Fields::new().with(record::cancel::REASON, record::bounded(reason));
    let event = NewEvent::new(Kind::CancelRequested).with_fields(fields);
    Ok((id, event))
}

/// The cause of an attention is gone.
pub(crate) async fn clear_attention(store: &dyn Store, run: &str) -> Result<Order, Error> {
    let (id, _) = live(store, run).await?;
    Ok((id, NewEvent::new(Kind::AttentionCleared)))
}

/// What a run may use.
pub(crate) async fn set_budget(
    store: &dyn Store,
    run: &str,
    budget: &Budget,
) -> Result<Order, Error> {
    let (id, _) = live(store, run).await?;
    Ok((id, record::budget_set(budget)))
}
