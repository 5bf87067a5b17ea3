//! A campaign: runs of the story in one store, while their process is killed again and again.
//!
//! Invariant: the world and the person are other processes and are never killed; the next process
//! is started only when the one before is dead.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use dalsegno::{Durability, Granularity};
use dalsegno_story::agent::{Place, Trip};
use dalsegno_story::http::Request;
use dalsegno_story::ledger::now_us;
use dalsegno_story::person::Said;
use dalsegno_story::worker::Options;

use super::person::Desk;
use super::{Folder, Random, World};

/// Runs at a time.
const BATCH: usize = 6;
/// Nothing takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a notification that is in doubt can be found out about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The world answers.
    On,
    /// The world cannot tell.
    Off,
    /// The agent has none.
    None,
}

#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub durability: Durability,
    pub granularity: Granularity,
    pub probe: Probe,
}

/// When a process is killed.
#[derive(Clone, Copy, Debug)]
pub enum Plan {
    /// So long after it was started.
    AfterStart(Duration),
    /// So long after it has opened the store.
    AfterOpen(Duration),
    /// So long after it has sent so many requests.
    AfterArrivals(u64, Duration),
    Never,
}

impl Plan {
    fn random(random: &mut Random) -> Plan {
        let mut micros = |limit| Duration::from_micros(random.below(limit));
        let (short, long) = (micros(5_000), micros(25_000));
        match random.below(8) {
            0 | 1 => Plan::AfterStart(long),
            2 => Plan::AfterOpen(short),
            3 => Plan::AfterOpen(long),
            _ => Plan::AfterArrivals(1 + random.below(24), short),
        }
    }
}

/// What is heard of.
#[derive(Debug)]
pub enum Happening {
    Line(u64, String),
    /// A process closed its output, and said this on its error output.
    Ended(u64, String),
    Arrived(u64),
    Trouble(String),
}

/// One process that was started.
#[derive(Clone, Debug)]
pub struct Life {
    pub worker: String,
    pub plan: Plan,
    pub started_us: u64,
    /// How long it took to open the store.
    pub opened: Option<Duration>,
    pub killed: bool,
    /// The process before was killed.
    pub after_a_kill: bool,
}

/// What is left of a campaign.
pub struct Campaign {
    pub setting: Setting,
    pub folder: Folder,
    pub world: World,
    pub lives: Vec<Life>,
    pub results: BTreeMap<String, Trip>,
    /// Which process first told of a run's end.
    pub told: BTreeMap<String, u64>,
    pub said: Said,
}

impl Drop for Campaign {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}", self.setting);
            for life in &self.lives {
                eprintln!("  {life:?}");
            }
        }
    }
}

enum End {
    Killed,
    /// It was done before it could be killed.
    Done,
}

impl Campaign {
    /// Kills processes so many times, with new runs whenever all have ended, and then lets the last
    /// ones end. Without kills, so many `runs` at once.
    pub fn run(name: &str, setting: Setting, kills: usize, runs: usize, seed: u64) -> Campaign {
        let folder = Folder::new(name);
        let world = World::start(&folder.join("ledger"));
        if setting.probe == Probe::Off {
            world.switch_probe_off();
        }
        let (sender, heard) = channel();
        let store = folder.join("store");
        let desk = Desk::open(store.clone(), world.address.clone(), sender.clone());
        let mut options = Options {
            store,
            place: Place {
                world: world.address.clone(),
                out: folder.join("files"),
                worker: String::new(),
                probe: setting.probe != Probe::None,
            },
            first: 0,
            runs: if kills > 0 { BATCH } else { runs },
            serves: false,
            lease: Duration::from_secs(30),
            durability: setting.durability,
            granularity: setting.granularity,
        };
        let mut campaign = Campaign {
            setting,
            folder,
            world,
            lives: Vec::new(),
            results: BTreeMap::new(),
            told: BTreeMap::new(),
            said: Said::default(),
        };
        let mut random = Random(seed);
        loop {
            let plan = match campaign.kills() < kills {
                true => Plan::random(&mut random),
                false => Plan::Never,
            };
            match campaign.live(&mut options, plan, &sender, &heard) {
                End::Killed => {}
                End::Done if campaign.kills() >= kills => break,
                End::Done => options.first += BATCH,
            }
        }
        campaign.said = desk.close();
        campaign
    }

