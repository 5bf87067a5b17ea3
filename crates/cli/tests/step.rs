//! `dalsegno step`: what is done is recorded, and not done again.

#![allow(clippy::unwrap_used)]

mod common;
mod scripts;

use std::io::Write;
use std::process::Stdio;

use common::places::Place;
use scripts::Scripts;

in_both! {
    a_step_runs_once_and_is_printed_ever_after,
    the_command_knows_who_it_is,
    binary_output_and_standard_input_go_through,
    the_same_name_with_another_command_is_an_error,
    a_failure_is_what_is_said_that_it_means,
    what_cannot_be_started_did_nothing,
    attempts_are_made_again_and_time_is_limited,
    documents_say_what_came_of_it,
    names_can_be_what_they_like_within_limits,
    a_run_is_ended_by_its_script,
    runs_of_programs_are_not_touched,
}

const TRACE: &str = "echo done >> \"$LEDGER\"; echo out; echo err >&2";

fn a_step_runs_once_and_is_printed_ever_after(place: &Place) {
    let scripts = Scripts::at(place);
    for _ in 0..3 {
        let ran = scripts.step("r", "a", &[], TRACE).ok();
        assert_eq!(
            (ran.stdout.as_str(), ran.stderr.as_str()),
            ("out\n", "err\n")
        );
    }
    assert_eq!(scripts.happened("done"), 1);
    // Under another name, and in another run, it is another step.
    scripts.step("r", "b", &[], TRACE).ok();
    scripts.step("r2", "a", &[], TRACE).ok();
    assert_eq!(scripts.happened("done"), 3);
    let listed = common::dalsegno(&scripts.store(), ["ls", "--json"])
        .ok()
        .json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 2);
    assert_eq!(listed["runs"][0]["agent"], "shell");
    assert_eq!(listed["runs"][0]["waits"][0], "the next step of its script");
    scripts.verify();
}

fn the_command_knows_who_it_is(place: &Place) {
    let scripts = Scripts::at(place);
    let script =
        "echo \"$DALSEGNO_RUN/$DALSEGNO_STEP/$DALSEGNO_ATTEMPT\"; echo $DALSEGNO_IDEMPOTENCY_KEY";
    let ran = scripts.step("my run", "my step", &[], script).ok();
    let (first, key) = ran.stdout.trim().split_once('\n').unwrap();
    assert_eq!(first, "my run/my step/1");
    assert_eq!(key.len(), 32);
    let other = scripts.step("my run", "other", &[], script).ok();
    assert!(!other.stdout.contains(key));
}

fn binary_output_and_standard_input_go_through(place: &Place) {
    let scripts = Scripts::at(place);
    for input in [&b"\xff\0\x01 bytes"[..], b"not read again"] {
        let mut command = scripts.step_command("r", "cat", &[], "cat");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // If it is recorded, nobody reads.
        drop(child.stdin.take().unwrap().write_all(input));
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.stdout, b"\xff\0\x01 bytes");
    }
}

fn the_same_name_with_another_command_is_an_error(place: &Place) {
    let scripts = Scripts::at(place);
    scripts.step("r", "a", &[], "echo one").ok();
    let ran = scripts
        .step("r", "a", &[], "echo two >> \"$LEDGER\"")
        .ends(2);
    assert!(ran.stderr.contains("echo one") && ran.stderr.contains("echo two"));
    assert!(ran.stderr.contains("--name \"fetch-$i\""), "{}", ran.stderr);
    assert_eq!(scripts.ledger(), "");
    // Unless something else is said to count.
    let input = ["--input", "the same"];
    assert_eq!(scripts.step("r", "b", &input, "echo 1").ok().stdout, "1\n");
    assert_eq!(scripts.step("r", "b", &input, "echo 2").ok().stdout, "1\n");
}

