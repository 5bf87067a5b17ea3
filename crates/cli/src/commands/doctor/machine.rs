//! What the machine can do: write, sync, have room.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Resource;

use super::Check;
use crate::interrupt::{self, HalfMade};
use crate::output::{size, text::shown, time};

/// Syncs that are measured; their median counts.
const SYNCS: usize = 9;
/// As a small step writes.
const WRITE_BYTES: usize = 512;
/// Steps that have to be durable become slow.
const SLOW: Duration = Duration::from_millis(25);
/// No disk is so fast; memory is, and so is a sync that was switched off.
const TOO_FAST: Duration = Duration::from_micros(3);
/// A segment being written, the next one made ahead, and one being rewritten.
const SEGMENTS_BYTES: u64 = 3 * (16 << 20);
const LITTLE_BYTES: u64 = 1 << 30;

/// All of these checks.
pub fn checks(dir: &Path) -> Vec<Check> {
    let mut checks = probe(dir);
    checks.push(space(dir));
    checks.push(file_system(dir));
    checks.push(permissions(dir));
    checks.push(open_files());
    checks
}

/// Whether the folder can be written, and how long a sync takes.
fn probe(dir: &Path) -> Vec<Check> {
    interrupt::watch();
    let path = dir.join(format!("doctor-{}.tmp", std::process::id()));
    let half_made = HalfMade::new(&path);
    let measured = measure(&path);
    drop(half_made);
    let mut times = match measured {
        Ok(times) => times,
        Err(e) => {
            let to_do = match e.kind() {
                io::ErrorKind::PermissionDenied => "run this as the user that the store belongs to",
                io::ErrorKind::StorageFull => "make room on this disk",
                io::ErrorKind::ReadOnlyFilesystem => "mount the disk for writing",
                _ => "look to the disk",
            };
            let found = format!("cannot write in the folder: {e}");
            return vec![Check::bad("writable", found, to_do)];
        }
    };
    times.sort_unstable();
    let median = times[times.len() / 2];
    let slowest = times[times.len() - 1];
    let took = |time: Duration| time::span(time.as_micros() as u64);
    let found = format!("{} in the median, {} at most", took(median), took(slowest));
    let sync = match () {
        () if median > SLOW => Check::warn(
            "sync",
            format!("{found}; below {} is expected", took(SLOW)),
            "every effect waits for one or two syncs: use a local SSD, or write less beside",
        ),
        () if median < TOO_FAST => Check::warn(
            "sync",
            format!("{found}; no disk is so fast"),
            "a power cut may take what was synced: see that the disk is real and syncs are not \
             switched off",
        ),
        () => Check::ok("sync", found),
    };
    vec![
        Check::ok("writable", "a file was made, written, synced and removed"),
        sync,
    ]
}

fn measure(path: &Path) -> io::Result<Vec<Duration>> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let mut times = Vec::new();
    // The first one makes the file's length durable, too, and does not count.
    for round in 0..=SYNCS {
        let began = Instant::now();
        file.write_all(&[round as u8; WRITE_BYTES])?;
        file.sync_data()?;
        if round > 0 {
            times.push(began.elapsed());
        }
    }
    Ok(times)
}

fn space(dir: &Path) -> Check {
    let found = match rustix::fs::statvfs(dir) {
        Ok(found) => found,
        Err(e) => return Check::warn("space", format!("not known: {e}"), "look with df"),
    };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let all = found.f_blocks.saturating_mul(found.f_frsize);
    let text = format!("{} free of {}", size::bytes(free), size::bytes(all));
    // Some file systems have no limit, and say 0 of 0.
    if found.f_files > 0 && found.f_favail < 100 {
        let text = format!("{text}, but room for {} more files", found.f_favail);
        return Check::bad("space", text, "remove files from this disk");
    }
    match free {
        0..SEGMENTS_BYTES => Check::bad("space", text, "make room: appends will stop"),
        SEGMENTS_BYTES..LITTLE_BYTES => Check::warn(
            "space",
            text,
            "make room, or let old runs go with `dalsegno gc`",
        ),
        _ => Check::ok("space", text),
    }
}

