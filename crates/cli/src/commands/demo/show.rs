//! The show itself: workers live and die, what is recorded is told, questions are answered.
//!
//! Invariant: the next worker is started only when the one before is dead, and all that it has
//! recorded was told.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use dalsegno::{Durability, Granularity};
use dalsegno_story::agent::{Place, Trip};
use dalsegno_story::http::Request;
use dalsegno_story::worker::{Options, run_name};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until};

use super::plan::{Kills, Plan};
use super::scene::{News, Process, Scene};
use super::told::{Happening, Step, UnderWay};
use super::watch::{Watch, run_steps};
use crate::exit::{Error, Result};
use crate::output::text::shown;

/// Nothing takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who is told.
pub type Tell<'a> = dyn FnMut(Happening) -> Result<()> + 'a;

/// What a show came to.
#[derive(Debug, Default)]
pub struct Came {
    pub trips: BTreeMap<String, Trip>,
    pub runs: usize,
    pub kills: u32,
    pub workers: u32,
    pub replayed: u64,
}

pub struct Show<'a> {
    scene: &'a Scene,
    probe: bool,
    tell: &'a mut Tell<'a>,
    sender: UnboundedSender<News>,
    news: UnboundedReceiver<News>,
    watch: Option<Watch>,
    /// Runs that the worker has taken up.
    taken_up: BTreeSet<String>,
    wanted: u32,
    came: Came,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    /// It was done before it could be killed.
    Done,
}

