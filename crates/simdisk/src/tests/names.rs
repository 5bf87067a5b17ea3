//! What a crash does to the names of files, and how names behave before it.

use super::*;

fn names(disk: &SimDisk) -> String {
    disk.files("d").join(" ")
}

/// Names with the first letter of what they lead to.
fn names_and_content(disk: &SimDisk) -> String {
    let one = |name: &String| {
        let bytes = disk.read_file(Path::new("d").join(name)).unwrap();
        format!("{name}={}", String::from_utf8(bytes).unwrap())
    };
    disk.files("d")
        .iter()
        .map(one)
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn a_synced_file_without_a_synced_name_may_vanish() {
    let disk = disk(1);
    let b = create(&disk, "b");
    b.write_full(b"x", 0).unwrap();
    b.sync().unwrap();
    assert_eq!(
        disk.unsynced(),
        Unsynced {
            entries: 1,
            ..Unsynced::default()
        }
    );
    assert_eq!(keys(&every_crash(&disk, names)), ["", "b"]);
    sync_dir(&disk).unwrap();
    assert_eq!(keys(&every_crash(&disk, names_and_content)), ["b=x"]);
}

#[test]
fn a_synced_name_does_not_save_the_content() {
    let disk = disk(1);
    create(&disk, "b").write_full(b"x", 0).unwrap();
    sync_dir(&disk).unwrap();
    assert_eq!(
        keys(&every_crash(&disk, names_and_content)),
        ["b=", "b=\0", "b=x"]
    );
}

#[test]
fn any_subset_of_the_operations_survives() {
    let disk = disk(1);
    create(&disk, "t");
    rename(&disk, "t", "s").unwrap();
    create(&disk, "u");
    let states = every_crash(&disk, names);
    // "s" comes from both operations and from the rename alone.
    assert_eq!(keys(&states), ["", "s", "s u", "t", "t u", "u"]);
    assert_eq!(states.values().sum::<u64>(), 8);
    assert_eq!(states["s"], 2);
}

#[test]
fn a_rename_replaces_at_once_or_not_at_all() {
    let disk = disk(1);
    disk.write_raw("d/old", b"1").unwrap();
    disk.write_raw("d/new", b"2").unwrap();
    rename(&disk, "new", "old").unwrap();
    assert_eq!(names_and_content(&disk), "old=2");
    assert_eq!(
        keys(&every_crash(&disk, names_and_content)),
        ["new=2 old=1", "old=2"]
    );
}

#[test]
fn a_removal_may_be_undone_until_the_folder_is_synced() {
    let disk = disk(1);
    disk.write_raw("d/b", b"1").unwrap();
    remove(&disk, "b").unwrap();
    assert_errno(disk.open(Path::new("d/b"), OpenMode::Read), errno::ENOENT);
    assert_eq!(keys(&every_crash(&disk, names_and_content)), ["", "b=1"]);
    sync_dir(&disk).unwrap();
    assert_eq!(keys(&every_crash(&disk, names_and_content)), [""]);
}

#[test]
fn a_removed_file_lives_on_in_its_handle() {
    let disk = disk(1);
    let a = file(&disk, b"abc");
    remove(&disk, "a").unwrap();
    sync_dir(&disk).unwrap();
    a.write_full(b"x", 0).unwrap();
    let mut buf = [0; 3];
    assert_eq!(a.read_full(&mut buf, 0).unwrap(), 3);
    assert_eq!(&buf, b"xbc");
    assert_eq!(disk.used(), 3);
    drop(a);
    assert_eq!(disk.used(), 0);
    sync_dir(&disk).unwrap();
    assert_eq!(disk.unsynced(), Unsynced::default());
}

#[test]
fn a_file_whose_name_is_lost_has_nothing_to_choose() {
    let disk = disk(1);
    create(&disk, "b").write_full(&sectors("xy"), 0).unwrap();
    // Lost, or the old length, or the new one with four contents.
    let mut every = Enumerate::new(100);
    while {
        survivor(&disk, &mut every);
        every.next_combination()
    } {}
    assert_eq!((every.seen(), every.exhausted()), (6, true));
}

#[test]
fn opening_follows_the_mode() {
    let disk = disk(1);
    let path = Path::new("d/a");
    assert_errno(disk.open(path, OpenMode::Read), errno::ENOENT);
    assert_errno(disk.open(path, OpenMode::Write), errno::ENOENT);
    drop(create(&disk, "a"));
    assert_errno(disk.open(path, OpenMode::CreateNew), errno::EEXIST);
    let reader = disk.open(path, OpenMode::Read).unwrap();
    assert_errno(reader.write_at(b"x", 0), errno::EBADF);
    assert_errno(reader.truncate(0), errno::EBADF);
    reader.sync().unwrap();
    assert_errno(
        disk.open(Path::new("e/a"), OpenMode::CreateNew),
        errno::ENOENT,
    );
    assert_errno(disk.rename(path, Path::new("e/a")), errno::EXDEV);
    assert_errno(rename(&disk, "x", "y"), errno::ENOENT);
    assert_errno(remove(&disk, "x"), errno::ENOENT);
    assert_errno(disk.list(Path::new("e")), errno::ENOENT);
    assert_errno(disk.sync_dir(Path::new("e")), errno::ENOENT);
}

#[test]
fn folders_and_their_parents_are_durable_at_once() {
    let disk = disk(1);
    disk.create_dir(Path::new("/x/y/z")).unwrap();
    disk.reboot(&mut LoseAll);
    for dir in ["/", "/x", "/x/y", "/x/y/z"] {
        assert!(disk.list(Path::new(dir)).unwrap().is_empty());
    }
}

#[test]
fn a_lock_has_one_holder_until_it_is_dropped() {
    let disk = disk(1);
    let path = Path::new("d/LOCK");
    let guard = disk.lock(path, "me").unwrap();
    match disk.lock(path, "you") {
        Err(LockError::Held(owner)) => assert_eq!(owner, "me"),
        other => panic!("{other:?}"),
    }
    assert_eq!(disk.list(Path::new("d")).unwrap(), ["LOCK"]);
    drop(guard);
    let second = disk.lock(path, "you").unwrap();
    assert_eq!(disk.read_file(path).unwrap(), b"you");
    disk.reboot(&mut LoseAll);
    let _third = disk.lock(path, "they").unwrap();
    // The guard of an earlier life does not release the present holder's lock.
    drop(second);
    assert!(matches!(disk.lock(path, "x"), Err(LockError::Held(_))));
    disk.restart_process();
    assert!(disk.lock(path, "x").is_ok());
}
