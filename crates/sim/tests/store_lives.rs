//! Thousands of simulated lives of a store, each from one seed: no promise is broken in any.

#![allow(clippy::panic)]

use dalsegno_sim::campaign;

#[test]
fn two_thousand_lives_of_a_store_keep_every_promise() {
    let outcome = campaign::run_store(0, 2_000, None);
    if let Some(failure) = outcome.failure {
        panic!("{}\n{failure}", failure.trace.join("\n"));
    }
    let summary = outcome.summary;
    println!("{} lives: {summary:?}", outcome.lives);
    // The lives are not idle: everything that can happen to a store happened to many.
    for (what, count) in [
        ("power cuts", summary.power_cuts),
        ("kills", summary.kills),
        ("recoveries", summary.recoveries),
        ("copies", summary.copies),
        ("failures", summary.failures),
        ("flipped bits", summary.flipped_bits),
        ("events acknowledged", summary.acknowledged),
        ("appends refused", summary.refused),
        ("runs ended", summary.ended_runs),
        ("letters taken", summary.letters_taken),
        ("letters refused", summary.letters_refused),
        ("leases", summary.leases),
        ("exports", summary.exports),
        ("imports", summary.imports),
    ] {
        assert!(count > 1_000, "only {count} {what}");
    }
    assert!(summary.retired_runs > 500, "only {}", summary.retired_runs);
    assert!(summary.repairs > 100, "only {} repairs", summary.repairs);
    assert!(summary.torn_tails > 50, "only {} torn", summary.torn_tails);
}
