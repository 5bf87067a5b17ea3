//! Runs whose process is gone: what the record alone does not tell, and the kernel's locks do.
//!
//! | run | who knows |
//! |---|---|
//! | of a script (`dalsegno step`) | the lock of the run, which a living process of the step holds |
//! | of a program | the lock of the store, which its owner holds |
//! | in a database | its lease, which a living process renews |
//!
//! Invariant: a process is called gone only if nobody had the lock *after* the run was read, and the
//! run is still the same when it is read once more. Who ends in order writes first, and lets go then.
//! Looking changes nothing in the store.

use std::time::Duration;

use dalsegno::views::Listed;
use dalsegno::{Effect, Journal, Next, Standing, Why, script, views};
use dalsegno_store::{Lease, RunQuery, Status, Store};

use crate::address::Place;
use crate::args::Global;
use crate::commands::step::{AGENT, Access, WORKER, worker};
use crate::exit::Result;
use crate::open;
use crate::output::text::quoted;
use crate::run_lock::RunLock;

/// How long a store that somebody has just now is waited for.
const WAIT: Duration = Duration::from_secs(10);

/// What a run waits for that only its script can move on.
const SCRIPT: &str = "its script to be run again";

/// What can be seen of the process that has a run.
enum Process {
    /// Nothing.
    Unseen,
    /// It lives: which one it is, if that can be told.
    Lives(String),
    Gone,
}

/// `lease` is what the store says of it, which counts where processes share the store.
fn process_of(global: &Global, run: &str, is_script: bool, lease: Option<&Lease>) -> Process {
    if Place::of(&global.store).is_database() {
        return lease.map_or(Process::Gone, |lease| {
            Process::Lives(lease.owner.to_string())
        });
    }
    match is_script {
        true => match RunLock::holder(&global.store, run) {
            Ok(Some(by)) => Process::Lives(by),
            Ok(None) => Process::Gone,
            Err(_) => Process::Unseen,
        },
        // Who owns it may be another program than the one that has the run.
        false => match open::owner_now(global) {
            Some(_) => Process::Unseen,
            None => Process::Gone,
        },
    }
}

/// The lease of a run that is being worked on, where processes share the store.
async fn lease_of(store: &dyn Store, run: &str, agent: &str) -> Result<Option<Lease>> {
    if !store.is_shared() {
        return Ok(None);
    }
    let query = RunQuery {
        status: vec![Status::Running],
        agent: Some(agent.to_owned()),
        ..RunQuery::default()
    };
    let all = store.runs(&query).await?;
    let found = all.into_iter().find(|info| info.run.name() == run);
    Ok(found.and_then(|info| info.lease))
}

/// Whether a run is of a script; `worker` is who has it, if that is recorded.
fn is_of_script(agent: Option<&str>, worker: Option<&str>) -> bool {
    agent == Some(AGENT) && worker.is_none_or(|worker| worker.starts_with(WORKER))
}

/// Why only a person, or the step's probe, can move a run of a script on.
fn in_doubt_words(step: &str) -> String {
    format!("its process is gone, and nobody knows whether {step} happened")
}

fn doubtful(journal: &Journal) -> Option<String> {
    let open = journal.open_steps().into_iter();
    let mut once = open.filter(|(_, step)| step.effect == Effect::Once);
    once.next().map(|(id, _)| id.to_string())
}

/// Says of listed runs whose process is gone that nobody holds them, and what they wait for.
///
/// # Errors
/// The store cannot be read.
pub async fn mark(global: &Global, store: &dyn Store, runs: &mut [Listed]) -> Result<()> {
    let owned = open::owner_now(global).is_some();
    for run in runs {
        let info = &run.info;
        let worker = info.lease.as_ref().map(|lease| &*lease.owner);
        let is_script = is_of_script(info.agent.as_deref(), worker);
        if is_script && run.answered {
            run.waits = vec![SCRIPT.to_owned()];
        }
        if info.status != Status::Running || (owned && !is_script) {
            continue;
        }
        let name = info.run.name();
        // Who owns the store was asked after all runs were read, once for all that are of programs.
        let is_known = !is_script && !store.is_shared();
        let process = || process_of(global, name, is_script, info.lease.as_ref());
        let is_gone = is_known || matches!(process(), Process::Gone);
        let head = match is_gone {
            true => store.head(&info.run).await?,
            false => None,
        };
        if head != Some(info.head) {
            continue;
        }
        let doubt = match is_script {
            // What cannot be read is said where that run is looked at.
            true => views::journal(store, name).await.ok(),
            false => None,
        };
        let doubt = doubt.as_ref().and_then(doubtful);
        run.waits = vec![match is_script {
            true => SCRIPT.to_owned(),
            false => "the next process".to_owned(),
        }];
        if let Some(step) = doubt {
            run.info.attention = Some(in_doubt_words(&step));
        }
        run.info.lease = None;
    }
    Ok(())
}

