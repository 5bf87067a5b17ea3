//! `dalsegno completions` and `dalsegno man` are made of the same words as the help.

#![allow(clippy::unwrap_used)]

mod common;

use common::{TempDir, command, run};

fn ran(args: &[&str]) -> common::Ran {
    let mut command = command();
    command.args(args);
    run(command)
}

#[test]
fn every_shell_has_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = ran(&["completions", shell]).ok().stdout;
        assert!(script.contains("dalsegno"), "{shell}");
        assert!(script.contains("approve"), "{shell}");
        assert!(script.contains("retract"), "{shell}: commands of commands");
    }
    ran(&["completions", "tcsh"]).ends(2);
}

#[test]
fn every_command_has_its_page() {
    let page = ran(&["man"]).ok().stdout;
    assert!(page.contains(".TH dalsegno 1"), "{page}");
    let page = ran(&["man", "approve"]).ok().stdout;
    assert!(page.contains("dalsegno approve order\\-42"), "{page}");
    let wrong = ran(&["man", "aprove"]).ends(2);
    assert!(wrong.stderr.contains("did you mean \"approve\"?"));
    let dir = TempDir::new();
    let pages = dir.join("man1");
    ran(&["man", "--dir", &pages.display().to_string()]).ok();
    assert!(pages.join("dalsegno.1").is_file());
    assert!(pages.join("dalsegno-resolve.1").is_file());
    assert!(pages.join("dalsegno-memory-search.1").is_file());
    let page = ran(&["man", "memory-search"]).ok().stdout;
    assert!(page.contains("dalsegno memory search handbook"), "{page}");
}