    pub fn kills(&self) -> usize {
        self.lives.iter().filter(|life| life.killed).count()
    }

    /// One process, from its start to its end.
    fn live(
        &mut self,
        options: &mut Options,
        plan: Plan,
        sender: &Sender<Happening>,
        heard: &Receiver<Happening>,
    ) -> End {
        let number = self.lives.len() as u64;
        options.place.worker = format!("w{number}");
        let before = self.world.arrivals();
        let after_a_kill = self.lives.last().is_some_and(|life| life.killed);
        self.lives.push(Life {
            worker: options.place.worker.clone(),
            plan,
            started_us: now_us(),
            opened: None,
            killed: false,
            after_a_kill,
        });
        let start = Instant::now();
        let child = Command::new(env!("CARGO_BIN_EXE_story-worker"))
            .args(options.to_args())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        listen(&mut child, number, sender.clone());
        let mut kill_at = match plan {
            Plan::AfterStart(time) => Some(start + time),
            _ => None,
        };
        if let Plan::AfterArrivals(count, _) = plan {
            let (address, sender) = (self.world.address.clone(), sender.clone());
            let request = Request::get(format!("/wait?arrivals={}", before + count));
            std::thread::spawn(move || {
                drop(request.send(&address));
                drop(sender.send(Happening::Arrived(number)));
            });
        }
        let life = number as usize;
        loop {
            let now = Instant::now();
            let until = kill_at.unwrap_or(start + PATIENCE);
            match heard.recv_timeout(until.saturating_duration_since(now)) {
                Ok(Happening::Line(from, line)) if line == "open" => {
                    // Of a process that was killed meanwhile it does not matter any more.
                    if from == number {
                        self.lives[life].opened = Some(start.elapsed());
                    }
                    if let (Plan::AfterOpen(time), true) = (plan, from == number) {
                        kill_at = Some(Instant::now() + time);
                    }
                }
                Ok(Happening::Line(from, line)) => self.note_result(from, &line),
                Ok(Happening::Arrived(from)) if from == number => {
                    if let Plan::AfterArrivals(_, time) = plan {
                        kill_at = Some(Instant::now() + time);
                    }
                }
                Ok(Happening::Ended(from, error)) if from == number => {
                    let status = child.wait().unwrap();
                    assert!(status.success(), "worker {number}: {status}: {error}");
                    return End::Done;
                }
                Ok(Happening::Trouble(why)) => {
                    stop(&mut child);
                    panic!("a person is at a loss: {why}");
                }
                // Of a process that is no more.
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if kill_at.is_some() => {
                    if stop(&mut child) == Some(SIGKILL) {
                        self.lives[life].killed = true;
                        return End::Killed;
                    }
                    // It had ended by itself: the signal killed nobody, and it will be heard of.
                    kill_at = None;
                }
                Err(_) => {
                    stop(&mut child);
                    panic!("worker {number} has not come to its end in {PATIENCE:?}");
                }
            }
        }
    }

    fn note_result(&mut self, worker: u64, line: &str) {
        let json = line.strip_prefix("result ").expect("a result");
        let (name, trip): (String, Trip) = serde_json::from_str(json).unwrap();
        let before = self.results.insert(name.clone(), trip.clone());
        assert!(before.is_none_or(|before| before == trip), "{name}");
        self.told.entry(name).or_insert(worker);
    }
}

const SIGKILL: i32 = 9;

/// Kills a process, and says which signal ended it.
fn stop(child: &mut Child) -> Option<i32> {
    child.kill().unwrap();
    child.wait().unwrap().signal()
}

/// Hears what a process says until it ends.
fn listen(child: &mut Child, number: u64, heard: Sender<Happening>) {
    let (stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let Ok(line) = line else { break };
            drop(heard.send(Happening::Line(number, line)));
        }
        let mut error = String::new();
        drop(stderr.read_to_string(&mut error));
        drop(heard.send(Happening::Ended(number, error)));
    });
}
