//! No statement reads more than it answers, however many runs there are.
//!
//! The store is used as always, on a server that logs the plan of every statement with what it has
//! really read (`auto_explain`). Then each statement that is in the sources must have been seen, and
//! none may have gone through a table.
//!
//! | plans | made |
//! |---|---|
//! | old | when the tables were empty, and used again when they are full |
//! | generic | for any parameters |
//! | custom | for these parameters |

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod plans {
    pub mod fill;
    pub mod log;
    pub mod usage;
}

use std::collections::BTreeMap;

use common::*;
use dalsegno_pgtest::Server;
use dalsegno_postgres::{PostgresOptions, PostgresStore};
use plans::log::{Seen, seen, statements_of_the_sources};

/// A statement may touch so many rows: the largest pages are of 2,000.
const ROWS_AT_MOST: f64 = 6_000.0;
/// Only used when a connection is lost in a commit.
const AFTER_A_LOSS: [(&str, &str); 3] = [
    (
        "SELECT hash FROM event WHERE stream = $1 AND sequence = $2",
        "(1, 1)",
    ),
    (
        "SELECT e.sequence, e.bytes FROM event e WHERE e.stream = (SELECT no FROM stream \
         WHERE kind = $1 AND name = $2) AND e.sequence < $3 ORDER BY e.sequence DESC LIMIT 500",
        "(1, 'w00000001', 9)",
    ),
    (
        "INSERT INTO letter (sender, number, kind, name, form, bytes) \
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (sender, number) DO NOTHING",
        "('a', 1, 1, 'a', 1, '')",
    ),
];

#[test]
fn no_statement_goes_through_a_table() {
    check(50_000);
}

/// By hand: `cargo nextest run -p dalsegno-postgres --test plans --run-ignored only --no-capture`.
#[test]
#[ignore = "takes minutes"]
fn no_statement_goes_through_a_table_of_a_million_runs() {
    check(1_000_000);
}

fn with_plans(url: &str, mode: &str) -> PostgresStore {
    let settings = [
        "session_preload_libraries=auto_explain",
        "auto_explain.log_min_duration=0",
        "auto_explain.log_analyze=on",
        "auto_explain.log_buffers=on",
        "auto_explain.log_timing=off",
        "auto_explain.log_format=json",
        &format!("plan_cache_mode={mode}"),
    ];
    let options: Vec<String> = settings
        .iter()
        .map(|setting| format!("-c%20{}", setting.replace('=', "%3D")))
        .collect();
    let url = format!("{url}&options={}", options.join("%20"));
    // One connection, so that a plan that was made is used again.
    PostgresOptions::new().connections(1).open(&url).unwrap()
}

fn check(runs: u64) {
    let server = Server::start();
    let url = server.url();
    let old = with_plans(&url, "force_generic_plan");
    plans::usage::use_all(&old, &server, &url, "before");
    let until = server.log().len();
    plans::fill::fill(&server, &url, runs);
    let mut all = BTreeMap::new();
    plans::usage::use_all(&old, &server, &url, "old");
    old.close().unwrap();
    let mut until = judge("old", &server, until, &mut all);
    server.sql(&url, "VACUUM ANALYZE");
    for (name, mode) in [
        ("generic", "force_generic_plan"),
        ("custom", "force_custom_plan"),
    ] {
        let store = with_plans(&url, mode);
        plans::usage::use_all(&store, &server, &url, name);
        store.close().unwrap();
        until = judge(name, &server, until, &mut all);
    }
    let missing: Vec<String> = statements_of_the_sources()
        .into_iter()
        .filter(|sql| AFTER_A_LOSS.iter().all(|(lost, _)| lost != sql))
        .filter(|sql| !all.keys().any(|seen| seen.contains(sql)))
        .collect();
    assert!(missing.is_empty(), "never used: {missing:#?}");
    for (sql, parameters) in AFTER_A_LOSS {
        let explain = format!("PREPARE l AS {sql}; EXPLAIN (COSTS OFF) EXECUTE l {parameters}");
        let plan = server.sql(&url, &explain);
        assert!(
            !plan.contains("Seq Scan") && !plan.contains("Sort"),
            "{plan}"
        );
    }
    let mut table = String::new();
    for (sql, worst) in &all {
        table += &format!("{}\n    {}\n", &sql[..sql.len().min(150)], worst.line());
    }
    println!("{table}");
    assert_appends_are_hot(&server, &url);
}

/// Checks the plans behind a place of the log; where it ends.
fn judge(when: &str, server: &Server, from: usize, all: &mut BTreeMap<String, Seen>) -> usize {
    let log = server.log();
    for (sql, plan) in seen(&log[from..]) {
        let bad = plan.goes_through_a_table(ROWS_AT_MOST);
        assert!(!bad, "{when}: {sql}\n{}\n{}", plan.line(), plan.text);
        match all.get(&sql) {
            Some(worst) if worst.blocks >= plan.blocks => {}
            _ => drop(all.insert(sql, plan)),
        }
    }
    log.len()
}

/// A plain append changes a row of `stream` beside the old one, without touching an index.
fn assert_appends_are_hot(server: &Server, url: &str) {
    let store = open(url);
    let run = create(&store, "hot");
    let token = take(&store, &run, "worker", 600 * SECOND_US);
    let updates = |what: &str| {
        // A session says what it has done when it has nothing to do.
        let sql = format!(
            "SELECT {what} FROM pg_stat_user_tables WHERE relname = 'stream' AND schemaname = current_schema()"
        );
        server.number(url, &sql)
    };
    let (all, hot) = (updates("n_tup_upd"), updates("n_tup_hot_upd"));
    for number in 0..2000 {
        append_under(&store, &run, token, dalsegno_contract::world::noted(number)).unwrap();
    }
    store.close().unwrap();
    while updates("n_tup_upd") < all + 2000 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let (all, hot) = (updates("n_tup_upd") - all, updates("n_tup_hot_upd") - hot);
    println!("{hot} of {all} updates of stream were HOT");
    assert!(hot * 100 >= all * 95, "{hot} of {all}");
}
