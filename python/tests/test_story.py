"""The 12-step story in real processes: killed again and again, nothing happens twice, nothing is lost.

`DALSEGNO_KILLS` sets how often (100 if nothing is said), `DALSEGNO_SEED` repeats the moments of a failure.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent / "story"
KILLS = int(os.environ.get("DALSEGNO_KILLS", "100"))
RUNS_A_ROUND = 8


class World:
    """The world's process."""

    def __init__(self) -> None:
        command = [sys.executable, str(HERE / "world.py")]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def begin_again(self) -> None:
        self.end()
        self.__init__()  # type: ignore[misc]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def ledger(self) -> list[dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/ledger")
        entries: list[dict[str, Any]] = json.loads(connection.getresponse().read())
        connection.close()
        return entries


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.end()


def worker(store: Path, folder: Path, world: World, strict: bool = False) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        str(HERE / "worker.py"),
        str(store),
        str(folder),
        str(world.port),
        str(RUNS_A_ROUND),
        "strict" if strict else "usual",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # Shows where it hangs.
        out, err = process.communicate()
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert found["same"], "the code does not go the way that is recorded"
    results: dict[str, Any] = found["results"]
    return results


def killed(process: subprocess.Popen[str], after: float, from_start: bool) -> bool:
    """Kills a worker at a moment; `False` if it was done before."""
    assert process.stdout is not None
    if not from_start:
        process.stdout.readline()
    try:
        process.wait(after)
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.txt"))}


def test_the_story_with_a_hundred_kills(tmp_path: Path, world: World) -> None:
    seed = int(os.environ.get("DALSEGNO_SEED", str(time.time_ns() % 1_000_000)))
    moments = random.Random(seed)
    print(f"DALSEGNO_SEED={seed}")
    undisturbed = World()
    try:
        calm = tmp_path / "calm"
        process = worker(calm / "store", calm / "files", undisturbed)
        assert process.stdout is not None
        process.stdout.readline()
        begun = time.monotonic()
        expected = finished(process)
        length = time.monotonic() - begun
    finally:
        undisturbed.end()
    assert len(expected) == RUNS_A_ROUND
    kills = rounds = asked_again = 0
    end = time.monotonic() + 400
    while kills < KILLS:
        assert time.monotonic() < end, f"{kills} kills in {rounds} rounds"
        # In each round the same runs, in a new store, against the same world.
        store, folder = tmp_path / f"store-{rounds}", tmp_path / f"files-{rounds}"
        deaths = 0
        strict = rounds % 2 == 0
        while kills < KILLS and deaths < 15:
            process = worker(store, folder, world, strict)
            from_start = moments.random() < 0.1
            if not killed(process, moments.random() * (1.0 if from_start else length / 3), from_start):
                break
            kills += 1
            deaths += 1
        process = worker(store, folder, world, strict)
        assert finished(process) == expected, f"seed {seed}, round {rounds}"
        assert files(folder) == files(tmp_path / "calm" / "files")
        asked_again += check(world.ledger(), deaths, strict, f"seed {seed}, round {rounds}, {deaths} deaths")
        # A request of somebody killed may still come, and must not be counted for the next round.
        world.begin_again()
        rounds += 1
    print(f"{kills} kills in {rounds} rounds, {asked_again} reads were asked for again")
    # Else nobody was killed in the middle of anything.
    assert asked_again > 0


def check(ledger: list[dict[str, Any]], deaths: int, strict: bool, where: str) -> int:
    """Every effect happened exactly once, by the world's own ledger. How many reads were asked for again."""
    for path in ("/notifications", "/bookings"):
        applied = Counter(entry["run"] for entry in ledger if entry["path"] == path and entry["applied"])
        assert applied == {f"trip-{n}": 1 for n in range(RUNS_A_ROUND)}, f"{path}: {applied}: {where}"
    sent = Counter(entry["run"] for entry in ledger if entry["path"] == "/notifications" and not entry["refused"])
    assert max(sent.values()) == 1, f"notified twice: {sent}: {where}"
    # What only reads is asked again if it was under way at a kill, three at a time at most. If nothing is said about
    # durability, so may be what the code has seen in the last 20 ms.
    again = 3 if strict else 7
    reads = Counter(entry["run"] for entry in ledger if entry["path"] not in ("/notifications", "/bookings"))
    assert all(7 <= count <= 7 + again * deaths for count in reads.values()), f"{reads}: {where}"
    return sum(reads.values()) - 7 * RUNS_A_ROUND
