//! Steps beside each other, beside a program that owns the store, and in trouble.

#![allow(clippy::unwrap_used)]

mod common;
mod scripts;

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use rustix::process::{Pid, Signal};
use scripts::{Scripts, kill, wait_until};

#[test]
fn two_runs_work_at_the_same_time() {
    let scripts = Scripts::new();
    scripts.step("first", "open", &[], "true").ok();
    // Each waits for the other: one after the other they would never end.
    let meet = |own: &str, other: &str| {
        format!("touch \"$LEDGER.{own}\"; while ! test -e \"$LEDGER.{other}\"; do sleep 0.01; done")
    };
    let one = scripts.started("one", "meet", &[], &meet("one", "two"));
    let two = scripts.started("two", "meet", &[], &meet("two", "one"));
    for child in [one, two] {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    scripts.verify();
}

#[test]
fn many_scripts_share_a_store() {
    let scripts = Scripts::new();
    std::thread::scope(|scope| {
        for run in 0..4 {
            let scripts = &scripts;
            scope.spawn(move || {
                for step in 0..6 {
                    let (run, name) = (format!("run-{run}"), format!("step-{step}"));
                    let wait = ["--wait", "60s"];
                    scripts
                        .step(&run, &name, &wait, "echo done >> \"$LEDGER\"")
                        .ok();
                }
            });
        }
    });
    assert_eq!(scripts.happened("done"), 24);
    scripts.verify();
}

#[test]
fn the_same_step_at_the_same_time_is_done_once() {
    let scripts = Scripts::new();
    let script = "echo done >> \"$LEDGER\"; echo out";
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let ran = scripts.step("r", "a", &["--wait", "60s"], script).ok();
                assert_eq!(ran.stdout, "out\n");
            });
        }
    });
    assert_eq!(scripts.happened("done"), 1);
    // Who does not want to wait is told who is at work.
    let child = scripts.started("r", "b", &[], "exec sleep 1000");
    let ran = scripts
        .step("r", "c", &["--wait", "50ms"], "true")
        .ends(125);
    assert!(ran.stderr.contains("for its step b"), "{}", ran.stderr);
    // What is recorded can be had all the same.
    assert_eq!(
        scripts.step("r", "a", &["--wait", "0"], script).ok().stdout,
        "out\n"
    );
    kill(child);
}

#[test]
fn beside_a_program_that_owns_the_store() {
    let scripts = Scripts::new();
    scripts.step("r", "a", &[], "echo one").ok();
    common::block_on(async {
        let app = common::stores::app(&scripts.store()).await;
        assert_eq!(scripts.step("r", "a", &[], "echo one").ok().stdout, "one\n");
        let ran = scripts.step("r", "b", &["--wait", "50ms"], "echo no >> \"$LEDGER\"");
        let ran = ran.ends(125);
        let me = format!("is in use by process {} (", std::process::id());
        assert!(ran.stderr.contains(&me), "{}", ran.stderr);
        app.close().await.unwrap();
    });
    assert_eq!(scripts.ledger(), "");
    scripts.step("r", "b", &[], "true").ok();
}

#[test]
fn who_waits_for_the_store_can_be_told_to_end() {
    use std::os::unix::process::ExitStatusExt;

    let scripts = Scripts::new();
    scripts.step("r", "a", &[], "true").ok();
    common::block_on(async {
        let app = common::stores::app(&scripts.store()).await;
        let mut command = scripts.step_command("r", "b", &["--wait", "20s"], "true");
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        // It has the run, and waits for the store.
        let locks = scripts.store().join("locks");
        wait_until(|| std::fs::read_dir(&locks).unwrap().count() == 1);
        // Nothing outside shows that it has come to that; too early a signal would end it as well.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(15));
        app.close().await.unwrap();
    });
    scripts.step("r", "b", &[], "true").ok();
}

