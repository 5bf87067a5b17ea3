//! The record of a run in parts: all of it, or turn by turn for a loop.
//!
//! Invariant: a part ends before the event that ends its turn, so that the steps of that turn are
//! still known while the code goes through it; at most one turn is in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use dalsegno_store::{Event, Kind, Payload, Status, Store, StoreError, StreamId};

use super::StartAt;
use crate::journal::{self, Journal, Outcome};
use crate::record;

/// Events read at once.
const PAGE: usize = 4096;

/// What a part of the record ends with.
#[derive(Clone, Debug)]
pub(super) enum PartEnd {
    /// A turn ended here, with this state.
    Turn {
        turn: u64,
        state: Option<Payload>,
        event: u64,
    },
    /// The code ended here.
    Run { event: u64, end: Outcome },
    /// Nothing: the record ends here.
    Open,
}

/// Reads the record part by part.
pub(super) struct Feed {
    store: Arc<dyn Store>,
    run: StreamId,
    /// What was read and belongs to the next part.
    read: VecDeque<Event>,
    next: u64,
    head: u64,
}

impl Feed {
    /// The first part, and the journal of it.
    pub async fn begin(
        store: Arc<dyn Store>,
        run: StreamId,
        head: u64,
        from: StartAt,
    ) -> Result<(Feed, Journal, PartEnd), StoreError> {
        let mut feed = Feed {
            store,
            run,
            read: VecDeque::new(),
            next: 1,
            head,
        };
        if from == StartAt::LastTurn {
            let journal = journal::load(&*feed.store, &feed.run, Some(head)).await?;
            feed.next = head + 1;
            let end = end_of(&journal);
            return Ok((feed, journal, end));
        }
        let mut journal = Journal::default();
        let mut end = feed.part(|event| journal.apply(event)).await?;
        // The past of a forked loop begins with the state after a turn.
        let begins = journal.forked.as_ref().and_then(|forked| forked.turn);
        if let PartEnd::Turn { turn, .. } = end
            && begins == Some(turn)
        {
            end = feed.part(|event| journal.apply(event)).await?;
        }
        match end {
            PartEnd::Open => end = end_of(&journal),
            PartEnd::Turn { .. } | PartEnd::Run { .. } => {}
        }
        Ok((feed, journal, end))
    }

    /// Gives the events of the next part to `take`.
    pub async fn part(&mut self, mut take: impl FnMut(Event)) -> Result<PartEnd, StoreError> {
        // The end of the turn before belongs to what follows it.
        let mut first = true;
        loop {
            while let Some(event) = self.read.front() {
                if let (Some(turn), false) = (turn_of(event), first) {
                    return Ok(PartEnd::Turn {
                        turn,
                        state: event.output.clone(),
                        event: event.sequence,
                    });
                }
                first = false;
                self.read.pop_front().into_iter().for_each(&mut take);
            }
            if self.next > self.head {
                return Ok(PartEnd::Open);
            }
            let limit = PAGE.min((self.head - self.next + 1) as usize);
            let page = self.store.events(&self.run, self.next, limit).await?;
            match page.last() {
                Some(last) => self.next = last.sequence + 1,
                None => return Ok(PartEnd::Open),
            }
            self.read.extend(page);
        }
    }
}

fn turn_of(event: &Event) -> Option<u64> {
    let ends = event.kind == Kind::CheckpointWritten;
    ends.then(|| event.fields.number(record::checkpoint::TURN))
        .flatten()
}

/// How the last part ends: with the code's own end, or just so.
pub(super) fn end_of(journal: &Journal) -> PartEnd {
    // What a person said is not the code's doing.
    let by_code = journal.fail.is_none() && journal.status != Status::Cancelled;
    match &journal.end {
        Some(end) if by_code => PartEnd::Run {
            event: journal.last,
            end: end.clone(),
        },
        _ => PartEnd::Open,
    }
}
