//! The process that executes the story: opens the store, starts runs that do not exist, lets all
//! come to their end.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use dalsegno::{Dalsegno, Durability, Error, Granularity, Worker};

use crate::agent::{self, Place, Trip};

/// What a worker is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// The store's folder, or the address of a database.
    pub store: PathBuf,
    /// Where the agent acts.
    pub place: Place,
    /// The number of the first run.
    pub first: usize,
    /// How many runs.
    pub runs: usize,
    /// Executes what others start, until it is told to stop, and starts none itself.
    pub serves: bool,
    /// For how long a run is a worker's without being heard of.
    pub lease: Duration,
    /// How much a crash of the machine may take.
    pub durability: Durability,
    /// Which outcomes are written down.
    pub granularity: Granularity,
}

/// The name of a run.
pub fn run_name(number: usize) -> String {
    format!("trip-{number:04}")
}

/// What a run is given.
pub fn destination(number: usize) -> String {
    let names = ["Oslo", "Lima", "Graz", "Turin", "Lagos", "Kyoto", "Quito"];
    format!("{} {number}", names[number % names.len()])
}

impl Options {
    /// As arguments of the program.
    pub fn to_args(&self) -> Vec<OsString> {
        let word = |word: &str| OsString::from(word);
        let durability = match self.durability {
            Durability::Strict => "strict".to_owned(),
            Durability::Bounded(bound) => format!("bounded:{}", bound.as_millis()),
        };
        let granularity = match self.granularity {
            Granularity::ToolCall => "tool_call",
            Granularity::PlanStep => "plan_step",
            Granularity::Decision => "decision",
        };
        let probe = if self.place.probe { "on" } else { "off" };
        let pairs = [
            ("--store", self.store.clone().into_os_string()),
            ("--world", word(&self.place.world)),
            ("--out", self.place.out.clone().into_os_string()),
            ("--worker", word(&self.place.worker)),
            ("--probe", word(probe)),
            ("--first", word(&self.first.to_string())),
            ("--runs", word(&self.runs.to_string())),
            ("--serves", word(if self.serves { "on" } else { "off" })),
            ("--lease", word(&self.lease.as_millis().to_string())),
            ("--durability", word(&durability)),
            ("--granularity", word(granularity)),
        ];
        let words = pairs.into_iter();
        words
            .flat_map(|(name, value)| [word(name), value])
            .collect()
    }

    /// From arguments of the program.
    ///
    /// # Errors
    /// One is not known, or not what it should be.
    pub fn from_args(mut args: impl Iterator<Item = OsString>) -> Result<Options, String> {
        let mut options = Options {
            store: PathBuf::from("story-store"),
            place: Place {
                world: String::new(),
                out: PathBuf::from("story-files"),
                worker: std::process::id().to_string(),
                probe: true,
            },
            first: 0,
            runs: 1,
            serves: false,
            lease: Duration::from_secs(30),
            durability: Durability::default(),
            granularity: Granularity::default(),
        };
        while let Some(name) = args.next() {
            let name = name.to_string_lossy().into_owned();
            let Some(value) = args.next() else {
                return Err(format!("{name} needs a value"));
            };
            options.set(&name, value)?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: OsString) -> Result<(), String> {
        let text = value.to_string_lossy().into_owned();
        let unknown = || format!("{name} cannot be {text:?}");
        match name {
            "--store" => self.store = value.into(),
            "--out" => self.place.out = value.into(),
            "--world" => self.place.world = text,
            "--worker" => self.place.worker = text,
            "--probe" | "--serves" => {
                let on = match text.as_str() {
                    "on" => true,
                    "off" => false,
                    _ => return Err(unknown()),
                };
                match name {
                    "--probe" => self.place.probe = on,
                    _ => self.serves = on,
                }
            }
            "--lease" => {
                let ms = text.parse().map_err(|_| unknown())?;
                self.lease = Duration::from_millis(ms);
            }
            "--first" => self.first = text.parse().map_err(|_| unknown())?,
            "--runs" => self.runs = text.parse().map_err(|_| unknown())?,
            "--durability" => {
                let bound = text.strip_prefix("bounded:").and_then(|ms| ms.parse().ok());
                self.durability = match (text.as_str(), bound) {
                    ("strict", _) => Durability::Strict,
                    ("bounded", _) => Durability::default(),
                    (_, Some(ms)) => Durability::Bounded(Duration::from_millis(ms)),
                    _ => return Err(unknown()),
                }
            }
            "--granularity" => {
                self.granularity = match text.as_str() {
                    "tool_call" => Granularity::ToolCall,
                    "plan_step" => Granularity::PlanStep,
                    "decision" => Granularity::Decision,
                    _ => return Err(unknown()),
                }
            }
            _ => return Err(format!("there is no option {name}")),
        }
        Ok(())
    }
}

/// Executes the runs, and tells what happens through `report`: `open` when the store is, then a
/// line for each result as soon as it is there.
///
/// # Errors
/// A run failed, or the store does not work.
pub async fn execute(options: Options, report: fn(&str)) -> Result<(), Error> {
    let builder = Dalsegno::builder()
        .session(&options.place.worker)
        .durability(options.durability)
        .lease(options.lease)
        .granularity(options.granularity);
    let app = agent::register(builder, options.place)
        .open(&options.store)
        .await?;
    report("open");
    if options.serves {
        return Worker::new(app).run().await;
    }
    let numbers = options.first..options.first + options.runs;
    let waiting: Vec<_> = numbers
        .map(|number| {
            let app = app.clone();
            tokio::spawn(async move { result(&app, number).await.map(|line| report(&line)) })
        })
        .collect();
    for waiting in waiting {
        match waiting.await {
            Ok(told) => told?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    app.close().await
}

/// Starts a run or finds it, and waits for its result, however long a person takes.
async fn result(app: &Dalsegno, number: usize) -> Result<String, Error> {
    let trip = trip(app, number).await?;
    let json = serde_json::json!([run_name(number), trip]);
    Ok(format!("result {json}"))
}

/// The same, as it is.
///
/// # Errors
/// The run failed, or the store does not work.
pub async fn trip(app: &Dalsegno, number: usize) -> Result<Trip, Error> {
    let name = run_name(number);
    let run = app.start(agent::NAME, &name, &destination(number)).await?;
    loop {
        let position = app.store().position().await?;
        match run.result::<Trip>().await {
            Ok(trip) => return Ok(trip),
            // Somebody will write a letter.
            Err(Error::NeedsAttention { .. }) => drop(app.store().changed(position).await?),
            Err(e) => return Err(e),
        }
    }
}
