//! Snapshots roll: current, previous, and recovery points that a person pinned. A damaged one is
//! passed over for the one before, then for the whole log, and that is said.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod local;

use std::time::Duration;

use dalsegno_store::{Kind, LocalStore, SnapshotRole, Store, StreamId};
use local::*;

fn roles(store: &LocalStore) -> Vec<(u64, SnapshotRole)> {
    let infos = store.snapshots().unwrap();
    infos.iter().map(|s| (s.position, s.role)).collect()
}

#[test]
fn the_two_newest_and_the_pinned_ones_are_kept() {
    use SnapshotRole::{Current, Previous, Recovery};
    let folder = Folder::new("points");
    let store = small().open(folder.path()).unwrap();
    let id = run("r");
    append(&store, &id, Kind::RunCreated).unwrap();
    let pinned = store.snapshot(true).unwrap();
    assert_eq!((pinned.position, pinned.role), (1, Recovery));
    for _ in 0..3 {
        append(&store, &id, Kind::StepIntended).unwrap();
        assert_eq!(store.snapshot(false).unwrap().role, Current);
    }
    let expected = vec![(4, Current), (3, Previous), (1, Recovery)];
    assert_eq!(roles(&store), expected);
    store.close().unwrap();
    let store = small().open(folder.path()).unwrap();
    assert_eq!(roles(&store), expected);
    let digest = store.state_digest();
    store.close().unwrap();
    // Each in turn takes over from the one that is damaged.
    let mut said = 0;
    for file in [
        "00000000000000000004.snapshot",
        "00000000000000000003.snapshot",
    ] {
        let path = folder.path().join("snapshots").join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[60] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        said += 1;
        let view = small().open_read_only(folder.path()).unwrap();
        assert_eq!(view.opened().notices.len(), said, "{:?}", view.opened());
        assert!(view.opened().notices[said - 1].contains(file));
        assert_eq!(view.state_digest(), digest);
    }
    let view = small().open_read_only(folder.path()).unwrap();
    assert_eq!(view.opened().snapshot, Some(1));
    assert_eq!(view.opened().replayed, 3);
    let store = small().open(folder.path()).unwrap();
    assert!(store.unpin(1).unwrap());
    assert!(!store.unpin(1).unwrap());
    // It is in the recovery log what was found.
    let own = now(store.read(&StreamId::store(), 1, 10)).unwrap();
    assert_eq!(own[0].event.kind, Kind::StoreRecovered);
}

#[test]
fn a_snapshot_comes_by_size_by_time_at_a_seal_and_when_closing() {
    let folder = Folder::new("points-when");
    let options = small().snapshot_bytes(4 << 10);
    let store = options.open(folder.path()).unwrap();
    steps(&store, &run("r"), 10, 900);
    let by_size = store.snapshots().unwrap();
    assert!(!by_size.is_empty());
    store.close().unwrap();
    let options = small().snapshot_every(Duration::ZERO);
    let store = options.open(folder.path()).unwrap();
    let closed_at = now(store.position()).unwrap();
    assert_eq!(store.snapshots().unwrap()[0].position, closed_at);
    steps(&store, &run("by time"), 4, 900);
    let by_time = store.snapshots().unwrap()[0].position;
    assert!(by_time > closed_at);
    append(&store, &run("by time"), Kind::StepIntended).unwrap();
    store.seal().unwrap();
    let at_seal = store.snapshots().unwrap()[0].position;
    assert_eq!(at_seal, now(store.position()).unwrap());
}
