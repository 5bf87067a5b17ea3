//! One simulated life of a log: work, faults, crashes and recoveries, all from one seed.
//!
//! Everything is single-threaded and drawn from the seed, so that a failing seed fails again, the
//! same way, with a trace.

use std::path::Path;
use std::sync::Arc;

use dalsegno_log::{Log, LogView, Lsn, OpenError, Options, ReadError, Reader, Rule, verify_on};

use crate::campaign::{Failure, Total};
use crate::disk::{Faults, KeepAll, LoseAll, Random, SimDisk};
use crate::model::Model;
use crate::rng::Rng;

mod mend;
mod rot;
mod work;

const DIR: &str = "log";
/// How often opening may fail for a fault before the faults are switched off.
const OPEN_ATTEMPTS: usize = 4;

/// What a life went through, summed up over lives by the command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Power cuts.
    pub power_cuts: u64,
    /// Kills that left the cache alone.
    pub kills: u64,
    /// Openings that succeeded.
    pub recoveries: u64,
    /// Those of a log that had been handed over.
    pub hand_overs: u64,
    /// Torn tails that were cut off.
    pub torn_tails: u64,
    /// Logs that stopped for good because a write or a sync failed.
    pub poisonings: u64,
    /// Times the disk was full.
    pub full_disks: u64,
    /// Bits flipped in old data.
    pub flipped_bits: u64,
    /// Segments rewritten.
    pub rewrites: u64,
    /// Segments repaired.
    pub repairs: u64,
    /// File system operations.
    pub operations: u64,
    /// Records acknowledged.
    pub acknowledged: u64,
}

impl Total for Summary {
    fn add(&mut self, other: &Summary) {
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.recoveries += other.recoveries;
        self.hand_overs += other.hand_overs;
        self.torn_tails += other.torn_tails;
        self.poisonings += other.poisonings;
        self.full_disks += other.full_disks;
        self.flipped_bits += other.flipped_bits;
        self.rewrites += other.rewrites;
        self.repairs += other.repairs;
        self.operations += other.operations;
        self.acknowledged += other.acknowledged;
    }
}

/// Lives one life.
///
/// # Errors
/// A promise was broken.
pub fn live(seed: u64, rule: Option<Rule>, trace: bool) -> Result<Summary, Failure> {
    let mut world = World::new(seed, rule);
    world.disk.set_trace(trace);
    match world.run() {
        Ok(()) => {
            world.summary.operations = world.disk.ops();
            Ok(world.summary)
        }
        Err(what) => Err(Failure {
            seed,
            what,
            arguments: rule.map_or_else(String::new, |rule| format!("--break {rule:?}")),
            trace: world.disk.trace(),
        }),
    }
}

struct World {
    disk: SimDisk,
    rng: Rng,
    options: Options,
    log: Option<Log>,
    /// Kept open beside the log, over whatever happens to it.
    view: Option<LogView>,
    model: Model,
    summary: Summary,
    faults: Faults,
    /// Syncs fail now and then in this life.
    syncs_fail: bool,
    capacity: Option<u64>,
    segment_bytes: u64,
    next_payload: u64,
    /// The log's last user closed it.
    closed: bool,
    /// A rewrite that did not end well: the segment, and what was to be removed from it.
    interrupted: Option<(u64, Vec<Lsn>)>,
}

/// Whether the log is still of use after an operation.
enum After {
    GoOn,
    /// Crashed, poisoned or closed: reopen.
    Reopen,
}

