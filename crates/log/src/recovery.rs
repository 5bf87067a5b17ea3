//! Opening a log for writing: find where it ended, repair what a crash left, go on from there.
//!
//! Order of work, each step safe to be interrupted and done again:
//!
//! 1. Take the lock.
//! 2. Read up to the last whole batch (`walk.rs`).
//! 3. Read what is behind it. Any damage ends it here at the latest, before a byte was changed.
//! 4. Save a torn tail aside, if there is room for it.
//! 5. Unless its last user handed it over (`handover.rs`): write the last group again, and zeros
//!    over the torn tail; sync. Only from here on is it certain that what was read is on disk.
//! 6. Give a prepared segment its name again, for the same reason; sync the folder.
//! 7. Remove segments that had been dropped, and half-made files.
//!
//! Then, if the last group has records, the log appends an `Opened` mark, in a group of its own.
//! With it on disk, every group of records found here is followed by a later one, so its loss
//! would be seen as damage.

use std::io;
use std::path::{Path, PathBuf};

use crate::Lsn;
use crate::cursor::Expect;
use crate::error::{IoFailure, OpenError};
use crate::frame::Kind;
use crate::fs::{FsFile, OpenMode, PlaceError, place};
use crate::handover::HandOver;
use crate::layout::{self, BEFORE_THE_FIRST, Scan};
use crate::marks::Ending;
use crate::rules::Rule;
use crate::segment;
use crate::spare::Prepared;
use crate::tail::{self, Verdict};
use crate::walk::{Opening, Walked, WalkedEnd};

/// What opening a log for writing found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The first LSN in the log, or the one it will begin with.
    pub first_lsn: Lsn,
    /// The last LSN in the log; one below `first_lsn` if it has no record.
    pub last_lsn: Lsn,
    /// Rises with every opening after which something was written.
    pub epoch: u64,
    /// The log was new, or its last user closed it.
    pub clean: bool,
    /// The tail that was cut off, if a crash had torn it.
    pub torn: Option<TornTail>,
    /// Its last user handed it over, see [`crate::Log::hand_over`].
    pub handed_over: bool,
}

/// A write that a crash had interrupted. Nothing in it was ever acknowledged as durable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TornTail {
    /// The segment it was in.
    pub segment: u64,
    /// Where the cut was made.
    pub offset: u64,
    /// How many bytes were cut off.
    pub bytes: u64,
    /// The file that has these bytes now; `None` if nothing was changed (read-only), or if there
    /// was no room for it.
    pub saved_as: Option<PathBuf>,
    /// What the first bad bytes should have been, and what they were.
    pub reason: String,
}

/// The segment that takes the next group.
#[derive(Debug)]
pub(crate) struct FoundActive {
    pub number: u64,
    pub file: Box<dyn FsFile>,
    pub offset: u64,
    pub file_bytes: u64,
    pub first_lsn: Lsn,
    pub chain: u32,
}

/// A log as found, ready to go on.
#[derive(Debug)]
pub(crate) struct Found {
    pub log_id: u64,
    /// Number and first LSN of every segment that has a `Start`, ascending.
    pub started: Vec<(u64, Lsn)>,
    /// `None` if the last segment is sealed, or there is none.
    pub active: Option<FoundActive>,
    /// A prepared segment, after the active one.
    pub spare: Option<Prepared>,
    pub next_number: u64,
    /// How the last sealed segment ended, for the next `Start`.
    pub previous: Ending,
    /// The oldest segment that belongs to the log.
    pub oldest: u64,
    pub expect: Expect,
    /// The last group is a mark, or there is none: no records are at its mercy.
    pub ends_in_mark: bool,
    pub clean: bool,
    pub torn: Option<TornTail>,
    /// The note that its last user left fits to the end that was found.
    pub handed_over: bool,
}

impl Opening {
    /// Steps 3 to 7. The caller holds the lock.
    pub fn settle(&self, walked: Walked) -> Result<Found, OpenError> {
        let Walked { numbers, end } = walked;
        let found = match end {
            Some(end) => self.settle_end(end)?,
            None => self.fresh(self.fs.unique()),
        };
        // What a crash left of segments that had been dropped.
        for number in numbers.iter().filter(|number| **number < found.oldest) {
            self.remove(&segment::path(&self.dir, *number))?;
        }
        layout::remove_half_made_files(self.fs.as_ref(), &self.dir)?;
        Ok(found)
    }

    fn fresh(&self, log_id: u64) -> Found {
        Found {
            log_id,
            started: Vec::new(),
            active: None,
            spare: None,
            next_number: 1,
            previous: Ending::default(),
            oldest: 1,
            expect: BEFORE_THE_FIRST,
            ends_in_mark: false,
            clean: true,
            torn: None,
            handed_over: false,
        }
    }

