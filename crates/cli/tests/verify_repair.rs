//! `dalsegno verify` names damage, and `dalsegno repair` says what it will lose before it does.

#![allow(clippy::unwrap_used)]

mod common;

use common::trouble::{
    everything, flip, interrupt, large_segment, large_store, segment, without_rights,
    without_snapshots,
};
use common::{TempDir, at_once, dalsegno, run, start, stores};
use serde_json::Value;

fn sound_store() -> TempDir {
    let dir = TempDir::new();
    stores::every_state(dir.path());
    dir
}

#[test]
fn a_sound_store_is_said_to_be_and_is_not_changed() {
    let dir = sound_store();
    let before = everything(dir.path());
    let document = dalsegno(dir.path(), ["verify", "--json"]).ok().json();
    assert_eq!(document["schema"], "dalsegno.verify/1");
    assert_eq!(document["sound"], true);
    assert_eq!(document["problems"], Value::Array(Vec::new()));
    assert!(document["events"].as_u64().unwrap() > 20, "{document}");
    assert_eq!(document.get("heads"), None);
    let text = dalsegno(dir.path(), ["verify"]).ok().stdout;
    assert!(
        text.contains("sound: every byte is as it was written"),
        "{text}"
    );
    let heads = dalsegno(dir.path(), ["verify", "--heads"]).ok().stdout;
    assert!(heads.contains("  run/approval\n"), "{heads}");
    let nothing = dalsegno(dir.path(), ["repair", "--yes"]).ok().stdout;
    assert_eq!(nothing, "there is nothing to repair\n");
    dalsegno(dir.path(), ["repair", "--dry-run", "--json"]).ok();
    assert_eq!(before, everything(dir.path()), "looking changes nothing");
}

#[test]
fn damage_is_named_and_repaired_only_with_a_word() {
    let dir = sound_store();
    // In an event of the first run, which has others behind it: of the last event of a stream nobody
    // can say that it was there.
    flip(&segment(dir.path()), 900);
    without_snapshots(dir.path());
    let before = everything(dir.path());
    let document = dalsegno(dir.path(), ["verify", "--json"]).ends(4).json();
    assert_eq!(document["sound"], false);
    let place = document["problems"][0]["place"].as_str().unwrap();
    assert!(
        place.starts_with("segment 1 of the log at byte "),
        "{place}"
    );
    let text = dalsegno(dir.path(), ["verify"]).ends(4).stdout;
    assert!(
        text.contains("damaged: segment 1 of the log at byte"),
        "{text}"
    );
    assert!(text.contains("dalsegno repair --dry-run"), "{text}");

    let planned = dalsegno(dir.path(), ["repair", "--dry-run", "--json"])
        .ends(4)
        .json();
    let asked = dalsegno(dir.path(), ["repair"]).ends(3);
    assert!(asked.stdout.contains("would be lost"), "{}", asked.stdout);
    assert!(asked.stderr.contains("hint: "), "{}", asked.stderr);
    assert!(asked.stderr.contains("repair --yes"), "{}", asked.stderr);
    let asked = dalsegno(dir.path(), ["repair", "--json"]).ends(3);
    assert_eq!(asked.json_error()["exit"], 3);
    assert_eq!(before, everything(dir.path()), "nothing was changed yet");
    for command in [
        &["export", "--all", "/nowhere/x"][..],
        &["gc", "--keep", "1"],
    ] {
        dalsegno(dir.path(), command).ends(4);
    }

    let done = dalsegno(dir.path(), ["repair", "--yes", "--json"])
        .ok()
        .json();
    assert_eq!(done["sound"], true);
    assert!(done["lost_records"].as_u64().unwrap() > 0);
    assert_eq!(
        done["lost_records"], planned["lost_records"],
        "as announced"
    );
    assert_eq!(done["losses"], planned["losses"]);
    assert_eq!(done["set_aside"], planned["set_aside"]);
    let aside = done["set_aside"][0].as_str().unwrap();
    assert!(std::path::Path::new(aside).exists(), "{aside}");
    let text = dalsegno(dir.path(), ["verify"]).ok().stdout;
    assert!(text.contains("lost in a repair"), "{text}");
    dalsegno(dir.path(), ["ls"]).ok();
    let again = dalsegno(dir.path(), ["repair", "--yes"]).ok().stdout;
    assert_eq!(again, "there is nothing to repair\n");
}

