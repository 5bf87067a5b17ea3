//! Which commit a branch of a git repository is at, read from its files; the `git` command is asked
//! only about repositories that keep their branches in another form.

use std::path::{Path, PathBuf};

/// Symbolic references lead to others, but not for ever.
const HOPS: usize = 10;

/// `main at 1234…` for what is checked out, or the commit of a branch; `None` if there is no such
/// repository or branch.
pub(super) fn commit(path: &Path, branch: Option<&str>) -> Result<Option<String>, String> {
    let Some(git) = find(path)? else {
        return Ok(None);
    };
    let shared = match read(&git.join("commondir"))? {
        Some(common) => git.join(common.trim()),
        None => git.clone(),
    };
    let config = read(&shared.join("config"))?.unwrap_or_default();
    if config.to_ascii_lowercase().contains("refstorage") {
        return ask_git(path, branch);
    }
    let Some(branch) = branch else {
        let Some(head) = read(&git.join("HEAD"))? else {
            return Ok(None);
        };
        let head = head.trim();
        return Ok(match head.strip_prefix("ref: ") {
            None => Some(format!("no branch, at {head}")),
            Some(name) => {
                let commit = resolve(&git, &shared, name)?;
                let commit = commit.unwrap_or_else(|| "no commit yet".to_owned());
                let name = name.strip_prefix("refs/heads/").unwrap_or(name);
                Some(format!("{name} at {commit}"))
            }
        });
    };
    let name = match branch.starts_with("refs/") {
        true => branch.to_owned(),
        false => format!("refs/heads/{branch}"),
    };
    if name.split('/').any(|part| part == ".." || part.is_empty()) {
        return Err(format!("{branch:?} cannot be the name of a branch"));
    }
    Ok(resolve(&git, &shared, &name)?.map(|commit| format!("at {commit}")))
}

/// The folder that git keeps its files in, from the folder or one above it.
fn find(path: &Path) -> Result<Option<PathBuf>, String> {
    for folder in path.ancestors() {
        let git = folder.join(".git");
        if git.is_dir() {
            return Ok(Some(git));
        }
        // In a worktree or submodule it is a file that says where.
        if let Some(text) = git.is_file().then(|| read(&git)).transpose()?.flatten() {
            let Some(to) = text.trim().strip_prefix("gitdir: ") else {
                return Err(format!("{} is not what git writes there", git.display()));
            };
            return Ok(Some(folder.join(to)));
        }
        if folder.join("HEAD").is_file() && folder.join("objects").is_dir() {
            return Ok(Some(folder.to_owned()));
        }
    }
    Ok(None)
}

fn resolve(git: &Path, shared: &Path, name: &str) -> Result<Option<String>, String> {
    let mut name = name.to_owned();
    for _ in 0..HOPS {
        let mut found = read(&git.join(&name))?;
        if found.is_none() {
            found = read(&shared.join(&name))?;
        }
        match found {
            None => return packed(shared, &name),
            Some(text) => match text.trim().strip_prefix("ref: ") {
                Some(next) => name = next.to_owned(),
                None => return Ok(Some(text.trim().to_owned())),
            },
        }
    }
    Err(format!("{name} leads from reference to reference"))
}

fn packed(shared: &Path, name: &str) -> Result<Option<String>, String> {
    let packed = read(&shared.join("packed-refs"))?.unwrap_or_default();
    let mut lines = packed.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(_, found)| *found == name);
    Ok(found.map(|(commit, _)| commit.to_owned()))
}

/// The text of a file; `None` if there is none.
fn read(path: &Path) -> Result<Option<String>, String> {
    use std::io::ErrorKind;
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) => match e.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory => Ok(None),
            _ => Err(format!("{} cannot be read: {e}", path.display())),
        },
    }
}

fn ask_git(path: &Path, branch: Option<&str>) -> Result<Option<String>, String> {
    let run = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.arg("-C").arg(path).args(arguments);
        let output = git.output();
        output.map_err(|e| format!("git cannot be asked about {}: {e}", path.display()))
    };
    let name = match branch {
        Some(branch) if branch.starts_with("refs/") => branch.to_owned(),
        Some(branch) => format!("refs/heads/{branch}"),
        None => "HEAD".to_owned(),
    };
    let commit = run(&["rev-parse", "--verify", "--quiet", &name])?;
    let commit_text = String::from_utf8_lossy(&commit.stdout).trim().to_owned();
    if branch.is_some() {
        return Ok(commit.status.success().then(|| format!("at {commit_text}")));
    }
    let on = run(&["symbolic-ref", "--short", "--quiet", "HEAD"])?;
    let on = String::from_utf8_lossy(&on.stdout).trim().to_owned();
    let commit = match commit.status.success() {
        true => commit_text,
        false => "no commit yet".to_owned(),
    };
    Ok(Some(match on.is_empty() {
        true => format!("no branch, at {commit}"),
        false => format!("{on} at {commit}"),
    }))
}
