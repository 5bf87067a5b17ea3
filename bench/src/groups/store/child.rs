//! This program again, as a child: a process of its own, whose memory is that of one open store,
//! and which can end without closing it.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use dalsegno_store::{LocalStore, Store};

use super::fill::{Plan, fill};
use super::{runs, runtime};
use crate::Error;

/// The first word of a child's command line.
const CHILD: &str = "child";
const FILL: &str = "fill";
const OPEN: &str = "open";

/// How a child ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Close,
    /// Without closing the store: the next opening finds a crash again.
    Die,
}

/// What a child saw that opened a store.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub millis: f64,
    /// How long it took from there to find an ended run, the oldest.
    pub find_millis: f64,
    /// Resident after opening.
    pub megabytes: f64,
    /// Records behind the snapshot.
    pub replayed: u64,
}

/// Does a child's work, if this is one.
pub fn called() -> Option<Result<(), Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (first, words) = words.split_first()?;
    (first == CHILD).then(|| work(words))
}

fn work(words: &[String]) -> Result<(), Error> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [FILL, dir, events, unfinished, unfinished_events, ending] => fill(
            Path::new(dir),
            Plan {
                events: events.parse()?,
                unfinished: unfinished.parse()?,
                unfinished_events: unfinished_events.parse()?,
                ending: ending.parse()?,
            },
        ),
        [OPEN, dir, end] => open(Path::new(dir), *end == "die"),
        _ => Err("no work for a child".into()),
    }
}

fn open(dir: &Path, die: bool) -> Result<(), Error> {
    let start = Instant::now();
    let store = LocalStore::open(dir)?;
    let millis = start.elapsed().as_secs_f64() * 1e3;
    let kilobytes = resident_kilobytes()?;
    let start = Instant::now();
    runtime()?.block_on(store.head(&runs::id(0)?))?;
    let find_millis = start.elapsed().as_secs_f64() * 1e3;
    let replayed = store.opened().replayed;
    println!("{millis} {find_millis} {kilobytes} {replayed}");
    if die {
        std::process::exit(0);
    }
    Ok(store.close()?)
}

fn resident_kilobytes() -> Result<f64, Error> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("/proc/self/status has no VmRSS")?.parse()?)
}

fn run(words: &[&str]) -> Result<String, Error> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.arg(CHILD).args(words).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Has a child fill a folder.
pub fn have_filled(dir: &Path, plan: Plan) -> Result<(), Error> {
    let numbers = [plan.events, plan.unfinished, plan.unfinished_events];
    let [events, unfinished, unfinished_events] = numbers.map(|number| number.to_string());
    let ending = plan.ending.to_string();
    let dir = dir.to_string_lossy();
    run(&[
        FILL,
        &dir,
        &events,
        &unfinished,
        &unfinished_events,
        &ending,
    ])?;
    Ok(())
}

/// Has a child open a store.
pub fn have_opened(dir: &Path, end: End) -> Result<Seen, Error> {
    let end = match end {
        End::Close => "close",
        End::Die => "die",
    };
    let output = run(&[OPEN, &dir.to_string_lossy(), end])?;
    let numbers: Result<Vec<f64>, _> = output.split_whitespace().map(str::parse).collect();
    match numbers?.as_slice() {
        [millis, find_millis, kilobytes, replayed] => Ok(Seen {
            millis: *millis,
            find_millis: *find_millis,
            megabytes: kilobytes * 1024.0 / 1e6,
            replayed: *replayed as u64,
        }),
        _ => Err(format!("a child said {output:?}").into()),
    }
}
