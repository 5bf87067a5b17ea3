//! The state of a store follows from its log alone: at every seal of a random history it comes out
//! the same, byte for byte, from the newest snapshot, from the one before, and from the whole log.

#![allow(clippy::panic)]

use dalsegno_sim::store_world;

#[test]
fn the_state_is_the_same_from_every_snapshot_and_from_the_whole_log() {
    let mut compared = 0;
    for seed in 0..24 {
        match store_world::live_quietly(seed) {
            Ok(seals) => compared += seals,
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("compared at {compared} seals");
    assert!(compared > 150, "only {compared}");
}
