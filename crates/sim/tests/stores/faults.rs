//! Disks that fail at each operation in turn, and how processes end that have met one.

use dalsegno_sim::disk::{Fault, LoseAll, Random, SimDisk};
use dalsegno_sim::rng::Rng;

/// How often a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Often {
    Once,
    FromThenOn,
}

/// Those that may last. They begin at every third operation: what fails first is most often the
/// same as at the one before.
const LASTING: [Fault; 2] = [Fault::Broken, Fault::Full];

/// Calls `act` with a disk that fails at each operation in turn, in each way; and `check` with the
/// disk as it was left, healthy again, for each of these that was hit. Says how many there were.
pub fn fail_everywhere<T>(
    base: &SimDisk,
    act: impl Fn(&SimDisk) -> T,
    check: impl Fn(&SimDisk, Fault, Often, T),
) -> u64 {
    let once = Fault::ALL.map(|fault| (fault, Often::Once));
    let lasting = LASTING.map(|fault| (fault, Often::FromThenOn));
    let mut hits = 0;
    for (fault, often) in once.into_iter().chain(lasting) {
        let step = match often {
            Often::Once => 1,
            Often::FromThenOn => 3,
        };
        for op in (0..).step_by(step) {
            let disk = base.snapshot();
            disk.set_trace(true);
            let at = disk.ops() + op;
            match often {
                Often::Once => disk.fail_at(at, fault),
                Often::FromThenOn => disk.fail_from(at, fault),
            }
            let outcome = act(&disk);
            if disk.ops() <= at {
                break;
            }
            if disk.hits() > 0 {
                hits += 1;
                check(&disk, fault, often, outcome);
            }
        }
    }
    hits
}

/// Whether nobody may notice it.
pub fn is_harmless(fault: Fault) -> bool {
    matches!(fault, Fault::Short | Fault::Interrupted)
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Kill,
    LosesAll,
    LosesSome,
}

impl End {
    /// It ends so.
    pub fn befall(self, disk: &SimDisk) {
        match self {
            End::Kill => disk.restart_process(),
            End::LosesAll => disk.reboot(&mut LoseAll),
            End::LosesSome => disk.reboot(&mut Random::new(Rng::new(disk.ops()))),
        }
    }
}
