//! A small file system of its own for a child process, that can really be full or read-only.
//!
//! It is mounted in a mount namespace of the child's, so nothing of it is left when the child has
//! ended. In memory if that is allowed, else an ext4 image over a loop device.

use std::path::Path;
use std::process::{Command, Output};

use super::local::this_program_args;

const ON_TMPFS: &str = r#"mount -t tmpfs -o size="$2",mode=700 dalsegno-test "$1""#;
const ON_EXT4: &str = r#"truncate -s "$2" "$1.img" && PATH="$PATH:/usr/sbin:/sbin" mkfs.ext4 -q -m 0 -O ^has_journal "$1.img" &&
    mount -o loop "$1.img" "$1""#;

/// How to get a mount namespace: as root, or as an ordinary user where the kernel lets them.
const NAMESPACES: [&[&str]; 2] = [&["--mount"], &["--mount", "--map-root-user"]];

fn unshare(namespace: &[&str], script: &str, mount_point: &Path, size: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(namespace).args(["sh", "-euc", script, "sh"]);
    command.arg(mount_point).arg(size);
    command
}

/// Runs the ignored test `name` of this program with a disk of `size` bytes (as in "1m") mounted
/// at `mount_point`.
///
/// # Panics
/// If no such disk can be had: a test that needs one must not pass without it.
pub fn run_on(mount_point: &Path, size: &str, name: &str) -> Output {
    let mut problems = String::new();
    let media = match std::env::var("DALSEGNO_TEST_MEDIUM").as_deref() {
        Ok("ext4") => vec![ON_EXT4],
        _ => vec![ON_TMPFS, ON_EXT4],
    };
    for mount in media {
        for namespace in NAMESPACES {
            let tried = unshare(namespace, mount, mount_point, size).output();
            let problem = match tried {
                Ok(output) if output.status.success() => {
                    let script = format!(r#"{mount}; shift 2; exec "$@""#);
                    return unshare(namespace, &script, mount_point, size)
                        .arg(std::env::current_exe().unwrap())
                        .args(this_program_args(name))
                        .env("SMALL_DISK", mount_point)
                        .output()
                        .unwrap();
                }
                Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
                Err(e) => e.to_string(),
            };
            problems += &format!("unshare {namespace:?} {mount}: {problem}\n");
        }
    }
    panic!(
        "this test needs a small disk of its own and could mount neither a tmpfs nor an ext4 \
         image: run it as root, or allow user namespaces:\n{problems}"
    );
}