fn file_system(dir: &Path) -> Check {
    let kind = match rustix::fs::statfs(dir) {
        Ok(found) => found.f_type as u64 & 0xffff_ffff,
        Err(e) => return Check::warn("file system", format!("not known: {e}"), "look with df -T"),
    };
    const NETWORK: &str =
        "locks and syncs over a network are not to be relied on: use a local disk";
    match kind {
        0x6969 => Check::warn("file system", "nfs", NETWORK),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => Check::warn("file system", "smb", NETWORK),
        0x00c3_6400 => Check::warn("file system", "ceph", NETWORK),
        0x0102_1997 => Check::warn("file system", "9p", NETWORK),
        0x6573_5546 => Check::warn(
            "file system",
            "fuse",
            "what a sync does depends on the program behind it: use a local disk",
        ),
        0x0102_1994 | 0x8584_58f6 => Check::warn(
            "file system",
            "in memory (tmpfs)",
            "all is gone when the machine restarts: use a disk",
        ),
        0x794c_7630 => Check::warn(
            "file system",
            "overlay, a container's own layer",
            "all is gone with the container: put the store on a volume",
        ),
        other => Check::ok("file system", local_name(other)),
    }
}

fn local_name(kind: u64) -> String {
    match kind {
        0xef53 => "ext4".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683e => "btrfs".to_owned(),
        0x2fc1_2fc1 => "zfs".to_owned(),
        0xf2f5_2010 => "f2fs".to_owned(),
        0x4d44 => "fat".to_owned(),
        other => format!("of kind {other:#x}, taken for a local one"),
    }
}

/// Whether this user, and nobody else, can use all files.
fn permissions(dir: &Path) -> Check {
    let me = rustix::process::geteuid().as_raw();
    let mut open_to_others = Vec::new();
    let mut not_mine = Vec::new();
    let mut unusable = Vec::new();
    let mut count = 0;
    let mut ahead = vec![dir.to_owned()];
    while let Some(path) = ahead.pop() {
        let data = match path.symlink_metadata() {
            Ok(data) => data,
            // Gone meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => {
                unusable.push(path);
                continue;
            }
        };
        count += 1;
        if data.is_dir() {
            match std::fs::read_dir(&path) {
                Ok(entries) => ahead.extend(entries.flatten().map(|entry| entry.path())),
                Err(_) => unusable.push(path.clone()),
            }
        } else if let Err(e) = File::options().read(true).write(true).open(&path)
            && e.kind() != io::ErrorKind::NotFound
        {
            unusable.push(path.clone());
        }
        if data.mode() & 0o077 != 0 && !data.is_symlink() {
            open_to_others.push(path.clone());
        }
        if data.uid() != me {
            not_mine.push(path);
        }
    }
    let first = |paths: &[PathBuf]| {
        let first = paths.first().map(|path| shown(&path.display().to_string()));
        let more = match paths.len() {
            0 | 1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        format!("{}{more}", first.unwrap_or_default())
    };
    match () {
        () if !unusable.is_empty() => Check::bad(
            "permissions",
            format!("may not be read and written: {}", first(&unusable)),
            "run this as the user that the store belongs to",
        ),
        () if !not_mine.is_empty() => Check::warn(
            "permissions",
            format!("belong to another user: {}", first(&not_mine)),
            "use one user for the store: files made by another may lock it out",
        ),
        () if !open_to_others.is_empty() => Check::warn(
            "permissions",
            format!("other users may look at: {}", first(&open_to_others)),
            "what agents saw and said is private: chmod -R go-rwx",
        ),
        () => Check::ok(
            "permissions",
            format!("{count} files and folders are this user's only"),
        ),
    }
}

fn open_files() -> Check {
    let limit = rustix::process::getrlimit(Resource::Nofile).current;
    match limit {
        Some(limit @ 0..64) => Check::bad(
            "open files",
            format!("{limit} are allowed"),
            "raise the limit with ulimit -n 1024",
        ),
        Some(limit @ 64..1024) => Check::warn(
            "open files",
            format!("{limit} are allowed"),
            "raise the limit with ulimit -n 1024",
        ),
        Some(limit) => Check::ok("open files", format!("{limit} are allowed")),
        None => Check::ok("open files", "no limit"),
    }
}
