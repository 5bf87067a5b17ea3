//! What a log is used for while it lives: appending, waiting, sealing, rewriting, dropping,
//! reading, closing.

use dalsegno_log::{
    AppendError, DropError, Durable, Log, Lsn, OpenError, ReadError, RewriteError, SegmentInfo,
    SyncError,
};

use super::{After, DIR, World, collect, is_full, read_all};

impl World {
    pub(super) fn work(&mut self) -> Result<(), String> {
        if self.interrupted.is_some()
            && self.rng.chance(500)
            && matches!(self.rewrite()?, After::Reopen)
        {
            return Ok(());
        }
        for _ in 0..self.rng.range(1, 40) {
            let after = match self.rng.below(100) {
                0..45 => self.append()?,
                45..75 => self.wait()?,
                75..81 => self.seal()?,
                81..85 => self.drop_some()?,
                85..90 => self.rewrite()?,
                90..93 => self.read()?,
                93..95 => self.read_segment()?,
                95..97 => self.view()?,
                97..99 => self.look_again()?,
                _ => self.close_or_hand_over()?,
            };
            if matches!(after, After::Reopen) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn payload(&mut self) -> Vec<u8> {
        self.next_payload += 1;
        let size = match self.rng.below(10) {
            0 => 0,
            1..6 => self.rng.range(1, 60),
            6..9 => self.rng.range(60, 700),
            _ => self.rng.range(500, self.segment_bytes),
        };
        let mut payload = self.rng.bytes(size as usize);
        // Zeros too, which look like space never written.
        if self.rng.chance(100) {
            payload.fill(0);
        }
        let tag = self.next_payload.to_le_bytes();
        for (byte, tag) in payload.iter_mut().zip(tag) {
            *byte = tag;
        }
        payload
    }

    fn append(&mut self) -> Result<After, String> {
        let count = if self.rng.chance(600) {
            1
        } else {
            self.rng.range(2, 5)
        };
        let payloads: Vec<Vec<u8>> = (0..count).map(|_| self.payload()).collect();
        let Some(log) = self.log.clone() else {
            return Ok(After::Reopen);
        };
        match log.append_batch(&payloads) {
            Ok(lsns) => {
                self.model.appended(*lsns.start(), payloads)?;
                self.note_durable(&log)?;
                Ok(After::GoOn)
            }
            Err(AppendError::TooLarge { .. }) => Ok(After::GoOn),
            Err(AppendError::NoSpace(failure)) => self.no_space(&failure.error),
            Err(AppendError::Poisoned(_)) => self.poisoned(&log),
            Err(e) => Err(format!("append: {e}")),
        }
    }

    fn wait(&mut self) -> Result<After, String> {
        let Some(log) = self.log.clone() else {
            return Ok(After::Reopen);
        };
        let last = self.model.last();
        let lsn = if self.rng.chance(700) {
            last
        } else {
            self.rng.range(0, last)
        };
        let result = if self.rng.chance(500) {
            log.wait_durable(lsn)
        } else {
            poll_once(log.durable(lsn))
        };
        if result.is_ok() && log.durable_lsn() < lsn {
            return Err(format!("a wait for {lsn} ended at {}", log.durable_lsn()));
        }
        self.settled(&log, result)
    }

    pub(super) fn seal(&mut self) -> Result<After, String> {
        let Some(log) = self.log.clone() else {
            return Ok(After::Reopen);
        };
        let result = log.seal();
        let sealed = log.segments().last().is_some_and(|info| info.sealed);
        let after = self.settled(&log, result)?;
        if sealed {
            // The seal is a later group: what is before it is no longer the last one.
            self.model.last_group = self.model.durable + 1;
        }
        Ok(after)
    }

    /// What to rewrite: what was interrupted, as somebody would who tries again; or any sealed
    /// segment, most often the newest, which is the most delicate.
    fn choose_rewrite(&mut self, log: &Log) -> Option<(u64, Vec<Lsn>)> {
        let sealed: Vec<SegmentInfo> = log.segments().into_iter().filter(|i| i.sealed).collect();
        let newest = *sealed.last()?;
        let again = self.interrupted.clone();
        let again = again.filter(|(number, _)| sealed.iter().any(|info| info.number == *number));
        if again.is_some() && self.rng.chance(800) {
            return again;
        }
        let info = if self.rng.chance(500) {
            newest
        } else {
            sealed[self.rng.index(sealed.len())]
        };
        let per_mille = [0, 200, 500, 900, 1000][self.rng.index(5)];
        let remove = (info.first_lsn..=info.last_lsn)
            .filter(|_| self.rng.chance(per_mille))
            .collect();
        Some((info.number, remove))
    }

    pub(super) fn rewrite(&mut self) -> Result<After, String> {
        let Some(log) = self.log.clone() else {
            return Ok(After::Reopen);
        };
        let Some((number, remove)) = self.choose_rewrite(&log) else {
            return Ok(After::GoOn);
        };
        self.interrupted = Some((number, remove.clone()));
        self.model.removing(&remove);
        let mut wrong = None;
        let rewritten = log.rewrite_segment(number, |lsn, payload| {
            wrong = wrong.take().or(self.model.check_record(lsn, payload).err());
            !remove.contains(&lsn)
        });
        if let Some(wrong) = wrong {
            return Err(format!("rewriting segment {number}: {wrong}"));
        }
        match rewritten {
            Ok(_) => {
                self.model.removed(&remove);
                self.interrupted = None;
                self.summary.rewrites += 1;
                Ok(After::GoOn)
            }
            Err(RewriteError::Io(_)) if self.disk.crashed() => Ok(After::Reopen),
            Err(RewriteError::Io(failure)) if self.faulty() => self.no_space(&failure.error),
            Err(RewriteError::Poisoned(_)) => self.poisoned(&log),
            Err(e) => Err(format!("rewriting segment {number}: {e}")),
        }
    }

    fn settled(&mut self, log: &Log, result: Result<(), SyncError>) -> Result<After, String> {
        self.note_durable(log)?;
        match result {
            Ok(()) => Ok(After::GoOn),
            Err(SyncError::NoSpace(failure)) => self.no_space(&failure.error),
            Err(SyncError::Poisoned(_)) => self.poisoned(log),
            Err(e) => Err(format!("sync: {e}")),
        }
    }

    fn note_durable(&mut self, log: &Log) -> Result<(), String> {
        let before = self.model.durable;
        self.model.acknowledged(log.durable_lsn())?;
        self.summary.acknowledged += self.model.durable - before;
        Ok(())
    }

    fn no_space(&mut self, error: &std::io::Error) -> Result<After, String> {
        if self.disk.crashed() {
            return Ok(After::Reopen);
        }
        if !self.faulty() {
            return Err(format!("no space on a disk without limit: {error}"));
        }
        self.summary.full_disks += u64::from(is_full(error));
        if self.rng.chance(300) {
            // Somebody makes room.
            self.disk.set_capacity(None);
        }
        Ok(After::GoOn)
    }

    /// A poisoned log must stay that way.
    fn poisoned(&mut self, log: &Log) -> Result<After, String> {
        if !self.disk.crashed() {
            if !self.faults_on() {
                return Err("poisoned without a fault".into());
            }
            self.summary.poisonings += 1;
            let durable = log.durable_lsn();
            let last = log.last_lsn();
            let waited = last <= durable || log.wait_durable(last).is_err();
            if !waited || log.append(b"after").is_ok() || log.durable_lsn() != durable {
                return Err("a poisoned log went on".into());
            }
        }
        Ok(After::Reopen)
    }

    fn drop_some(&mut self) -> Result<After, String> {
        let Some(log) = self.log.clone() else {
            return Ok(After::Reopen);
        };
        let lsn = self.rng.range(self.model.is_dropped, self.model.last() + 1);
        let may_before = self.model.may_be_dropped;
        self.model.may_be_dropped = may_before.max(lsn);
        let dropped = log.drop_before(lsn);
        self.note_durable(&log)?;
        match dropped {
            Ok(_) => {
                self.model.is_dropped = self.model.is_dropped.max(log.first_lsn());
                Ok(After::GoOn)
            }
            Err(DropError::Io(_)) if self.disk.crashed() => Ok(After::Reopen),
            Err(DropError::Io(_)) if self.faults_on() => Ok(After::GoOn),
            Err(DropError::Sync(SyncError::NoSpace(e))) => self.no_space(&e.error),
            Err(DropError::Sync(SyncError::Poisoned(_))) => self.poisoned(&log),
            Err(e) => Err(format!("drop: {e}")),
        }
    }

    fn read(&mut self) -> Result<After, String> {
        let Some(log) = self.log.clone() else {
            return Ok(After::Reopen);
        };
        let first = log.first_lsn();
        let from = self.rng.range(first, log.durable_lsn() + 1);
        let (read, least) = (read_all(&log, from), log.durable_lsn());
        self.check_read(read, from, least)
    }

    /// Reads one segment, first in order and then each record at its offset.
    fn read_segment(&mut self) -> Result<After, String> {
        let Some(log) = self.log.clone() else {
            return Ok(After::Reopen);
        };
        let segments = log.segments();
        let info = segments[self.rng.index(segments.len())];
        match self.read_places(&log, info) {
            Ok(read) => {
                let (first, last) = (info.first_lsn, info.last_lsn);
                self.model
                    .check_part(first, last, &read)
                    .map_err(|e| format!("reading segment {}: {e}", info.number))?;
                Ok(After::GoOn)
            }
            Err(ReadError::Io(_)) if self.faults_on() || self.disk.crashed() => Ok(After::GoOn),
            Err(e) => Err(format!("reading segment {}: {e}", info.number)),
        }
    }

    fn read_places(&self, log: &Log, info: SegmentInfo) -> Result<Vec<(Lsn, Vec<u8>)>, ReadError> {
        let mut segment = log.open_segment(info.number)?;
        let mut places = Vec::new();
        while let Some((offset, _)) = segment.next_record()? {
            places.push(offset);
        }
        let mut buffer = Vec::new();
        let read = places.into_iter().map(|offset| {
            let record = segment.record_at(offset, &mut buffer)?;
            Ok((record.lsn, record.payload.to_vec()))
        });
        read.collect()
    }

    fn view(&mut self) -> Result<After, String> {
        let view = match self.options.open_read_only(DIR) {
            Ok(view) => view,
            Err(OpenError::Io(_)) if self.faulty() || self.disk.crashed() => {
                return Ok(After::GoOn);
            }
            Err(e) => return Err(format!("read-only open: {e}")),
        };
        let from = self.rng.range(view.first_lsn(), view.last_lsn() + 1);
        let read = view.read_from(from).and_then(collect);
        self.check_read(read, from, self.model.durable)
    }

    /// A view that was opened some time ago catches up with what happened since.
    fn look_again(&mut self) -> Result<After, String> {
        let Some(view) = self.view.take() else {
            self.view = self.options.open_read_only(DIR).ok();
            return Ok(After::GoOn);
        };
        let refreshed = view.refresh();
        let (first, last) = (view.first_lsn(), view.last_lsn());
        let read = refreshed.and_then(|_| view.read_from(first).and_then(collect));
        self.view = Some(view);
        // Never behind what was acknowledged when it looked, and never ahead of itself.
        let least = self.model.durable.min(last);
        if read.is_ok() && last < self.model.durable {
            let durable = self.model.durable;
            return Err(format!(
                "a view ends at {last}, but {durable} was acknowledged"
            ));
        }
        self.check_read(read, first, least)
    }

    fn check_read(
        &mut self,
        read: Result<Vec<(Lsn, Vec<u8>)>, ReadError>,
        from: Lsn,
        least: Lsn,
    ) -> Result<After, String> {
        match read {
            Ok(read) => {
                // Part of a log: what is before `from` was not asked for.
                let mut model = self.model.clone();
                model.may_be_dropped = from;
                model.is_dropped = 0;
                model.check(from, &read, least)?;
                Ok(After::GoOn)
            }
            Err(ReadError::Io(_)) if self.faults_on() || self.disk.crashed() => Ok(After::GoOn),
            Err(e) => Err(format!("reading: {e}")),
        }
    }

    pub(super) fn close_or_hand_over(&mut self) -> Result<After, String> {
        let hands_over = self.rng.chance(500);
        self.end(hands_over)
    }

    fn end(&mut self, hands_over: bool) -> Result<After, String> {
        let Some(log) = self.log.take() else {
            return Ok(After::Reopen);
        };
        let last = self.model.last();
        let ended = match hands_over {
            true => log.hand_over(),
            false => log.close(),
        };
        match ended {
            Ok(()) => {
                self.model.acknowledged(last)?;
                if !hands_over {
                    // A mark follows in a later group.
                    self.model.last_group = last + 1;
                }
                self.closed = true;
                Ok(After::Reopen)
            }
            Err(SyncError::NoSpace(e)) => self.no_space(&e.error).map(|_| After::Reopen),
            Err(SyncError::Poisoned(_)) if self.disk.crashed() || self.faults_on() => {
                Ok(After::Reopen)
            }
            Err(e) => Err(format!("close: {e}")),
        }
    }
}

/// Without threads a future is ready when it is first polled.
fn poll_once(durable: Durable) -> Result<(), SyncError> {
    let mut durable = std::pin::pin!(durable);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match durable.as_mut().poll(&mut context) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => Err(SyncError::Closed),
    }
}
