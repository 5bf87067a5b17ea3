//! The check checks: with any one rule of the store switched off, the simulation finds a broken
//! promise. Without this, a simulator that has gone blind would look like a store without faults.

#![allow(clippy::panic)]

use dalsegno_sim::campaign;
use dalsegno_store::Rule;

/// Each is found among far fewer; see the printed seeds.
const SEEDS: u64 = 2_000;

#[test]
fn every_broken_rule_is_found_by_random_lives() {
    let mut blind = Vec::new();
    for rule in Rule::ALL {
        match campaign::run_store(0, SEEDS, Some(rule)).failure {
            Some(failure) => {
                let told: String = failure.to_string().chars().take(300).collect();
                println!("{rule:?}: {told}");
            }
            None => blind.push(rule),
        }
    }
    assert!(blind.is_empty(), "not found in {SEEDS} lives: {blind:?}");
}
