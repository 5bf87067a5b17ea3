//! The power goes at every operation of a small life, in every combination of lost and kept
//! writes; and once more inside every recovery.

#![allow(clippy::panic)]

use dalsegno_sim::exhaustive::{self, Bounds};

#[test]
fn a_power_cut_at_every_operation_breaks_no_promise() {
    let bounds = Bounds {
        outcomes: 4096,
        recoveries: 16,
        outcomes_in_recovery: 64,
    };
    match exhaustive::run(bounds, None) {
        Ok(coverage) => {
            println!("{coverage:?}");
            assert!(coverage.cuts > 80, "{coverage:?}");
            assert_eq!(coverage.cuts_over_bound, 0, "{coverage:?}");
        }
        Err(what) => panic!("{what}"),
    }
}
