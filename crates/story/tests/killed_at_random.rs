//! The story with real processes: the agent's process is killed with SIGKILL at random moments,
//! hundreds of times, and the world cannot tell.
//!
//! Every effect is in the world's ledger exactly once: what is `idempotent` may arrive again under
//! its key and is applied once, what is `once` is never sent twice. When nobody can find out whether
//! it was sent, the run waits for a person, who looks into the ledger. Results, keys and files are
//! those of runs that were never disturbed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::campaign::{Campaign, Probe, Setting};
use common::check::{Tally, check};
use dalsegno::{Durability, Granularity};

/// For each of six settings, so 300 in each test; `DALSEGNO_KILLS` for more.
const KILLS: usize = 50;
/// Campaigns at the same time: they wait for disks and clocks more than for a processor.
const AT_ONCE: usize = 2;

fn settings(probes: [Probe; 2]) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (durability, probe) in [
        (Durability::Strict, probes[0]),
        (Durability::Bounded(Duration::from_millis(20)), probes[1]),
    ] {
        for granularity in [
            Granularity::ToolCall,
            Granularity::PlanStep,
            Granularity::Decision,
        ] {
            settings.push(Setting {
                durability,
                granularity,
                probe,
            });
        }
    }
    settings
}

fn kill_and_compare(name: &str, probes: [Probe; 2]) {
    let seed = common::seed();
    let kills = std::env::var("DALSEGNO_KILLS").ok();
    let kills = kills.map_or(KILLS, |kills| kills.parse().unwrap());
    let settings: Vec<_> = settings(probes).into_iter().enumerate().collect();
    let mut campaigns = Vec::new();
    for some in settings.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let begin = |(number, setting): (usize, Setting)| {
                let name = format!("{name}-{number}");
                let seed = seed ^ (number as u64) << 56;
                scope.spawn(move || Campaign::run(&name, setting, kills, 0, seed))
            };
            let running: Vec<_> = some.iter().copied().map(begin).collect();
            campaigns.extend(running.into_iter().map(|running| running.join().unwrap()));
        });
    }
    let mut tally = Tally::default();
    let disturbed: Vec<_> = campaigns.iter().map(|c| check(c, &mut tally)).collect();
    tally.print();
    assert_eq!(tally.kills, kills * campaigns.len());

    let most = disturbed.iter().map(|seen| seen.len()).max().unwrap();
    let calm = Setting {
        durability: Durability::default(),
        granularity: Granularity::default(),
        probe: Probe::On,
    };
    let calm = Campaign::run(&format!("{name}-calm"), calm, 0, most, seed);
    let undisturbed = check(&calm, &mut Tally::default());
    assert_eq!(undisturbed.len(), most);
    for (campaign, seen) in campaigns.iter().zip(&disturbed) {
        for (run, seen) in seen {
            assert_eq!(*seen, undisturbed[run], "{run} of {:?}", campaign.setting);
        }
    }
}

#[test]
fn with_a_probe_nobody_has_to_be_asked() {
    kill_and_compare("probe", [Probe::On, Probe::On]);
}

#[test]
fn without_a_probe_a_person_settles_what_is_in_doubt() {
    kill_and_compare("person", [Probe::None, Probe::Off]);
}
