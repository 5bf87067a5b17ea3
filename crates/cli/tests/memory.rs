//! `dalsegno memory`: what is said is kept, found, corrected and traced, in a folder and in a database.

#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::owner::Owner;
use common::places::Place;
use common::{Ran, dalsegno};
use serde_json::{Value, json};

#[test]
#[ignore = "the process that other tests start"]
fn the_owner() {
    common::owner::main();
}

in_both! {
    what_was_said_is_found,
    every_version_is_as_it_was,
    differences_are_told_once,
    who_is_late_is_told,
    what_is_forgotten_is_gone,
}

/// `dalsegno memory WORDS… --json`, with the words between bars.
fn memory(place: &Place, words: &str) -> Ran {
    dalsegno(place.path(), ["memory"].into_iter().chain(words.split('|')))
}

fn json(place: &Place, words: &str) -> Value {
    memory(place, &format!("{words}|--json")).ok().json()
}

fn ids(list: &Value) -> Vec<u64> {
    let list = list.as_array().unwrap().iter();
    list.map(|document| document["id"].as_u64().unwrap())
        .collect()
}

fn utc(us: u64) -> String {
    let text = dalsegno::utc(us);
    text.trim_end_matches(" UTC").to_owned()
}

fn what_was_said_is_found(place: &Place) {
    let words = "add|kitchen|--text|The oven takes 12 minutes.|--source|manual.pdf|--tag|oven\
                 |--confidence|900|--valid-from|2026-01-01|--valid-until|2027-01-01\
                 |--scope|agent/cook|--title|Oven|--key|oven|--by|ada";
    let added = json(place, words);
    assert_eq!((&added["id"], &added["added"]), (&json!(1), &json!(1)));
    // The same key again adds nothing.
    let again = json(place, words);
    assert_eq!((&again["id"], &again["added"]), (&json!(1), &json!(0)));
    memory(
        place,
        "add|kitchen|--text|No nuts: a guest is allergic.|--kind|constraint",
    )
    .ok();

    let got = json(place, "get|kitchen|1");
    for (name, value) in [
        ("schema", json!("dalsegno.memory-get/1")),
        ("kind", json!("fact")),
        ("text", json!("The oven takes 12 minutes.")),
        ("title", json!("Oven")),
        ("sources", json!(["manual.pdf"])),
        ("tags", json!(["oven"])),
        ("confidence", json!(900)),
        ("scope", json!("agent/cook")),
        ("valid_from_us", json!(1_767_225_600_000_000_u64)),
        ("valid_until_us", json!(1_798_761_600_000_000_u64)),
        ("by", json!("ada")),
        ("ended", json!(null)),
    ] {
        assert_eq!(got[name], value, "{name}");
    }
    let text = memory(place, "get|kitchen|1").ok().stdout;
    assert!(text.contains("manual.pdf") && text.ends_with("\nThe oven takes 12 minutes.\n"));

    let found = json(place, "search|kitchen|heating the ovens");
    assert_eq!(ids(&found["hits"]), [1]);
    assert_eq!(found["words"], json!(["heat", "oven"]));
    for (filter, wanted) in [
        ("--kind|constraint", vec![2]),
        ("--kind|fact,constraint", vec![1, 2]),
        ("--tag|oven", vec![1]),
        ("--any-tag|oven|--any-tag|x", vec![1]),
        ("--scope|shared", vec![2]),
        ("--confidence-from|901", vec![2]),
        ("--valid-at|2025-06-01", vec![2]),
        ("--valid-at|2026-06-01T12:00+02:00", vec![1, 2]),
    ] {
        let listed = json(place, &format!("ls|kitchen|{filter}"));
        assert_eq!(ids(&listed["documents"]), wanted, "{filter}");
    }
    let page = json(place, "ls|kitchen|--limit|1");
    assert_eq!(
        (ids(&page["documents"]), &page["more"]),
        (vec![1], &json!(true))
    );
    let rest = json(place, "ls|kitchen|--after|1");
    assert_eq!(
        (ids(&rest["documents"]), &rest["more"]),
        (vec![2], &json!(false))
    );
    let all = json(place, "ls");
    assert_eq!(all["memories"][0]["memory"], "kitchen");
    assert_eq!(all["memories"][0]["documents"], 2);
    assert_eq!(all["memories"][0]["version"], page["version"]);

    let explained = json(place, "search|kitchen|oven nuts|--explain");
    let parts = |hit: &Value| {
        let words = &hit["explanation"]["words"];
        let terms = words["terms"].as_array().unwrap().iter();
        let sum: i64 = terms.map(|term| term["score"].as_i64().unwrap()).sum();
        (
            sum,
            words["score"].as_i64().unwrap(),
            hit["score"].as_i64().unwrap(),
        )
    };
    for hit in explained["hits"].as_array().unwrap() {
        let (sum, words, score) = parts(hit);
        assert!(sum == words && words == score && score > 0, "{hit}");
    }
    let text = memory(place, "search|kitchen|oven|--explain|--full")
        .ok()
        .stdout;
    assert!(
        text.contains("1. manual.pdf") && text.contains("oven: "),
        "{text}"
    );
    let fits = json(place, "search|kitchen|oven nuts|--context-bytes|30");
    assert_eq!(fits["hits"].as_array().unwrap().len(), 1);
    assert_eq!(fits["left_out"].as_array().unwrap().len(), 1);
}

