//! A folder for the files of one run, on a disk worth measuring, removed afterwards.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Removed, with all that is in it, when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a folder in `parent`, or in the workspace's `target/`.
    pub fn new(parent: Option<&Path>) -> io::Result<Scratch> {
        let parent = match parent {
            Some(parent) => parent.to_owned(),
            None => default_parent()?,
        };
        let path = parent.join(format!("dalsegno-bench-{}", std::process::id()));
        let named =
            |e: io::Error| io::Error::new(e.kind(), format!("cannot make {}: {e}", path.display()));
        fs::create_dir_all(&parent).map_err(named)?;
        fs::create_dir(&path).map_err(named)?;
        Ok(Scratch {
            path: path.canonicalize()?,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kind of file system, if it is one without a disk.
    pub fn in_memory(&self) -> Option<String> {
        // Without /proc there is no telling, and the measurement goes on.
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        let kind = kind_of(&mounts, &self.path)?;
        matches!(kind, "tmpfs" | "ramfs").then(|| kind.to_owned())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("warning: cannot remove {}: {error}", self.path.display());
        }
    }
}

/// `target/` of the workspace around the current folder, else the current folder.
fn default_parent() -> io::Result<PathBuf> {
    let here = std::env::current_dir()?;
    let workspace = here
        .ancestors()
        .find(|folder| folder.join("Cargo.lock").is_file());
    Ok(workspace.map_or_else(|| here.clone(), |root| root.join("target")))
}

/// The file system type of the innermost mount point above `path`.
fn kind_of<'m>(mounts: &'m str, path: &Path) -> Option<&'m str> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?, fields.next()?))
        })
        .filter(|(point, _)| path.starts_with(point))
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_point_counts() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/disk xfs rw 0 0";
        for (path, kind) in [
            ("/var/x", "ext4"),
            ("/tmp/x", "tmpfs"),
            ("/tmpx", "ext4"),
            ("/tmp/disk/x", "xfs"),
        ] {
            assert_eq!(kind_of(mounts, Path::new(path)), Some(kind), "{path}");
        }
    }
}
