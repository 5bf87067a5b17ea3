//! The check checks: with any one durability rule switched off, the simulation finds a broken
//! promise. Without this, a simulator that has gone blind would look like a log without faults.

#![allow(clippy::panic)]

use dalsegno_log::Rule;
use dalsegno_sim::campaign;
use dalsegno_sim::exhaustive::{self, Bounds};

/// Each is found among far fewer; see the printed seeds.
const SEEDS: u64 = 6_000;

#[test]
fn every_broken_rule_is_found_by_random_lives() {
    let mut blind = Vec::new();
    for rule in Rule::ALL {
        match campaign::run(0, SEEDS, Some(rule)).failure {
            Some(failure) => println!("{rule:?}: {failure}"),
            None => blind.push(rule),
        }
    }
    assert!(blind.is_empty(), "not found in {SEEDS} lives: {blind:?}");
}

#[test]
fn rules_about_power_cuts_are_found_by_the_exhaustive_search_too() {
    // The others need a failing disk or a rotten bit, which that search does not have.
    let rules = [
        Rule::SyncBeforeRename,
        Rule::SyncFolder,
        Rule::AcknowledgeAfterSync,
        Rule::CheckPayload,
        Rule::WholeBatches,
        Rule::SealBeforeNext,
        Rule::RecordDrop,
    ];
    let bounds = Bounds {
        outcomes: 1024,
        recoveries: 0,
        outcomes_in_recovery: 0,
    };
    for rule in rules {
        match exhaustive::run(bounds, Some(rule)) {
            Err(failure) => println!("{rule:?}: {failure}"),
            Ok(coverage) => panic!("{rule:?} broken, and nothing found: {coverage:?}"),
        }
    }
}
