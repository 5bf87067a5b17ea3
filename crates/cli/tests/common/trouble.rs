//! What a machine can do to a command: a full disk, a user without rights, a signal, flipped bytes.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Ran, TempDir, command, run};

/// A command that runs with a disk of `size` (as in "1m") mounted at a folder. What is on that
/// disk when it has ended is printed on stderr, a path a line, behind a line `left:`.
///
/// # Panics
/// If no such disk can be had: a test that needs one must not pass without it.
pub fn on_small_disk(mount_point: &Path, size: &str, args: &[&str]) -> Ran {
    on_small_disk_then(mount_point, size, &["--version"], args)
}

/// The same with a command before, which must work.
///
/// # Panics
/// As [`on_small_disk`].
pub fn on_small_disk_then(mount_point: &Path, size: &str, first: &[&str], args: &[&str]) -> Ran {
    const SCRIPT: &str = r#"
        mount -t tmpfs -o size="$2",mode=700 dalsegno-test "$1"
        place="$1"; dalsegno="$3"; count="$4"; shift 4; code=0
        while [ "$count" -gt 0 ]; do first="${first-} '$1'"; shift; count=$((count - 1)); done
        eval "'$dalsegno' $first"
        "$dalsegno" "$@" || code=$?
        echo left: >&2; find "$place" -mindepth 1 >&2
        exit $code"#;
    for namespace in [&["--mount"][..], &["--mount", "--map-root-user"]] {
        let can = Command::new("unshare")
            .args(namespace)
            .args(["sh", "-euc", r#"mount -t tmpfs t "$1""#, "sh"])
            .arg(mount_point)
            .output();
        if can.is_ok_and(|can| can.status.success()) {
            let mut unshare = Command::new("unshare");
            unshare.args(namespace).args(["sh", "-euc", SCRIPT, "sh"]);
            unshare.arg(mount_point).arg(size);
            unshare
                .arg(command().get_program())
                .arg(first.len().to_string());
            unshare.args(first).args(args);
            unshare.env_remove("DALSEGNO_STORE").stdin(Stdio::null());
            return run(unshare);
        }
    }
    panic!("this test needs a small disk of its own: run it as root, or allow user namespaces");
}

/// What was left on the small disk.
pub fn left(ran: &Ran) -> Vec<&str> {
    let lines = ran.stderr.lines().skip_while(|line| *line != "left:");
    lines.skip(1).collect()
}

/// Runs a command as a user who may not enter the store's folder.
pub fn without_rights(store: &Path, args: &[&str]) -> Ran {
    let is_root = rustix::process::geteuid().is_root();
    // The target folder may be in a home that others may not enter.
    let place = TempDir::new();
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let binary = place.join("dalsegno");
    std::fs::copy(command().get_program(), &binary).unwrap();
    std::fs::set_permissions(&binary, PermissionsExt::from_mode(0o755)).unwrap();
    let mode = if is_root { 0o700 } else { 0o000 };
    std::fs::set_permissions(store, PermissionsExt::from_mode(mode)).unwrap();
    let mut command = match is_root {
        true => {
            let mut setpriv = Command::new("setpriv");
            setpriv.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
            setpriv.arg(&binary);
            setpriv
        }
        false => Command::new(&binary),
    };
    command.env_remove("DALSEGNO_STORE").stdin(Stdio::null());
    let ran = run({
        command.arg("--store").arg(store).args(args);
        command
    });
    std::fs::set_permissions(store, PermissionsExt::from_mode(0o700)).unwrap();
    ran
}

/// Sends a signal as Ctrl-C does.
pub fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

/// Changes bytes of a file.
pub fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x55;
    std::fs::write(path, bytes).unwrap();
}

/// The first segment of a store's log.
pub fn segment(store: &Path) -> PathBuf {
    store.join("log/0000000000000001.seg")
}

/// The second one, which has what [`large_store`] writes: it did not fit into the first.
pub fn large_segment(store: &Path) -> PathBuf {
    store.join("log/0000000000000002.seg")
}

/// Takes away what would let a damage be passed over.
pub fn without_snapshots(store: &Path) {
    for snapshot in std::fs::read_dir(store.join("snapshots")).unwrap() {
        std::fs::remove_file(snapshot.unwrap().path()).unwrap();
    }
}

/// All files below a folder, with their bytes.
pub fn everything(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut ahead = vec![dir.to_owned()];
    while let Some(path) = ahead.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap();
            ahead.extend(entries.map(|entry| entry.unwrap().path()));
        } else {
            found.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// A store with a run of so many bytes that cannot be compressed.
pub fn large_store(store: &Path, megabytes: u64) {
    use dalsegno_store::{Append, Kind, LocalStore, NewEvent, NewPayload, Store, StreamId};
    super::block_on(async {
        let local = LocalStore::open(store).unwrap();
        let id = StreamId::run("large").unwrap();
        let created = NewEvent::new(Kind::RunCreated);
        local
            .append(vec![Append::to(id.clone(), vec![created])])
            .await
            .unwrap();
        let mut number = 1_u64;
        for _ in 0..megabytes {
            let random = std::iter::repeat_with(|| {
                number ^= number << 13;
                number ^= number >> 7;
                number ^= number << 17;
                number.to_le_bytes()
            });
            let bytes: Vec<u8> = random.take(1 << 17).flatten().collect();
            let event = NewEvent::new(Kind::User("blob".into()));
            let event = event.with_input(NewPayload::new("x/y", bytes));
            local
                .append(vec![Append::to(id.clone(), vec![event])])
                .await
                .unwrap();
        }
        local
            .append(vec![Append::to(
                id,
                vec![NewEvent::new(Kind::RunCompleted)],
            )])
            .await
            .unwrap();
        local.close().unwrap();
    });
}
