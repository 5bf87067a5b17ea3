//! What must hold after a campaign: every effect once, and the results of runs that were never
//! disturbed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use dalsegno::record;
use dalsegno_store::{Event, Kind, Options, RunQuery, Status, Store};
use dalsegno_story::ledger::{Entry, counts};

use super::campaign::{Campaign, Probe};

/// After a death the next process is at work so soon, even on a machine that is busy.
const TAKEOVER_LIMIT: Duration = Duration::from_secs(5);

/// Counts over campaigns, to be printed.
#[derive(Debug, Default)]
pub struct Tally {
    pub kills: usize,
    pub runs: usize,
    /// By how many requests the process had sent.
    pub at: BTreeMap<&'static str, usize>,
    /// Steps that were begun again, because the process died in them.
    pub again: BTreeMap<String, u64>,
    /// What became of notifications in doubt, and who said so.
    pub resolved: BTreeMap<String, u64>,
    /// From the start of a process after a kill to its first request.
    pub takeovers: Vec<Duration>,
    /// From the start of a process to the open store.
    pub opened: Vec<Duration>,
    /// Runs that a person told to go on after many deaths in one step.
    pub go_on: u64,
}

/// What can be compared of a run: its result, the keys of its effects, its files.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    result: String,
    /// Of all its requests: what, and under which key.
    keys: BTreeSet<(String, String)>,
    files: Vec<(String, String)>,
}

fn events(campaign: &Campaign) -> BTreeMap<String, Vec<Event>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let dir = campaign.folder.join("store");
    let report = Options::new().verify(&dir).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let store = Options::new().open_read_only(dir).unwrap();
    runtime.unwrap().block_on(async {
        let mut all = BTreeMap::new();
        for info in store.runs(&RunQuery::default()).await.unwrap() {
            assert_eq!(info.status, Status::Completed, "{}", info.run);
            let events = store.read(&info.run, 1, usize::MAX).await.unwrap();
            let events = events.into_iter().map(|recorded| recorded.event).collect();
            all.insert(info.run.name().to_owned(), events);
        }
        all
    })
}

/// How often a step was begun, as far as that is recorded.
fn attempts(events: &[Event], step: &str) -> u64 {
    let of_step = |event: &&Event| event.fields.text(record::step::STEP) == Some(step);
    let intents = events.iter().filter(|e| e.kind == Kind::StepIntended);
    intents.filter(of_step).count() as u64
}

/// Checks that every effect of every run is in the ledger once. What can be compared of each.
pub fn check(campaign: &Campaign, tally: &mut Tally) -> BTreeMap<String, Seen> {
    let ledger = campaign.world.ledger();
    let events = events(campaign);
    let mut all = BTreeMap::new();
    for (run, trip) in &campaign.results {
        let events = &events[run];
        for (what, once) in [("notify", true), ("book", false)] {
            let counts = counts(&ledger, what, run);
            let [(key, (arrived, applied))] = counts.iter().collect::<Vec<_>>()[..] else {
                panic!("{what} of {run}: not one key: {counts:?}");
            };
            assert_eq!(*applied, 1, "{what} of {run} was applied: {counts:?}");
            assert!(
                !once || *arrived == 1,
                "{what} of {run} was sent: {counts:?}"
            );
            let attempts = attempts(events, &format!("{what}#1"));
            assert!(
                *arrived <= attempts,
                "{what} of {run} was sent without an intent on disk: {arrived} of {attempts}"
            );
            assert_eq!(key.len(), 32, "{key}");
        }
        let own: Vec<_> = ledger.iter().filter(|entry| entry.run == *run).collect();
        check_order(run, &own);
        check_once_each(run, &own);
        for entry in &own {
            let worker: u64 = entry.worker[1..].parse().unwrap();
            let told = campaign.told[run];
            assert!(worker <= told, "{run} had ended by w{told}: {entry:?}");
        }
        let key = |entry: &&Entry| (entry.what.clone(), entry.key.clone());
        let seen = Seen {
            result: format!("{trip:?}"),
            keys: own.iter().map(key).collect(),
            files: files(campaign, run),
        };
        all.insert(run.clone(), seen);
        count_events(events, tally);
    }
    assert_eq!(all.len(), events.len(), "runs without a result");
    let resolved = campaign.said.happened + campaign.said.did_not_happen;
    if campaign.setting.probe == Probe::On {
        assert_eq!(resolved, 0, "a person was asked although there is a probe");
    }
    tally.kills += campaign.kills();
    tally.runs += all.len();
    tally.go_on += campaign.said.go_on;
    count_lives(campaign, &ledger, tally);
    all
}

