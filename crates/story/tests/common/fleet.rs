//! A fleet: workers of the story on one database, each a process of its own, and runs that somebody
//! else starts.
//!
//! Invariant: the world, the person and who started the runs are never disturbed; they tell in the
//! end what the workers did.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use dalsegno::{Dalsegno, Durability, Granularity};
use dalsegno_pgtest::Server;
use dalsegno_postgres::PostgresStore;
use dalsegno_store::{Event, Kind, RunQuery, Status, Store};
use dalsegno_story::agent::{self, Place, Trip};
use dalsegno_story::ledger::{Entry, counts};
use dalsegno_story::person::Person;
use dalsegno_story::worker::{self, Options, run_name};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinHandle;

use super::campaign::{Campaign, Happening, Probe, Setting};
use super::check::check_order;
use super::person::Desk;
use super::{Folder, World};

/// How long a worker is believed in without being heard of.
pub const LEASE: Duration = Duration::from_secs(2);
/// How long the world takes for a reply.
pub const PACE: Duration = Duration::from_millis(150);
/// Nothing takes this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// A worker's process.
pub struct WorkerProcess {
    pub name: String,
    child: Child,
}

impl WorkerProcess {
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Tells it to stop, and waits until it has.
    pub fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.child.wait().unwrap()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // One that was stopped can be killed, too.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub struct Fleet {
    pub server: Server,
    pub url: String,
    pub world: World,
    folder: Folder,
    desk: Option<Desk>,
    trouble: Receiver<Happening>,
    runtime: tokio::runtime::Runtime,
    app: Option<Dalsegno>,
    started: usize,
    waiting: BTreeMap<usize, JoinHandle<Result<Trip, dalsegno::Error>>>,
    workers: usize,
}

impl Fleet {
    pub fn new(name: &str) -> Fleet {
        let folder = Folder::new(name);
        let world = World::start_at_pace(&folder.join("ledger"), PACE);
        let server = Server::start();
        let url = server.url_of("story");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let place = place(&folder, "nobody", &world.address);
        // It starts runs, and has no room to execute any.
        let builder = Dalsegno::builder().max_running_of(agent::NAME, 0);
        let app = runtime.block_on(agent::register(builder, place).open(&url));
        let (sender, trouble) = channel();
        let (store, address) = (url.clone(), world.address.clone());
        let come = move || {
            let store = PostgresStore::open(&store).ok()?;
            Some(Person::at(Arc::new(store), &address))
        };
        Fleet {
            desk: Some(Desk::with(come, sender)),
            trouble,
            app: Some(app.unwrap()),
            server,
            url,
            world,
            folder,
            runtime,
            started: 0,
            waiting: BTreeMap::new(),
            workers: 0,
        }
    }

    /// A worker, in this network.
    pub fn worker(&mut self) -> WorkerProcess {
        let (url, address) = (self.url.clone(), self.world.address.clone());
        self.worker_at(&url, &address, &[])
    }

