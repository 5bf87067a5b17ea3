//! Eight agents write and read one memory while some of them are killed: as tasks of a process on a
//! local store, and as processes on one database.
//!
//! Afterwards all read one history, every fact that was acknowledged is there once and under the id
//! that was told, and two replays of each run agree.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use common::{Folder, Random};
use dalsegno::memory::{AsOf, Filter, Memory};
use dalsegno::{Builder, Dalsegno};
use dalsegno_pgtest::Server;
use dalsegno_postgres::PostgresStore;
use dalsegno_store::{LocalStore, Store};
use dalsegno_story::library::{self, Done, Task};

const AGENTS: u64 = 8;
const FACTS: u64 = 12;
/// A process that is dead is one whose lease has run out.
const LEASE: Duration = Duration::from_secs(1);
/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// That a fact was acknowledged: which agent's, its number, and its id.
type Noted = (u64, u64, u64);

/// All that was acknowledged, by agent and number.
#[derive(Default)]
struct Acknowledged(BTreeMap<(u64, u64), u64>);

impl Acknowledged {
    fn take(&mut self, (agent, number, id): Noted) {
        let first = *self.0.entry((agent, number)).or_insert(id);
        assert_eq!(first, id, "fact {number} of agent {agent} has two ids");
    }
}

fn quiet() -> Builder {
    library::register(Dalsegno::builder().lease(LEASE), |_, _, _| {})
}

async fn start_all(app: &Dalsegno) {
    for agent in 0..AGENTS {
        let task = Task {
            agent,
            facts: FACTS,
        };
        let name = library::run_name(agent);
        app.start(library::NAME, &name, &task).await.unwrap();
    }
}

/// Where all runs stand.
async fn standing(app: &Dalsegno) -> String {
    let mut all = String::new();
    for agent in 0..AGENTS {
        all += &app
            .why(&library::run_name(agent))
            .await
            .unwrap()
            .to_string();
    }
    all
}

/// Everything that must hold in the end. `others` are more ways to look at the same store.
async fn check(app: &Dalsegno, others: Vec<Arc<dyn Store>>, told: &Acknowledged) {
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    let mut known: BTreeMap<u64, String> = BTreeMap::new();
    for agent in 0..AGENTS {
        let name = library::run_name(agent);
        let run = app.find(&name).await.unwrap();
        let done: Done = run.result().await.unwrap();
        assert_eq!(done.noted.len() as u64, FACTS);
        for (number, id) in (0..).zip(&done.noted) {
            assert_eq!(told.0.get(&(agent, number)), Some(id), "as it was told");
            *expected.entry(library::fact(agent, number)).or_default() += 1;
            known.insert(*id, library::fact(agent, number));
        }
        for (old, new) in &done.corrected {
            let number = done.noted.iter().position(|id| id == old).unwrap() as u64;
            let text = library::correction(agent, number);
            known.insert(*new, text.clone());
            *expected.entry(text).or_default() += 1;
        }
        let replays = [app.replay(&name).await, app.replay(&name).await];
        let [one, two] = replays.map(Result::unwrap);
        assert!(one.is_same(), "{one}");
        assert_eq!(one, two);
        assert_eq!(one.unchecked, 0);
    }
    assert_eq!(told.0.len() as u64, AGENTS * FACTS);

    // One history, whoever reads it.
    let here = app.memory(library::MEMORY).await.unwrap();
    let version = here.version().await.unwrap();
    let changes = here.changes(AsOf::Sequence(0), AsOf::Now).await.unwrap();
    assert_eq!(changes.len(), known.len(), "nothing else was written");
    for store in others {
        let there = Memory::open(store, library::MEMORY).await.unwrap();
        assert_eq!(there.version().await.unwrap(), version);
        let theirs = there.changes(AsOf::Sequence(0), AsOf::Now).await.unwrap();
        assert_eq!(theirs, changes);
    }

    // Each once: also those that were corrected, which an old version still has.
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for change in &changes {
        let document = here.get(dalsegno::memory::DocId(change.sequence)).await;
        let document = document.unwrap();
        assert_eq!(known[&document.id.0], document.content.text);
        *found.entry(document.content.text).or_default() += 1;
    }
    assert_eq!(found, expected);
    assert!(found.values().all(|count| *count == 1), "{found:?}");
    let filter = Filter::default();
    let now = here.list(&filter, AsOf::Now, None, usize::MAX).await;
    assert_eq!(now.unwrap().len() as u64, AGENTS * FACTS);
}

