//! One simulated life of a store: work, faults, crashes and recoveries, all from one seed.
//!
//! The store runs without threads on a simulated disk and clock, so that a failing seed fails
//! again, the same way, with a trace. Every opening is compared with the whole history; and so
//! are openings of copies of the disk from which snapshots and indexes were taken away, or in
//! which bits were flipped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dalsegno_store::mailbox::Outbox;
use dalsegno_store::{Answer, LocalStore, Options, Rule, StoreError, StreamId};

use crate::campaign::Failure;
use crate::disk::{Faults, KeepAll, LoseAll, Random, SimDisk};
use crate::rng::Rng;

mod compare;
mod copies;
mod history;
mod leases;
mod letters;
mod summary;
mod transfer;
mod verdict;
mod work;
mod write;

use history::History;
use letters::Post;
pub use summary::Summary;
use transfer::Elsewhere;
use verdict::Sizes;

const DIR: &str = "store";
const LOG: &str = "store/log";
const INDEX: &str = "store/index";
const SNAPSHOTS: &str = "store/snapshots";
const MAILBOX: &str = "store/mailbox";
const MARKER: &str = "store/store";
/// How often opening may fail for a fault before the faults are switched off.
const OPEN_ATTEMPTS: usize = 4;
/// When a life begins, in microseconds since 1970.
const BEGINNING_US: u64 = 1_700_000_000_000_000;

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
        Err(what) => Err(world.failure(seed, rule, what)),
    }
}

/// Lives a life without faults in which the state is read from every snapshot and from the whole
/// log, whenever a segment was sealed. Says how often.
///
/// # Errors
/// It did not come out the same.
pub fn live_quietly(seed: u64) -> Result<u64, Failure> {
    let mut world = World::new(seed, None);
    let lived = world.quiet_life();
    lived.map_err(|what| world.failure(seed, None, what))
}

struct World {
    disk: SimDisk,
    rng: Rng,
    clock: Arc<AtomicU64>,
    options: Options,
    sizes: Sizes,
    store: Option<LocalStore>,
    /// Kept open beside the store, until the machine or its owner dies.
    view: Option<LocalStore>,
    /// Other processes, which send letters.
    outboxes: Vec<Outbox>,
    history: History,
    post: Post,
    elsewhere: Elsewhere,
    /// Positions that appends answered, and how many events there were then.
    positions: Vec<(u64, usize)>,
    /// Tokens of leases that this process has taken, and until when.
    held: std::collections::BTreeMap<StreamId, (u64, u64)>,
    /// What payloads begin with.
    prefixes: Vec<Vec<u8>>,
    summary: Summary,
    faults: Faults,
    /// Syncs failed now and then in this life: old bytes behind the end of the log may show up
    /// again, and are cut off again.
    syncs_fail: bool,
    capacity: Option<u64>,
    /// Openings of which it is not known what they wrote.
    blind_openings: usize,
    /// The store's last user closed it.
    closed: bool,
    /// The marker of the store, once anything was acknowledged.
    marker: Option<Vec<u8>>,
    /// Bits were flipped where the store has to notice.
    rotten: bool,
}

/// Whether the store is still of use after an operation.
#[derive(Debug, PartialEq, Eq)]
enum After {
    GoOn,
    /// Crashed or closed: reopen.
    Reopen,
}

/// Without threads a future is ready when it is first polled.
fn now<T>(mut answer: Answer<'_, T>) -> Result<T, StoreError> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match answer.as_mut().poll(&mut context) {
        std::task::Poll::Ready(result) => result,
        // Nobody in a simulation may wait for others.
        std::task::Poll::Pending => Err(StoreError::Closed),
    }
}

