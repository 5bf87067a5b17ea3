//! The page of the command against what the command prints: the names of every document are those
//! that are documented, no more and no fewer.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod scripts;

use std::collections::BTreeSet;

use common::{Ran, TempDir, dalsegno, stores};
use scripts::Scripts;
use serde_json::Value;

const PAGE: &str = include_str!("../../../docs/cli.md");

type Names = BTreeSet<String>;

/// The part of the page that begins with the heading which names this schema.
fn section(schema: &str) -> &'static str {
    let named = format!("`{schema}`");
    let begins = |part: &&str| part.lines().next().unwrap().contains(&named);
    PAGE.split("\n### ")
        .find(begins)
        .unwrap_or_else(|| panic!("{schema} is not on the page"))
}

fn in_backticks(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The names in the first columns of its tables with the head `name`, each up to its first point.
fn documented(schema: &str) -> Names {
    let mut names = Names::new();
    let mut is_in = false;
    for line in section(schema).lines() {
        let Some(cells) = line.strip_prefix('|') else {
            is_in = false;
            continue;
        };
        let first = cells.split('|').next().unwrap().trim();
        is_in |= first == "name";
        if is_in {
            let own = in_backticks(first).filter(|name| !name.starts_with('.'));
            names.extend(own.map(|name| name.split(['.', '[']).next().unwrap().to_owned()));
        }
    }
    names
}

/// The names of the documents that were printed, all of them of this schema.
fn printed(schema: &str, ran: &[Ran]) -> Names {
    let mut names = Names::new();
    for line in ran.iter().flat_map(|ran| ran.stdout.lines()) {
        names.extend(names_of(schema, line));
    }
    names
}

fn names_of(schema: &str, line: &str) -> Names {
    let document: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    assert_eq!(document["schema"], schema, "{line}");
    let names = document.as_object().unwrap().keys();
    names.filter(|name| *name != "schema").cloned().collect()
}

#[track_caller]
fn same(schema: &str, ran: &[Ran]) {
    assert_eq!(printed(schema, ran), documented(schema), "{schema}");
}

/// Documents that are described in a sentence.
#[track_caller]
fn told(schema: &str, heading: &str, ran: &Ran) {
    let words: Names = in_backticks(section(heading)).map(str::to_owned).collect();
    let missing: Vec<_> = printed(schema, std::slice::from_ref(ran))
        .difference(&words)
        .cloned()
        .collect();
    assert!(missing.is_empty(), "{schema}: {missing:?}");
}

#[test]
fn what_looks_at_a_store() {
    let dir = TempDir::new();
    let store = dir.join("store");
    stores::every_state(&store);
    let say = |words: &str| dalsegno(&store, words.split(' ').chain(["--json"]));
    same("dalsegno.ls/1", &[say("ls")]);
    same(
        "dalsegno.show/1",
        &[say("show done"), say("show done --events")],
    );
    same("dalsegno.why/1", &[say("why done"), say("why approval")]);
    same(
        "dalsegno.diff/1",
        &[say("diff done fail"), say("diff done done")],
    );
    same("dalsegno.recover/1", &[say("recover --dry-run")]);
    same("dalsegno.doctor/1", &[say("doctor")]);
    same("dalsegno.verify/1", &[say("verify"), say("verify --heads")]);
    same("dalsegno.repair/1", &[say("repair --dry-run")]);
    same("dalsegno.gc/1", &[say("gc --keep 0 --dry-run")]);
    same(
        "dalsegno.order/1",
        &[say("approve approval"), say("signal signal go 1")],
    );
    same("dalsegno.recover/1", &[say("recover")]);
    same(
        "dalsegno.snapshot/1",
        &[say("snapshot --pin"), say("snapshot --list")],
    );
    same("dalsegno.fork/1", &[say("fork done --at 2")]);
    same("dalsegno.gc/1", &[say("gc --keep 0")]);

    let error = say("show nobody").ends(1).json_error();
    let names: Names = error.as_object().unwrap().keys().cloned().collect();
    let all = ["schema", "error", "hint", "exit"].map(str::to_owned);
    assert_eq!(names, Names::from(all));
}

#[test]
fn events_that_are_followed() {
    let dir = TempDir::new();
    let store = dir.join("store");
    stores::every_state(&store);
    let ran = dalsegno(&store, ["tail", "done", "--from", "1", "--json"]).ok();
    let page = section("dalsegno.show/1");
    let (_, event) = page.split_once("An *event* is").unwrap();
    let (event, _) = event.split_once("\n\n").unwrap();
    let mut names: Names = in_backticks(event)
        .filter(|name| !name.contains('-'))
        .map(str::to_owned)
        .collect();
    names.extend(["run", "position"].map(str::to_owned));
    assert_eq!(printed("dalsegno.event/1", &[ran]), names);
}

#[test]
fn files_and_copies() {
    let dir = TempDir::new();
    let store = dir.join("store");
    stores::every_state(&store);
    let file = dir.join("all.dalsegno");
    let (file, copy) = (file.to_str().unwrap(), dir.join("copy"));
    let export = dalsegno(&store, ["export", "--all", file, "--json"]).ok();
    let import = ["import", "--create", file, "--json"];
    let import = dalsegno(&dir.join("other"), import).ok();
    let mut both = printed("dalsegno.export/1", &[export]);
    both.extend(printed("dalsegno.import/1", &[import]));
    assert_eq!(both, documented("dalsegno.export/1"));
    let copied = dalsegno(&store, ["snapshot", copy.to_str().unwrap(), "--json"]).ok();
    told("dalsegno.snapshot-copy/1", "dalsegno.snapshot/1", &copied);
}

#[test]
fn what_a_memory_says() {
    let dir = TempDir::new();
    let (store, file) = (dir.join("store"), dir.join("a.md"));
    std::fs::write(&file, "# A\n\ntext").unwrap();
    let file = file.to_str().unwrap();
    let say = |words: &str| {
        dalsegno(
            &store,
            ["memory"]
                .into_iter()
                .chain(words.split(' '))
                .chain(["--json"]),
        )
    };
    let files = say(&format!("add k {file}"));
    same("dalsegno.memory-add/1", &[files, say("add k --text oven")]);
    same("dalsegno.memory-ls/1", &[say("ls")]);
    same("dalsegno.memory-documents/1", &[say("ls k"), say("at k 1")]);
    same("dalsegno.memory-get/1", &[say("get k 1")]);
    let search = say("search k oven --explain");
    let hit = search.json()["hits"][0].clone();
    let words: Names = in_backticks(section("dalsegno.memory-search/1"))
        .chain(in_backticks(section("dalsegno.memory-get/1")))
        .map(|name| {
            name.rsplit('.')
                .next()
                .unwrap()
                .trim_end_matches("[]")
                .to_owned()
        })
        .collect();
    let explained = hit["explanation"]["words"].as_object().unwrap().keys();
    for name in hit.as_object().unwrap().keys().chain(explained) {
        assert!(words.contains(name), "{name}");
    }
    same("dalsegno.memory-search/1", &[search]);
    let correct = say("correct k 2 --text stove");
    same("dalsegno.memory-history/1", &[say("history k")]);
    same("dalsegno.memory-revisions/1", &[say("history k 2")]);
    same("dalsegno.memory-diff/1", &[say("diff k 1")]);
    let forget = [
        say("forget k 2 --reason x"),
        say("forget k 2 --reason x --yes"),
    ];
    same("dalsegno.memory-change/1", &[correct, say("retract k 1")]);
    same("dalsegno.memory-change/1", &forget);
}

#[test]
fn steps_of_scripts() {
    let scripts = Scripts::new();
    let step = |name, script| scripts.step("r", name, &["--json"], script).ok();
    same(
        "dalsegno.step/1",
        &[
            step("text", "echo out; echo err >&2"),
            step("bytes", r"printf '\377'; printf '\376' >&2"),
        ],
    );
    let ended = common::run(scripts.command(&["end", "--run", "r", "--json"])).ok();
    told("dalsegno.end/1", "dalsegno.end/1", &ended);
    let mut exec = scripts.command(&["exec", "--json", "--backoff", "1ms", "--max-restarts", "1"]);
    exec.args(["--", "false"]);
    let exec = common::run(exec).ends(1);
    let lines = exec.stderr.lines();
    let names: Names = lines
        .flat_map(|line| names_of("dalsegno.exec/1", line))
        .collect();
    assert_eq!(names, documented("dalsegno.exec/1"));
}

#[test]
fn what_the_demo_tells() {
    let ran = common::run({
        let mut command = common::command();
        command.args(["demo", "--at", "10", "--no-probe", "--json"]);
        command
    });
    for line in ran.ok().stdout.lines() {
        let mut names = names_of("dalsegno.demo/1", line);
        names.remove("event");
        let document: Value = serde_json::from_str(line).unwrap();
        let row = format!("| `{}` |", document["event"].as_str().unwrap());
        let rows = section("dalsegno.demo/1").lines();
        let row = rows.clone().find(|line| line.starts_with(&row));
        let row = row.unwrap_or_else(|| panic!("{line} is not on the page"));
        let mut words: Names = in_backticks(row).map(str::to_owned).collect();
        if row.contains("a step,") {
            words.extend(["step", "id", "number"].map(str::to_owned));
        }
        let missing: Vec<_> = names.difference(&words).collect();
        assert!(missing.is_empty(), "{missing:?} of {line}");
    }
}
