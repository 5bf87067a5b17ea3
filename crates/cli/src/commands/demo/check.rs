//! What must hold at the end: every effect exactly once, the result of a run that was never
//! disturbed, and a replay that goes the same way.

use std::collections::BTreeSet;
use std::path::Path;

use dalsegno::{Dalsegno, ReplayVerdict};
use dalsegno_story::agent::{self, Place, STEPS};
use dalsegno_story::ledger::Entry;
use dalsegno_story::worker::run_name;

use super::scene::Scene;
use super::show::{Came, Show, Tell};
use super::told::{Counted, Happening};
use super::watch::Watch;
use crate::exit::{Error, Result};

/// What each of the 12 steps does to the world.
const EFFECTS: [&str; 12] = [
    "read-only",
    "read-only",
    "read-only",
    "read-only",
    "read-only",
    "idempotent",
    "read-only",
    "idempotent",
    "approval",
    "once",
    "idempotent",
    "read-only",
];

/// Checks everything, tells it, and gives what was wrong.
pub async fn check(
    scene: &Scene,
    watch: Option<&Watch>,
    came: &Came,
    calm: &Path,
    tell: &mut Tell<'_>,
) -> Result<Vec<String>> {
    let ledger = scene.ledger()?;
    let mut wrong = Vec::new();
    let mut checked = |check, told: Result<String, Vec<String>>, tell: &mut Tell<'_>| {
        let (ok, words) = match told {
            Ok(words) => (true, words),
            Err(faults) => {
                wrong.extend(faults.iter().cloned());
                (false, faults.join("; "))
            }
        };
        tell(Happening::Checked { check, ok, words })
    };
    for counted in count(&ledger, came.runs, &scene.files()) {
        tell(Happening::Counted(counted))?;
    }
    checked("effects", effects(&ledger, came.runs), tell)?;
    checked("result", same_result(scene, came, calm).await?, tell)?;
    checked("replay", replay(scene, watch, came.runs).await?, tell)?;
    Ok(wrong)
}

/// The ledger, by step, over all runs.
fn count(ledger: &[Entry], runs: usize, files: &Path) -> Vec<Counted> {
    let mut counts = Vec::new();
    for (at, (step, effect)) in STEPS.into_iter().zip(EFFECTS).enumerate() {
        let asked = ledger.iter().filter(|entry| entry.step == step);
        let (asked, done) = match step.strip_prefix("save-") {
            // What is on disk counts, the agent writes it by itself.
            Some(name) => {
                let there = |run: &usize| files_of(files, *run).is_ok_and(|f| f.contains(name));
                let there = (0..runs).filter(there).count() as u64;
                (None, Some(there))
            }
            None => {
                let changes = matches!(step, "notify" | "book");
                let applied = asked.clone().filter(|entry| entry.applied).count() as u64;
                (Some(asked.count() as u64), changes.then_some(applied))
            }
        };
        if step == "publish" {
            continue;
        }
        counts.push(Counted {
            step,
            number: at + 1,
            effect,
            runs,
            asked,
            done,
            ok: done.is_none_or(|done| done == runs as u64),
        });
    }
    counts
}

/// Every effect of every run, by the world's own ledger.
fn effects(ledger: &[Entry], runs: usize) -> Result<String, Vec<String>> {
    let mut faults = Vec::new();
    for run in (0..runs).map(run_name) {
        for (step, is_once) in [("notify", true), ("book", false)] {
            let of_step = |entry: &&Entry| entry.run == run && entry.step == step;
            let asked: Vec<_> = ledger.iter().filter(of_step).collect();
            let done = asked.iter().filter(|entry| entry.applied).count();
            let keys: BTreeSet<_> = asked.iter().map(|entry| &entry.key).collect();
            if done != 1 {
                faults.push(format!("{step} of {run} happened {done} times, not once"));
            } else if is_once && asked.len() != 1 {
                let count = asked.len();
                faults.push(format!("{step} of {run} was sent {count} times, not once"));
            } else if keys.len() != 1 {
                faults.push(format!("{step} of {run} came under {} keys", keys.len()));
            }
        }
    }
    match faults.is_empty() {
        true => Ok("every effect happened exactly once, by the world's own ledger".to_owned()),
        false => Err(faults),
    }
}

/// The same runs in a world and a store of their own, where nobody is killed.
async fn same_result(
    scene: &Scene,
    came: &Came,
    calm: &Path,
) -> Result<Result<String, Vec<String>>> {
    let made = std::fs::create_dir_all(calm);
    made.map_err(|e| Error::failed(format!("cannot make a folder: {e}")))?;
    let undisturbed = Scene::open(calm, Default::default(), None)?;
    let mut nobody = |_: Happening| Ok(());
    let show = Show::new(&undisturbed, true, &mut nobody);
    let expected = show.undisturbed(came.runs).await?;
    let mut faults = Vec::new();
    for run in 0..came.runs {
        let name = run_name(run);
        let (is, should) = (came.trips.get(&name), expected.trips.get(&name));
        if is.is_none() || is != should {
            faults.push(format!(
                "{name} came to {is:?}, undisturbed it comes to {should:?}"
            ));
        }
        let files = |scene: &Scene| contents(&scene.files(), run);
        match (files(scene), files(&undisturbed)) {
            (Ok(is), Ok(should)) if is == should => {}
            (is, should) => faults.push(format!(
                "{name} left the files {is:?}, undisturbed {should:?}"
            )),
        }
    }
    Ok(match faults.is_empty() {
        true => Ok("result and files are those of a run that was never disturbed".to_owned()),
        false => Err(faults),
    })
}

/// The recorded runs against the code of this binary.
async fn replay(
    scene: &Scene,
    watch: Option<&Watch>,
    runs: usize,
) -> Result<Result<String, Vec<String>>> {
    let Some(watch) = watch else {
        return Ok(Err(vec!["there is no record to replay".to_owned()]));
    };
    let place = Place {
        world: scene.address.clone(),
        out: scene.files(),
        worker: "replay".to_owned(),
        probe: true,
    };
    let builder = agent::register(Dalsegno::builder(), place);
    let before = scene.requests()?;
    let mut faults = Vec::new();
    let mut steps = 0;
    for run in (0..runs).map(run_name) {
        let replayed = builder.replay_store(watch.store(), &run).await?;
        steps += replayed.steps;
        if replayed.verdict != ReplayVerdict::SameEnd {
            faults.push(replayed.to_string());
        }
    }
    let heard = scene.requests()? - before;
    if heard > 0 {
        faults.push(format!("the replay sent {heard} requests to the world"));
    }
    Ok(match faults.is_empty() {
        true => Ok(format!(
            "replay of the record against today's code: {steps} outcomes, the same end, nothing executed"
        )),
        false => Err(faults),
    })
}

/// The names of the files of a run, without their ending.
fn files_of(files: &Path, run: usize) -> std::io::Result<BTreeSet<String>> {
    let names = contents(files, run)?.into_iter().map(|(name, _)| name);
    Ok(names
        .map(|name| name.trim_end_matches(".txt").to_owned())
        .collect())
}

/// The files of a run with what is in them.
fn contents(files: &Path, run: usize) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(files.join(run_name(run)))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        found.push((name, std::fs::read(entry.path())?));
    }
    found.sort();
    Ok(found)
}