    /// A worker that knows database and world under these addresses, started by another program.
    pub fn worker_at(&mut self, url: &str, world: &str, by: &[&str]) -> WorkerProcess {
        self.workers += 1;
        let name = format!("w{}", self.workers);
        let options = Options {
            store: url.into(),
            place: place(&self.folder, &name, world),
            first: 0,
            runs: 0,
            serves: true,
            lease: LEASE,
            durability: Durability::default(),
            granularity: Granularity::default(),
        };
        let program = env!("CARGO_BIN_EXE_story-worker");
        let mut command = match by.split_first() {
            None => Command::new(program),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        command.args(options.to_args());
        let log = std::fs::File::create(self.folder.join(&format!("{name}.log"))).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(log).spawn().unwrap();
        WorkerProcess { name, child }
    }

    /// Starts so many more runs.
    pub fn start(&mut self, runs: usize) {
        for number in self.started..self.started + runs {
            let app = self.app.clone().unwrap();
            let waiting = async move { worker::trip(&app, number).await };
            self.waiting.insert(number, self.runtime.spawn(waiting));
        }
        self.started += runs;
    }

    /// How many runs were started.
    pub fn started(&self) -> usize {
        self.started
    }

    /// Waits until all runs have ended. Their results.
    pub fn results(&mut self) -> BTreeMap<String, Trip> {
        let begun = Instant::now();
        let waiting = std::mem::take(&mut self.waiting);
        let mut results = BTreeMap::new();
        for (number, waiting) in waiting {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let ended = async { tokio::time::timeout(left, waiting).await };
            let trip = self.runtime.block_on(ended);
            if let Ok(Happening::Trouble(why)) = self.trouble.try_recv() {
                panic!("a person is at a loss: {why}");
            }
            let name = run_name(number);
            let trip = match trip {
                Ok(trip) => trip.unwrap(),
                Err(_) => {
                    let why = self.app.clone().unwrap();
                    let why = self.runtime.block_on(async { why.why(&name).await });
                    panic!("{name} has not come to its end: {}", why.unwrap());
                }
            };
            results.insert(name, trip.unwrap());
        }
        results
    }

    /// The events of all runs, which have ended. Reading them checks their chains.
    pub fn events(&self) -> BTreeMap<String, Vec<Event>> {
        let store = PostgresStore::open(&self.url).unwrap();
        self.runtime.block_on(async {
            let mut all = BTreeMap::new();
            for info in store.runs(&RunQuery::default()).await.unwrap() {
                assert_eq!(info.status, Status::Completed, "{}", info.run);
                let events = store.read(&info.run, 1, usize::MAX).await.unwrap();
                let events = events.into_iter().map(|recorded| recorded.event);
                all.insert(info.run.name().to_owned(), events.collect());
            }
            all
        })
    }

    /// What the fleet did to the world, in the end.
    pub fn close(mut self) -> Vec<Entry> {
        let app = self.app.take().unwrap();
        self.runtime.block_on(app.close()).unwrap();
        self.desk.take().map(Desk::close);
        self.world.ledger()
    }

    /// Every effect of every run is in the ledger once; the number of requests that the world
    /// refused, because they came from workers that had been overtaken.
    pub fn check(self, results: &BTreeMap<String, Trip>, seed: u64) -> usize {
        let events = self.events();
        let ledger = self.close();
        let (refused, ledger): (Vec<_>, Vec<_>) = ledger.into_iter().partition(|e| e.refused);
        for run in results.keys() {
            for (what, once) in [("notify", true), ("book", false)] {
                let counts = counts(&ledger, what, run);
                let [(_, (arrived, applied))] = counts.iter().collect::<Vec<_>>()[..] else {
                    panic!("{what} of {run}: not one key: {counts:?}");
                };
                assert_eq!(*applied, 1, "{what} of {run} was applied: {counts:?}");
                let twice = once && *arrived != 1;
                assert!(!twice, "{what} of {run} was sent: {counts:?}");
            }
            let own: Vec<_> = ledger.iter().filter(|entry| entry.run == *run).collect();
            check_order(run, &own);
        }
        assert_eq!(results.len(), events.len());
        check_tokens(&events);
        let calm = Setting {
            durability: Durability::default(),
            granularity: Granularity::default(),
            probe: Probe::On,
        };
        let calm = Campaign::run("fleet-calm", calm, 0, results.len(), seed);
        assert_eq!(*results, calm.results, "as runs that nobody disturbed");
        refused.len()
    }
}

/// Each worker that has a run has it under a higher token than the one before.
fn check_tokens(events: &BTreeMap<String, Vec<Event>>) {
    for (run, events) in events {
        let taken = events.iter().filter(|e| e.kind == Kind::LeaseTaken);
        let tokens: Vec<_> = taken.filter_map(|event| event.fields.number(2)).collect();
        let rising: BTreeSet<_> = tokens.iter().collect();
        assert!(rising.into_iter().eq(tokens.iter()), "{run}: {tokens:?}");
    }
}

fn place(folder: &Folder, worker: &str, world: &str) -> Place {
    Place {
        world: world.to_owned(),
        out: folder.join("files"),
        worker: worker.to_owned(),
        probe: true,
    }
}

/// Whether a process ended by itself and well.
pub fn ended_well(status: ExitStatus) -> bool {
    status.success() && status.signal().is_none()
}