#[test]
fn tasks_on_a_local_store() {
    let seed = common::seed();
    let mut random = Random(seed);
    let folder = Folder::new("one-memory");
    let store = folder.join("store");
    let mut told = Acknowledged::default();
    let mut kills = 0;
    loop {
        let (sender, noted) = mpsc::channel::<Noted>();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let builder = library::register(Dalsegno::builder(), move |agent, number, id| {
            let _ = sender.send((agent, number, id));
        });
        let app = runtime.block_on(async {
            let app = builder.open(&store).await.unwrap();
            start_all(&app).await;
            app
        });
        // The next life is handed again what was noted before, which is told again.
        let known = told.0.len();
        let lives_for = 4 + random.below(12);
        let mut new = 0;
        while new < lives_for && (told.0.len() as u64) < AGENTS * FACTS {
            let Ok(fact) = noted.recv_timeout(PATIENCE) else {
                panic!("it stands still: {}", runtime.block_on(standing(&app)));
            };
            told.take(fact);
            new = (told.0.len() - known) as u64;
        }
        if (told.0.len() as u64) < AGENTS * FACTS {
            // All agents die where they are.
            drop(app);
            runtime.shutdown_timeout(PATIENCE);
            // Also what was told since it was decided: a run that has ended tells nothing again.
            noted.try_iter().for_each(|fact| told.take(fact));
            kills += 1;
            continue;
        }
        runtime.block_on(async {
            for agent in 0..AGENTS {
                let run = app.find(&library::run_name(agent)).await.unwrap();
                run.result::<Done>().await.unwrap();
            }
            noted.try_iter().for_each(|fact| told.take(fact));
            check(&app, Vec::new(), &told).await;
            app.close().await.unwrap();
            let again: Arc<dyn Store> = Arc::new(LocalStore::open(&store).unwrap());
            let app = quiet().open_store(Arc::clone(&again)).await.unwrap();
            check(&app, vec![again], &told).await;
        });
        break;
    }
    println!("{kills} times all agents were killed");
    assert!(kills > 3);
}

/// A process that executes agents.
struct Librarian(Child);

impl Librarian {
    fn start(url: &str, place: usize, noted: &Sender<(usize, Noted)>) -> Librarian {
        let mut child = Command::new(env!("CARGO_BIN_EXE_story-librarian"))
            .args([url, &LEASE.as_millis().to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let noted = noted.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let numbers: Vec<u64> = line
                    .split(' ')
                    .filter_map(|word| word.parse().ok())
                    .collect();
                let [agent, number, id] = numbers[..] else {
                    panic!("{line}");
                };
                let _ = noted.send((place, (agent, number, id)));
            }
        });
        Librarian(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Librarian {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn processes_on_one_database() {
    let seed = common::seed();
    let mut random = Random(seed);
    let server = Server::shared();
    let url = server.url();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // It knows the agents, for replays, and has no room to execute them.
    let builder = quiet().max_running_of(library::NAME, 0);
    let app = runtime.block_on(async {
        let app = builder.open(&url).await.unwrap();
        start_all(&app).await;
        app
    });
    let (sender, noted): (_, Receiver<(usize, Noted)>) = mpsc::channel();
    let start = |place| Librarian::start(&url, place, &sender);
    let mut processes: Vec<Librarian> = (0..AGENTS as usize).map(start).collect();
    let mut told = Acknowledged::default();
    let (mut kills, mut next) = (0, 6);
    while (told.0.len() as u64) < AGENTS * FACTS {
        let (place, fact) = noted.recv_timeout(PATIENCE).expect("it goes on");
        told.take(fact);
        if told.0.len() >= next {
            // The one that was just told of something, or any other.
            let any = random.below(AGENTS) as usize;
            let victim = if random.below(2) == 0 { place } else { any };
            processes[victim].kill();
            processes[victim] = start(victim);
            kills += 1;
            next = told.0.len() + 4 + random.below(8) as usize;
        }
    }
    let others: Vec<Arc<dyn Store>> = (0..2)
        .map(|_| Arc::new(PostgresStore::open(&url).unwrap()) as Arc<dyn Store>)
        .collect();
    runtime.block_on(async {
        for agent in 0..AGENTS {
            let run = app.find(&library::run_name(agent)).await.unwrap();
            run.result::<Done>().await.unwrap();
        }
        noted.try_iter().for_each(|(_, fact)| told.take(fact));
        check(&app, others, &told).await;
    });
    println!("{kills} processes were killed");
    assert!(kills > 3);
    drop(processes);
    runtime.block_on(app.close()).unwrap();
}
