//! `dalsegno start`: in a folder and in a database.

#![allow(clippy::unwrap_used)]

mod common;

use common::places::Place;
use common::{dalsegno, owner::Owner, stores};

#[test]
#[ignore = "is no test: the process that owns the store"]
fn the_owner() {
    common::owner::main();
}

in_both! {
    the_same_again_is_one_run,
    inputs_are_read_from_everywhere,
    bad_input_makes_no_store,
}

fn the_same_again_is_one_run(place: &Place) {
    let start = |words: &[&str]| {
        let args = [&["start"], words, &["--json"]].concat();
        dalsegno(place.path(), args)
    };
    let input = [
        "writer",
        "r",
        "--input",
        "{\"a\": 1, \"b\": 2}",
        "--priority",
        "3",
    ];
    let first = start(&input).ok().json();
    assert_eq!(first["schema"], "dalsegno.start/1");
    assert_eq!(first["new"], true);
    assert_eq!(first["priority"], 3);
    // The order of its names is no difference.
    let again = start(&["writer", "r", "--input", "{\"b\": 2, \"a\": 1}"]).ok();
    assert_eq!(again.json()["new"], false);
    let ran = start(&["writer", "r", "--input", "7"]).ends(1);
    assert!(ran.stderr.contains("another input"), "{ran:?}");
    let ran = start(&["reader", "r", "--input", "{\"a\": 1, \"b\": 2}"]).ends(1);
    assert!(ran.stderr.contains("another agent"), "{ran:?}");
    let listed = dalsegno(place.path(), ["ls", "--json"]).ok().json();
    assert_eq!(common::names(&listed), ["r"]);
    dalsegno(place.path(), ["verify"]).ok();
}

fn inputs_are_read_from_everywhere(place: &Place) {
    let file = place.beside("input.json");
    std::fs::write(&file, "[1, 2]").unwrap();
    let at = format!("@{}", file.display());
    let store = place.path();
    dalsegno(store, ["start", "writer", "none"]).ok();
    dalsegno(store, ["start", "writer", "file", "--input", &at]).ok();
    let mut command = common::command();
    command.arg("--store").arg(store);
    command.args(["start", "writer", "stdin", "--input", "-"]);
    command.stdin(std::fs::File::open(&file).unwrap());
    let ran = common::run(command).ok();
    assert!(ran.stdout.contains("run stdin is started"), "{ran:?}");
    for (run, wanted) in [
        ("none", serde_json::json!(null)),
        ("file", serde_json::json!([1, 2])),
        ("stdin", serde_json::json!([1, 2])),
    ] {
        let shown = dalsegno(store, ["show", run, "--json"]).ok().json();
        assert_eq!(shown["input"]["value"], wanted, "{shown:#}");
    }
}

fn bad_input_makes_no_store(place: &Place) {
    for (args, code) in [
        (&["start", "a", "r", "--input", "{"][..], 2),
        (&["start", "a", "r", "--input", "@/nowhere"], 1),
        (&["start", "a", ""], 2),
        (&["start", "", "r"], 2),
        (&["start", "a", "r", "--priority", "-1"], 2),
    ] {
        dalsegno(place.path(), args).ends(code);
    }
    dalsegno(place.path(), ["ls"]).ends(1);
}

#[test]
fn a_run_of_a_folder_is_taken_up_by_its_next_owner() {
    let place = Place::folder();
    let args = ["start", "writer", "draft", "--input", "\"draft\""];
    let ran = dalsegno(place.path(), args).ok();
    assert!(ran.stdout.contains("opens the store"), "{ran:?}");
    common::block_on(async {
        let app = stores::app(place.path()).await;
        stores::settled(&app, &["draft"]).await;
        app.close().await.unwrap();
    });
}

#[test]
fn beside_an_owner_it_says_who_can() {
    let place = Place::folder();
    let _owner = Owner::start(place.path(), &["draft"]);
    let ran = dalsegno(place.path(), ["start", "writer", "other"]).ends(1);
    assert!(
        ran.stderr
            .contains("only the process that owns a store in a folder can start runs"),
        "{ran:?}"
    );
    assert_eq!(ran.stderr.lines().count(), 2, "{ran:?}");
}