/// Wherever one byte is changed, verifying says so or it is a byte that nothing reads, and no
/// command falls over it.
#[test]
fn bytes_flipped_anywhere() {
    let original = sound_store();
    for (round, (path, bytes)) in everything(original.path()).into_iter().enumerate() {
        let name = path.strip_prefix(original.path()).unwrap();
        let used = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        for part in 1..4 {
            let at = used * part / 4;
            if at >= bytes.len() {
                continue;
            }
            let dir = TempDir::new();
            let copy = dir.join("copy");
            let mut cp = std::process::Command::new("cp");
            run({
                cp.arg("-r").arg(original.path()).arg(&copy);
                cp
            })
            .ok();
            flip(&copy.join(name), at);
            let verified = dalsegno(&copy, ["verify"]);
            let known = matches!(verified.code, Some(0 | 1 | 4));
            assert!(known, "{name:?} at {at}, {round}: {verified:?}");
            assert!(
                !verified.stderr.contains("a fault of dalsegno"),
                "{verified:?}"
            );
            if verified.code == Some(4) {
                let repaired = dalsegno(&copy, ["repair", "--yes"]);
                let code = repaired.code;
                assert!(
                    matches!(code, Some(0 | 1 | 4)),
                    "{name:?} at {at}: {repaired:?}"
                );
                if code == Some(0) {
                    dalsegno(&copy, ["verify"]).ok();
                    dalsegno(&copy, ["ls"]).ok();
                }
            }
        }
    }
}

#[test]
fn beside_a_live_owner_verify_looks_and_repair_does_not_touch() {
    let dir = TempDir::new();
    common::block_on(async {
        let app = stores::app(dir.path()).await;
        app.start("writer", "signal", &"signal").await.unwrap();
        stores::settled(&app, &["signal"]).await;
        dalsegno(dir.path(), ["verify"]).ok();
        for args in [&["repair", "--yes"][..], &["repair", "--dry-run"]] {
            let ran = dalsegno(dir.path(), args).ends(1);
            let owner = format!("in use by process {}", std::process::id());
            assert!(ran.stderr.contains(&owner), "{}", ran.stderr);
        }
        app.close().await.unwrap();
    });
}

#[test]
fn no_store_empty_folder_and_no_rights_are_said() {
    let all = [
        &["verify"][..],
        &["repair", "--yes"],
        &["repair", "--dry-run"],
    ];
    let dir = TempDir::new();
    for args in all {
        let ran = dalsegno(dir.path(), args).ends(1);
        assert!(ran.stderr.contains("no store in"), "{}", ran.stderr);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
    let dir = sound_store();
    for args in all {
        let ran = without_rights(dir.path(), args).ends(1);
        assert!(ran.stderr.contains("ermission denied"), "{}", ran.stderr);
        assert!(ran.stderr.contains("hint: "), "{}", ran.stderr);
    }
}

#[test]
fn a_repair_that_was_interrupted_is_done_by_running_it_again() {
    let dir = TempDir::new();
    large_store(dir.path(), 4);
    for round in 0..3 {
        flip(&large_segment(dir.path()), (1 << 19) + round * 100_000);
        without_snapshots(dir.path());
        let mut child = start(dir.path(), ["repair", "--yes"]);
        while !dir.join("aside/damage-not-recorded.txt").exists()
            && child.try_wait().unwrap().is_none()
        {
            std::thread::yield_now();
        }
        interrupt(&child);
        child.wait().unwrap();
        dalsegno(dir.path(), ["repair", "--yes"]).ok();
        dalsegno(dir.path(), ["verify"]).ok();
    }
}

#[test]
fn two_repairs_at_once_are_one() {
    let dir = sound_store();
    flip(&segment(dir.path()), 4200);
    without_snapshots(dir.path());
    let codes = at_once(2, dir.path(), &["repair", "--yes"]);
    assert!(codes.contains(&Some(0)), "{codes:?}");
    dalsegno(dir.path(), ["verify"]).ok();
}