    fn settle_end(&self, end: WalkedEnd) -> Result<Found, OpenError> {
        let WalkedEnd {
            scan,
            before,
            newest,
            oldest,
            started,
        } = end;
        self.check_prepared(scan.header.number, newest)?;
        let expect = scan.at_end.unwrap_or(BEFORE_THE_FIRST);
        let clean = matches!(scan.last_kind, Some(Kind::Closed)) || expect == BEFORE_THE_FIRST;
        let note = self.hand_over(&scan);
        let torn = self.judge_and_cut(&scan, note.is_some())?;
        // Something is behind that end: it was cut off, and the log goes on as after any crash.
        let note = note.filter(|_| torn.is_none());
        let mut found = Found {
            started,
            oldest,
            expect,
            // A mark that is the rest of a torn group does not count: the group that follows has
            // to be a single frame, or its own torn frames could not be told from damage.
            ends_in_mark: expect.group_ended
                && scan.last_kind.is_some_and(|kind| kind != Kind::Record),
            clean: (clean || note.is_some()) && torn.is_none(),
            torn,
            handed_over: note.is_some(),
            ..self.fresh(scan.header.log_id)
        };
        let named = note.map_or(0, |note| note.spare);
        self.place(&mut found, scan, before, newest, named)?;
        Ok(found)
    }

    /// The note that the last user left, if it is about this end.
    fn hand_over(&self, scan: &Scan) -> Option<HandOver> {
        let at_end = scan.at_end?;
        // Who hands over has a segment that takes the next group.
        if scan.sealed() || scan.first_lsn.is_none() || !at_end.group_ended {
            return None;
        }
        let end = HandOver {
            log_id: scan.header.log_id,
            segment: scan.header.number,
            offset: scan.end,
            group: at_end.group,
            epoch: at_end.epoch,
            next_lsn: at_end.lsn,
            chain: scan.chain,
            spare: 0,
        };
        let fits = |note: &HandOver| note.is_of(&end) || self.mutant.breaks(Rule::HandOverFits);
        HandOver::find(self.fs.as_ref(), &self.dir).filter(fits)
    }

    /// Decides what takes the next group: the scanned segment, or one after it. The prepared segment
    /// `named` has its name, durably.
    fn place(
        &self,
        found: &mut Found,
        scan: Scan,
        before: Option<Scan>,
        newest: u64,
        named: u64,
    ) -> Result<(), OpenError> {
        let number = scan.header.number;
        let mut spare_number = number + 1;
        if let Some(first_lsn) = scan.first_lsn {
            if scan.sealed() {
                found.previous = scan.ending();
            } else {
                found.active = Some(FoundActive {
                    number,
                    file: scan.file,
                    offset: scan.end,
                    file_bytes: scan.file_bytes,
                    first_lsn,
                    chain: scan.chain,
                });
            }
        } else {
            // Nothing of it was ever acknowledged: it is a prepared segment again.
            spare_number = number;
            if let Some(sealed) = before {
                found.previous = sealed.ending();
            }
        }
        found.next_number = spare_number;
        if spare_number <= newest {
            let (file, header) =
                layout::open_segment(self.fs.as_ref(), &self.dir, spare_number, OpenMode::Write)?;
            let path = segment::path(&self.dir, spare_number);
            if header.size_bytes != self.sizes.of(spare_number) {
                // Made for other segment sizes, or for a batch that did not come to it. Nothing was ever written into it.
                self.remove(&path)?;
                return self.fail("sync", &self.dir, self.fs.sync_dir(&self.dir));
            }
            if named != spare_number && !self.mutant.breaks(Rule::NameSpareAgain) {
                // Its name may be in the cache only. If a sync of the folder failed when it was
                // made, another sync would not write the name: it has to be given anew.
                let temporary = place::temporary(&path);
                self.fail("rename", &path, self.fs.rename(&path, &temporary))?;
                self.fail("rename", &temporary, self.fs.rename(&temporary, &path))?;
                self.fail("sync", &self.dir, self.fs.sync_dir(&self.dir))?;
            }
            found.spare = Some(Prepared::new(header, file));
        }
        Ok(())
    }

