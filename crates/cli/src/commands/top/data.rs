//! What is read of the store, beside its owner and without a lock.

use std::cmp::Reverse;

use dalsegno::views::{self, Listed};
use dalsegno::{Journal, record};
use dalsegno_store::{Event, Kind, RunQuery, Store, StreamId, Value};

use crate::args::Global;
use crate::exit::{Error, Result};
use crate::left_behind;
use crate::output::text::shown;
use crate::output::time;

/// So many of a run's last events are shown.
const EVENTS: u64 = 200;
/// Events read at once.
const PAGE: usize = 1024;

/// What is known of the selected run.
#[derive(Clone, Debug)]
pub struct Detail {
    pub run: String,
    pub why: Vec<String>,
    pub timeline: Vec<String>,
}

/// All runs, those that need a person first, then what is going on, then what has ended.
pub async fn runs(global: &Global, store: &dyn Store) -> Result<Vec<Listed>> {
    let mut runs = views::list(store, &RunQuery::default()).await?;
    left_behind::mark(global, store, &mut runs).await?;
    runs.sort_by_key(|run| {
        let rank = match () {
            () if run.needs_person() => 0,
            () if !run.info.status.is_final() => 1,
            () => 2,
        };
        (rank, Reverse(run.info.updated_us))
    });
    Ok(runs)
}

/// What a run waits for, or why only a person can move it on.
pub fn waits_for(run: &Listed) -> String {
    match &run.info.attention {
        Some(reason) if !run.answered => reason.clone(),
        _ => run.waits.join(", "),
    }
}

/// What is known of a run.
pub async fn detail(global: &Global, store: &dyn Store, run: &str) -> Result<Detail> {
    let why = left_behind::why(global, store, run).await?;
    let id = StreamId::run(run)?;
    let head = store.head(&id).await?.map_or(0, |head| head.sequence);
    let from = head.saturating_sub(EVENTS - 1).max(1);
    let events = store.events(&id, from, EVENTS as usize).await;
    let timeline = match events {
        Ok(events) => timeline(&events, from),
        Err(e) => vec![format!("cannot be read: {}", shown(&e.to_string()))],
    };
    Ok(Detail {
        run: run.to_owned(),
        why: why.to_string().lines().map(shown).collect(),
        timeline,
    })
}

/// The newest first: that is what one looks for.
fn timeline(events: &[Event], from: u64) -> Vec<String> {
    let mut lines: Vec<_> = events.iter().rev().map(line).collect();
    if from > 1 {
        lines.push(format!("… and {} before", from - 1));
    }
    lines
}

fn line(event: &Event) -> String {
    let when = time::utc(event.time_us);
    let clock = when
        .split_once('T')
        .map_or(when.as_str(), |(_, clock)| clock);
    let clock = clock.trim_end_matches('Z');
    let (sequence, kind) = (event.sequence, event.kind.to_string());
    format!(
        "{clock}  {sequence:>5}  {:<20} {}",
        shown(&kind),
        shown(&about(event))
    )
    .trim_end()
    .to_owned()
}

/// What the event is about: mostly a step.
fn about(event: &Event) -> String {
    let text = |key| event.fields.text(key).unwrap_or_default().to_owned();
    let step = text(record::step::STEP);
    match event.kind {
        Kind::RunFailed => text(record::failure::MESSAGE),
        Kind::StepFailed => format!("{step}: {}", text(record::failure::MESSAGE)),
        Kind::RunRecovered => text(record::recovered::WHY),
        Kind::ApprovalAnswered => {
            let said = match event.fields.number(record::approval::VERDICT) {
                Some(1) => "approved",
                _ => "denied",
            };
            format!("{step}: {said} by {}", text(record::approval::BY))
        }
        Kind::StepResolved => {
            let said = match event.fields.number(record::resolved::VERDICT) {
                Some(1) => "happened",
                Some(2) => "did not happen",
                _ => "fail the run",
            };
            format!("{step}: {said}, by {}", text(record::resolved::BY))
        }
        Kind::RunCheckpointed => match event.fields.get(record::checkpointed::WAITS) {
            Some(Value::List(waits)) => {
                let waits = waits.iter().filter_map(|wait| match wait {
                    Value::Text(wait) => Some(wait.as_str()),
                    _ => None,
                });
                format!("waits for {}", waits.collect::<Vec<_>>().join(", "))
            }
            _ => String::new(),
        },
        // Field 1 of most kinds is the name of what they are about.
        _ => step,
    }
}

/// An open request for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub id: String,
    /// Exactly what would be approved, in lines.
    pub payload: Vec<String>,
    /// The hash that the answer is bound to.
    pub hash: String,
    pub expires: Option<String>,
}

/// A step that nobody knows the outcome of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubtful {
    pub step: String,
    /// What is known, in lines.
    pub facts: Vec<String>,
}

/// The requests of a run that have no answer, the oldest first.
pub async fn asked(store: &dyn Store, run: &str) -> Result<Vec<Asked>> {
    let journal = journal(store, run).await?;
    let open = journal.approvals.iter();
    let mut open: Vec<_> = open
        .filter(|(_, asked)| asked.answer.is_none() && !asked.used)
        .collect();
    open.sort_by_key(|(id, asked)| (asked.asked_us, id.as_str().to_owned()));
    let mut found = Vec::new();
    for (id, asked) in open {
        let payload = match &asked.payload {
            Some(payload) => pretty(&store.payload(payload).await?),
            None => vec!["(nothing is attached to this request)".to_owned()],
        };
        found.push(Asked {
            id: id.as_str().to_owned(),
            payload,
            hash: asked
                .hash
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            expires: asked.expires_us.map(time::utc),
        });
    }
    Ok(found)
}

/// The step of a run that is in doubt.
pub async fn doubtful(store: &dyn Store, run: &str) -> Result<Option<Doubtful>> {
    let why = dalsegno::why(store, run).await?;
    let Some(doubt) = why.in_doubt.into_iter().next() else {
        return Ok(None);
    };
    let mut facts = vec![
        format!(
            "begun {}, attempt {}",
            time::utc(doubt.since_us),
            doubt.attempt
        ),
        format!("idempotency key {}", shown(&doubt.key)),
    ];
    if let Some(input) = &doubt.input {
        facts.push("input:".to_owned());
        facts.extend(pretty(input.as_bytes()));
    }
    Ok(Some(Doubtful {
        step: doubt.step.to_string(),
        facts,
    }))
}

/// The fold over all events of a run, read a page at a time.
pub async fn journal(store: &dyn Store, run: &str) -> Result<Journal> {
    let id = StreamId::run(run)?;
    if store.head(&id).await?.is_none() {
        return Err(Error::failed(format!("there is no run {:?}", shown(run))));
    }
    let mut events = Vec::new();
    loop {
        let page = store.events(&id, events.len() as u64 + 1, PAGE).await?;
        if page.is_empty() {
            return Ok(Journal::fold(events));
        }
        events.extend(page);
    }
}

/// JSON over lines, other text as it is, anything else as what it is.
fn pretty(bytes: &[u8]) -> Vec<String> {
    let text = match serde_json::from_slice::<serde_json::Value>(bytes) {
        Ok(value) => serde_json::to_string_pretty(&value).unwrap_or_default(),
        Err(_) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => format!("({} bytes that are no text)", bytes.len()),
        },
    };
    text.lines().map(shown).collect()
}
