//! What a store in PostgreSQL and its server say about themselves.

use std::time::Duration;

use dalsegno_postgres::AboutDatabase;

use super::Check;
use super::store::unfinished_and_all;
use crate::args::Global;
use crate::exit::Result;
use crate::open::{self, Opened};
use crate::output::{size, text::shown, time};
use crate::runtime;

/// Steps that have to be durable become slow.
const SLOW: Duration = Duration::from_millis(25);
/// Clocks of two machines may differ by as much.
const APART_US: u64 = 5_000_000;

/// All of these checks.
///
/// # Errors
/// There is no store, or nobody answers.
pub fn checks(global: &Global) -> Result<Vec<Check>> {
    let opened = open::any_reader(global)?;
    let Opened::Database(database) = &opened else {
        return Ok(Vec::new());
    };
    let about = runtime::block_on(async { Ok(database.about().await?) })?;
    let runs = unfinished_and_all(database);
    let mut checks = vec![store(&about, runs), server(&about), commit(&about)];
    checks.push(clock(&about));
    checks.push(workers(&about, runs));
    checks.push(mailbox(&about));
    checks.push(Check::ok("size", size::bytes(about.bytes)));
    Ok(checks)
}

fn store(about: &AboutDatabase, runs: Option<(usize, u64)>) -> Check {
    let runs = runs.map_or(String::new(), |(open, all)| {
        format!(", {}, {open} unfinished", size::count(all, "run"))
    });
    let (schema, database) = (shown(&about.schema), shown(&about.database));
    let found = format!(
        "schema {schema} of database {database} at {}{runs}",
        shown(&about.place)
    );
    Check::ok("store", found)
}

fn server(about: &AboutDatabase) -> Check {
    let found = format!(
        "PostgreSQL {}, {} connections, as user {}",
        shown(&about.server),
        about.max_connections,
        shown(&about.user)
    );
    match about.keeps {
        true => Check::ok("server", found),
        false => Check::bad(
            "server",
            format!("{found}; it may lose what it has acknowledged"),
            "set fsync and synchronous_commit to on",
        ),
    }
}

fn commit(about: &AboutDatabase) -> Check {
    let took = |time: Duration| time::span(time.as_micros() as u64);
    let Some((median, longest)) = about.commit else {
        let to_do = "give the user the right to write to all tables of the schema";
        return Check::bad("commit", "this user may not write", to_do);
    };
    let found = format!("{} in the median, {} at most", took(median), took(longest));
    match median > SLOW {
        true => Check::warn(
            "commit",
            format!("{found}; below {} is expected", took(SLOW)),
            "every effect waits for one or two commits: bring workers and database closer \
             together, or give the database a faster disk",
        ),
        false => Check::ok("commit", found),
    }
}

fn clock(about: &AboutDatabase) -> Check {
    let now_us = time::now_us();
    let apart = now_us.abs_diff(about.clock_us);
    match apart > APART_US {
        true => Check::warn(
            "clock",
            format!("{} apart from the server's", time::span(apart)),
            "set both by the same time server: timers go by the clock of the worker, leases by \
             that of the database",
        ),
        false => Check::ok("clock", format!("{}, as the server's", time::utc(now_us))),
    }
}

fn workers(about: &AboutDatabase, runs: Option<(usize, u64)>) -> Check {
    let held = size::count(about.held, "run");
    let found = match about.workers {
        0 => "nobody holds a run now".to_owned(),
        1 => format!("1 process holds {held}"),
        many => format!("{many} processes hold {held}"),
    };
    match (about.workers, runs) {
        (0, Some((open @ 1.., _))) => {
            Check::ok("workers", format!("{found}, {open} are unfinished"))
        }
        _ => Check::ok("workers", found),
    }
}

fn mailbox(about: &AboutDatabase) -> Check {
    match (about.letters, about.bad_letters) {
        (0, 0) => Check::ok("mailbox", "empty"),
        (0, bad) => Check::warn(
            "mailbox",
            format!("{} could not be read", size::count(bad, "letter")),
            "send again what they said, then delete those rows of the table letter",
        ),
        (waiting, _) => Check::warn(
            "mailbox",
            format!("waiting: {}", size::count(waiting, "letter")),
            "workers take them up: start one, or see whether they are stuck; `dalsegno recover` \
             takes up those for runs that nobody holds",
        ),
    }
}