#[test]
fn output_comes_live_and_may_be_left_unread() {
    let scripts = Scripts::new();
    let script = "echo first; while ! test -e \"$LEDGER.go\"; do sleep 0.01; done; echo second; \
                  echo end >> \"$LEDGER\"";
    let mut child = scripts
        .step_command("r", "a", &[], script)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 6];
    let mut reader = child.stdout.take().unwrap();
    reader.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"first\n");
    drop(reader);
    std::fs::write(scripts.dir.join("ledger.go"), "").unwrap();
    // A reader that has gone away takes nothing from the record.
    assert!(child.wait().unwrap().success());
    assert_eq!(
        scripts.step("r", "a", &[], script).ok().stdout,
        "first\nsecond\n"
    );
    assert_eq!(scripts.happened("end"), 1);
}

#[test]
fn large_outputs_come_back_and_too_large_ones_are_said() {
    let scripts = Scripts::new();
    let ten_mb = "head -c 10000000 /dev/zero | tr '\\0' 'x'";
    for _ in 0..2 {
        let ran = scripts.step("r", "large", &[], ten_mb).ok();
        assert_eq!(ran.stdout.len(), 10_000_000);
    }
    let too_much = "echo done >> \"$LEDGER\"; head -c 70000000 /dev/zero | tr '\\0' 'x'";
    let ran = scripts.step("r", "too much", &[], too_much).ends(125);
    assert_eq!(ran.stdout.len(), 70_000_000, "it is passed on all the same");
    for text in ["it was done, but it printed 70000000 bytes", "into a file"] {
        assert!(ran.stderr.contains(text), "{}", ran.stderr);
    }
    // Many bytes of JSON for each that was printed.
    let escaped = "echo done >> \"$LEDGER\"; head -c 20000000 /dev/zero";
    scripts.step("r", "escaped", &[], escaped).ends(125);
    for (name, script) in [("too much", too_much), ("escaped", escaped)] {
        let ran = scripts.step("r", name, &[], script).ends(125);
        assert!(
            ran.stderr.contains("it is not done again"),
            "{}",
            ran.stderr
        );
    }
    assert_eq!(scripts.happened("done"), 2);
    scripts.verify();
}

#[test]
fn ctrl_c_reaches_the_command_and_what_it_means_is_recorded() {
    let scripts = Scripts::new();
    let probe = ["--probe", "exit 1"];
    for (name, options, signal, code) in [
        ("read", &["--effect", "read-only"][..], Signal::INT, 130),
        ("once", &probe, Signal::TERM, 143),
        ("alone", &[], Signal::INT, 3),
    ] {
        let child = scripts.started(name, name, options, "exec sleep 1000");
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{name}: {words}");
    }
    // A command that takes care of it itself has its own code.
    let careful = "trap 'echo tidied >> \"$LEDGER\"; exit 0' TERM; while :; do sleep 0.01; done";
    let child = scripts.started("careful", "careful", &[], careful);
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(scripts.happened("tidied"), 1);
    scripts.verify();
}

