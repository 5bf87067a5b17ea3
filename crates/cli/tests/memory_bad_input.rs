//! `dalsegno memory` and what cannot be: each is refused in words that say what to do.

#![allow(clippy::unwrap_used)]

mod common;

use common::models;
use common::places::Place;
use common::{Ran, command, dalsegno, run};
use serde_json::json;

fn memory(place: &Place, words: &str) -> Ran {
    dalsegno(place.path(), ["memory"].into_iter().chain(words.split('|')))
}

fn kitchen() -> Place {
    let place = Place::folder();
    memory(&place, "add|kitchen|--text|bread AND salt, NOT nuts").ok();
    place
}

/// Searches for what is in a file.
fn search(place: &Place, query: &[u8]) -> Ran {
    let file = place.beside("query");
    std::fs::write(&file, query).unwrap();
    let mut command = command();
    command.arg("--store").arg(place.path());
    command.args(["memory", "search", "kitchen", "-", "--json"]);
    command.stdin(std::fs::File::open(file).unwrap());
    run(command)
}

#[test]
fn queries() {
    let place = kitchen();
    for empty in ["", "  ", "\n"] {
        let refused = search(&place, empty.as_bytes()).ends(2);
        assert_eq!(refused.json_error()["error"], "the query is empty");
    }
    for no_words in ["!?", "()[]{}\"'", "…"] {
        let found = search(&place, no_words.as_bytes()).ok().json();
        assert_eq!((&found["hits"], &found["words"]), (&json!([]), &json!([])));
    }
    let text = memory(&place, "search|kitchen|?!").ok().stdout;
    assert_eq!(text, "the query has no words to look for\n");
    // Operators are words, or nothing.
    for operators in [
        "salt AND NOT bread",
        "\"salt",
        "(salt OR",
        "+salt -nuts",
        "salt*",
        "text: salt",
    ] {
        let found = search(&place, operators.as_bytes()).ok().json();
        assert_eq!(found["hits"].as_array().unwrap().len(), 1, "{operators}");
    }
    memory(&place, "search|kitchen|--|-nuts").ok();
    let many: String = (0..200_000).map(|n| format!("w{n} ")).collect();
    let found = search(&place, &many.as_bytes()[..1 << 20]).ok().json();
    assert_eq!(found["words"].as_array().unwrap().len(), 256);
    assert!(found["words_left_out"].as_u64().unwrap() > 100_000);
    let refused = search(&place, &vec![b'x'; (1 << 20) + 1]).ends(2);
    assert!(
        refused.stderr.contains("the limit is 1048576 bytes"),
        "{refused:?}"
    );
    // However much there is, no more of it is read than tells that.
    let refused = search(&place, &vec![b'x'; 3 << 20]).ends(2);
    assert!(
        refused.stderr.contains("the limit is 1048576 bytes"),
        "{refused:?}"
    );
    let refused = search(&place, b"caf\xe9").ends(2);
    assert!(
        refused.stderr.contains("byte 3 is not UTF-8"),
        "{refused:?}"
    );
    let refused = memory(&place, "search|kitchen|salt|--limit|10001").ends(2);
    assert!(
        refused.stderr.contains("the limit is 10000 hits"),
        "{refused:?}"
    );
}

#[test]
fn memories_and_stores_that_are_not_there() {
    let place = kitchen();
    for words in [
        "ls|kitchn",
        "search|kitchn|x",
        "get|kitchn|1",
        "export|kitchn|-",
        "retract|kitchn|1",
        "history|kitchn",
        "at|kitchn|1",
        "diff|kitchn|1",
    ] {
        let mut command = command();
        command
            .arg("--store")
            .arg(place.path())
            .arg("memory")
            .args(words.split('|'));
        let missing = run(command).ends(1);
        assert!(
            missing.stderr.contains("there is no memory \"kitchn\""),
            "{missing:?}"
        );
        assert!(
            missing.stderr.contains("did you mean \"kitchen\"?"),
            "{missing:?}"
        );
    }
    let nowhere = Place::folder();
    for words in [
        "ls",
        "ls|k",
        "search|k|x",
        "correct|k|1|--text|x",
        "forget|k|1|--reason|x|--yes",
    ] {
        let missing = memory(&nowhere, words).ends(1);
        assert!(missing.stderr.contains("no store in"), "{missing:?}");
    }
    assert!(!nowhere.path().exists(), "looking makes nothing");
    let long = "x".repeat(2000);
    memory(&nowhere, &format!("add|{long}|--text|x")).ends(2);
    assert!(
        !nowhere.path().exists(),
        "a name that cannot be makes nothing"
    );
    memory(&place, "ls|--kind|fact").ends(2);
    let empty = Place::folder();
    common::stores::every_state(empty.path());
    assert_eq!(
        memory(&empty, "ls|--json").ok().json()["memories"],
        json!([])
    );
}

