//! Opening stores of many sizes, most of whose runs have ended, with a warm page cache.
//!
//! The anchor is an empty store: what a process, its locks and its syncs cost anyway. The goals:
//! opening takes no longer because the store has a history, nor more memory.

use std::fs;
use std::path::Path;

use super::child::{End, Seen, have_filled, have_opened};
use super::fill::{Ending, Plan};
use super::{folder_bytes, frame_bytes, megabytes, runs};
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::{Round, alternate};
use crate::row::{Goal, Row};

const EMPTY: &str = "an empty store";
const MILLION: u64 = 1_000_000;
/// Opening without snapshots reads everything, and rounds of it are long.
const SLOW_ROUNDS: usize = 5;
const MILLIS_LIMIT: f64 = 150.0;
/// What a store may keep in memory beside its unfinished runs: a segment with its order, twice
/// because memory that is free again may still be there.
const BESIDE_RUNS_MEGABYTES: f64 = 64.0;
/// What a run that goes on may take in memory.
const RUN_BYTES: f64 = 2_000.0;

pub fn rows(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    let empty = setting.dir.join("empty");
    have_opened(&empty, End::Close)?;
    let bench = Bench {
        setting,
        empty: &empty,
    };
    for (events, name) in [(10_000, "10^4"), (100_000, "10^5"), (MILLION, "10^6")] {
        bench.sizes(emit, events, name)?;
    }
    bench.killed(emit)?;
    for unfinished in [100, 1_000, 10_000] {
        bench.unfinished(emit, unfinished)?;
    }
    fs::remove_dir_all(&empty)?;
    Ok(())
}

fn plan(events: u64, ending: Ending) -> Plan {
    Plan {
        events,
        unfinished: events / 10_000,
        unfinished_events: 100,
        ending,
    }
}

struct Bench<'a> {
    setting: &'a Setting,
    empty: &'a Path,
}