fn every_version_is_as_it_was(place: &Place) {
    memory(place, "add|k|--text|the oven takes 12 minutes").ok();
    let first = json(place, "search|k|oven");
    let then = json(place, "get|k|1")["recorded_us"].as_u64().unwrap();
    // As it is shown to people, a time has milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(3));
    memory(
        place,
        "correct|k|1|--text|the new oven takes 7 minutes|--by|bob",
    )
    .ok();
    memory(place, "add|k|--text|an oven is hot").ok();
    memory(place, "retract|k|3|--reason|it was sold|--by|cid").ok();

    let sequence = first["version"]["sequence"].as_u64().unwrap();
    let hash = first["version"]["hash"].as_str().unwrap();
    let time = utc(then);
    for as_of in [sequence.to_string(), format!("{sequence}@{hash}"), time] {
        let again = json(place, &format!("search|k|oven|--as-of|{as_of}"));
        assert_eq!(again, first, "{as_of}");
    }
    assert_eq!(ids(&json(place, "ls|k")["documents"]), [2]);
    assert_eq!(ids(&json(place, "ls|k|--as-of|3")["documents"]), [2, 3]);
    assert_eq!(ids(&json(place, "at|k|1")["documents"]), [1]);
    assert_eq!(ids(&json(place, "at|k|0")["documents"]), [0; 0]);
    assert_eq!(ids(&json(place, "at|k|1h")["documents"]), [0; 0]);
    assert_eq!(ids(&json(place, "at|k|0s")["documents"]), [2]);
    // A document as it was: not ended yet, or not there.
    assert_eq!(json(place, "get|k|3|--as-of|3")["ended"], json!(null));
    assert_eq!(json(place, "get|k|3")["ended"]["reason"], "it was sold");
    let early = memory(place, "get|k|3|--as-of|2").ends(1);
    assert!(
        early.stderr.contains("version 2 has no document 3"),
        "{early:?}"
    );

    let history = json(place, "history|k");
    let what = history["changes"].as_array().unwrap().iter();
    let what: Vec<_> = what.map(|c| c["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["added", "corrected", "added", "retracted"]);
    assert_eq!(history["changes"][1]["corrects"], 1);
    assert_eq!(history["changes"][3]["by"], "cid");
    let short = json(place, "history|k|--limit|1");
    assert_eq!(
        (&short["more"], short["changes"].as_array().unwrap().len()),
        (&json!(true), 1)
    );
    let chain = json(place, "history|k|2");
    assert_eq!(ids(&chain["revisions"]), [1, 2]);
    assert_eq!(chain["revisions"][0]["ended"]["corrected_by"], 2);
    assert_eq!(ids(&json(place, "history|k|1|--as-of|1")["revisions"]), [1]);
    let text = memory(place, "history|k").ok().stdout;
    assert!(
        text.contains("corrected 2 (was 1) by bob: the new oven"),
        "{text}"
    );

    // Only at the time at which it holds.
    memory(place, "add|k|--text|past|--valid-until|2000-01-01").ok();
    assert_eq!(ids(&json(place, "at|k|5")["documents"]), [2]);
    assert_eq!(ids(&json(place, "ls|k|--as-of|5")["documents"]), [2, 5]);
    for (wrong, code) in [
        ("99", 1),
        (&*format!("2@{hash}"), 1),
        ("soon", 2),
        ("1@x", 2),
    ] {
        for command in ["ls|k|--as-of", "search|k|oven|--as-of", "at|k", "diff|k"] {
            memory(place, &format!("{command}|{wrong}")).ends(code);
        }
    }
    let other = memory(place, &format!("at|k|2@{hash}")).ends(1);
    assert!(other.stderr.contains("another history"), "{other:?}");
}

fn differences_are_told_once(place: &Place) {
    for text in ["one", "two", "three"] {
        memory(place, &format!("add|k|--text|{text}")).ok();
    }
    assert_eq!(json(place, "diff|k|3")["same"], true);
    memory(place, "correct|k|1|--text|uno").ok();
    memory(place, "correct|k|4|--text|eins").ok();
    memory(place, "retract|k|2").ok();
    memory(place, "add|k|--text|came").ok();
    memory(place, "retract|k|7|--reason|and went").ok();
    memory(place, "add|k|--text|four").ok();
    let diff = memory(place, "diff|k|3|--json").ends(1).json();
    let told = diff["differences"].as_array().unwrap().iter();
    let told: Vec<_> = told
        .map(|d| {
            (
                d["what"].as_str().unwrap(),
                d["old"]["id"].as_u64(),
                d["new"]["id"].as_u64(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("corrected", Some(1), Some(5)),
            ("retracted", Some(2), None),
            ("added", None, Some(9)),
        ]
    );
    assert_eq!(diff["differences"][0]["new"]["content"]["text"], "eins");
    let text = memory(place, "diff|k|3|9").ends(1).stdout;
    assert_eq!(
        text,
        "- 1  one\n+ 5  eins\n- 2  two\n+ 9  four\n\
         1 added, 1 corrected, 1 retracted from version 3 to 9, 6 events\n"
    );
    memory(place, "diff|k|9|3").ends(2);
}

fn who_is_late_is_told(place: &Place) {
    memory(place, "add|k|--text|one|--tag|a|--source|b|--confidence|5").ok();
    let done = json(place, "correct|k|1|--text|two|--by|ada");
    assert_eq!((&done["ids"], &done["corrects"]), (&json!([2]), &json!(1)));
    // What is not said is as it was.
    let got = json(place, "get|k|2");
    assert_eq!(
        (&got["tags"], &got["confidence"]),
        (&json!(["a"]), &json!(5))
    );
    for late in ["correct|k|1|--text|x", "retract|k|1"] {
        let late = memory(place, late).ends(1);
        assert!(
            late.stderr
                .contains("document 1 was corrected by 2 by ada at 20"),
            "{late:?}"
        );
    }
    for missing in [
        "correct|k|9|--text|x",
        "retract|k|9",
        "get|k|9",
        "history|k|9",
    ] {
        let missing = memory(place, missing).ends(1);
        assert!(missing.stderr.contains("has no document 9"), "{missing:?}");
    }
}

fn what_is_forgotten_is_gone(place: &Place) {
    memory(place, "add|people|--text|Ada lives at the harbour").ok();
    memory(place, "correct|people|1|--text|Ada lives at the station").ok();
    memory(place, "add|people|--text|Bob plays chess").ok();
    let before = memory(place, "forget|people|2|--all-revisions|--reason|asked").ends(3);
    assert!(
        before
            .stdout
            .contains("would forget 1, fact: Ada lives at the harbour")
    );
    assert!(before.stderr.contains("--yes"), "{before:?}");
    let done = json(
        place,
        "forget|people|2|--all-revisions|--reason|asked|--yes|--by|ada",
    );
    assert_eq!(done["ids"], json!([1, 2]));
    let gone = json(place, "search|people|ada|--as-of|1");
    assert_eq!(
        (ids(&gone["hits"]), &gone["forgotten_since"]),
        (vec![], &json!(1))
    );
    let got = memory(place, "get|people|1").ends(1);
    assert!(got.stderr.contains("forgotten by ada at"), "{got:?}");
    assert!(got.stderr.contains(": asked"), "{got:?}");
    // Again, there is nothing to do.
    for again in [
        "forget|people|1|--reason|again|--yes",
        "forget|people|2|--all-revisions|--reason|again|--yes",
    ] {
        let again = memory(place, again).ok();
        assert!(again.stdout.contains("forgotten before"), "{again:?}");
    }
    let again = json(place, "forget|people|1|2|--reason|again|--yes");
    assert_eq!(
        (&again["ids"], &again["before"], &again["version"]),
        (&json!([]), &json!([1, 2]), &done["version"])
    );
    memory(place, "forget|people|1|9|--reason|again|--yes").ends(1);
    let history = json(place, "history|people|2");
    assert_eq!(history["revisions"][0]["content"], json!(null));
    assert_eq!(ids(&json(place, "ls|people")["documents"]), [3]);
    dalsegno(place.path(), ["verify"]).ok();
}

/// Looking needs no lock; writing says who has it.
#[test]
fn beside_an_owner() {
    let place = Place::folder();
    memory(&place, "add|k|--text|the oven is hot").ok();
    let owner = Owner::start(place.path(), &["done"]);
    assert_eq!(ids(&json(&place, "search|k|oven")["hits"]), [1]);
    for look in ["ls", "ls|k", "get|k|1", "history|k", "at|k|1", "diff|k|1"] {
        memory(&place, look).ok();
    }
    let file = place.beside("k.dalsegno");
    memory(&place, &format!("export|k|{}", file.display())).ok();
    for write in [
        "add|k|--text|x",
        "correct|k|1|--text|x",
        "retract|k|1",
        "forget|k|1|--reason|x|--yes",
        &format!("import|{}", file.display()),
    ] {
        let refused = memory(&place, write).ends(1);
        let said = format!("is in use by process {} (", owner.id());
        assert!(refused.stderr.contains(&said), "{refused:?}");
        assert!(refused.stderr.contains("hint: "), "{refused:?}");
    }
    owner.close();
    memory(&place, "add|k|--text|x").ok();
}
