//! A disk in memory that lies as much as POSIX allows.
//!
//! | what | after a crash |
//! |---|---|
//! | a sector written since the last `sync` | its old content, or any it had since, independently of the others |
//! | a file's length changed since then | likewise |
//! | names created, renamed or removed since `sync_dir` | any subset of these operations, in order |
//! | what a failed sync covered | any of the above, decided when it failed; reads may still show the new bytes, and a later sync says ok without saving them |
//! | a folder made with `create_dir` | there |
//!
//! A test drives it through the log's `Fs` trait and, from outside, through [`SimDisk`]: it sets
//! [`Faults`], lets the power go at an operation ([`SimDisk::crash_at`]), and reboots with a
//! [`Chooser`] that decides what survived.
//!
//! ```
//! use std::path::Path;
//! use dalsegno_log::fs::{Fs, OpenMode};
//! use dalsegno_simdisk::{LoseAll, SimDisk};
//!
//! # fn main() -> std::io::Result<()> {
//! let disk = SimDisk::new(1);
//! disk.create_dir(Path::new("log"))?;
//! let file = disk.open(Path::new("log/a"), OpenMode::CreateNew)?;
//! file.write_full(b"kept", 0)?;
//! file.sync()?;
//! disk.sync_dir(Path::new("log"))?;
//! file.write_full(b"lost", 4)?;
//!
//! disk.reboot(&mut LoseAll);
//! assert_eq!(disk.read_file("log/a")?, b"kept");
//! # Ok(())
//! # }
//! ```
//!
//! Invariant: everything is decided by the seed, the calls made, and the chooser's answers. Where
//! something is kept by key, it is kept in order.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

mod choose;
mod fault;
mod folder;
mod handle;
mod inode;
mod inspect;
pub mod rng;
mod sector;
mod state;
mod system;
mod versions;

#[cfg(test)]
mod tests;

pub use choose::{Chooser, Enumerate, KeepAll, LoseAll, Random};
pub use fault::{Fault, Faults, OpKind, errno};
pub use inspect::Unsynced;
pub use sector::SECTOR;

use state::State;

/// The simulated disk. Clones are the same disk; [`snapshot`](Self::snapshot) makes another.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty disk without faults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::of(State::new(seed))
    }

    fn of(state: State) -> Self {
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another disk in the same state, to crash the same moment in many ways. Handles and locks
    /// stay with this one.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        let mut state = self.state().clone();
        state.locks.clear();
        state.forget_handles();
        Self::of(state)
    }

    /// How often operations fail by chance from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state().plan.faults = faults;
    }

    /// The next operation of this kind fails with this error number.
    pub fn fail_next(&self, kind: OpKind, errno: i32) {
        self.fail_nth(kind, 0, errno);
    }

    /// The operation of this kind after the next `skip` ones fails with this error number.
    pub fn fail_nth(&self, kind: OpKind, skip: u64, errno: i32) {
        self.state().plan.script(kind, skip, errno);
    }

    /// Operation number `op` has this fault, if it is of a kind that can.
    pub fn fail_at(&self, op: u64, fault: Fault) {
        self.state().plan.number(op, op, fault);
    }

    /// All operations from number `op` on have this fault, if they are of a kind that can.
    pub fn fail_from(&self, op: u64, fault: Fault) {
        self.state().plan.number(op, u64::MAX, fault);
    }

    /// How many operations [`fail_at`](Self::fail_at) and [`fail_from`](Self::fail_from) have hit
    /// since the disk was last healed.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.state().plan.hit
    }

    /// The bytes that fit on the disk, or no limit. Files that are there already stay.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// From now on nothing fails: no faults, no script, no capacity. A crash point stays.
    pub fn heal(&self) {
        let mut state = self.state();
        state.plan = fault::FaultPlan::default();
        state.capacity = None;
    }

    /// The power goes at operation number `op`, or at the next one if that is past. If it is a
    /// write, its sectors may survive; any other operation has done nothing.
    pub fn crash_at(&self, op: u64) {
        self.state().crash_at = Some(op);
    }

    /// The power goes at a sync of a file or folder, after `skip` others: when most is at stake.
    pub fn crash_at_sync(&self, skip: u64) {
        self.state().syncs_to_crash = Some(skip);
    }

    /// The power goes between two operations.
    pub fn power_off_now(&self) {
        let mut state = self.state();
        state.crashed = true;
        state.note(|| "-- power off".to_owned());
    }

    /// True from a crash to the reboot or restart.
    #[must_use]
    pub fn crashed(&self) -> bool {
        self.state().crashed
    }

    /// True for the error of operations that found the power off or came with an old handle.
    #[must_use]
    pub fn is_crash(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Crashed>())
    }

    /// Power off, if it is not, and on again. `chooser` decides what survived. Old handles are dead,
    /// locks are free, and there is no crash point any more.
    pub fn reboot(&self, chooser: &mut dyn Chooser) {
        let mut state = self.state();
        state.lose_power(chooser);
        state.end_process();
        state.note(|| "-- reboot".to_owned());
    }

    /// The process was killed, the machine was not: old handles are dead, locks are free, what was
    /// written is still there and still pending. After [`crash_at`](Self::crash_at) this makes the
    /// crash a kill instead of a power cut.
    pub fn restart_process(&self) {
        let mut state = self.state();
        state.end_process();
        state.collect();
        state.note(|| "-- restart of the process".to_owned());
    }

    /// The number of operations begun; the next one has this number. Those that found the power
    /// off do not count.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.state().ops
    }

    /// Begins a new trace, or ends it.
    pub fn set_trace(&self, on: bool) {
        self.state().set_trace(on);
    }

    /// The last operations, one line each, such as `17 write 00000001.seg @512 +300 -> ok 300`.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.state().trace()
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not through the mutex: whoever prints may hold it.
        f.debug_struct("SimDisk").finish_non_exhaustive()
    }
}

/// The inside of the error that [`SimDisk::is_crash`] knows.
#[derive(Debug)]
struct Crashed;

impl fmt::Display for Crashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated crash: the machine or the process is gone")
    }
}

impl std::error::Error for Crashed {}

fn crashed_error() -> io::Error {
    io::Error::other(Crashed)
}