impl World {
    fn new(seed: u64, rule: Option<Rule>) -> World {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(rng.next_u64());
        let segment_bytes = 512 * rng.range(64, 96);
        let clock = Arc::new(AtomicU64::new(BEGINNING_US));
        let simulated = Arc::clone(&clock);
        let mut options = Options::new()
            .segment_bytes(segment_bytes)
            .snapshot_bytes(512 * rng.range(2, 80))
            .snapshot_every(std::time::Duration::from_secs(1 << 32))
            .without_threads()
            .clock(move || simulated.load(Ordering::Relaxed))
            .fs(Arc::new(disk.clone()));
        if let Some(rule) = rule {
            options = options.break_rule(rule);
        }
        let faults = choose_faults(&mut rng);
        let capacity = rng.chance(200).then(|| segment_bytes * rng.range(3, 9));
        let prefixes = (0..2).map(|_| rng.bytes(24_000)).collect();
        let elsewhere = Elsewhere::new(&disk);
        World {
            disk,
            rng,
            clock,
            options,
            sizes: Sizes::of_segment(segment_bytes),
            store: None,
            view: None,
            outboxes: Vec::new(),
            history: History::default(),
            post: Post::default(),
            elsewhere,
            positions: Vec::new(),
            held: std::collections::BTreeMap::new(),
            prefixes,
            summary: Summary::default(),
            faults,
            syncs_fail: faults.sync_eio > 0,
            capacity,
            blind_openings: 0,
            closed: false,
            marker: None,
            rotten: false,
        }
    }

    fn failure(&self, seed: u64, rule: Option<Rule>, what: String) -> Failure {
        let broken = rule.map(|rule| format!(" --break {rule:?}"));
        Failure {
            seed,
            what,
            arguments: format!("--store{}", broken.unwrap_or_default()),
            trace: self.disk.trace(),
        }
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..self.rng.range(2, 6) {
            self.resume_faults();
            self.disk.set_capacity(self.capacity);
            match self.rng.below(10) {
                0..4 => {
                    let in_operations = self.rng.range(0, 700);
                    self.disk.crash_at(self.disk.ops() + in_operations);
                }
                4..8 => self.disk.crash_at_sync(self.rng.range(0, 80)),
                _ => {}
            }
            if self.open()? {
                self.work()?;
            }
            self.end_of_life()?;
            if self.rng.chance(150) {
                self.rot_in_place();
            }
            if self.rng.chance(if self.rotten { 500 } else { 60 }) {
                self.repair()?;
            }
        }
        self.faults = Faults::default();
        self.capacity = None;
        self.disk.heal();
        self.last_openings()
    }

    /// With a disk that behaves: open, take all letters, lose power, open, and find the same.
    fn last_openings(&mut self) -> Result<(), String> {
        for round in 0..2 {
            if !self.open()? {
                return Err("opening failed on a healthy disk".into());
            }
            if round == 0 {
                self.all_letters_taken()?;
            }
            self.copies()?;
            self.check_elsewhere()?;
            self.disk.power_off_now();
            self.die();
            self.cut_power();
        }
        self.check_elsewhere()?;
        self.verify()?;
        self.rot_of_the_log()
    }

    /// Opens the store and compares it with the history; false if a fault or a crash prevented it.
    fn open(&mut self) -> Result<bool, String> {
        for _ in 0..OPEN_ATTEMPTS {
            let was_closed = std::mem::take(&mut self.closed);
            match self.options.open(DIR) {
                Ok(store) => {
                    self.blind_openings += 1;
                    self.store = Some(store);
                    return self.opened(was_closed);
                }
                Err(_) if self.disk.crashed() => return Ok(false),
                Err(e) if self.faulty() && !is_verdict(&e) => self.summary.failures += 1,
                Err(e) => return Err(format!("opening failed: {e}")),
            }
        }
        self.disk.heal();
        Ok(false)
    }

