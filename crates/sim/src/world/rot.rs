//! Bits flip in old data: somebody has to notice, or nothing may be lost; and a repair loses no
//! more than they hit.

use std::path::Path;

use dalsegno_log::{OpenError, ReadError, verify_on};

use super::{DIR, World, read_all};
use crate::disk::{KeepAll, SimDisk};

impl World {
    /// Flips a bit somewhere and looks whether anybody notices.
    pub(super) fn rot(&mut self) -> Result<(), String> {
        if !self.open()? {
            return Err("opening failed on a healthy disk".into());
        }
        self.work()?;
        if self.rng.chance(250) {
            // A rewritten segment as the last one, in which nothing can be torn.
            self.seal()?;
            self.rewrite()?;
        }
        if self.rng.chance(500) {
            self.close_or_hand_over()?;
        }
        self.disk.power_off_now();
        self.disk.reboot(&mut KeepAll);
        self.log = None;
        let disk = self.disk.clone();
        let mut flipped = vec![self.flip(&disk)?];
        // On another disk, because opening may change this one.
        let other = disk.snapshot();
        self.check_rotten()
            .map_err(|e| format!("{} flipped: {e}", flipped[0]))?;
        for _ in 0..self.rng.below(4) {
            flipped.push(self.flip(&other)?);
        }
        self.mend(&other, flipped.len() as u64)
            .map_err(|e| format!("{} flipped, and a repair: {e}", flipped.join(", ")))
    }

    /// Flips a bit of a segment; says which.
    fn flip(&mut self, disk: &SimDisk) -> Result<String, String> {
        let names = disk.files(DIR);
        let segments: Vec<&String> = names.iter().filter(|n| n.ends_with(".seg")).collect();
        let name = segments[self.rng.index(segments.len())];
        let path = Path::new(DIR).join(name);
        let len = disk.file_len(&path).map_err(|e| e.to_string())?;
        let (offset, bit) = (self.rng.below(len), self.rng.below(8) as u32);
        disk.flip_bit(&path, offset, bit)
            .map_err(|e| e.to_string())?;
        self.summary.flipped_bits += 1;
        Ok(format!("bit {bit} of byte {offset} in {}", path.display()))
    }

    fn check_rotten(&mut self) -> Result<(), String> {
        let report = verify_on(&self.disk, Path::new(DIR)).map_err(|e| format!("verify: {e}"))?;
        let noticed = !report.is_sound() || report.torn.is_some();
        let log = match self.options.open(DIR) {
            Ok(log) => log,
            Err(OpenError::Damage { .. }) if !report.is_sound() => return Ok(()),
            Err(e) => return Err(format!("opening: {e}, but verify found {report:?}")),
        };
        // Only the last group can be taken for a torn write, and then that is said.
        let least = match &log.recovery().torn {
            Some(_) => self.model.last_group - 1,
            None => self.model.durable,
        };
        match read_all(&log, log.first_lsn()) {
            Err(ReadError::Damage(_)) if !report.is_sound() => Ok(()),
            Err(e) => Err(format!("reading: {e}, but verify found {report:?}")),
            Ok(read) => {
                self.model.check(log.first_lsn(), &read, least)?;
                // Either somebody noticed, or nothing was lost.
                let lost = log.recovery().last_lsn < self.model.durable;
                if lost && !noticed {
                    return Err("records were lost, and verify found nothing".into());
                }
                Ok(())
            }
        }
    }
}
