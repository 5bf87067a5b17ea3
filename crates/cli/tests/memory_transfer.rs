//! `dalsegno memory export` and `import`: in another store it is the same memory, to the last bit.

#![allow(clippy::unwrap_used)]

mod common;

use std::process::Stdio;

use common::places::Place;
use common::{Ran, command, dalsegno, run, stores};
use serde_json::Value;

const PLACES: [fn() -> Place; 2] = [Place::folder, Place::database];

fn memory(place: &Place, words: &str) -> Ran {
    dalsegno(place.path(), ["memory"].into_iter().chain(words.split('|')))
}

/// A history with everything in it: vectors, corrections, retractions, forgetting.
fn make(place: &Place) {
    let model = common::models::table(place.beside("models").as_path(), "tiny", 4);
    let model = model.display();
    for text in [
        "a red apple",
        "a green pear",
        "an old car",
        "a new truck",
        "apple pie",
    ] {
        memory(
            place,
            &format!("add|k|--text|{text}|--model|{model}|--tag|t"),
        )
        .ok();
    }
    memory(
        place,
        &format!("correct|k|2|--text|a ripe pear|--model|{model}"),
    )
    .ok();
    memory(place, "retract|k|3|--reason|sold").ok();
    memory(place, "forget|k|5|--reason|asked|--yes").ok();
    memory(place, "add|k|--text|words only|--no-vectors").ok();
}

/// All answers, at every version: ids, order, scores, and the hash over them.
fn answers(place: &Place, model: &Place) -> Vec<Value> {
    let model = model.beside("models").join("tiny");
    let model = model.display();
    let mut all = Vec::new();
    for version in [1, 4, 6, 9] {
        for query in [
            "apple|--no-vectors".to_owned(),
            format!("fruit apple|--model|{model}"),
        ] {
            let words = format!("search|k|{query}|--as-of|{version}|--explain|--json");
            all.push(memory(place, &words).ok().json());
        }
        all.push(memory(place, &format!("at|k|{version}|--json")).ok().json());
    }
    all.push(memory(place, "history|k|--limit|0|--json").ok().json());
    all
}

#[test]
fn from_everywhere_to_everywhere() {
    for from in PLACES {
        let from = from();
        make(&from);
        let wanted = answers(&from, &from);
        assert!(
            wanted
                .iter()
                .any(|answer| answer["hits"][0]["explanation"]["vector"]["dot"] != 0)
        );
        let file = from.beside("k.dalsegno");
        let file = file.to_str().unwrap();
        let exported = memory(&from, &format!("export|k|{file}|--json"))
            .ok()
            .json();
        assert_eq!(exported["schema"], "dalsegno.export/1");
        assert_eq!(exported["streams"][0]["stream"], "memory/k");
        dalsegno(from.path(), ["verify", file]).ok();
        memory(&from, &format!("export|k|{file}")).ends(1);
        memory(&from, &format!("export|k|{file}|--force")).ok();
        for to in PLACES {
            let to = to();
            memory(&to, &format!("import|{file}")).ends(1);
            let imported = memory(&to, &format!("import|--create|{file}|--json"));
            assert_eq!(imported.ok().json()["imported"][0]["stream"], "memory/k");
            assert_eq!(answers(&to, &from), wanted);
            // Again there is nothing to do; and the copy goes on from there.
            assert_eq!(
                memory(&to, &format!("import|{file}|--json")).ok().json()["events"],
                0
            );
            memory(&to, "add|k|--text|more|--no-vectors").ok();
            assert_eq!(answers(&to, &from)[..12], wanted[..12]);
            // What went on in both places is two histories, and neither is overwritten.
            let back = to.beside("back.dalsegno");
            memory(&to, &format!("export|k|{}", back.display())).ok();
            let third = Place::folder();
            memory(&third, &format!("import|--create|{file}")).ok();
            memory(&third, "add|k|--text|other|--no-vectors").ok();
            let refused = memory(&third, &format!("import|{}", back.display())).ends(1);
            assert!(refused.stderr.contains("history"), "{refused:?}");
        }
    }
}

#[test]
fn another_name_and_a_pipe() {
    let (from, to) = (Place::folder(), Place::folder());
    make(&from);
    let mut export = command();
    export
        .arg("--store")
        .arg(from.path())
        .args(["memory", "export", "k", "-"]);
    let mut export = export.stdout(Stdio::piped()).spawn().unwrap();
    let mut import = command();
    import.arg("--store").arg(to.path());
    import.args(["memory", "import", "-", "--create", "--as", "kitchen"]);
    import.stdin(export.stdout.take().unwrap());
    let imported = run(import).ok().stdout;
    assert!(
        imported.contains("imported memory/kitchen, up to event 9"),
        "{imported}"
    );
    assert!(export.wait().unwrap().success());
    // The name is part of the hashes, and of no score.
    let hits = |place: &Place, name: &str| {
        let found = memory(place, &format!("search|{name}|apple|--json"))
            .ok()
            .json();
        found["hits"].clone()
    };
    assert_eq!(hits(&from, "k"), hits(&to, "kitchen"));
    dalsegno(to.path(), ["verify"]).ok();
}

#[test]
fn what_is_no_memory_is_refused() {
    let place = Place::folder();
    stores::every_state(place.path());
    let file = place.beside("run.dalsegno");
    let file = file.to_str().unwrap();
    dalsegno(place.path(), ["export", "done", file]).ok();
    let refused = memory(&place, &format!("import|{file}")).ends(1);
    assert!(
        refused
            .stderr
            .contains("run/done in it, which is no memory"),
        "{refused:?}"
    );
    memory(&place, &format!("export|nothing|{file}|--force")).ends(1);
    let mut damaged = std::fs::read(file).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(file, damaged).unwrap();
    memory(&place, &format!("import|{file}")).ends(4);
    memory(&place, "import|/nowhere/x").ends(1);
}