impl Bench<'_> {
    /// Time, memory and bytes of a store of one size.
    fn sizes(&self, emit: &mut Emit<'_>, events: u64, name: &str) -> Result<(), Error> {
        let dir = self.setting.dir.join("sizes");
        have_filled(&dir, plan(events, Ending::Closed))?;
        let (ours, empty) = self.open(self.setting.rounds, &dir, End::Close, || Ok(()))?;
        let time = Goal::OursBelow(MILLIS_LIMIT);
        let memory = Goal::GrowthBelow(BESIDE_RUNS_MEGABYTES);
        emit(row(
            format!("open, {name} events"),
            "ms",
            time,
            rounds(&ours, &empty, millis),
        ));
        emit(row(
            format!("memory, {name} events"),
            "MB",
            memory,
            rounds(&ours, &empty, memory_of),
        ));
        emit(Row {
            name: format!("on disk, {name} events"),
            unit: "MB",
            anchor_name: "the frames of the log",
            goal: Goal::Shown,
            rounds: vec![Round {
                ours: megabytes(folder_bytes(&dir)?),
                anchor: megabytes(events * frame_bytes(average_event_bytes()?) as u64),
            }],
        });
        if events == MILLION {
            self.without_caches(emit, &dir)?;
        }
        fs::remove_dir_all(&dir)?;
        if events == MILLION {
            have_filled(&dir, plan(events, Ending::Sealed))?;
            let (ours, empty) = self.open(self.setting.rounds, &dir, End::Close, || Ok(()))?;
            let name = "10^6 events, all sealed";
            emit(row(
                format!("open, {name}"),
                "ms",
                time,
                rounds(&ours, &empty, millis),
            ));
            emit(row(
                format!("memory, {name}"),
                "MB",
                memory,
                rounds(&ours, &empty, memory_of),
            ));
            fs::remove_dir_all(&dir)?;
        }
        Ok(())
    }

    /// With what can be made again deleted: honest figures, without goals.
    fn without_caches(&self, emit: &mut Emit<'_>, dir: &Path) -> Result<(), Error> {
        let slow = self.setting.rounds.min(SLOW_ROUNDS);
        let (ours, empty) = self.open(slow, dir, End::Close, || Ok(()))?;
        let name = "find the oldest run, 10^6 events";
        emit(row(
            name.into(),
            "ms",
            Goal::Shown,
            rounds(&ours, &empty, |s| s.find_millis),
        ));
        for (folder, name) in [("index", "indexes"), ("snapshots", "snapshots")] {
            let delete = || {
                Ok(fs::remove_dir_all(dir.join(folder))
                    .and_then(|()| fs::create_dir(dir.join(folder)))?)
            };
            let (ours, empty) = self.open(slow, dir, End::Close, delete)?;
            let what = format!("10^6 events, {name} deleted");
            let shown = Goal::Shown;
            emit(row(
                format!("open, {what}"),
                "ms",
                shown,
                rounds(&ours, &empty, millis),
            ));
            let find = rounds(&ours, &empty, |seen| seen.find_millis);
            emit(row(
                format!("find the oldest run, {what}"),
                "ms",
                shown,
                find,
            ));
        }
        Ok(())
    }

    /// After a crash: behind the last snapshot by almost as much as there can be.
    fn killed(&self, emit: &mut Emit<'_>) -> Result<(), Error> {
        let dir = self.setting.dir.join("killed");
        have_filled(&dir, plan(MILLION, Ending::Killed))?;
        let (ours, empty) = self.open(self.setting.rounds, &dir, End::Die, || Ok(()))?;
        let replayed = ours.first().map_or(0, |seen| seen.replayed);
        let name = format!("10^6 events, after a crash ({replayed} replayed)");
        let goal = Goal::OursBelow(MILLIS_LIMIT);
        emit(row(
            format!("open, {name}"),
            "ms",
            goal,
            rounds(&ours, &empty, millis),
        ));
        let goal = Goal::GrowthBelow(BESIDE_RUNS_MEGABYTES);
        emit(row(
            format!("memory, {name}"),
            "MB",
            goal,
            rounds(&ours, &empty, memory_of),
        ));
        fs::remove_dir_all(dir)?;
        Ok(())
    }

    /// 10^5 events, with more and more runs that go on.
    fn unfinished(&self, emit: &mut Emit<'_>, unfinished: u64) -> Result<(), Error> {
        let dir = self.setting.dir.join("unfinished");
        let plan = Plan {
            events: 100_000,
            unfinished,
            unfinished_events: 5,
            ending: Ending::Sealed,
        };
        have_filled(&dir, plan)?;
        let (ours, empty) = self.open(self.setting.rounds, &dir, End::Close, || Ok(()))?;
        let name = format!("10^5 events, {unfinished} runs unfinished, all sealed");
        let time = Goal::OursBelow(MILLIS_LIMIT);
        emit(row(
            format!("open, {name}"),
            "ms",
            time,
            rounds(&ours, &empty, millis),
        ));
        let room = 1.0 + unfinished as f64 * RUN_BYTES / 1e6;
        let memory = Goal::GrowthBelow(room);
        emit(row(
            format!("memory, {name}"),
            "MB",
            memory,
            rounds(&ours, &empty, memory_of),
        ));
        fs::remove_dir_all(dir)?;
        Ok(())
    }

    /// Opens a store and the empty one in turn; `before` comes before ours.
    fn open(
        &self,
        rounds: usize,
        dir: &Path,
        end: End,
        before: impl Fn() -> Result<(), Error>,
    ) -> Result<(Vec<Seen>, Vec<Seen>), Error> {
        let (mut ours, mut empty) = (Vec::new(), Vec::new());
        alternate(
            rounds,
            || {
                before()?;
                ours.push(have_opened(dir, end)?);
                Ok(0.0)
            },
            || {
                empty.push(have_opened(self.empty, end)?);
                Ok(0.0)
            },
        )?;
        // The round that goes uncounted.
        ours.remove(0);
        empty.remove(0);
        Ok((ours, empty))
    }
}

fn millis(seen: &Seen) -> f64 {
    seen.millis
}

fn memory_of(seen: &Seen) -> f64 {
    seen.megabytes
}

fn rounds(ours: &[Seen], empty: &[Seen], value: impl Fn(&Seen) -> f64) -> Vec<Round> {
    let pairs = ours.iter().zip(empty);
    let round = |(ours, empty)| Round {
        ours: value(ours),
        anchor: value(empty),
    };
    pairs.map(round).collect()
}

fn row(name: String, unit: &'static str, goal: Goal, rounds: Vec<Round>) -> Row {
    Row {
        name,
        unit,
        anchor_name: EMPTY,
        goal,
        rounds,
    }
}

/// Of a step, which most events are of.
fn average_event_bytes() -> Result<usize, Error> {
    let both = [runs::step(50), runs::step(51)].map(|step| {
        let run = runs::id(0)?;
        let time_us = 1_700_000_000_000_000;
        let mut event = dalsegno_store::Event::new(run, 50, MILLION, time_us, step.kind);
        event.fields = step.fields;
        let inline = |payload: dalsegno_store::NewPayload| dalsegno_store::Payload {
            content_type: payload.content_type,
            body: dalsegno_store::Body::Inline(payload.bytes),
        };
        event.input = step.input.map(inline);
        event.output = step.output.map(inline);
        Ok::<usize, Error>(event.encode().len())
    });
    let [intended, succeeded] = both;
    Ok((intended? + succeeded?) / 2)
}
