//! What a store is used for while it lives, beside appending: waiting, sealing, snapshots, reading,
//! a view beside it, closing; and repairing it between two lives.

use std::sync::atomic::Ordering;

use dalsegno_store::{NewEvent, Retention, Store, StoreError, StreamId};

use super::compare::{Trouble, same_payloads};
use super::verdict::Refusal;
use super::{After, DIR, World, now};

impl World {
    pub(super) fn work(&mut self) -> Result<(), String> {
        let operations = self.rng.range(1, 80);
        self.work_a_little(operations)
    }

    /// So many operations, or as many as the store survives.
    pub(super) fn work_a_little(&mut self, operations: u64) -> Result<(), String> {
        for _ in 0..operations {
            self.clock
                .fetch_add(self.rng.below(2_000_000), Ordering::Relaxed);
            let after = match self.rng.below(106) {
                0..44 => self.append()?,
                44..57 => self.wait()?,
                57..61 => self.seal()?,
                61..65 => self.snapshot()?,
                65..72 => self.lease()?,
                72..79 => self.send()?,
                79..83 => self.take_letters()?,
                83..89 => self.read()?,
                89..92 => self.read_payload()?,
                92..95 => self.look()?,
                95..98 => self.retire()?,
                98..101 => self.export()?,
                101..104 => self.import()?,
                _ => self.close()?,
            };
            if after == After::Reopen || self.disk.crashed() {
                return Ok(());
            }
            self.same_state()?;
        }
        Ok(())
    }

    /// After every operation: the state is that of all events so far. So whatever was refused or
    /// failed has left no trace.
    fn same_state(&self) -> Result<(), String> {
        match &self.store {
            Some(store) if store.state_digest() != self.history.state.digest() => {
                Err("the state is another than that of all events".into())
            }
            _ => Ok(()),
        }
    }

    /// Waits for the last append, or an earlier one.
    fn wait(&mut self) -> Result<After, String> {
        let (Some(store), Some(last)) = (self.store.clone(), self.positions.last().copied()) else {
            return Ok(After::GoOn);
        };
        let some = self.positions[self.rng.index(self.positions.len())];
        let (position, count) = if self.rng.chance(700) { last } else { some };
        match now(store.durable(position)) {
            Ok(()) => {
                self.acknowledge(count);
                Ok(After::GoOn)
            }
            Err(e) => self.failed("durable", &e),
        }
    }

    pub(super) fn acknowledge(&mut self, count: usize) {
        let before = self.history.durable;
        self.history.acknowledge(count);
        self.summary.acknowledged += (self.history.durable - before) as u64;
    }

    fn seal(&mut self) -> Result<After, String> {
        let Some(store) = self.store.clone() else {
            return Ok(After::Reopen);
        };
        match store.seal() {
            Ok(()) => {
                self.acknowledge(self.history.entries.len());
                Ok(After::GoOn)
            }
            Err(e) => self.failed("seal", &e),
        }
    }

    fn snapshot(&mut self) -> Result<After, String> {
        let Some(store) = self.store.clone() else {
            return Ok(After::Reopen);
        };
        let pinned = self.rng.chance(200);
        let written = store.snapshot(pinned);
        let listed = store.snapshots();
        match (written, listed) {
            (Ok(info), Ok(listed)) => {
                let rolling = listed.iter().filter(|other| !other.pinned).count();
                if !listed.contains(&info) || info.pinned != pinned || rolling > 2 {
                    return Err(format!("wrote {info:?}, and there are {listed:?}"));
                }
                // A snapshot holds only what is durable.
                self.acknowledge(self.history.entries.len());
                Ok(After::GoOn)
            }
            (Err(e), _) | (_, Err(e)) => self.failed("snapshot", &e),
        }
    }

    /// Lets runs go that have ended, some time ago or just now.
    fn retire(&mut self) -> Result<After, String> {
        let Some(store) = self.store.clone() else {
            return Ok(After::Reopen);
        };
        let before = self.history.entries.len();
        let ago = if self.rng.chance(600) { 0 } else { 20_000_000 };
        let ended_before_us = self.time() - self.rng.below(ago);
        self.history.retire_before_us = ended_before_us;
        let retention = Retention {
            ended_before_us,
            archive: self.rng.chance(500),
        };
        let result = store.retire(&retention);
        if self.catch_up()? {
            return Ok(After::Reopen);
        }
        let retired = match result {
            Ok(retired) => retired,
            Err(e) => return self.failed("retire", &e),
        };
        let named = self.history.retired_since(before);
        if retired.runs != named || !self.history.state.retiring.is_empty() {
            return Err(format!("{retired:?}, and the log names {named:?}"));
        }
        self.summary.retired_runs += named.len() as u64;
        if self.history.entries.len() > before {
            self.acknowledge(self.history.entries.len());
        }
        Ok(After::GoOn)
    }

