//! The story on one database with many workers, which die, freeze, are cut off and are replaced,
//! while the database itself is stopped as by a power cut.
//!
//! The rules are those of `killed_at_random.rs`: all runs end as if nobody had disturbed them, and
//! every effect is in the world's ledger once. What a worker sends after it was overtaken, the world
//! refuses by its token.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use common::Random;
use common::fleet::{Fleet, LEASE, PACE, WorkerProcess, ended_well};
use common::hosts::{self, Host};
use dalsegno_store::Kind;
use rustix::process::Signal;

const WORKERS: usize = 4;

/// `DALSEGNO_STORY_SECONDS` for another time than two minutes.
fn seconds() -> u64 {
    let given = std::env::var("DALSEGNO_STORY_SECONDS").ok();
    given.map_or(120, |seconds| seconds.parse().unwrap())
}

#[test]
fn workers_die_and_freeze_and_the_database_restarts() {
    let seed = common::seed();
    let mut random = Random(seed);
    let mut fleet = Fleet::new("failover");
    let mut workers: Vec<WorkerProcess> = (0..WORKERS).map(|_| fleet.worker()).collect();
    let time = Duration::from_secs(seconds());
    let runs = 200;
    let (mut kills, mut freezes, mut restarts) = (0, 0, 0);
    let begun = Instant::now();
    let mut next_restart = time / 6;
    while begun.elapsed() < time {
        let due = (runs as f64 * begun.elapsed().as_secs_f64() / (time.as_secs_f64() * 0.9)).ceil();
        let due = (due as usize).min(runs);
        fleet.start(due.saturating_sub(fleet.started()));
        std::thread::sleep(Duration::from_millis(200 + random.below(1200)));
        let at = random.below(WORKERS as u64) as usize;
        if begun.elapsed() > next_restart {
            fleet.server.stop_at_once();
            std::thread::sleep(Duration::from_millis(100 + random.below(1500)));
            fleet.server.start_again();
            restarts += 1;
            next_restart += time / 6;
        } else if random.below(3) == 0 {
            // A zombie: it comes back when others have its runs.
            workers[at].signal(Signal::STOP);
            std::thread::sleep(LEASE + Duration::from_millis(200 + random.below(1000)));
            workers[at].signal(Signal::CONT);
            freezes += 1;
        } else {
            workers[at].signal(Signal::KILL);
            workers[at] = fleet.worker();
            kills += 1;
        }
    }
    fleet.start(runs - fleet.started());
    let results = fleet.results();
    println!("{kills} workers killed, {freezes} frozen, {restarts} restarts of the database");
    for worker in workers {
        let name = worker.name.clone();
        let status = worker.stop();
        assert!(ended_well(status), "{name}: {status}");
    }
    let refused = fleet.check(&results, seed);
    println!(
        "{} runs; {refused} requests of overtaken workers refused",
        results.len()
    );
    assert!(restarts >= 4 && kills > 0 && freezes > 0);
}

#[test]
fn a_rolling_restart_holds_no_run_up() {
    let seed = common::seed();
    let mut fleet = Fleet::new("rolling");
    let mut workers: Vec<WorkerProcess> = (0..WORKERS).map(|_| fleet.worker()).collect();
    // Twice around, under load.
    for round in 0..2 * WORKERS {
        fleet.start(8);
        std::thread::sleep(Duration::from_millis(500));
        let next = fleet.worker();
        let leaving = std::mem::replace(&mut workers[round % WORKERS], next);
        let status = leaving.stop();
        assert!(ended_well(status), "{status}");
    }
    let results = fleet.results();
    let mut longest = Duration::ZERO;
    for (run, events) in fleet.events() {
        for (at, pair) in events.windows(2).enumerate() {
            let between = Duration::from_micros(pair[1].time_us.saturating_sub(pair[0].time_us));
            longest = longest.max(between);
            // One that is asked for takes as long as the world does.
            let limit = PACE + Duration::from_secs(1);
            assert!(
                between < limit,
                "{run} waited {between:?} after event {}",
                at + 1
            );
        }
        let recovered = events.iter().any(|e| e.kind == Kind::RunRecovered);
        assert!(!recovered, "{run} was taken for crashed");
    }
    println!("{} runs; no pause longer than {longest:?}", results.len());
    for worker in workers {
        assert!(ended_well(worker.stop()));
    }
    assert_eq!(fleet.check(&results, seed), 0);
}

#[test]
fn hosts_that_were_cut_off_rejoin() {
    if let Err(why) = hosts::possible() {
        println!("skipped: there can be no other hosts here: {why}");
        return;
    }
    let seed = common::seed();
    let mut random = Random(seed);
    let mut fleet = Fleet::new("hosts");
    let database = format!("127.0.0.1:{}", fleet.server.port());
    let hosts: Vec<Host> = (1..=WORKERS as u8)
        .map(|number| Host::new(number, &database, &fleet.world.address))
        .collect();
    let workers: Vec<WorkerProcess> = hosts
        .iter()
        .map(|host| {
            let url = fleet.url.replace(&database, &host.database);
            fleet.worker_at(&url, &host.world, &host.run())
        })
        .collect();
    for _ in 0..6 {
        fleet.start(8);
        std::thread::sleep(Duration::from_millis(500));
        // It can still act on the world, and must not.
        let cut = &hosts[random.below(WORKERS as u64) as usize];
        cut.cut();
        let time = LEASE + Duration::from_millis(500 + random.below(2000));
        std::thread::sleep(time);
        cut.mend();
    }
    let results = fleet.results();
    for worker in workers {
        let name = worker.name.clone();
        let status = worker.stop();
        assert!(ended_well(status), "{name}: {status}");
    }
    let refused = fleet.check(&results, seed);
    println!(
        "{} runs; {refused} requests of overtaken workers refused",
        results.len()
    );
}
