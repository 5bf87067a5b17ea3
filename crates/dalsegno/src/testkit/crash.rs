//! Runs an agent once per moment, and kills it there.

use std::fmt;
use std::sync::Arc;

use dalsegno_simdisk::{LoseAll, SimDisk};
use serde::Serialize;
use serde_json::Value;

use super::life::{Job, LifeEnd};
use super::person::{Person, honest};
use super::{Ask, Reply, SimRuntime, World};
use crate::effect::{Durability, Granularity};
use crate::engine::Builder;

/// A process that dies more often than this without ending is stuck.
const LIVES_LIMIT: u64 = 100;

type Register = Arc<dyn Fn(Builder, World) -> Builder + Send + Sync>;

/// Kills an agent at every moment.
#[must_use = "nothing happens before `run`"]
pub struct CrashEverywhere {
    agent: String,
    input: Value,
    register: Register,
    durability: Durability,
    granularity: Granularity,
    person: Person,
    shuffled: bool,
    again: u64,
    any_result: bool,
    #[cfg(feature = "mutants")]
    mutant: Option<crate::rules::Rule>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Moments at which a process could die, when nothing is disturbed.
    pub moments: u64,
    /// Processes that died.
    pub crashes: u64,
    /// Processes that were started.
    pub lives: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report {
            moments,
            crashes,
            lives,
        } = self;
        write!(
            f,
            "{moments} moments, {crashes} crashes, {lives} processes: nothing twice, nothing lost"
        )
    }
}

