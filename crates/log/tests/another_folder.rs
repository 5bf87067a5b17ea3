//! A log opened by a relative path stays where it is when the process goes elsewhere.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use dalsegno_log::{Log, Options};

fn records(dir: &str) -> u64 {
    let report = dalsegno_log::verify(dir).unwrap();
    assert!(report.is_sound(), "{report:?}");
    report.records
}

// Alone in its file: the current folder belongs to the whole process.
#[test]
fn a_relative_path_means_the_folder_it_meant_at_opening() {
    let root =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cwd-{}", std::process::id()));
    let options = Options::new().segment_bytes(2048);
    for name in ["here", "there"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
        let log = options.open(root.join(name).join("my.log")).unwrap();
        log.append(name).unwrap();
        log.seal().unwrap();
        log.append(name).unwrap();
        log.close().unwrap();
    }
    std::env::set_current_dir(root.join("here")).unwrap();
    let log: Log = options.open("my.log").unwrap();
    let view = options.open_read_only("my.log").unwrap();
    std::env::set_current_dir(root.join("there")).unwrap();
    for _ in 0..20 {
        log.append(b"and more").unwrap();
        log.seal().unwrap();
    }
    log.drop_before(3).unwrap();
    log.close().unwrap();
    assert_eq!(view.refresh().unwrap(), 22);
    assert_eq!(records("my.log"), 2);
    assert_eq!(records("../here/my.log"), 21);
}
