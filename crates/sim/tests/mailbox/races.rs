//! Senders and owner at the same time, step by step.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use dalsegno_log::fs::{Fs, FsFile, FsLock, LockError, OpenMode};
use dalsegno_sim::disk::{LoseAll, SimDisk};
use dalsegno_sim::rng::Rng;
use dalsegno_store::mailbox::Inbox;

use crate::owner::{DIR, Events, Told, outbox, saying};

/// A disk on which somebody else does something before each operation and during each listing.
#[derive(Clone)]
struct Busy {
    disk: SimDisk,
    other: Arc<dyn Fn() + Send + Sync>,
    rng: Arc<Mutex<Rng>>,
}

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Busy")
    }
}

impl Busy {
    fn new(disk: &SimDisk, seed: u64, other: impl Fn() + Send + Sync + 'static) -> Busy {
        Busy {
            disk: disk.clone(),
            other: Arc::new(other),
            rng: Arc::new(Mutex::new(Rng::new(seed))),
        }
    }
}

impl Fs for Busy {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }

    /// Shows every name that was there before and stayed; of those that come or go meanwhile, any.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let before = self.disk.list(dir)?;
        (self.other)();
        let after = self.disk.list(dir)?;
        let mut rng = self.rng.lock().unwrap();
        let mut names = Vec::new();
        for name in before
            .iter()
            .chain(after.iter().filter(|n| !before.contains(n)))
        {
            let stayed = before.contains(name) && after.contains(name);
            if stayed || rng.chance(500) {
                names.push(name.clone());
            }
        }
        Ok(names)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn FsFile>> {
        (self.other)();
        self.disk.open(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.other)();
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        (self.other)();
        self.disk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        (self.other)();
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &Path, owner: &str) -> Result<Box<dyn FsLock>, LockError> {
        self.disk.lock(path, owner)
    }

    fn unique(&self) -> u64 {
        self.disk.unique()
    }
}

#[test]
fn letters_that_come_while_the_owner_looks_are_neither_lost_nor_overtaken() {
    for seed in 0..300 {
        let disk = SimDisk::new(seed);
        let told = Arc::new(Mutex::new(Told::default()));
        let boxes: Vec<_> = (0..3).map(|_| outbox(disk.clone()).unwrap()).collect();
        let rng = Mutex::new(Rng::new(seed));
        let noted = Arc::clone(&told);
        let busy = Busy::new(&disk, seed, move || {
            let (mut rng, mut told) = (rng.lock().unwrap(), noted.lock().unwrap());
            for _ in 0..rng.below(4) {
                let (outbox, word) = (&boxes[rng.index(3)], rng.next_u64());
                assert!(told.note(outbox, word, outbox.send(saying(word))));
            }
        });
        let inbox = Inbox::open(Arc::new(busy), Path::new(DIR)).unwrap();
        let mut events = Events::default();
        for round in 0..12 {
            events.take_up(&inbox, 1 + round % 5).1.unwrap();
            events.check(&told.lock().unwrap());
        }
        events.take_up_all(&disk);
        events.check_all(&told.lock().unwrap());
    }
}

#[test]
fn an_owner_that_looks_while_a_letter_is_sent_takes_it_once() {
    for seed in 0..300 {
        let disk = SimDisk::new(seed);
        let inbox = Inbox::open(Arc::new(disk.clone()), Path::new(DIR)).unwrap();
        let events = Arc::new(Mutex::new(Events::default()));
        let (rng, taking) = (Mutex::new(Rng::new(seed)), Arc::clone(&events));
        let busy = Busy::new(&disk, seed, move || {
            if rng.lock().unwrap().chance(500) {
                let _crashed = taking.lock().unwrap().take_up(&inbox, 3);
            }
        });
        let mut told = Told::default();
        let boxes: Vec<_> = (0..3).map(|_| outbox(busy.clone()).unwrap()).collect();
        let mut rng = Rng::new(seed);
        disk.crash_at(rng.range(20, 200));
        for word in 0.. {
            let outbox = &boxes[rng.index(3)];
            told.note(outbox, word, outbox.send(saying(word)));
            if disk.crashed() {
                break;
            }
        }
        disk.reboot(&mut LoseAll);
        let mut events = events.lock().unwrap().clone();
        events.take_up_all(&disk);
        events.check_all(&told);
    }
}

#[test]
fn one_outbox_may_be_shared_by_threads() {
    let disk = SimDisk::new(1);
    let outbox = outbox(disk.clone()).unwrap();
    let told = Mutex::new(Told::default());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (outbox, told) = (&outbox, &told);
            scope.spawn(move || {
                let mut last = 0;
                for word in (0..25).map(|i| thread * 100 + i) {
                    let sent = outbox.send(saying(word)).unwrap();
                    assert!(sent.number > last);
                    last = sent.number;
                    told.lock().unwrap().note(outbox, word, Ok(sent));
                }
            });
        }
    });
    let mut events = Events::default();
    events.take_up_all(&disk);
    events.check_all(&told.lock().unwrap());
}
