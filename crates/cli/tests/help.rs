//! The help of every command is as its snapshot in `tests/help` says.
//!
//! `DALSEGNO_UPDATE_HELP=1 cargo test -p dalsegno-cli --test help` writes the snapshots anew.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use common::{command, run};

fn help(args: &[&str]) -> String {
    let mut command = command();
    command.args(args);
    run(command).ok().stdout
}

/// The commands, as a help lists them; none if it lists none.
fn commands(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let named = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = named.map(|line| line.split_whitespace().next().unwrap().to_owned());
    names.filter(|name| name != "help").collect()
}

fn snapshots() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help")
}

#[test]
fn help_is_as_it_was() {
    let update = std::env::var_os("DALSEGNO_UPDATE_HELP").is_some();
    let mut wanted = vec![("dalsegno".to_owned(), help(&["--help"]))];
    for command in commands(&wanted[0].1) {
        let text = help(&[&command, "--help"]);
        for inner in commands(&text) {
            let text = help(&[&command, &inner, "--help"]);
            wanted.push((format!("{command}-{inner}"), text));
        }
        wanted.push((command, text));
    }
    assert!(wanted.len() > 1, "there are commands");
    for (name, text) in &wanted {
        let file = snapshots().join(format!("{name}.txt"));
        if update {
            std::fs::write(&file, text).unwrap();
        }
        let there = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            there == *text,
            "the help of {name} has changed: look at it, then set DALSEGNO_UPDATE_HELP=1\n{text}"
        );
    }
    let files = std::fs::read_dir(snapshots()).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<_> = wanted
        .iter()
        .map(|(name, _)| format!("{name}.txt"))
        .collect();
    assert_eq!(
        files.collect::<BTreeSet<_>>(),
        names,
        "one snapshot a command"
    );
}
