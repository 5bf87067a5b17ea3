//! `dalsegno diff` finds where two runs first differ.

mod common;

use common::{TempDir, dalsegno, stores};

#[test]
fn the_same_and_not_the_same() {
    let dir = TempDir::new();
    stores::every_state(dir.path());
    let other = TempDir::new();
    stores::every_state(other.path());
    let same = dalsegno(dir.path(), ["diff", "done", "done", "--json"])
        .ok()
        .json();
    assert_eq!(same["schema"], "dalsegno.diff/1");
    assert_eq!(
        (&same["same"], &same["same_steps"]),
        (&true.into(), &1.into())
    );

    let mut args = vec!["diff", "signal", "signal", "--other-store"];
    let path = other.path().display().to_string();
    args.push(&path);
    let text = dalsegno(dir.path(), args).ok().stdout;
    assert_eq!(text, "the same: 1 steps and the end\n");

    let found = dalsegno(dir.path(), ["diff", "done", "fail", "--json"])
        .ends(1)
        .json();
    let difference = &found["difference"];
    assert_eq!(difference["kind"], "run-input");
    assert_eq!(difference["left"]["what"], "given \"done\"");
    assert_eq!(difference["right"]["what"], "given \"fail\"");
    let text = dalsegno(dir.path(), ["diff", "done", "fail"])
        .ends(1)
        .stdout;
    assert!(text.contains("- done: given \"done\""), "{text}");
    assert!(text.contains("+ fail: given \"fail\""), "{text}");
    let ran = dalsegno(dir.path(), ["diff", "done", "don"]).ends(1);
    assert!(
        ran.stderr.contains("did you mean \"done\"?"),
        "{}",
        ran.stderr
    );
}
