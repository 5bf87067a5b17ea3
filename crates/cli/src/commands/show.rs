//! `dalsegno show`: a run step by step, or event by event, now or at a past event.

use dalsegno::{Journal, Outcome, Timeline};
use dalsegno_store::{Body, Event, Payload, Store, StreamId};

use crate::args::Global;
use crate::args::show::Show;
use crate::exit::{Error, Exit, Result};
use crate::left_behind::{self, Gone};
use crate::output::{Out, time};
use crate::{asks, find, open, runtime};

mod document;
mod page;

/// Everything that is shown of a run.
struct Shown {
    run: String,
    timeline: Timeline,
    /// The events, if they were asked for.
    events: Option<Vec<Event>>,
    /// The content of the last written state.
    state: Option<Vec<u8>>,
    /// What it came to, if it has ended.
    result: Option<Vec<u8>>,
    /// Its process is gone.
    gone: Option<Gone>,
    /// How many steps or events are left out in front.
    left_out: u64,
    now_us: u64,
}

/// Shows a run.
///
/// # Errors
/// There is no such run or event, or the store cannot be read.
pub fn run(args: &Show, global: &Global, out: &mut Out) -> Result<Exit> {
    let store = open::reader(global)?;
    let shown = runtime::block_on(read(global, &*store, args))?;
    match out.is_json() {
        true => out.json(&document::of(&shown))?,
        false => page::print(&shown, out)?,
    }
    Ok(match args.at.is_none() && shown.needs_person() {
        true => Exit::NeedsPerson,
        false => Exit::Done,
    })
}

impl Shown {
    fn journal(&self) -> &Journal {
        &self.timeline.journal
    }

    fn needs_person(&self) -> bool {
        let is_left = self.gone.as_ref().is_some_and(|gone| gone.needs_person);
        is_left || asks::needs_person(self.journal(), self.now_us)
    }
}

async fn read(global: &Global, store: &dyn Store, args: &Show) -> Result<Shown> {
    let (id, head) = find::run(store, &args.run).await?;
    if let Some(at) = args.at.filter(|at| *at == 0 || *at > head.sequence) {
        let what = format!("run {:?} has no event {at}", args.run);
        return Err(Error::usage(what).hint(format!("its events are 1 to {}", head.sequence)));
    }
    let mut timeline = dalsegno::timeline(store, &args.run, args.at).await?;
    let limit = match args.limit {
        0 => usize::MAX,
        limit => limit,
    };
    let journal = &timeline.journal;
    let (events, left_out) = match args.events {
        true => {
            let from = journal.last.saturating_sub(limit as u64) + 1;
            (
                Some(events(store, &id, from, journal.last).await?),
                from - 1,
            )
        }
        false => (None, timeline.steps.len().saturating_sub(limit) as u64),
    };
    let state = journal.checkpoint.as_ref().and_then(|c| c.state.as_ref());
    let result = match &journal.end {
        Some(Outcome::Succeeded(output)) => output.as_ref(),
        _ => None,
    };
    let (state, result) = (bytes(store, state).await?, bytes(store, result).await?);
    let gone = match args.at {
        Some(_) => None,
        None => left_behind::gone(global, store, &args.run, journal).await?,
    };
    if !args.events {
        timeline.steps.drain(..left_out as usize);
    }
    Ok(Shown {
        run: args.run.clone(),
        timeline,
        events,
        state,
        result,
        gone,
        left_out,
        now_us: time::now_us(),
    })
}

async fn events(store: &dyn Store, id: &StreamId, from: u64, last: u64) -> Result<Vec<Event>> {
    let count = (last + 1).saturating_sub(from);
    Ok(store.events(id, from, count as usize).await?)
}

async fn bytes(store: &dyn Store, payload: Option<&Payload>) -> Result<Option<Vec<u8>>> {
    Ok(match payload.map(|payload| (payload, &payload.body)) {
        None => None,
        Some((_, Body::Inline(bytes))) => Some(bytes.clone()),
        Some((payload, Body::Stored { .. })) => Some(store.payload(payload).await?),
    })
}