impl World {
    fn new(seed: u64, rule: Option<Rule>) -> World {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(rng.next_u64());
        let segment_bytes = 512 * rng.range(4, 14);
        // Some grow. In smaller ones there would be too little to rewrite.
        let first_segment_bytes = match segment_bytes {
            6144.. => 2048,
            _ => segment_bytes,
        };
        let mut options = Options::new()
            .segment_bytes(segment_bytes)
            .first_segment_bytes(first_segment_bytes)
            .buffer_bytes(rng.range(200, 4000) as usize)
            .without_threads()
            .fs(Arc::new(disk.clone()));
        if let Some(rule) = rule {
            options = options.break_rule(rule);
        }
        let faults = choose_faults(&mut rng);
        let capacity = rng.chance(250).then(|| segment_bytes * rng.range(2, 7));
        World {
            disk,
            rng,
            options,
            log: None,
            view: None,
            model: Model::new(),
            summary: Summary::default(),
            faults,
            syncs_fail: faults.sync_eio > 0,
            capacity,
            segment_bytes,
            next_payload: 0,
            closed: false,
            interrupted: None,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..self.rng.range(2, 8) {
            self.disk.set_faults(self.faults);
            self.disk.set_capacity(self.capacity);
            match self.rng.below(10) {
                0..4 => {
                    let in_operations = self.rng.range(0, 160);
                    self.disk.crash_at(self.disk.ops() + in_operations);
                }
                4..8 => self.disk.crash_at_sync(self.rng.range(0, 24)),
                _ => {}
            }
            if self.open()? {
                self.work()?;
            }
            self.end_of_life()?;
        }
        self.disk.heal();
        self.reopen_twice()?;
        if self.rng.chance(400) {
            self.rot()?;
        }
        Ok(())
    }

    /// Opens the log and compares it with the model; false if a fault or a crash prevented it.
    fn open(&mut self) -> Result<bool, String> {
        for _ in 0..OPEN_ATTEMPTS {
            // An attempt that fails may itself leave a torn tail.
            let was_closed = std::mem::take(&mut self.closed);
            match self.options.open(DIR) {
                Ok(log) => {
                    // If the sync of a repair failed, old bytes may show up again, and are cut again.
                    if was_closed && !self.syncs_fail && log.recovery().torn.is_some() {
                        return Err("a torn tail in a log that had been closed".into());
                    }
                    self.log = Some(log);
                    return match self.check_recovered() {
                        Ok(()) => Ok(true),
                        Err(_) if self.disk.crashed() => Ok(false),
                        Err(what) => Err(what),
                    };
                }
                Err(OpenError::Io(_)) if self.disk.crashed() => return Ok(false),
                // A fault, or a full disk: the same process tries again.
                Err(OpenError::Io(failure)) if self.faulty() => {
                    self.summary.full_disks += u64::from(is_full(&failure.error));
                }
                Err(e) => return Err(format!("opening failed: {e}")),
            }
        }
        self.disk.heal();
        Ok(false)
    }

    fn faulty(&self) -> bool {
        self.capacity.is_some() || self.faults_on()
    }

    fn faults_on(&self) -> bool {
        let f = self.faults;
        let failing = [
            f.open_eio,
            f.open_emfile,
            f.rename_eio,
            f.remove_eio,
            f.sync_dir_eio,
            f.read_eio,
            f.write_eio,
            f.sync_eio,
            f.truncate_eio,
        ];
        failing.iter().any(|per_mille| *per_mille > 0)
    }

    fn check_recovered(&mut self) -> Result<(), String> {
        let Some(log) = &self.log else { return Ok(()) };
        let recovery = log.recovery().clone();
        if recovery.last_lsn < self.model.durable {
            let (durable, found) = (self.model.durable, recovery.last_lsn);
            return Err(format!(
                "LSN {durable} was acknowledged, recovery ends at {found}"
            ));
        }
        self.summary.recoveries += 1;
        self.summary.torn_tails += u64::from(recovery.torn.is_some());
        self.disk.set_faults(Faults::default());
        let read = read_all(log, log.first_lsn());
        self.disk.set_faults(self.faults);
        let read = read.map_err(|e| format!("reading after recovery: {e}"))?;
        self.model
            .check(recovery.first_lsn, &read, self.model.durable)
            .map_err(|e| format!("after recovery: {e}"))?;
        let last_group = self.model.last_group;
        self.model.recovered(recovery.first_lsn, recovery.last_lsn);
        if recovery.handed_over {
            // No mark follows it: it goes on as if there had been one process.
            self.model.last_group = last_group;
            self.summary.hand_overs += 1;
        }
        Ok(())
    }

    /// The process ends: by a power cut, a kill, or in good order.
    fn end_of_life(&mut self) -> Result<(), String> {
        if !self.disk.crashed() && self.rng.chance(300) {
            self.close_or_hand_over()?;
        }
        if self.disk.crashed() || self.rng.chance(500) {
            self.cut_power();
        } else {
            self.summary.kills += 1;
            self.disk.restart_process();
        }
        // Only now: whatever it still tries fails.
        self.log = None;
        self.view = None;
        Ok(())
    }

    fn cut_power(&mut self) {
        self.summary.power_cuts += 1;
        match self.rng.below(8) {
            0 => self.disk.reboot(&mut LoseAll),
            1 => self.disk.reboot(&mut KeepAll),
            _ => {
                let mut chooser = Random::new(self.rng.fork());
                self.disk.reboot(&mut chooser);
            }
        }
    }

    /// With a disk that behaves: open, lose power, open, and find the same.
    fn reopen_twice(&mut self) -> Result<(), String> {
        for _ in 0..2 {
            self.capacity = None;
            self.faults = Faults::default();
            if !self.open()? {
                return Err("opening failed on a healthy disk".into());
            }
            self.disk.power_off_now();
            self.cut_power();
            self.log = None;
        }
        let report = verify_on(&self.disk, Path::new(DIR)).map_err(|e| format!("verify: {e}"))?;
        if let Some(damage) = report.damages.first() {
            return Err(format!("verify after recovery: {damage}"));
        }
        Ok(())
    }
}

fn choose_faults(rng: &mut Rng) -> Faults {
    let mut faults = Faults::default();
    if rng.chance(500) {
        return faults;
    }
    // Harmless ones in every faulty life, the others now and then.
    faults.write_short = 60;
    faults.write_eintr = 60;
    faults.read_short = 30;
    faults.read_eintr = 30;
    let some = |rng: &mut Rng| {
        if rng.chance(400) {
            rng.range(1, 60) as u16
        } else {
            0
        }
    };
    faults.sync_eio = some(rng);
    faults.sync_dir_eio = some(rng);
    faults.write_eio = some(rng);
    faults.open_eio = some(rng);
    faults.open_emfile = some(rng);
    faults.rename_eio = some(rng);
    faults.remove_eio = some(rng);
    faults.truncate_eio = some(rng);
    faults.read_eio = some(rng);
    faults
}

fn is_full(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::StorageFull
}

fn read_all(log: &Log, from: Lsn) -> Result<Vec<(Lsn, Vec<u8>)>, ReadError> {
    collect(log.read_from(from)?)
}

fn collect(mut reader: Reader) -> Result<Vec<(Lsn, Vec<u8>)>, ReadError> {
    let mut read = Vec::new();
    while let Some(record) = reader.next_record()? {
        read.push((record.lsn, record.payload.to_vec()));
    }
    Ok(read)
}
