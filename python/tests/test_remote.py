"""Runs that another process has are told something, through the store."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Open

import dalsegno


@dalsegno.agent
def asks() -> str:
    answer = dalsegno.approval("publish", {"pages": 3})
    if not answer:
        return f"{answer.by}: {answer.note}"
    return dalsegno.signal("word", str)


TELL = """
import sys, dalsegno
with dalsegno.Remote(sys.argv[1]) as remote:
    assert [run.run for run in remote.runs(status=["checkpointed"])] == ["run"]
    assert "publish" in str(remote.why("run"))
    remote.approve("run", "publish", by="ann", wait=20)
    remote.signal("run", "word", "hello", wait=20)
"""


def waiting(app: dalsegno.App) -> None:
    end = time.monotonic() + 20
    while not app.runs(status=["checkpointed"]):
        assert time.monotonic() < end


def test_another_process_approves_and_signals(opened: Open, place: Path) -> None:
    app = opened(asks)
    run = app.start(asks, "run")
    waiting(app)
    subprocess.run([sys.executable, "-c", TELL, str(place)], check=True, timeout=60)
    assert run.result() == "hello"


def test_a_letter_waits_for_its_owner(opened: Open, place: Path) -> None:
    app = opened(asks)
    app.start(asks, "run")
    waiting(app)
    app.close()
    with dalsegno.Remote(place) as remote:
        with pytest.raises(dalsegno.NotTaken):
            remote.reject("run", "publish", by="bob", why="too long", wait=0.05)
        with pytest.raises(dalsegno.RunNotFound):
            remote.signal("no such run", "word")
    assert opened(asks).get("run").result() == "bob: too long"


def test_bad_use(opened: Open, place: Path) -> None:
    with pytest.raises(dalsegno.BadUse, match=r"dalsegno\.open"):
        dalsegno.Remote("postgres://x/y")
    with pytest.raises(dalsegno.StoreError):
        dalsegno.Remote(place / "nothing")
    opened(asks)
    remote = dalsegno.Remote(place)
    with pytest.raises(ValueError, match="happened"):
        remote.resolve("run", "step#1", "perhaps", by="ann")  # type: ignore[arg-type]
    remote.close()
    with pytest.raises(dalsegno.Closed):
        remote.runs()
