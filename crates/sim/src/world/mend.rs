//! Repairing a rotten log, with the power going in the middle of it: every record that a flipped
//! bit has not hit is there afterwards, and of the others it is said that they are lost.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use dalsegno_log::{Log, Lsn, OpenError, repair_on, verify_on};

use super::{DIR, World, read_all};
use crate::disk::{Random, SimDisk};

/// How often the power goes at most before a repair is left in peace.
const CUTS: usize = 4;

impl World {
    /// Repairs the log on `disk`, in which `flips` bits were flipped, and compares.
    pub(super) fn mend(&mut self, disk: &SimDisk, flips: u64) -> Result<(), String> {
        self.repair_through_power_cuts(disk)?;
        let report = verify_on(disk, Path::new(DIR)).map_err(|e| format!("verify: {e}"))?;
        if let Some(damage) = report.damages.first() {
            return Err(format!("damaged after the repair: {damage}"));
        }
        let options = self.options.clone().fs(Arc::new(disk.clone()));
        let log = options.open(DIR).map_err(|e| format!("opening: {e}"))?;
        self.check_mended(&log, &report.lost, flips)?;
        let lsn = log.append(b"after the repair").map_err(|e| e.to_string())?;
        log.wait_durable(lsn).map_err(|e| e.to_string())?;
        disk.power_off_now();
        disk.reboot(&mut Random::new(self.rng.fork()));
        drop(log);
        let log = options.open(DIR).map_err(|e| format!("again: {e}"))?;
        if log.recovery().last_lsn != lsn {
            return Err(format!("LSN {lsn} was acknowledged after the repair"));
        }
        Ok(())
    }

    fn repair_through_power_cuts(&mut self, disk: &SimDisk) -> Result<(), String> {
        for attempt in 0..=CUTS {
            if attempt < CUTS && self.rng.chance(700) {
                disk.crash_at(disk.ops() + self.rng.range(0, 80));
            }
            match repair_on(disk, Path::new(DIR)) {
                Ok(report) => self.summary.repairs += report.actions.len() as u64,
                Err(OpenError::Io(_)) if disk.crashed() => {}
                Err(e) => return Err(format!("repair: {e}")),
            }
            if !disk.crashed() && self.rng.chance(800) {
                // Killed at its very end: what it has done is not all synced by somebody else.
                disk.restart_process();
                return Ok(());
            }
            self.summary.power_cuts += 1;
            disk.power_off_now();
            disk.reboot(&mut Random::new(self.rng.fork()));
        }
        match repair_on(disk, Path::new(DIR)) {
            Ok(_) => Ok(()),
            Err(e) => Err(format!("repair: {e}")),
        }
    }

    fn check_mended(
        &self,
        log: &Log,
        lost: &[RangeInclusive<Lsn>],
        flips: u64,
    ) -> Result<(), String> {
        let read = read_all(log, log.first_lsn()).map_err(|e| format!("reading: {e}"))?;
        let last = log.recovery().last_lsn;
        // Where the oldest segment began is known from its first frame alone. With that and the
        // next ones gone, the log begins behind them.
        let before_the_first = |lsn: Lsn| flips > 1 && lsn < log.first_lsn();
        let is_lost = |lsn: Lsn| lost.iter().any(|l| l.contains(&lsn)) || before_the_first(lsn);
        let missing = self.model.missing(&read, last)?;
        if let Some(lsn) = missing.iter().find(|lsn| !is_lost(**lsn)) {
            return Err(format!("LSN {lsn} is missing, and nobody says so"));
        }
        if missing.len() as u64 > flips {
            return Err(format!("{missing:?} are lost to {flips} flipped bits"));
        }
        // Only the last group can be taken for a torn write, unless bits were flipped in several.
        let least = match (flips, log.recovery().torn.is_some()) {
            (1, false) => self.model.durable,
            (1, true) => self.model.last_group - 1,
            _ => 0,
        };
        if last < least {
            return Err(format!(
                "LSN {least} was acknowledged, the log ends at {last}"
            ));
        }
        Ok(())
    }
}
