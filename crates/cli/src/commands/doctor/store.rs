//! What the store says about itself.

use std::path::Path;

use dalsegno_store::{FORMAT, LocalStore, RunQuery, Store};

use super::Check;
use crate::args::Global;
use crate::exit::{Error, Exit};
use crate::output::{size, text::shown, time};
use crate::{address, open, runtime};

/// The day before the first release: no clock that is right says less.
const TOO_EARLY_US: u64 = 1_767_225_600_000_000;
/// Clocks of two machines may differ by as much.
const AHEAD_US: u64 = 5_000_000;
/// An owner takes letters up at once.
const LATE_US: u64 = 60_000_000;

/// Whether it opens, and its format.
pub fn format(opened: &Result<LocalStore, Error>, global: &Global) -> Check {
    let to_do = |error: &Error| match (&error.hint, error.exit) {
        (_, Exit::Damaged) => "see all damage with `dalsegno verify`".to_owned(),
        (Some(hint), _) => hint.clone(),
        (None, _) => "see the error".to_owned(),
    };
    match opened {
        Ok(store) => match store.opened().notices.first() {
            Some(notice) => Check::warn(
                "store",
                format!("opens, but: {notice}"),
                "see all damage with `dalsegno verify`",
            ),
            None => {
                let runs = unfinished_and_all(store);
                let runs = runs.map_or(String::new(), |(open, all)| {
                    format!(", {}, {open} unfinished", size::count(all, "run"))
                });
                let dir = address::named(&global.store);
                Check::ok("store", format!("{dir}, format {FORMAT}{runs}"))
            }
        },
        Err(error) => Check::bad("store", error.what.clone(), &to_do(error)),
    }
}

pub fn unfinished_and_all(store: &dyn Store) -> Option<(usize, u64)> {
    let runs = runtime::block_on(async { Ok(store.runs(&RunQuery::default()).await?) }).ok()?;
    let open = runs.iter().filter(|run| !run.status.is_final()).count();
    Some((open, runs.len() as u64))
}

/// All other checks.
pub fn checks(store: Option<&LocalStore>, global: &Global) -> Vec<Check> {
    let mut checks = vec![clock(store)];
    if let Err(e) = std::fs::read_dir(&global.store) {
        let unseen = ["owner", "mailbox", "repair"].into_iter();
        checks.extend(unseen.map(|check| {
            let to_do = "run this as the user that the store belongs to";
            Check::warn(check, format!("not known: {e}"), to_do)
        }));
        return checks;
    }
    let owner = open::owner_now(global);
    checks.push(Check::ok(
        "owner",
        owner.as_deref().map_or("nobody".to_owned(), shown),
    ));
    checks.push(mailbox(&global.store, owner.is_some()));
    checks.push(repairs(&global.store));
    checks
}

fn clock(store: Option<&LocalStore>) -> Check {
    let now_us = time::now_us();
    if now_us < TOO_EARLY_US {
        let found = format!("it says {}", time::utc(now_us));
        return Check::bad(
            "clock",
            found,
            "set the clock: timers and expiries depend on it",
        );
    }
    let newest = store.and_then(newest_us);
    match newest {
        None => Check::ok(
            "clock",
            format!("{}, no event to compare with", time::utc(now_us)),
        ),
        Some(newest) if newest > now_us + AHEAD_US => Check::bad(
            "clock",
            format!(
                "{} behind the store's newest event, of {}",
                time::span(newest - now_us),
                time::utc(newest)
            ),
            "the clock has gone back, or another machine's was ahead: set it; timers fire late",
        ),
        Some(newest) => Check::ok(
            "clock",
            format!(
                "{}, newest event {} ago",
                time::utc(now_us),
                time::age(newest, now_us)
            ),
        ),
    }
}

/// When the last event of any run happened.
fn newest_us(store: &LocalStore) -> Option<u64> {
    let runs = runtime::block_on(async { Ok(store.runs(&RunQuery::default()).await?) }).ok()?;
    runs.iter().map(|run| run.updated_us).max()
}

fn mailbox(dir: &Path, has_owner: bool) -> Check {
    let found = open::letters(dir);
    let age = time::span(found.oldest_us);
    let waiting = match found.waiting {
        1 => format!("1 letter waits, for {age}"),
        number => format!("{number} letters wait, the oldest for {age}"),
    };
    match (found.waiting, found.bad) {
        (0, 0) => Check::ok("mailbox", "empty"),
        (0, bad) => Check::warn(
            "mailbox",
            format!(
                "{} could not be read and were set aside",
                size::count(bad, "letter")
            ),
            "send again what they said, then remove the .bad files",
        ),
        _ if !has_owner => Check::warn(
            "mailbox",
            waiting,
            "start the program that has the agents, or take them up with `dalsegno recover`",
        ),
        _ if found.oldest_us > LATE_US => Check::warn(
            "mailbox",
            waiting,
            "the program that owns the store does not take them up: see whether it is stuck",
        ),
        _ => Check::ok("mailbox", waiting),
    }
}

fn repairs(dir: &Path) -> Check {
    if dir.join("aside/damage-not-recorded.txt").exists() {
        return Check::bad(
            "repair",
            "one was interrupted, and what was lost is not recorded yet",
            "run `dalsegno repair --yes` again",
        );
    }
    let kept = std::fs::read_dir(dir.join("aside")).map_or(0, |entries| entries.flatten().count());
    let log = std::fs::read_dir(dir.join("log")).into_iter().flatten();
    let damaged = log.flatten().filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with("damaged-")
    });
    match kept + damaged.count() {
        0 => Check::ok("repair", "none was needed"),
        kept => {
            let files = size::count(kept as u64, "file");
            Check::ok("repair", format!("{files} of earlier repairs kept aside"))
        }
    }
}
