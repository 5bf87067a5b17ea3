//! `dalsegno tail`: events as they come.
//!
//! Invariant: an event is printed once and in order, and whatever was read is with the reader before
//! the command waits or ends.

use dalsegno_store::{Event, LocalStore, Position, Store, StreamId, StreamKind};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Global;
use crate::args::tail::Tail;
use crate::exit::{Error, Exit, Result};
use crate::open::{self, Opened};
use crate::output::Out;
use crate::output::event::{EventDocument, line};
use crate::output::style::Style;
use crate::output::text::shown;
use crate::{find, runtime};

#[cfg(feature = "postgres")]
mod database;

/// So many events are read at once.
const PAGE: usize = 1024;
/// How far back the last events of a whole store are looked for.
const LOOK_BACK: u64 = 4096;

/// `dalsegno.event/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    run: &'a str,
    /// Where it stands in the store; `null` if one run is followed.
    position: Option<Position>,
    #[serde(flatten)]
    event: EventDocument<'a>,
}

/// Follows.
///
/// # Errors
/// There is no such run, or the store cannot be read any more.
pub fn run(args: &Tail, global: &Global, out: &mut Out) -> Result<Exit> {
    let opened = open::any_reader(global)?;
    let store = &*opened.store();
    runtime::block_on(async {
        let mut end = signal(SignalKind::terminate()).map_err(no_signals)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
        let mut follow = Following::new(&opened, args).await?;
        loop {
            // First this, then the reading: what is added in between ends the wait.
            let position = store.position().await?;
            let ended = follow.drain(store, out).await?;
            out.flush()?;
            if ended || out.is_gone() {
                return Ok(Exit::Done);
            }
            tokio::select! {
                changed = store.changed(position) => drop(changed?),
                _ = end.recv() => return Ok(Exit::Done),
                _ = interrupt.recv() => return Ok(Exit::Done),
            }
        }
    })
}

fn no_signals(error: std::io::Error) -> Error {
    Error::failed(format!("cannot listen for Ctrl-C: {error}"))
}

/// What is followed, and how far that is.
enum Following {
    Run {
        id: StreamId,
        next: u64,
    },
    All {
        local: LocalStore,
        after: Position,
    },
    #[cfg(feature = "postgres")]
    Database(database::Seen),
}

impl Following {
    async fn new(opened: &Opened, args: &Tail) -> Result<Following> {
        let Some(name) = &args.run else {
            return match opened {
                Opened::Folder(local) => {
                    let after = match args.from {
                        Some(from) => from.saturating_sub(1),
                        None => last_of_all(local, args.last).await?,
                    };
                    let local = local.clone();
                    Ok(Following::All { local, after })
                }
                #[cfg(feature = "postgres")]
                Opened::Database(database) => match args.from {
                    None => Ok(Following::Database(
                        database::Seen::new(database, args.last).await?,
                    )),
                    Some(_) => Err(Error::usage(
                        "the events of a database have no common order that --from could name",
                    )
                    .hint("name a run, and --from is one of its events")),
                },
            };
        };
        let store = &*opened.store();
        let (id, head) = find::run(store, name).await?;
        let last = (head.sequence + 1).saturating_sub(args.last as u64);
        let next = args.from.unwrap_or(last).max(1);
        Ok(Following::Run { id, next })
    }

    /// Prints what is there. Whether nothing can follow.
    async fn drain(&mut self, store: &dyn Store, out: &mut Out) -> Result<bool> {
        loop {
            match self {
                Following::Run { id, next } => {
                    let page = store.events(id, *next, PAGE).await?;
                    for event in &page {
                        *next = event.sequence + 1;
                        print(None, event, out)?;
                        if is_end(event) {
                            return Ok(true);
                        }
                    }
                    if page.len() < PAGE {
                        return has_ended(store, id, *next).await;
                    }
                }
                Following::All { local, after } => {
                    let page = local.events_after(*after, PAGE)?;
                    for (position, event) in &page {
                        *after = *position;
                        if event.stream.kind() == StreamKind::Run {
                            print(Some(*position), event, out)?;
                        }
                    }
                    if page.len() < PAGE {
                        return Ok(false);
                    }
                }
                #[cfg(feature = "postgres")]
                Following::Database(seen) => {
                    for event in seen.news(store).await? {
                        print_of(None, &event, true, out)?;
                    }
                    return Ok(false);
                }
            }
            if out.is_gone() {
                return Ok(true);
            }
        }
    }
}

/// Whether nothing can follow what was printed, up to the event before `next`.
async fn has_ended(store: &dyn Store, id: &StreamId, next: u64) -> Result<bool> {
    let Some(head) = store.head(id).await? else {
        return Ok(true);
    };
    // What came since the page was read has not been printed: it ends the wait at once.
    if head.sequence >= next {
        return Ok(false);
    }
    let last = store.events(id, head.sequence, 1).await?;
    Ok(last.iter().any(is_end))
}

fn is_end(event: &Event) -> bool {
    use dalsegno_store::Kind::{RunCancelled, RunCompleted, RunFailed};
    matches!(event.kind, RunCompleted | RunFailed | RunCancelled)
}

/// The position behind which the last so many events of runs stand.
async fn last_of_all(store: &LocalStore, count: usize) -> Result<Position> {
    let end = store.position().await?;
    let from = end.saturating_sub(LOOK_BACK);
    let events = store.events_after(from, LOOK_BACK as usize)?;
    let runs = events
        .iter()
        .filter(|(_, event)| event.stream.kind() == StreamKind::Run);
    let positions: Vec<_> = runs.map(|(position, _)| *position).collect();
    let first = positions.len().saturating_sub(count);
    Ok(match positions.get(first) {
        Some(position) => position.saturating_sub(1),
        None => end,
    })
}

fn print(position: Option<Position>, event: &Event, out: &mut Out) -> Result<()> {
    print_of(position, event, position.is_some(), out)
}

fn print_of(
    position: Option<Position>,
    event: &Event,
    is_one_of_many: bool,
    out: &mut Out,
) -> Result<()> {
    if out.is_json() {
        out.json(&Document {
            schema: "dalsegno.event/1",
            run: event.stream.name(),
            position,
            event: EventDocument::of(event),
        })?;
        return Ok(());
    }
    let line = line(event);
    match is_one_of_many {
        false => out.line(line)?,
        true => {
            let name = out.paint(Style::Bold, &shown(event.stream.name()));
            let (at, what) = line.split_once("  ").unwrap_or(("", &line));
            out.line(format!("{at}  {name} {}", what.trim_start()))?;
        }
    }
    Ok(())
}