#[test]
fn a_damaged_store_is_code_4_and_nothing_is_done() {
    let scripts = Scripts::new();
    for n in 0..3 {
        scripts.step("r", &format!("step-{n}"), &[], "true").ok();
    }
    let segment = scripts.store().join("log/0000000000000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[900] ^= 0x55;
    std::fs::write(&segment, bytes).unwrap();
    let ran = scripts
        .step("r", "new", &[], "echo no >> \"$LEDGER\"")
        .ends(4);
    assert!(ran.stderr.contains("dalsegno verify"), "{}", ran.stderr);
    assert_eq!(scripts.ledger(), "");
}

#[test]
fn what_is_no_store_is_left_alone() {
    let scripts = Scripts::new();
    std::fs::create_dir(scripts.store()).unwrap();
    std::fs::write(scripts.store().join("precious"), "x").unwrap();
    let ran = scripts
        .step("r", "a", &[], "echo no >> \"$LEDGER\"")
        .ends(125);
    assert!(ran.stderr.contains("precious"), "{}", ran.stderr);
    assert_eq!(std::fs::read_dir(scripts.store()).unwrap().count(), 1);
    assert_eq!(scripts.ledger(), "");
}

#[test]
fn no_permission_is_said_before_anything_is_done() {
    let scripts = Scripts::new();
    scripts.step("r", "a", &[], "true").ok();
    // As root everything is allowed: another user, then.
    let user = "65534";
    let binary = scripts.dir.join("dalsegno");
    std::fs::copy(env!("CARGO_BIN_EXE_dalsegno"), &binary).unwrap();
    std::fs::set_permissions(scripts.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = std::process::Command::new("setpriv");
    command
        .args(["--reuid", user, "--regid", user, "--clear-groups"])
        .arg(&binary)
        .arg("--store")
        .arg(scripts.store())
        .args(["step", "--run", "r", "--name", "b", "--", "echo", "no"]);
    let Ok(output) = command.output() else { return };
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if words.contains("setpriv:") {
        return;
    }
    assert_eq!(output.status.code(), Some(125), "{words}");
    assert!(output.stdout.is_empty());
    assert!(words.contains("ermission denied"), "{words}");
    assert!(
        words.contains("the user that the store belongs to"),
        "{words}"
    );
}

#[test]
fn on_a_full_disk_nothing_is_begun_or_the_outcome_is_not_lost() {
    let scripts = Scripts::new();
    let disk = scripts.dir.join("disk");
    std::fs::create_dir(&disk).unwrap();
    // A small file system of its own, in a mount namespace that ends with the script.
    let script = r#"mount -t tmpfs -o size=3m,mode=700 dalsegno-test "$1" || exit 99
        export DALSEGNO_STORE="$1/store"
        "$2" step --run r --name before -- echo kept || exit 1
        head -c 10m /dev/zero > "$1/fill" 2> /dev/null
        for n in 1 2 3 4 5 6 7 8 9; do
          "$2" step --run "r$n" --name big --input x -- sh -c "echo done >> $3; head -c 300000 /dev/urandom" > /dev/null
          echo "code $?"
        done
        rm "$1/fill"
        for n in 1 2 3 4 5 6 7 8 9; do
          "$2" step --run "r$n" --name big --input x --probe 'exit 0' -- sh -c "echo done >> $3" > /dev/null || exit 2
        done
        "$2" step --run r --name before -- echo kept"#;
    let mut command = std::process::Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(&disk)
        .arg(env!("CARGO_BIN_EXE_dalsegno"))
        .arg(scripts.dir.join("ledger"));
    let ran = common::run(command);
    if ran.code == Some(99) || ran.stderr.contains("unshare:") {
        // No small disk to be had here; the library's own tests insist on one.
        return;
    }
    let ran = ran.ok();
    assert!(ran.stdout.ends_with("kept\n"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("code 125"),
        "{}\n{}",
        ran.stdout,
        ran.stderr
    );
    // Done at most once each: what had begun was not done again when there was room.
    assert!(scripts.happened("done") <= 9, "{}", scripts.ledger());
}

#[test]
fn a_trivial_step_costs_two_syncs_and_a_recorded_one_none() {
    let scripts = Scripts::new();
    scripts.step("r", "first", &[], "true").ok();
    let syncs = |name: &str| {
        let trace = scripts.dir.join("trace");
        let mut command = std::process::Command::new("strace");
        command
            .args([
                "-f",
                "-e",
                "trace=fsync,fdatasync,sync_file_range,msync",
                "-o",
            ])
            .arg(&trace)
            .arg(env!("CARGO_BIN_EXE_dalsegno"))
            .arg("--store")
            .arg(scripts.store())
            .args(["step", "--run", "r", "--name", name, "--", "true"]);
        assert!(command.status().unwrap().success());
        let trace = std::fs::read_to_string(&trace).unwrap();
        trace.lines().filter(|line| line.contains("sync(")).count()
    };
    assert_eq!(syncs("second"), 2);
    assert_eq!(syncs("second"), 0);
    wait_until(|| scripts.store().exists());
}