/// A case in which something went wrong, and how it came to that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// At which moments processes died, one after the other.
    pub died_at: Vec<u64>,
    /// What went wrong.
    pub what: String,
    /// The moments that led to it.
    pub moments: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        writeln!(f, "processes died at moments {:?}:", self.died_at)?;
        for moment in &self.moments {
            writeln!(f, "  {moment}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Broken {}

/// A case that was played.
struct Played {
    result: Result<Value, String>,
    world: World,
    /// How many effects there were by then.
    effects: u64,
    lives: u64,
    /// How many moments the last life had.
    last: u64,
}

impl CrashEverywhere {
    /// Of one run of an agent on an input. `register` gives the builder the agents, whose tools
    /// call the world.
    pub fn new<I, R>(agent: &str, input: &I, register: R) -> CrashEverywhere
    where
        I: Serialize + ?Sized,
        R: Fn(Builder, World) -> Builder + Send + Sync + 'static,
    {
        CrashEverywhere {
            agent: agent.to_owned(),
            input: serde_json::to_value(input).unwrap_or_default(),
            register: Arc::new(register),
            durability: Durability::default(),
            granularity: Granularity::default(),
            person: Arc::new(honest),
            shuffled: false,
            again: 0,
            any_result: false,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// How much a crash may take.
    pub fn durability(mut self, durability: Durability) -> CrashEverywhere {
        self.durability = durability;
        self
    }

    /// Which outcomes are written down.
    pub fn granularity(mut self, granularity: Granularity) -> CrashEverywhere {
        self.granularity = granularity;
        self
    }

    /// Who answers; unless this is said, a person who approves everything and tells the truth about
    /// doubts.
    pub fn person(
        mut self,
        person: impl Fn(&Ask, &World) -> Reply + Send + Sync + 'static,
    ) -> CrashEverywhere {
        self.person = Arc::new(person);
        self
    }

    /// Tasks run in a random order, another in every process.
    pub fn shuffled(mut self) -> CrashEverywhere {
        self.shuffled = true;
        self
    }

    /// The process that takes over dies, too, at each of its first so many moments.
    pub fn and_again(mut self, moments: u64) -> CrashEverywhere {
        self.again = moments;
        self
    }

    /// The result may be another one each time: the agent asks a model that never says the same
    /// twice.
    pub fn any_result(mut self) -> CrashEverywhere {
        self.any_result = true;
        self
    }

    /// Switches one rule off, for showing that this notices.
    #[cfg(feature = "mutants")]
    pub fn break_rule(mut self, rule: crate::rules::Rule) -> CrashEverywhere {
        self.mutant = Some(rule);
        self
    }

    /// Does it.
    ///
    /// # Errors
    /// The first case in which something happened twice or not at all, or the result differs.
    pub fn run(&self) -> Result<Report, Broken> {
        let undisturbed = self.play(&[])?;
        let mut report = Report {
            moments: undisturbed.last,
            crashes: 0,
            lives: 1,
        };
        let mut cases: Vec<Vec<u64>> = Vec::new();
        for moment in 0..undisturbed.last {
            cases.push(vec![moment]);
            cases.extend((0..self.again).map(|again| vec![moment, again]));
        }
        for dies_at in cases {
            let played = self.play(&dies_at)?;
            report.crashes += played.lives - 1;
            report.lives += played.lives;
            let broken = |what: String| Broken {
                died_at: dies_at.clone(),
                what,
                moments: played.world.schedule.names(),
            };
            if played.result != undisturbed.result && !self.any_result {
                let (now, then) = (&played.result, &undisturbed.result);
                return Err(broken(format!(
                    "the result is {now:?}, undisturbed it is {then:?}"
                )));
            }
            if let Some(what) = played.world.differs_from(&undisturbed.world) {
                return Err(broken(what));
            }
        }
        Ok(report)
    }

    /// Does it, and checks the result, too.
    ///
    /// # Errors
    /// As [`CrashEverywhere::run`], and if the undisturbed run gives another result.
    pub fn run_to<T: Serialize + ?Sized>(&self, expected: &T) -> Result<Report, Broken> {
        let expected = serde_json::to_value(expected).unwrap_or_default();
        let undisturbed = self.play(&[])?;
        if undisturbed.result != Ok(expected.clone()) {
            let now = &undisturbed.result;
            return Err(Broken {
                died_at: Vec::new(),
                what: format!("the result is {now:?}, and should be {expected}"),
                moments: undisturbed.world.schedule.names(),
            });
        }
        self.run()
    }

    fn builder(&self) -> Builder {
        let builder = Builder::new()
            .durability(self.durability)
            .granularity(self.granularity);
        #[cfg(feature = "mutants")]
        if let Some(rule) = self.mutant {
            return builder.break_rule(rule);
        }
        builder
    }

    /// Plays one case: each process dies at its moment, the last one does not.
    fn play(&self, dies_at: &[u64]) -> Result<Played, Broken> {
        let seed = dies_at.iter().fold(1, |seed, at| seed * 1_000_003 + at);
        let disk = SimDisk::new(seed);
        let mut world = World::default();
        let mut runtime = SimRuntime::new(seed);
        if self.shuffled {
            runtime = runtime.shuffled();
            world.jitter = Some(runtime.clone());
        }
        let mut told: Option<Played> = None;
        for life in 0..LIVES_LIMIT {
            let at = dies_at.get(life as usize).copied();
            world.schedule.begin_life(at);
            let builder = self.builder();
            let job = Job {
                disk: &disk,
                world: &world,
                runtime: &runtime,
                person: &self.person,
                agent: &self.agent,
                input: &self.input,
            };
            let ended = job.live((self.register)(builder, world.clone()));
            disk.reboot(&mut LoseAll);
            match ended {
                LifeEnd::Died => {}
                // What was told must be so for ever: the next process looks.
                LifeEnd::Done(result) => match told {
                    None => {
                        told = Some(Played {
                            result,
                            lives: life + 1,
                            last: world.schedule.count(),
                            effects: world.effects(),
                            world: world.clone(),
                        });
                    }
                    Some(told) if told.result != result || told.effects != world.effects() => {
                        return Err(Broken {
                            died_at: dies_at.to_vec(),
                            what: format!(
                                "{:?} after {} effects was told, and lost: it is {result:?} after {}",
                                told.result,
                                told.effects,
                                world.effects()
                            ),
                            moments: world.schedule.names(),
                        });
                    }
                    Some(told) => return Ok(told),
                },
                LifeEnd::Stuck(what) => {
                    return Err(Broken {
                        died_at: dies_at.to_vec(),
                        what,
                        moments: world.schedule.names(),
                    });
                }
            }
        }
        Err(Broken {
            died_at: dies_at.to_vec(),
            what: "it never ends".into(),
            moments: world.schedule.names(),
        })
    }
}