impl<'a> Show<'a> {
    pub fn new(scene: &'a Scene, probe: bool, tell: &'a mut Tell<'a>) -> Show<'a> {
        let (sender, news) = unbounded_channel();
        Show {
            scene,
            probe,
            tell,
            sender,
            news,
            watch: None,
            taken_up: BTreeSet::new(),
            wanted: 0,
            came: Came::default(),
        }
    }

    /// Runs until all kills were made and the last run has ended.
    pub async fn with_kills(mut self, mut kills: Kills) -> Result<(Came, Option<Watch>)> {
        self.wanted = kills.wanted();
        loop {
            let plan = kills.next(self.came.kills);
            let run = self.came.runs;
            match self.live(run..run + 1, plan).await? {
                End::Killed => {}
                End::Done => {
                    self.came.runs += 1;
                    if self.came.kills >= self.wanted {
                        return Ok((self.came, self.watch));
                    }
                }
            }
        }
    }

    /// So many runs at once, never disturbed.
    pub async fn undisturbed(mut self, runs: usize) -> Result<Came> {
        self.live(0..runs, Plan::Never).await?;
        self.came.runs = runs;
        Ok(self.came)
    }

    fn start(&mut self, runs: &Range<usize>) -> Result<Process> {
        self.came.workers += 1;
        self.taken_up.clear();
        let options = Options {
            store: self.scene.store(),
            place: Place {
                world: self.scene.address.clone(),
                out: self.scene.files(),
                worker: format!("worker-{}", self.came.workers),
                probe: self.probe,
            },
            first: runs.start,
            runs: runs.len(),
            serves: false,
            lease: Duration::from_secs(30),
            durability: Durability::default(),
            granularity: Granularity::default(),
        };
        let mut worker = self.scene.worker(options.to_args())?;
        (self.tell)(Happening::WorkerStarted {
            worker: self.came.workers,
            pid: worker.pid(),
        })?;
        worker.listen(self.came.workers, self.sender.clone())?;
        Ok(worker)
    }

    /// One worker, from its start to its end.
    async fn live(&mut self, runs: Range<usize>, plan: Plan) -> Result<End> {
        let before = self.scene.requests()?;
        let mut worker = self.start(&runs)?;
        let number = self.came.workers;
        let mut kill_at = match plan {
            Plan::AfterStart(time) => Some(Instant::now() + time),
            _ => None,
        };
        if let Plan::AfterRequests(count, _) = plan {
            self.tell_when(before + count, number);
        }
        loop {
            let changed = async {
                match &self.watch {
                    Some(watch) => watch.changed().await,
                    None => std::future::pending().await,
                }
            };
            let due = sleep_until(kill_at.unwrap_or_else(Instant::now));
            tokio::select! {
                biased;
                () = due, if kill_at.is_some() => {
                    if worker.kill() {
                        self.mourn(&run_name(runs.start), worker.pid()).await?;
                        return Ok(End::Killed);
                    }
                    // It had ended by itself: the signal killed nobody, and it will be heard of.
                    kill_at = None;
                }
                news = self.news.recv() => match news {
                    Some(News::Line(line)) if line == "open" => {
                        if self.watch.is_none() {
                            self.watch = Some(Watch::open(&self.scene.store())?);
                        }
                        if let Plan::AfterOpen(time) = plan {
                            kill_at = Some(Instant::now() + time);
                        }
                    }
                    Some(News::Line(line)) => self.note_result(&line)?,
                    Some(News::Requests(of)) => if let (Plan::AfterRequests(_, time), true) = (plan, of == number) {
                        kill_at = Some(Instant::now() + time);
                    },
                    Some(News::Ended(of, error)) if of == number => {
                        if !worker.ended_well() {
                            let error = shown(error.trim());
                            return Err(Error::failed(format!("worker {number} failed: {error}")));
                        }
                        self.look().await?;
                        return Ok(End::Done);
                    }
                    // Of one that is no more.
                    Some(News::Ended(..)) | None => {}
                },
                changed = changed => {
                    changed?;
                    let seen = self.look().await?;
                    match plan {
                        Plan::AtStep(step) if seen.iter().any(|name| name == step) => {
                            kill_at = Some(Instant::now());
                        }
                        _ => self.answer().await?,
                    }
                }
                () = sleep(PATIENCE) => {
                    return Err(Error::failed(format!("nothing has happened for {PATIENCE:?}")));
                }
            }
        }
    }

    /// The world says when it has had so many requests.
    fn tell_when(&self, requests: u64, worker: u32) {
        let (address, sender) = (self.scene.address.clone(), self.sender.clone());
        let request = Request::get(format!("/wait?arrivals={requests}"));
        std::thread::spawn(move || {
            drop(request.send(&address));
            drop(sender.send(News::Requests(worker)));
        });
    }

    /// Tells what is new, and gives the names of the steps in it.
    async fn look(&mut self) -> Result<Vec<String>> {
        let Some(watch) = &mut self.watch else {
            return Ok(Vec::new());
        };
        let mut steps = Vec::new();
        for happening in watch.look(self.came.workers).await? {
            match &happening {
                Happening::Step { step, .. } | Happening::ApprovalAsked { step, .. } => {
                    steps.push(step.step.clone());
                }
                // Also after each wait, which is not told.
                Happening::RunStarted { run, replayed, .. } => {
                    if !self.taken_up.insert(run.clone()) {
                        continue;
                    }
                    self.came.replayed += replayed.len() as u64;
                }
                _ => {}
            }
            (self.tell)(happening)?;
        }
        Ok(steps)
    }

    async fn answer(&mut self) -> Result<()> {
        if let Some(watch) = &mut self.watch {
            for happening in watch.answer(self.scene).await? {
                (self.tell)(happening)?;
            }
        }
        Ok(())
    }

    /// What a worker that was killed has left.
    async fn mourn(&mut self, run: &str, pid: u32) -> Result<()> {
        self.came.kills += 1;
        self.look().await?;
        let name = format!("worker-{}", self.came.workers);
        let (had_begun, recorded, begun) = match &self.watch {
            Some(watch) => {
                let (had_begun, begun) = watch.begun_by(run, &name);
                (
                    had_begun,
                    run_steps(&watch.journal(run)).len() as u64,
                    begun,
                )
            }
            None => (false, 0, Vec::new()),
        };
        let ledger = self.scene.ledger()?;
        let in_world = |step: &Step| {
            let mut entries = ledger.iter();
            entries.any(|entry| entry.worker == name && entry.step == step.step)
        };
        let under_way = begun.into_iter().map(|step| UnderWay {
            in_world: in_world(&step),
            step,
        });
        let under_way = under_way.collect();
        (self.tell)(Happening::Killed {
            worker: self.came.workers,
            pid,
            kill: self.came.kills,
            of: self.wanted,
            had_begun,
            recorded,
            under_way,
        })
    }

    fn note_result(&mut self, line: &str) -> Result<()> {
        let json = line.strip_prefix("result ").unwrap_or_default();
        let told = serde_json::from_str::<(String, Trip)>(json);
        let (name, trip) = told.map_err(|e| Error::failed(format!("not a result: {e}")))?;
        self.came.trips.insert(name, trip);
        Ok(())
    }
}
