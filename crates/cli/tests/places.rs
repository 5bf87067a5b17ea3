//! Stores in places that take nothing, and what is no store at all.

#![allow(clippy::unwrap_used)]

mod common;
mod scripts;

use scripts::Scripts;

/// Runs a script in a mount namespace of its own; `None` if there is none to be had. It gets the
/// store, the command and the folder of the test.
fn mounted(scripts: &Scripts, script: &str) -> Option<common::Ran> {
    let mut command = std::process::Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(scripts.store())
        .arg(env!("CARGO_BIN_EXE_dalsegno"))
        .arg(scripts.dir.path());
    let ran = common::run(command);
    (ran.code != Some(99) && !ran.stderr.contains("unshare:")).then_some(ran)
}

#[test]
fn what_is_recorded_can_be_had_from_a_disk_that_takes_nothing() {
    let scripts = Scripts::new();
    std::fs::create_dir(scripts.store()).unwrap();
    let full = r#"mount -t tmpfs -o size=2m,mode=700 dalsegno-test "$1" || exit 99
        export DALSEGNO_STORE="$1/store"
        "$2" step --run r --name a -- echo kept || exit 1
        head -c 10m /dev/zero > "$1/fill" 2> /dev/null
        "$2" step --run r --name a -- echo kept || exit 2"#;
    if let Some(ran) = mounted(&scripts, full) {
        assert_eq!(ran.ok().stdout, "kept\nkept\n");
    }
    let read_only = r#"mount -t tmpfs -o size=2m,mode=700 dalsegno-test "$1" || exit 99
        export DALSEGNO_STORE="$1/store"
        "$2" step --run r --name a -- echo kept || exit 1
        rm -r "$1/store/locks"
        mount -o remount,ro "$1" || exit 99
        "$2" step --run r --name a -- echo kept || exit 2
        "$2" step --run r --name b -- echo never; echo "code $?"
        "$2" recover; echo "code $?""#;
    if let Some(ran) = mounted(&scripts, read_only) {
        let ran = ran.ok();
        assert_eq!(ran.stdout, "kept\nkept\ncode 125\ncode 1\n");
        let hints = ran.stderr.matches("for the rest mount it writable").count();
        assert_eq!(hints, 2, "{}", ran.stderr);
    }
}

#[test]
fn a_store_without_its_marker_is_damaged_and_stays_as_it_is() {
    let scripts = Scripts::new();
    scripts.step("r", "a", &[], "true").ok();
    let marker = scripts.store().join("store");
    for bytes in [Some(&b""[..]), Some(b"\xff\x00nonsense"), None] {
        match bytes {
            Some(bytes) => std::fs::write(&marker, bytes).unwrap(),
            None => std::fs::remove_file(&marker).unwrap(),
        }
        for command in ["ls", "verify", "recover"] {
            let ran = common::run(scripts.command(&[command])).ends(4);
            assert!(ran.stderr.contains("is damaged"), "{}", ran.stderr);
            assert!(ran.stderr.contains("from a copy"), "{}", ran.stderr);
        }
        scripts
            .step("r", "b", &[], "echo no >> \"$LEDGER\"")
            .ends(4);
    }
    assert_eq!(scripts.ledger(), "");
}

#[test]
fn what_is_no_folder_is_said() {
    let scripts = Scripts::new();
    let ls = || common::run(scripts.command(&["ls"])).ends(1).stderr;
    assert!(ls().contains("there is no such folder"), "{}", ls());
    std::fs::write(scripts.store(), "x").unwrap();
    assert!(ls().contains("that is a file"), "{}", ls());
}

/// As of a demo that was kept: its store is in a folder of the folder that was named.
#[test]
fn the_folder_around_a_store_is_none_and_the_store_is_named() {
    let scripts = Scripts::new();
    let around = scripts.store();
    let inside = around.join("store");
    common::stores::every_state(&inside);
    let ran = common::run(scripts.command(&["ls"])).ends(1);
    assert!(ran.stderr.contains("no store in"), "{}", ran.stderr);
    let hint = format!("did you mean --store {}?", inside.display());
    assert!(ran.stderr.contains(&hint), "{}", ran.stderr);
}

/// What is to be pasted can be.
#[test]
fn names_with_spaces_are_quoted_in_hints() {
    let scripts = Scripts::new();
    scripts.step("a b", "pay", &[], "exit 1").ends(3);
    let ran = common::run(scripts.command(&["end", "--run", "a b"])).ends(3);
    assert!(
        ran.stderr.contains("`dalsegno why 'a b'`"),
        "{}",
        ran.stderr
    );
    let ran = common::run(scripts.command(&["approve", "a b"])).ends(1);
    assert!(
        ran.stderr.contains("`dalsegno why 'a b'`"),
        "{}",
        ran.stderr
    );
}
