"""Checkpoints, and what a run depends on outside."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import Open

import dalsegno
from dalsegno import Resource, aio

LOOKS = {"page": "v1"}


def look_up(name: str) -> str | None:
    return LOOKS.get(name)


@dalsegno.agent
def holds(folder: str, if_changed: str) -> str:
    notes = Path(folder) / "notes.txt"
    policy: dalsegno.Resource = Resource.file(notes, if_changed=if_changed)  # type: ignore[arg-type]
    dalsegno.checkpoint("begun", {"chapters": 3}, progress=(1, 2), pinned=True, holding=[policy])
    dalsegno.signal("go on")
    dalsegno.checkpoint("done", releasing=[policy])
    return notes.read_text()


def waits(app: dalsegno.App, run: str) -> None:
    while not any(info.run == run for info in app.runs(status=["checkpointed"])):
        pass


def test_a_file_that_stays_is_no_matter(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one")
    app = opened(holds)
    app.start(holds, "run", str(tmp_path), "attention")
    waits(app, "run")
    app = opened(holds)
    app.signal("run", "go on")
    assert app.get("run").result() == "one"


def test_a_file_that_has_changed_is_a_persons_matter(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one")
    app = opened(holds)
    app.start(holds, "run", str(tmp_path), "attention")
    waits(app, "run")
    (tmp_path / "notes.txt").write_text("two")
    app = opened(holds)
    app.signal("run", "go on")
    with pytest.raises(dalsegno.NeedsAttention, match=r"notes\.txt"):
        app.get("run").result()
    app.clear_attention("run")
    assert app.get("run").result() == "two"


def test_it_may_be_a_failure(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one")
    app = opened(holds)
    app.start(holds, "run", str(tmp_path), "fail")
    waits(app, "run")
    (tmp_path / "notes.txt").write_text("two")
    app = opened(holds)
    app.signal("run", "go on")
    with pytest.raises(dalsegno.RunFailed, match=r"notes\.txt"):
        app.get("run").result()


def git(repository: Path, *command: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "-C", str(repository), *identity, *command], check=True, capture_output=True)


@dalsegno.agent
async def holds_branch(repository: str) -> str:
    await aio.checkpoint("begun", holding=[Resource.git(repository, "main"), Resource.custom("look", "page")])
    await aio.signal("go on")
    return "done"


def test_a_branch_and_something_of_ones_own(opened: Open, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    git(repository, "commit", "-q", "--allow-empty", "-m", "one")
    LOOKS["page"] = "v1"
    app = opened(holds_branch, resources={"look": look_up})
    app.start(holds_branch, "run", str(repository))
    waits(app, "run")
    git(repository, "commit", "-q", "--allow-empty", "-m", "two")
    LOOKS["page"] = "v2"
    app = opened(holds_branch, resources={"look": look_up})
    app.signal("run", "go on")
    with pytest.raises(dalsegno.NeedsAttention) as found:
        app.get("run").result()
    assert "main" in str(found.value)
    assert "page" in str(found.value)