#[test]
fn documents() {
    let place = kitchen();
    for (words, said) in [
        ("--text=", "a document needs text"),
        ("--text|x|--confidence|1001", "1001 is not in 0..=1000"),
        ("--text|x|--confidence|-1", "-1"),
        (
            "--text|x|--scope|nobody",
            "a scope is shared, agent/NAME or run/NAME",
        ),
        ("--text|x|--valid-from|soon", "a time is as in"),
        (
            "--text|x|--valid-from|2026-01-02|--valid-until|2026-01-01",
            "swap the times",
        ),
        ("--text|x|--kind|poem", "poem"),
        ("--text|x|a.md", "cannot be used with"),
        ("--key|x|a.md", "cannot be used with"),
        ("", "required"),
    ] {
        let refused = memory(&place, format!("add|kitchen|{words}").trim_end_matches('|')).ends(2);
        assert!(refused.stderr.contains(said), "{words}: {refused:?}");
    }
    let tag = "t".repeat(1001);
    let refused = memory(&place, &format!("add|kitchen|--text|x|--tag|{tag}")).ends(2);
    assert!(
        refused
            .stderr
            .contains("a tag has 1001 bytes, the limit is 1000 bytes"),
        "{refused:?}"
    );
    let tags = "|--tag|t".repeat(65);
    let refused = memory(&place, &format!("add|kitchen|--text|x{tags}")).ends(2);
    assert!(
        refused.stderr.contains("has 65 tags, the limit is 64 tags"),
        "{refused:?}"
    );
    // What a store says cannot move the cursor.
    memory(
        &place,
        "add|kitchen|--text|evil \u{1b}[2J\u{202e}|--source|\u{7}",
    )
    .ok();
    for look in [
        "ls|kitchen",
        "get|kitchen|2",
        "search|kitchen|evil",
        "history|kitchen",
    ] {
        let text = memory(&place, look).ok().stdout;
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{text}");
        assert!(text.contains("evil"), "{text}");
    }
}

/// What says nothing is no answer to what was asked.
#[test]
fn what_is_blank() {
    let place = kitchen();
    for blank in ["", " ", "\t\n"] {
        for words in [
            "add|kitchen|--text|x|--key",
            "add|kitchen|--text|x|--tag",
            "add|kitchen|--text|x|--source",
            "add|kitchen|--text|x|--title",
            "add|kitchen|--text|x|--by",
            "add|kitchen|--text",
            "correct|kitchen|1|--text",
            "correct|kitchen|1|--source",
            "retract|kitchen|1|--by",
            "ls|kitchen|--tag",
            "search|kitchen|salt|--any-tag",
        ] {
            let refused = memory(&place, &format!("{words}|{blank}")).ends(2);
            assert!(refused.stderr.contains("is blank"), "{words}: {refused:?}");
        }
    }
    memory(&place, "add|kitchen|--text|x|--scope|agent/ ").ends(2);
    // In the environment it is as good as nothing.
    let mut add = command();
    add.arg("--store").arg(place.path());
    add.args(["memory", "add", "kitchen", "--text", "y", "--json"]);
    add.env("DALSEGNO_MODEL", "").env("USER", " ");
    assert_eq!(run(add).ok().json()["model"], json!(null));
    let got = memory(&place, "get|kitchen|2|--json").ok().json();
    assert_eq!(got["by"], "somebody");
}

/// Where a store cannot be made, it is said that it could not, and where.
#[test]
fn stores_that_cannot_be_made() {
    let place = Place::folder();
    let file = place.beside("file");
    std::fs::write(&file, "x").unwrap();
    for store in [file.join("store"), "/proc/nothing/store".into()] {
        let words = ["memory", "add", "k", "--text", "x"];
        let refused = dalsegno(&store, words).ends(1);
        let said = format!("cannot make a store in {}: ", store.display());
        assert!(refused.stderr.contains(&said), "{refused:?}");
    }
}

