//! In a replay: a lookup made again, as of the version that is recorded, finds the same.

use dalsegno_memory::{AsOf, Hits, MemoryError, Query, RankingConfig};
use dalsegno_store::Version;

use super::found::Found;
use super::{RunMemory, Write};
use crate::replay::DivergenceKind;
use crate::run::Active;
use crate::step::StepId;

impl RunMemory {
    /// Searches again, and stops the replay if something else is found.
    pub(super) async fn same_search(
        &self,
        id: &StepId,
        query: &Query,
        ranking: &RankingConfig,
        then: &Found,
    ) {
        if !self.ctx.run.is_replay() || self.is_changed_by_a_fork(id) {
            return;
        }
        let query = query.clone().as_of(AsOf::Version(then.version));
        let now = {
            let _active = Active::new(&self.ctx.run);
            self.open().await.search(&query, ranking).await
        };
        match now {
            Err(MemoryError::Store(e)) => self.stop(e.into()).await,
            Err(other) => {
                let words = then.words(&self.name);
                self.differs(id, words, other.to_string()).await;
            }
            Ok(now) if now.config != then.ranking => {
                let words = |hash| format!("ranks with the configuration {hash}");
                self.differs(id, words(then.ranking), words(now.config))
                    .await;
            }
            Ok(now) if now.forgotten_since != then.forgotten_since => {
                // Its statistics are others by now, and so may be all scores.
                if let Some(gate) = &mut self.ctx.run.state().gate {
                    gate.unchecked += 1;
                }
            }
            Ok(now) => {
                if !is_same(then, &now) {
                    let now = Found::of(now).words(&self.name);
                    self.differs(id, then.words(&self.name), now).await;
                }
            }
        }
    }

    /// In a replay: the code writes what it wrote, as far as the memory still has it.
    pub(super) async fn same_write(&self, id: &StepId, write: &Write, sequence: u64) {
        let (Write::Add(document) | Write::Correct(_, document), true) =
            (write, self.ctx.run.is_replay())
        else {
            return;
        };
        if self.is_changed_by_a_fork(id) {
            return;
        }
        let written = [dalsegno_memory::DocId(sequence)];
        let said = self.contents(id, &written).await;
        // What is forgotten cannot be compared; and what was there under its key is another's.
        if let Some(Ok(then)) = said.first()
            && document.content() != then
            && document.key_name().is_none()
        {
            let words = |text: &str| format!("writes {text:?}");
            let (then, now) = (words(&then.text), words(&document.content().text));
            self.differs(id, then, now).await;
        }
    }

    pub(super) fn is_changed_by_a_fork(&self, id: &StepId) -> bool {
        let state = self.ctx.run.state();
        let forked = state.journal.forked.as_ref();
        forked.is_some_and(|forked| forked.changed.contains(id))
    }

    pub(super) async fn differs(&self, id: &StepId, then: String, now: String) {
        let kind = DivergenceKind::Retrieval;
        self.ctx.differs(id, kind, then, now).await;
    }
}

pub(super) fn at(memory: &str, version: Version) -> String {
    let Version { sequence, hash } = version;
    format!("memory/{memory} at version {sequence} {hash}")
}

/// The same documents with the same scores, in the same order, and the same left out.
fn is_same(then: &Found, now: &Hits) -> bool {
    let hits = then.hits.iter().map(|hit| (hit.rank, hit.id, hit.score));
    hits.eq(now.hits.iter().map(|hit| (hit.rank, hit.id, hit.score)))
        && then.left_out == now.left_out
        && then.words == now.words
        && then.words_left_out == now.words_left_out
}