/// What is seen from outside depends only on what survives a crash: when the guest was notified,
/// nothing that led to it is ever asked again; when it was booked, only the farewell is left.
pub fn check_order(run: &str, requests: &[&Entry]) {
    let place = |what: &str| {
        requests
            .iter()
            .position(|entry| entry.what == what)
            .unwrap()
    };
    let keys = |some: &[&Entry]| -> HashSet<String> {
        some.iter().map(|entry| entry.key.clone()).collect()
    };
    let (before, after) = requests.split_at(place("notify"));
    let again: Vec<_> = keys(before).intersection(&keys(after)).cloned().collect();
    assert!(
        again.is_empty(),
        "{run}: asked again after it mattered: {again:?}"
    );
    let left = keys(&requests[place("book")..]);
    assert_eq!(
        left.len(),
        2,
        "{run}: a booking and the farewell are left: {left:?}"
    );
}

/// No process asks for the same thing twice.
fn check_once_each(run: &str, requests: &[&Entry]) {
    let mut asked = HashSet::new();
    for entry in requests {
        let new = asked.insert((&entry.worker, &entry.key));
        assert!(new, "{run}: asked twice by one process: {entry:?}");
    }
}

/// The files of a run, and nothing that was half done.
fn files(campaign: &Campaign, run: &str) -> Vec<(String, String)> {
    let folder = campaign.folder.join("files").join(run);
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let text = std::fs::read_to_string(entry.path()).unwrap();
            (entry.file_name().to_string_lossy().into_owned(), text)
        })
        .collect();
    files.sort();
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["letter.txt", "summary.txt"], "{run}");
    files
}

fn count_events(events: &[Event], tally: &mut Tally) {
    for event in events {
        let number = |key| event.fields.number(key);
        let step = event.fields.text(record::step::STEP).unwrap_or_default();
        match event.kind {
            Kind::StepIntended if number(record::step::ATTEMPT).is_some() => {
                let name = step.rsplit('/').next().unwrap_or_default();
                let name = name.split('#').next().unwrap_or_default();
                *tally.again.entry(name.to_owned()).or_default() += 1;
            }
            Kind::StepResolved => {
                let by = event.fields.text(record::resolved::BY).unwrap_or_default();
                let verdict = match number(record::resolved::VERDICT) {
                    Some(1) => "happened",
                    _ => "did not happen",
                };
                let said = format!("{by} said: {verdict}");
                *tally.resolved.entry(said).or_default() += 1;
            }
            _ => {}
        }
    }
}

fn count_lives(campaign: &Campaign, ledger: &[Entry], tally: &mut Tally) {
    for life in &campaign.lives {
        let mut requests = ledger.iter().filter(|entry| entry.worker == life.worker);
        let first = requests.next();
        tally.opened.extend(life.opened);
        if let (true, Some(first)) = (life.after_a_kill, first) {
            let took = first.time_us.saturating_sub(life.started_us);
            tally.takeovers.push(Duration::from_micros(took));
        }
        if life.killed {
            let count = requests.count() + usize::from(first.is_some());
            let at = match (life.opened, count) {
                (None, 0) => "1: before the store was open",
                (_, 0) => "2: before the first request",
                (_, 1..=5) => "3: after 1-5 requests",
                (_, 6..=10) => "4: after 6-10 requests",
                _ => "5: after more than 10 requests",
            };
            *tally.at.entry(at).or_default() += 1;
        }
    }
}

fn median_and_longest(times: &mut [Duration]) -> String {
    times.sort_unstable();
    match (times.get(times.len() / 2), times.last()) {
        (Some(median), Some(longest)) => format!("median {median:.1?}, longest {longest:.1?}"),
        _ => "never".to_owned(),
    }
}

impl Tally {
    pub fn print(&mut self) {
        println!(
            "{} processes killed while alive, over {} runs",
            self.kills, self.runs
        );
        for (at, count) in &self.at {
            println!("  {at}: {count}");
        }
        println!("steps begun again after a death in them: {:?}", self.again);
        println!("notifications in doubt: {:?}", self.resolved);
        println!("runs in a crash loop, told to go on: {}", self.go_on);
        let opened = median_and_longest(&mut self.opened);
        println!("from start to open store: {opened}");
        let takeovers = median_and_longest(&mut self.takeovers);
        println!("from start after a kill to first request: {takeovers}");
        let longest = self.takeovers.last().copied().unwrap_or_default();
        assert!(
            longest < TAKEOVER_LIMIT,
            "the next process took {longest:?}"
        );
    }
}