    /// Judges what follows the last whole batch; cuts it off if it is torn. Writes the last group
    /// again, unless it is known that its sync has returned.
    fn judge_and_cut(&self, scan: &Scan, handed_over: bool) -> Result<Option<TornTail>, OpenError> {
        let path = segment::path(&self.dir, scan.header.number);
        if !scan.sealed()
            && let Some(damage) = layout::cut_short(&scan.header, scan.file_bytes, scan.end)
        {
            return Err(self.damaged(damage));
        }
        let rest = tail::examine(
            scan.file.as_ref(),
            scan.seed,
            scan.stopped_at,
            scan.torn_group,
        );
        let rest = self.fail("read", &path, rest)?;
        // Frames of a batch that is not complete count as written too.
        let partial = (scan.stopped_at > scan.end).then_some(scan.stopped_at);
        let written_until = rest.written_until.max(partial);
        let later = rest.later_frame.is_some() && !self.mutant.breaks(Rule::RefuseDamage);
        if self.is_whole(scan) && scan.sealed() && written_until.is_none() {
            // Synced before it got its name, so there is no group to be written again.
            return Ok(None);
        }
        let may_be_torn = !self.is_whole(scan);
        let torn = match tail::verdict(may_be_torn, written_until.is_some(), later) {
            Verdict::Damage => {
                let mut damage = scan.damage();
                if let Some(at) = rest.later_frame {
                    damage.found += &format!(", and a valid frame of a later group at byte {at}");
                }
                return Err(self.damaged(damage));
            }
            Verdict::Clean => None,
            Verdict::Torn => Some(TornTail {
                segment: scan.header.number,
                offset: scan.end,
                bytes: written_until.map_or(0, |until| until - scan.end),
                saved_as: None,
                reason: format!("expected {}, found {}", scan.bad.expected, scan.bad.found),
            }),
        };
        let torn = match torn {
            Some(torn) => Some(self.save_aside(scan, torn)?),
            None if handed_over => return Ok(None),
            None => None,
        };
        self.fail("repair", &path, self.rewrite_tail(scan, torn.as_ref()))?;
        Ok(torn)
    }

    fn save_aside(&self, scan: &Scan, mut torn: TornTail) -> Result<TornTail, OpenError> {
        let epoch = scan.at_end.map_or(0, |expect| expect.epoch) + 1;
        let path = self.dir.join(torn_file_name(&torn, epoch));
        let from = scan.file.as_ref();
        let saved = place::place(self.fs.as_ref(), &self.dir, &path, self.mutant, |to| {
            copy(from, torn.offset, torn.bytes, to)
        });
        match saved {
            Ok(_) => {}
            // It was never acknowledged: not worth keeping the log closed for.
            Err(PlaceError::NotPlaced(e)) if e.kind() == io::ErrorKind::StorageFull => {
                return Ok(torn);
            }
            Err(PlaceError::NotPlaced(e) | PlaceError::Sync(e)) => {
                return Err(IoFailure::new("save a torn tail to", &path, e).into());
            }
        }
        torn.saved_as = Some(path);
        Ok(torn)
    }

    /// If the sync in here fails, the disk may keep torn bytes that the cache shows as zeros. They
    /// can come back behind later frames; but they are of an older epoch and of no later group, so
    /// they are never read, never taken for damage, and cut off again.
    fn rewrite_tail(&self, scan: &Scan, torn: Option<&TornTail>) -> io::Result<()> {
        let file = scan.file.as_ref();
        if !self.mutant.breaks(Rule::RewriteLastGroup) {
            let mut bytes = vec![0; (scan.end - scan.last_group_at) as usize];
            file.read_full(&mut bytes, scan.last_group_at)?;
            file.write_full(&bytes, scan.last_group_at)?;
        }
        if let Some(torn) = torn
            && !self.mutant.breaks(Rule::ZeroTornTail)
        {
            file.write_full(&vec![0; torn.bytes as usize], torn.offset)?;
        }
        file.sync()
    }

    fn remove(&self, path: &Path) -> Result<(), OpenError> {
        match self.fs.remove(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => self.fail("remove", path, other),
        }
    }
}

fn torn_file_name(torn: &TornTail, epoch: u64) -> String {
    format!("torn-{:016}-{}-{epoch}.bin", torn.segment, torn.offset)
}

/// The segment whose torn tail a file holds.
pub(crate) fn parse_torn_name(name: &str) -> Option<u64> {
    let rest = name.strip_prefix("torn-")?.strip_suffix(".bin")?;
    rest.split('-').next()?.parse().ok()
}

pub(crate) fn copy(
    from: &dyn FsFile,
    from_offset: u64,
    bytes: u64,
    to: &dyn FsFile,
) -> io::Result<()> {
    let mut chunk = vec![0; bytes.min(256 * 1024) as usize];
    let mut done = 0;
    while done < bytes {
        let n = (bytes - done).min(chunk.len() as u64) as usize;
        let got = from.read_full(&mut chunk[..n], from_offset + done)?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_full(&chunk[..got], done)?;
        done += got as u64;
    }
    Ok(())
}
