//! Which commit a branch of a git repository is at, read from its files; the `git` command is asked
//! only about repositories that keep their branches in another form.

use std::path::{Path, PathBuf};

/// Symbolic references lead to others, but not for ever.
const HOPS: usize = 10;
/// What git writes into a file that names a commit, a branch or a folder is shorter than this.
const POINTER_LIMIT_BYTES: u64 = 16 << 10;
const CONFIG_LIMIT_BYTES: u64 = 1 << 20;
const PACKED_LIMIT_BYTES: u64 = 256 << 20;

/// `main at 1234…` for what is checked out, or the commit of a branch; `None` if there is no such
/// repository or branch.
pub(super) fn commit(path: &Path, branch: Option<&str>) -> Result<Option<String>, String> {
    let Some(git) = find(path)? else {
        return Ok(None);
    };
    let name = match branch {
        Some(branch) if branch.starts_with("refs/") => Some(branch.to_owned()),
        Some(branch) => Some(format!("refs/heads/{branch}")),
        None => None,
    };
    if let (Some(name), Some(branch)) = (&name, branch)
        && !is_reference(name)
    {
        return Err(format!("{branch:?} cannot be the name of a branch"));
    }
    let shared = match read(&git.join("commondir"), POINTER_LIMIT_BYTES)? {
        Some(common) => git.join(common.trim()),
        None => git.clone(),
    };
    let config = read(&shared.join("config"), CONFIG_LIMIT_BYTES)?.unwrap_or_default();
    if config.to_ascii_lowercase().contains("refstorage") {
        return ask_git(path, name.as_deref());
    }
    let Some(name) = name else {
        let head_file = git.join("HEAD");
        let Some(head) = read(&head_file, POINTER_LIMIT_BYTES)? else {
            return Ok(None);
        };
        let head = head.trim();
        return Ok(match head.strip_prefix("ref: ") {
            None => Some(format!("no branch, at {}", checked(head, &head_file)?)),
            Some(name) => {
                let commit = resolve(&git, &shared, name)?;
                let commit = commit.unwrap_or_else(|| "no commit yet".to_owned());
                let name = name.strip_prefix("refs/heads/").unwrap_or(name);
                Some(format!("{name} at {commit}"))
            }
        });
    };
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
        if let Some(text) = git
            .is_file()
            .then(|| read(&git, POINTER_LIMIT_BYTES))
            .transpose()?
            .flatten()
        {
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
        // The repository may be anybody's: what it names must not lead out of it.
        if !is_reference(&name) {
            return Err(format!("{name:?} is no reference that git would write"));
        }
        let mut file = git.join(&name);
        let mut found = read(&file, POINTER_LIMIT_BYTES)?;
        if found.is_none() {
            file = shared.join(&name);
            found = read(&file, POINTER_LIMIT_BYTES)?;
        }
        match found {
            None => return packed(shared, &name),
            Some(text) => match text.trim().strip_prefix("ref: ") {
                Some(next) => name = next.to_owned(),
                None => return checked(text.trim(), &file).map(Some),
            },
        }
    }
    Err(format!("{name} leads from reference to reference"))
}

/// Whether git would take it as a reference, as far as it matters here.
fn is_reference(name: &str) -> bool {
    let bad = |c: char| c.is_control() || " ~^:?*[\\".contains(c);
    name.starts_with("refs/")
        && !name.contains(bad)
        && !name.contains("@{")
        && name
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..")
}

/// The name of a commit, and nothing else that may be in a file.
fn checked(commit: &str, file: &Path) -> Result<String, String> {
    let is_hash = matches!(commit.len(), 40 | 64) && commit.chars().all(|c| c.is_ascii_hexdigit());
    match is_hash {
        true => Ok(commit.to_owned()),
        false => Err(format!("{} is not what git writes there", file.display())),
    }
}

fn packed(shared: &Path, name: &str) -> Result<Option<String>, String> {
    let file = shared.join("packed-refs");
    let packed = read(&file, PACKED_LIMIT_BYTES)?.unwrap_or_default();
    let mut lines = packed.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(_, found)| *found == name);
    found.map(|(commit, _)| checked(commit, &file)).transpose()
}

/// The text of a file; `None` if there is none.
fn read(path: &Path, limit: u64) -> Result<Option<String>, String> {
    use std::io::{ErrorKind, Read};
    let cannot = |e: std::io::Error| match e.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
        _ => Err(format!("{} cannot be read: {e}", path.display())),
    };
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => {}
        Ok(found) if found.is_dir() => return Ok(None),
        // To open a pipe would wait for somebody to write to it.
        Ok(_) => return Err(format!("{} is no file", path.display())),
        Err(e) => return cannot(e),
    }
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(path);
    match opened.and_then(|file| file.take(limit + 1).read_to_end(&mut bytes)) {
        Ok(_) if bytes.len() as u64 > limit => Err(format!(
            "{} has more than {limit} bytes, which git would not write",
            path.display()
        )),
        Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) => cannot(e),
    }
}

/// What the `git` command says of a reference, or of what is checked out.
fn ask_git(path: &Path, name: Option<&str>) -> Result<Option<String>, String> {
    // `None` if git says that there is no such thing.
    let run = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        // Those would lead it to another repository.
        for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR"] {
            git.env_remove(variable);
        }
        git.arg("-C").arg(path).args(arguments);
        let output = git.output();
        let output =
            output.map_err(|e| format!("git cannot be asked about {}: {e}", path.display()))?;
        match output.status.code() {
            Some(0) => Ok(Some(
                String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            )),
            Some(1) => Ok(None),
            _ => Err(format!(
                "git cannot say anything about {}: {}",
                path.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            )),
        }
    };
    let commit = run(&["rev-parse", "--verify", "--quiet", name.unwrap_or("HEAD")])?;
    if name.is_some() {
        return Ok(commit.map(|commit| format!("at {commit}")));
    }
    let on = run(&["symbolic-ref", "--short", "--quiet", "HEAD"])?;
    let commit = commit.unwrap_or_else(|| "no commit yet".to_owned());
    Ok(Some(match on {
        None => format!("no branch, at {commit}"),
        Some(on) => format!("{on} at {commit}"),
    }))
}