/// A limit of the shell is an error like any other, and not the end of the process.
#[test]
fn files_that_may_not_grow() {
    let place = Place::folder();
    memory(&place, "add|k|--text|x").ok();
    let text = place.beside("large.txt");
    std::fs::write(&text, "All work and no play.\n\n".repeat(20_000)).unwrap();
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -f 20; exec \"$@\"", "sh"]);
    limited.arg(env!("CARGO_BIN_EXE_dalsegno"));
    limited.arg("--store").arg(place.path());
    limited.args(["memory", "add", "k"]).arg(text);
    let refused = run(limited).ends(1);
    assert!(refused.stderr.contains("File too large"), "{refused:?}");
    memory(&place, "ls|k").ok();
}

#[test]
fn models_are_told_apart() {
    let place = Place::folder();
    let dir = place.beside("models");
    let [four, three] = [4, 3].map(|n| models::table(&dir, &format!("table-{n}"), n));
    let twin = models::table(&dir, "twin", 4);
    let add = |words: &str| memory(&place, &format!("add|fruit|--text|{words}"));
    add(&format!("an apple|--model|{}", four.display())).ok();
    add(&format!("a truck|--model|{}", four.display())).ok();
    let named = memory(&place, "ls|--json").ok().json()["memories"][0].clone();
    assert_eq!(named["dimensions"], 4);
    let model = named["model"].as_str().unwrap();
    assert!(model.starts_with("table-4#"), "{model}");

    // By meaning: no word of the query is in the text.
    let search = |words: &str| memory(&place, &format!("search|fruit|{words}"));
    let found = search(&format!(
        "vehicle|--model|{}|--explain|--json",
        four.display()
    ));
    let found = found.ok().json();
    assert_eq!(found["hits"][0]["text"], "a truck");
    assert_eq!(found["model"], model);
    assert!(
        found["hits"][0]["explanation"]["vector"]["dot"]
            .as_i64()
            .unwrap()
            > 0
    );
    let text = search(&format!("vehicle|--model|{}|--explain", four.display()))
        .ok()
        .stdout;
    assert!(text.contains("vector: "), "{text}");
    // Without a model by words only.
    assert_eq!(search("vehicle|--json").ok().json()["hits"], json!([]));

    // Another one is refused, and both are named, with their dimensions.
    for (other, name, dimensions) in [(&three, "table-3#", 3), (&twin, "twin#", 4)] {
        let other = other.display();
        for refused in [
            search(&format!("vehicle|--model|{other}")).ends(1),
            add(&format!("a pear|--model|{other}")).ends(1),
            memory(
                &place,
                &format!("correct|fruit|1|--text|a pear|--model|{other}"),
            )
            .ends(1),
        ] {
            let said = format!("are of {model} (4 dimensions), not of {name}");
            assert!(refused.stderr.contains(&said), "{refused:?}");
            assert!(
                refused
                    .stderr
                    .contains(&format!("({dimensions} dimensions)")),
                "{refused:?}"
            );
        }
    }
    // None is refused where something would be found by words only, unless that is wanted.
    let none = add("a pear").ends(2);
    assert!(
        none.stderr.contains(model) && none.stderr.contains("--no-vectors"),
        "{none:?}"
    );
    add("a pear|--no-vectors").ok();
    // What means the same needs no model.
    memory(&place, "correct|fruit|1|--confidence|5").ok();
    let got = memory(&place, "get|fruit|4|--json").ok().json();
    assert_eq!(
        (&got["dimensions"], &got["confidence"]),
        (&json!(4), &json!(5))
    );

    memory(&place, "add|words|--text|without vectors").ok();
    for nowhere in [
        search("x|--model|/nowhere"),
        memory(&place, "search|words|vectors|--model|/nowhere"),
    ] {
        assert!(nowhere.ends(1).stderr.contains("/nowhere"));
    }
    memory(&place, "search|words|vectors|--model|/nowhere|--no-vectors").ok();
    std::fs::write(three.join("config.json"), r#"{"hidden_size": 3}"#).unwrap();
    let transformer = search(&format!("x|--model|{}", three.display())).ends(1);
    assert!(transformer.stderr.contains("table-3"), "{transformer:?}");
}
