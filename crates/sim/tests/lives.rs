//! Thousands of simulated lives of a log, each from one seed: no promise is broken in any.

#![allow(clippy::panic)]

use dalsegno_sim::campaign;

#[test]
fn twenty_thousand_lives_keep_every_promise() {
    let outcome = campaign::run(0, 20_000, None);
    if let Some(failure) = outcome.failure {
        panic!("{}\n{failure}", failure.trace.join("\n"));
    }
    let summary = outcome.summary;
    println!("{} lives: {summary:?}", outcome.lives);
    // The lives are not idle: everything that can happen to a log happened to many.
    for (what, count) in [
        ("power cuts", summary.power_cuts),
        ("kills", summary.kills),
        ("torn tails", summary.torn_tails),
        ("poisonings", summary.poisonings),
        ("full disks", summary.full_disks),
        ("flipped bits", summary.flipped_bits),
        ("rewrites", summary.rewrites),
        ("repairs", summary.repairs),
    ] {
        assert!(count > 1_000, "only {count} {what}");
    }
}