    /// Reads a range of a stream.
    fn read(&mut self) -> Result<After, String> {
        let Some(store) = self.store.clone() else {
            return Ok(After::Reopen);
        };
        let stream = match self.rng.below(8) {
            0 => self.memory(),
            1 => StreamId::store(),
            _ => self.any_run(),
        };
        let head = self.history.head(&stream);
        let (from, limit) = (self.rng.range(0, head + 2), self.rng.below(12) as usize);
        match now(store.read(&stream, from, limit)) {
            Ok(read) => {
                let entries = self.history.of(&stream);
                let entries = entries.filter(|entry| entry.event.sequence >= from.max(1));
                let mut hash = dalsegno_store::Hash::ZERO;
                for entry in self.history.of(&stream) {
                    if entry.event.sequence >= from.max(1) {
                        break;
                    }
                    hash = hash.chain(&entry.bytes);
                }
                let expected = entries.take(limit).map(|entry| {
                    hash = hash.chain(&entry.bytes);
                    (&entry.event, hash)
                });
                let found = read.iter().map(|recorded| (&recorded.event, recorded.hash));
                if !found.eq(expected) {
                    return Err(format!("{limit} events of {stream} from {from}: {read:?}"));
                }
                Ok(After::GoOn)
            }
            Err(e) => self.failed("read", &e),
        }
    }

    fn read_payload(&mut self) -> Result<After, String> {
        let Some(store) = self.store.clone() else {
            return Ok(After::Reopen);
        };
        let at = self.rng.index(self.history.entries.len());
        let read = same_payloads(&store, &self.history, |other| other == at);
        self.settled("payload", read)
    }

    fn settled(&mut self, what: &str, result: Result<(), Trouble>) -> Result<After, String> {
        match result {
            Ok(()) => Ok(After::GoOn),
            Err(Trouble::Failed(e)) => self.failed(what, &e),
            Err(Trouble::Wrong(_)) if self.disk.crashed() => Ok(After::Reopen),
            Err(Trouble::Wrong(wrong)) => Err(format!("{what}: {wrong}")),
        }
    }

    /// Looks through a view: a new one, or one that was opened some time ago.
    fn look(&mut self) -> Result<After, String> {
        let kept = self.view.take().filter(|_| self.rng.chance(700));
        let view = match kept.map_or_else(|| self.options.open_read_only(DIR), Ok) {
            Ok(view) => view,
            Err(e) => return self.failed("read-only open", &e),
        };
        let compared = self.compare_view(&view);
        if let Err(Trouble::Failed(StoreError::ReadOnly)) = &compared {
            return Err("a view could not be read".into());
        }
        let written = now(view.append(vec![]));
        if !matches!(written, Err(StoreError::ReadOnly)) {
            return Err(format!("a view was written to: {written:?}"));
        }
        self.view = Some(view);
        self.settled("view", compared)
    }

    /// Repairs the store between two lives, on a disk that may fail and a machine that may crash.
    /// There is nothing to do, unless bits were flipped.
    pub(super) fn repair(&mut self) -> Result<(), String> {
        self.resume_faults();
        if self.rng.chance(500) {
            let in_operations = self.rng.range(0, 500);
            self.disk.crash_at(self.disk.ops() + in_operations);
        }
        // It opens the store if it has something to say.
        self.closed = false;
        self.blind_openings += 1;
        self.history.repairs += 1;
        let repaired = self.options.repair(DIR);
        if self.disk.crashed() {
            self.cut_power();
            return Ok(());
        }
        // The crash did not come, and must not come later.
        self.disk.restart_process();
        match repaired {
            Ok(done) => {
                if !self.rotten && !done.actions.is_empty() {
                    return Err(format!("repaired what was sound: {:?}", done.actions));
                }
                if !self.faulty() && !done.report.is_sound() {
                    return Err(format!("not sound after a repair: {}", done.report));
                }
                // What is removed on a failing disk may come back.
                self.rotten &= self.faulty() || self.syncs_fail;
                self.summary.repairs += u64::from(!done.actions.is_empty());
                Ok(())
            }
            // There may be none yet.
            Err(StoreError::NotAStore { .. }) if self.marker.is_none() => Ok(()),
            Err(e) if self.faulty() && !super::is_verdict(&e) => {
                self.summary.failures += 1;
                Ok(())
            }
            Err(e) => Err(format!("repair: {e}")),
        }
    }

    pub(super) fn close(&mut self) -> Result<After, String> {
        let Some(store) = self.store.take() else {
            return Ok(After::Reopen);
        };
        match store.close() {
            Ok(()) => {
                self.acknowledge(self.history.entries.len());
                self.closed = true;
                let append = dalsegno_store::Append::to(
                    self.memory(),
                    vec![NewEvent::new(dalsegno_store::Kind::FactConfirmed)],
                );
                match now(store.append(vec![append])) {
                    Err(e) if Refusal::of(&e) == Some(Refusal::Closed) => Ok(After::Reopen),
                    other => Err(format!("an append after closing: {other:?}")),
                }
            }
            Err(e) => {
                self.failed("close", &e)?;
                Ok(After::Reopen)
            }
        }
    }
}
