//! `dalsegno why` says why a run is where it is, and which command moves it on.

#![allow(clippy::unwrap_used)]

mod common;

use common::owner::Owner;
use common::places::Place;
use common::{TempDir, dalsegno, stores};

in_both! {
    each_standing_with_its_code_and_its_command,
}

#[test]
#[ignore = "the process that owns the store, started by the tests"]
fn the_owner() {
    common::owner::main();
}

fn each_standing_with_its_code_and_its_command(dir: &Place) {
    stores::every_state(dir.path());
    for (run, code, standing, command) in [
        (
            "approval",
            3,
            "waits-for-approval",
            "dalsegno approve approval publish#1",
        ),
        (
            "doubt",
            3,
            "needs-person",
            "dalsegno resolve doubt send#1 --did-not-happen",
        ),
        (
            "signal",
            0,
            "waits-for-signal",
            "dalsegno signal signal go JSON",
        ),
        ("sleep", 0, "waits-for-time", ""),
        ("done", 0, "ended", ""),
        ("fail", 0, "ended", ""),
    ] {
        let document = dalsegno(dir.path(), ["why", run, "--json"])
            .ends(code)
            .json();
        assert_eq!(document["schema"], "dalsegno.why/1");
        assert_eq!(document["standing"], standing, "{run}");
        assert_eq!(document["owner"], serde_json::Value::Null);
        let text = dalsegno(dir.path(), ["why", run]).ends(code).stdout;
        assert!(text.contains(command), "{command} is not in\n{text}");
        let owner = match dir.is_database() {
            true => "its workers",
            false => "nobody",
        };
        assert!(text.contains(&format!("store owner     {owner}")), "{text}");
        let commands = document["commands"].as_array().unwrap();
        assert_eq!(commands.is_empty(), command.is_empty(), "{commands:?}");
        assert!(!text.contains('\x1b'));
    }
}

#[test]
fn beside_an_owner_that_is_then_killed() {
    let dir = TempDir::new();
    let owner = Owner::start(dir.path(), &["hang"]);
    let document = dalsegno(dir.path(), ["why", "hang", "--json"]).ok().json();
    assert_eq!(document["owner"], format!("process {}", owner.id()));
    assert_eq!(document["standing"], "moving");
    drop(owner);
    let document = dalsegno(dir.path(), ["why", "hang", "--json"]).ok().json();
    assert_eq!(document["owner"], serde_json::Value::Null, "killed is gone");
}