fn a_failure_is_what_is_said_that_it_means(place: &Place) {
    let scripts = Scripts::at(place);
    let fails = "echo tried >> \"$LEDGER\"; echo why >&2; exit 7";
    let mut tried = 0;
    for (name, options, code, again) in [
        ("read", &["--effect", "read-only"][..], 7, true),
        ("idem", &["--effect", "idempotent"], 7, true),
        ("not-done", &["--failed-means", "not-done"], 7, true),
        ("final", &["--failed-means", "final"], 7, false),
        (
            "final-read",
            &["--failed-means", "final", "--effect", "read_only"],
            7,
            false,
        ),
    ] {
        scripts.step("r", name, options, fails).ends(code);
        let ran = scripts.step("r", name, options, fails).ends(code);
        assert_eq!(ran.stderr, "why\n");
        tried += if again { 2 } else { 1 };
        assert_eq!(scripts.happened("tried"), tried, "{name}");
    }
    // Nobody knows what a `once` step has done: a person is asked.
    let ran = scripts.step("r", "once", &[], fails).ends(3);
    assert!(
        ran.stderr.contains("it ended with code 7: why"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("dalsegno resolve r once#1 --"),
        "{}",
        ran.stderr
    );
    scripts.step("r", "once", &[], fails).ends(3);
    assert_eq!(scripts.happened("tried"), tried + 1);
    scripts.verify();
}

fn what_cannot_be_started_did_nothing(place: &Place) {
    let scripts = Scripts::at(place);
    let missing = ["step", "--run", "r", "--name", "a", "--", "/nowhere/tool"];
    let ran = common::run(scripts.command(&missing)).ends(127);
    assert!(ran.stderr.starts_with("error: cannot run /nowhere/tool"));
    let folder = ["step", "--run", "r", "--name", "b", "--", "/tmp"];
    common::run(scripts.command(&folder)).ends(126);
    // Both can be tried again.
    common::run(scripts.command(&missing)).ends(127);
}

fn attempts_are_made_again_and_time_is_limited(place: &Place) {
    let scripts = Scripts::at(place);
    let third = "echo x >> \"$LEDGER\"; test $(wc -l < \"$LEDGER\") -ge 2";
    let retry = ["--effect", "idempotent", "--retry", "2"];
    scripts.step("r", "a", &retry, third).ok();
    assert_eq!(scripts.happened("x"), 2);
    let options = ["--effect", "read-only", "--timeout", "50ms"];
    let ran = scripts
        .step("r", "slow", &options, "exec sleep 60")
        .ends(124);
    assert_eq!(ran.stdout, "");
    let ran = scripts
        .step("r", "once", &options[2..], "exec sleep 60")
        .ends(3);
    assert!(
        ran.stderr.contains("it took longer than 50ms"),
        "{}",
        ran.stderr
    );
}

fn documents_say_what_came_of_it(place: &Place) {
    let scripts = Scripts::at(place);
    for recorded in [false, true] {
        let ran = scripts
            .step("r", "a", &["--json"], "echo out; echo err >&2")
            .ok();
        let document = ran.json();
        assert_eq!(document["schema"], "dalsegno.step/1");
        assert_eq!(document["recorded"], recorded);
        assert_eq!(
            (&document["step"], &document["attempt"]),
            (&"a#1".into(), &1.into())
        );
        assert_eq!(document["stdout"], "out\n");
        assert_eq!(document["stderr"], "err\n");
        assert_eq!(document["exit"], 0);
    }
    let ran = scripts.step("r", "b", &["--json"], "exit 3").ends(3);
    let error = ran.json_error();
    assert_eq!(
        (&error["schema"], &error["exit"]),
        (&"dalsegno.error/1".into(), &3.into())
    );
}

fn names_can_be_what_they_like_within_limits(place: &Place) {
    let scripts = Scripts::at(place);
    let long = "x".repeat(100_000);
    for (run, name) in [
        ("", "a"),
        ("r", ""),
        ("r", "a/b"),
        ("r", "a#1"),
        (&long, "a"),
        ("r", &long),
    ] {
        let ran = scripts
            .step(run, name, &[], "echo no >> \"$LEDGER\"")
            .ends(2);
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.len() < 1000);
    }
    assert!(
        !scripts.store().exists(),
        "a name that is none makes no store"
    );
    for name in ["two words", "🐋 & 東京", "it's \"quoted\"", "--name"] {
        let name_is = format!("--name={name}");
        let words = [
            "step",
            &format!("--run={name}"),
            &name_is,
            "--",
            "echo",
            "hello",
        ];
        assert_eq!(common::run(scripts.command(&words)).ok().stdout, "hello\n");
        assert_eq!(common::run(scripts.command(&words)).ok().stdout, "hello\n");
    }
    scripts.verify();
}

fn a_run_is_ended_by_its_script(place: &Place) {
    let scripts = Scripts::at(place);
    scripts.step("r", "a", &[], "echo one").ok();
    let end = ["end", "--run", "r", "--result", "all done"];
    common::run(scripts.command(&end)).ok();
    common::run(scripts.command(&end)).ok();
    let listed = common::dalsegno(&scripts.store(), ["ls", "--json"])
        .ok()
        .json();
    assert_eq!(listed["runs"][0]["status"], "completed");
    // What is recorded is still there; nothing new is taken.
    assert_eq!(scripts.step("r", "a", &[], "echo one").ok().stdout, "one\n");
    let ran = scripts.step("r", "b", &[], "echo two").ends(125);
    assert!(ran.stderr.contains("is completed: it takes no new steps"));
    common::run(scripts.command(&["end", "--run", "r", "--fail", "no"])).ends(1);
    let missing = common::run(scripts.command(&["end", "--run", "nobody"])).ends(1);
    assert!(
        missing.stderr.contains("there is no run"),
        "{}",
        missing.stderr
    );

    scripts.step("f", "a", &[], "true").ok();
    common::run(scripts.command(&["end", "--run", "f", "--fail", "it was empty"])).ok();
    let listed = common::dalsegno(&scripts.store(), ["ls", "--json", "--status", "failed"]);
    assert_eq!(listed.ok().json()["runs"][0]["run"], "f");
}

fn runs_of_programs_are_not_touched(place: &Place) {
    let scripts = Scripts::at(place);
    common::stores::every_state(&scripts.store());
    let ran = scripts
        .step("signal", "a", &[], "echo no >> \"$LEDGER\"")
        .ends(125);
    assert!(ran.stderr.contains("another agent"), "{}", ran.stderr);
    assert_eq!(scripts.ledger(), "");
    scripts.step("new", "a", &[], "true").ok();
}
