//! A branch of a git repository that a run depends on.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod holding;
mod lives;

use std::path::Path;

use common::TempDir;
use dalsegno::{Resource, Standing};
use holding::{changed_while_waiting, holder, result};
use lives::{life, stands};

fn git(dir: &Path, arguments: &[&str]) {
    let mut git = std::process::Command::new("git");
    git.arg("-C")
        .arg(dir)
        .args(["-c", "user.name=a", "-c", "user.email=a@b"]);
    let done = git.args(arguments).output().unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn a_branch_is_known_by_its_commit() {
    if std::process::Command::new("git")
        .arg("--version")
        .output()
        .is_err()
    {
        return;
    }
    type Change = fn(&Path);
    let changes: [(&str, Change, bool, bool); 5] = [
        (
            "packed",
            |repo| git(repo, &["pack-refs", "--all"]),
            false,
            false,
        ),
        (
            "a commit",
            |repo| git(repo, &["commit", "--allow-empty", "-qm", "b"]),
            true,
            true,
        ),
        (
            "another branch",
            |repo| git(repo, &["checkout", "-qb", "other"]),
            true,
            false,
        ),
        (
            "detached",
            |repo| git(repo, &["checkout", "-q", "--detach"]),
            true,
            false,
        ),
        (
            "gone",
            |repo| {
                git(repo, &["checkout", "-qb", "other"]);
                git(repo, &["branch", "-qD", "work"]);
            },
            true,
            true,
        ),
    ];
    for (what, change, changes_head, changes_branch) in changes {
        for (branch, changes_it) in [(None, changes_head), (Some("work"), changes_branch)] {
            let (dir, files) = (TempDir::new("res-git"), TempDir::new("res-repo"));
            let repo = files.path().to_owned();
            std::fs::create_dir_all(&repo).unwrap();
            git(&repo, &["init", "-q", "-b", "work"]);
            git(&repo, &["commit", "--allow-empty", "-qm", "a"]);
            let held = repo.clone();
            life(async {
                let make = move || {
                    vec![match branch {
                        None => Resource::git(&held),
                        Some(branch) => Resource::git_branch(&held, branch),
                    }]
                };
                let app = holder(make).open(dir.path()).await.unwrap();
                changed_while_waiting(&app, || change(&repo)).await;
                let ended = result(&app).await;
                assert_eq!(ended.is_err(), changes_it, "{what} {branch:?}: {ended:?}");
                app.close().await.unwrap();
            });
        }
    }
}

/// A worktree keeps its branch in a file, and its refs with the main repository.
#[test]
fn a_git_worktree_is_found_where_its_file_says() {
    if std::process::Command::new("git")
        .arg("--version")
        .output()
        .is_err()
    {
        return;
    }
    let (dir, files) = (TempDir::new("res-wt"), TempDir::new("res-repo"));
    let (repo, tree) = (files.path().join("repo"), files.path().join("tree"));
    std::fs::create_dir_all(&repo).unwrap();
    git(&repo, &["init", "-q", "-b", "main"]);
    git(&repo, &["commit", "--allow-empty", "-qm", "a"]);
    git(
        &repo,
        &[
            "worktree",
            "add",
            "-q",
            "-b",
            "side",
            tree.to_str().unwrap(),
        ],
    );
    let held = tree.clone();
    life(async {
        let app = holder(move || vec![Resource::git(&held)]);
        let app = app.open(dir.path()).await.unwrap();
        app.start("holder", "h", &()).await.unwrap();
        stands(&app, "h", Standing::WaitsForSignal).await;
        let resources = app.journal("h").await.unwrap().resources;
        let noted = resources.values().next().unwrap();
        assert!(noted.fingerprint.starts_with("side at "), "{noted}");
        assert_eq!(noted.fingerprint.len(), "side at ".len() + 40, "{noted}");
        app.close().await.unwrap();
    });
}

/// What is said when a run wants to hold the branch that is checked out here.
fn refused(repo: &Path, branch: Option<&'static str>) -> String {
    let (dir, repo) = (TempDir::new("git-odd"), repo.to_owned());
    life(async {
        let app = holder(move || {
            vec![match branch {
                None => Resource::git(&repo),
                Some(branch) => Resource::git_branch(&repo, branch),
            }]
        });
        let app = app.open(dir.path()).await.unwrap();
        app.start("holder", "h", &()).await.unwrap();
        let refused = result(&app).await.unwrap_err();
        app.close().await.unwrap();
        refused.to_string()
    })
}

#[test]
fn a_repository_cannot_lead_out_of_itself() {
    let files = TempDir::new("git-out");
    let (repo, secret) = (files.path().join("repo"), files.path().join("secret"));
    std::fs::create_dir_all(repo.join(".git/refs/heads")).unwrap();
    std::fs::write(&secret, "the password").unwrap();
    let head = repo.join(".git/HEAD");
    for to in [
        format!("ref: {}", secret.display()),
        "ref: ../../secret".to_owned(),
        "ref: refs/../../../secret".to_owned(),
        "ref: refs/heads/link".to_owned(),
        "the password".to_owned(),
        "x".repeat(1 << 20),
    ] {
        std::fs::write(&head, &to).unwrap();
        let link = repo.join(".git/refs/heads/link");
        drop(std::fs::remove_file(&link));
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        let said = refused(&repo, None);
        assert!(said.contains("git w"), "{said}");
        assert!(!said.contains("password"), "{said}");
    }
    let said = refused(&repo, Some("main@{1}"));
    assert!(said.contains("cannot be the name of a branch"), "{said}");
}

#[test]
fn what_git_cannot_read_is_not_taken_for_gone() {
    let has_git = std::process::Command::new("git").arg("--version").output();
    if has_git.is_err() {
        return;
    }
    let repo = TempDir::new("git-broken");
    std::fs::create_dir_all(repo.path()).unwrap();
    git(repo.path(), &["init", "-q"]);
    // Of a version of git that is still to come.
    let config = "[core]\n\trepositoryformatversion = 99\n[extensions]\n\trefstorage = new\n";
    std::fs::write(repo.path().join(".git/config"), config).unwrap();
    for branch in [None, Some("main")] {
        let said = refused(repo.path(), branch);
        assert!(said.contains("git cannot say anything about"), "{said}");
    }
}