    fn opened(&mut self, was_closed: bool) -> Result<bool, String> {
        let Some(store) = self.store.clone() else {
            return Ok(false);
        };
        let opened = store.opened().clone();
        // With the power gone, a snapshot cannot be read, and is passed over.
        let all_well = !self.faulty() && !self.rotten && !self.disk.crashed();
        if all_well && !opened.notices.is_empty() {
            return Err(format!("opening noticed {:?}", opened.notices));
        }
        if was_closed && !self.faulty() && !self.syncs_fail && !opened.clean {
            return Err("not clean, although it had been closed".into());
        }
        self.summary.recoveries += 1;
        self.summary.torn_tails += u64::from(opened.torn.is_some());
        self.summary.segments += self.disk.files(LOG).len() as u64;
        self.summary.snapshots += self.disk.files(SNAPSHOTS).len() as u64;
        self.pause_faults();
        let compared = self.compare_opened(&store);
        self.resume_faults();
        match compared {
            Ok(()) => {}
            Err(_) if self.disk.crashed() => return Ok(false),
            Err(what) => return Err(format!("after opening: {what}")),
        }
        self.check_marker()?;
        let faultless = !self.faulty() && !self.disk.crashed();
        if faultless && self.rng.chance(250) {
            self.copies()?;
        }
        if self.rng.chance(300) {
            self.check_elsewhere()?;
        }
        Ok(!self.disk.crashed())
    }

    /// The marker must never change once something was acknowledged.
    fn check_marker(&mut self) -> Result<(), String> {
        let found = self.disk.read_file(MARKER).map_err(|e| e.to_string())?;
        match &self.marker {
            Some(marker) if *marker != found => Err("the store has another marker".into()),
            None if self.history.durable > 0 => {
                self.marker = Some(found);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn time(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    fn pause_faults(&self) {
        self.disk.set_faults(Faults::default());
    }

    fn resume_faults(&self) {
        self.disk.set_faults(self.faults);
    }

    fn faulty(&self) -> bool {
        self.capacity.is_some() || self.faults != Faults::default()
    }

    /// Something failed that was no refusal: was there a reason?
    fn failed(&mut self, what: &str, error: &StoreError) -> Result<After, String> {
        if self.disk.crashed() {
            return Ok(After::Reopen);
        }
        if !self.faulty() || is_verdict(error) {
            return Err(format!("{what}: {error}"));
        }
        self.summary.failures += 1;
        if self.rng.chance(200) {
            // Somebody makes room.
            self.disk.set_capacity(None);
        }
        let give_up = self.rng.chance(300);
        Ok(if give_up { After::Reopen } else { After::GoOn })
    }

    /// The process ends: by a power cut, a kill, or in good order.
    fn end_of_life(&mut self) -> Result<(), String> {
        if !self.disk.crashed() && self.rng.chance(300) {
            self.close()?;
        }
        let cut = self.disk.crashed() || self.rng.chance(500);
        self.disk.power_off_now();
        self.die();
        if cut && self.rng.chance(850) {
            self.cut_power();
        } else {
            self.summary.kills += 1;
            self.disk.restart_process();
        }
        Ok(())
    }

    /// The process is gone. Whatever it still tries finds the power off.
    fn die(&mut self) {
        self.store = None;
        self.view = None;
        self.positions.clear();
        self.held.clear();
    }

    fn cut_power(&mut self) {
        self.summary.power_cuts += 1;
        self.outboxes.clear();
        match self.rng.below(8) {
            0 => self.disk.reboot(&mut LoseAll),
            1 => self.disk.reboot(&mut KeepAll),
            _ => {
                let mut chooser = Random::new(self.rng.fork());
                self.disk.reboot(&mut chooser);
            }
        }
    }
}

/// What no failing disk can explain.
fn is_verdict(error: &StoreError) -> bool {
    verdict::Refusal::of(error).is_some()
        || matches!(
            error,
            StoreError::NotAStore { .. } | StoreError::Version { .. }
        )
}

fn choose_faults(rng: &mut Rng) -> Faults {
    let mut faults = Faults::default();
    if rng.chance(550) {
        return faults;
    }
    // Harmless ones in every faulty life, the others now and then.
    faults.write_short = 40;
    faults.write_eintr = 40;
    faults.read_short = 20;
    faults.read_eintr = 20;
    let some = |rng: &mut Rng| {
        if rng.chance(300) {
            rng.range(1, 40) as u16
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