/// Why a run is where it is, with what can be seen of its process.
///
/// # Errors
/// There is no such run, or the store cannot be read.
pub async fn why(global: &Global, store: &dyn Store, run: &str) -> Result<Why> {
    let mut why = dalsegno::why(store, run).await?;
    let is_script = is_of_script(Some(&why.agent), why.session.as_deref());
    if is_script && why.standing == Standing::WaitsForProcess {
        why.because = "it waits for the next step of its script".to_owned();
        why.to_do = format!(
            "run its script, or end it: dalsegno end --run {}",
            quoted(run)
        );
    }
    if why.status != Status::Running || why.standing == Standing::Broken {
        return Ok(why);
    }
    let lease = lease_of(store, run, &why.agent).await?;
    match process_of(global, run, is_script, lease.as_ref()) {
        Process::Unseen => {}
        Process::Lives(by) => says_moving(&mut why, &by),
        Process::Gone => {
            let again = dalsegno::why(store, run).await?;
            let same = (again.status, &again.changed) == (why.status, &why.changed);
            why = again;
            // Of a run in a database the store says it itself.
            if same && (is_script || !store.is_shared()) {
                says_gone(&mut why, is_script);
            }
        }
    }
    Ok(why)
}

fn says_moving(why: &mut Why, by: &str) {
    if why.standing != Standing::Moving && why.standing != Standing::WorkerGone {
        return;
    }
    let by = match by.trim() {
        "" => "a process",
        by => by,
    };
    why.standing = Standing::Moving;
    (why.because, why.to_do) = match has_died(by) {
        true => (
            format!("{by} is gone, and a command that it has left behind is still at work"),
            "wait until that has ended, or stop it: then it can be seen what is in doubt"
                .to_owned(),
        ),
        false => (format!("{by} is at work"), String::new()),
    };
    // What is open is under way.
    why.in_doubt.clear();
    for next in &mut why.next {
        if let Next::Settle { step } | Next::Execute { step, .. } = next {
            let step = std::mem::take(step);
            *next = Next::Outcome { step };
        }
    }
}

/// Whether the process of these words, as in `process 4711 for its step pay`, is no more.
fn has_died(by: &str) -> bool {
    let words = by.strip_prefix("process ").unwrap_or_default();
    let pid = words.split(' ').next().and_then(|pid| pid.parse().ok());
    let pid = pid.and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

fn says_gone(why: &mut Why, is_script: bool) {
    if why.standing != Standing::Moving && why.standing != Standing::WorkerGone {
        return;
    }
    let was = why.session.as_deref().unwrap_or("unknown");
    why.standing = Standing::WorkerGone;
    if !is_script {
        why.because = format!("its worker (session {was}) is gone: no process owns the store");
        why.to_do = format!(
            "start a process that has agent {:?}: it goes on where the run was",
            why.agent
        );
        return;
    }
    match why.in_doubt.first() {
        Some(doubt) => {
            why.standing = Standing::NeedsPerson;
            why.because = format!("{} ({was})", in_doubt_words(&doubt.step));
            why.to_do = "run the script again if the step has a --probe; else look whether it \
                         happened, and resolve it"
                .to_owned();
        }
        None => {
            why.because = format!("its process is gone ({was})");
            why.to_do = "run its script again: it goes on where the run was".to_owned();
        }
    }
}

/// Whether the process of a run that was read is gone; and if it needs a person then, the words.
///
/// # Errors
/// The store cannot be read.
pub async fn gone(
    global: &Global,
    store: &dyn Store,
    run: &str,
    read: &Journal,
) -> Result<Option<Gone>> {
    if read.status != Status::Running {
        return Ok(None);
    }
    let is_script = is_of_script(Some(&read.created.agent), read.session.as_deref());
    let lease = lease_of(store, run, &read.created.agent).await?;
    if !matches!(
        process_of(global, run, is_script, lease.as_ref()),
        Process::Gone
    ) {
        return Ok(None);
    }
    let again = views::journal(store, run).await?;
    let same = again.last == read.last;
    let doubt = doubtful(read).filter(|_| is_script);
    Ok(same.then(|| Gone {
        needs_person: doubt.is_some(),
        words: match doubt {
            Some(step) => format!(
                "gone, and nobody knows whether {step} happened: `dalsegno why {}` says what to do",
                quoted(run)
            ),
            None if is_script => "gone: run its script again".to_owned(),
            None => "gone: start one that has its agent".to_owned(),
        },
    }))
}

/// A run whose process is gone.
pub struct Gone {
    pub needs_person: bool,
    pub words: String,
}

/// Records that the step which a dead process of a script has left open is in doubt, so that a person
/// can say what became of it. Does nothing to any other run.
///
/// # Errors
/// The store cannot be written.
pub async fn hand_to_person(global: &Global, run: &str, journal: &Journal) -> Result<()> {
    let is_script = is_of_script(Some(&journal.created.agent), journal.session.as_deref());
    if journal.status != Status::Running || !is_script || doubtful(journal).is_none() {
        return Ok(());
    }
    let lock = RunLock::take(&global.store, run, "to resolve a step", Duration::ZERO).await?;
    let access = Access::new(global, false, WAIT)?;
    let handed = access.with_run(run, async |store| {
        script::hand_to_person(store, run, AGENT, &worker()).await
    });
    let handed = handed.await;
    lock.release();
    handed.map(drop)
}
