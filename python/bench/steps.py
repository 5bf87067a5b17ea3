"""What a step costs, beside a raw fdatasync of the same bytes between the steps. Medians; `own` is above the syncs.

    python bench/steps.py            # after `maturin develop --release`
    python bench/steps.py --json

| row | what is measured |
|---|---|
| `read_only` | one step of a plain agent, which waits for no disk |
| `idempotent` | the intent is synced, and the outcome of the step before it |
| `once` | intent and outcome are synced |
| `strict` | a `read_only` one whose outcome is synced |
| `… async` | the same in an async agent |
| `64 at once` | steps a second of 64 runs beside each other |
| `resume` | from opening the store to the first step that is executed, in a run with 5,000 finished steps |
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import dalsegno
from dalsegno import aio

STEPS = 400
FINISHED = 5000
MARKS: list[float] = []
BACK = threading.Event()
"""There is a mark. Who looks for it again and again has the interpreter when others want it."""


@dalsegno.tool(effect="read_only")
def look(n: int) -> str:
    return "x" * 100


@dalsegno.tool(effect="once")
def act(n: int) -> str:
    return "x" * 100


@dalsegno.tool(effect="idempotent")
def put(n: int) -> str:
    return "x" * 100


@dalsegno.tool(effect="read_only", name="look")
async def look_async(n: int) -> str:
    return "x" * 100


@dalsegno.tool(effect="once", name="act")
async def act_async(n: int) -> str:
    return "x" * 100


class Anchor:
    """A raw write and fdatasync of a step's bytes, over a file that was written and synced before."""

    def __init__(self, folder: Path) -> None:
        self._content = b"x" * 250
        self._file = os.open(folder / "raw", os.O_CREAT | os.O_RDWR)
        for _ in range(64):
            os.write(self._file, b"\0" * 256 * 1024)
        os.fsync(self._file)
        self._at = 0
        self.times: list[float] = []

    def sync(self) -> None:
        begun = time.perf_counter()
        os.pwrite(self._file, self._content, self._at)
        os.fdatasync(self._file)
        self._at += len(self._content)
        self.times.append(time.perf_counter() - begun)


ANCHOR: list[Anchor] = []
"""If there is one, it is measured between the steps, so that both meet the same disk."""


@dalsegno.agent
def looks(count: int) -> None:
    for n in range(count):
        begun = time.perf_counter()
        look(n)
        MARKS.append(time.perf_counter() - begun)
        if ANCHOR:
            ANCHOR[0].sync()


@dalsegno.agent
def acts(count: int) -> None:
    for n in range(count):
        begun = time.perf_counter()
        act(n)
        MARKS.append(time.perf_counter() - begun)
        if ANCHOR:
            ANCHOR[0].sync()


@dalsegno.agent
def puts(count: int) -> None:
    for n in range(count):
        begun = time.perf_counter()
        put(n)
        MARKS.append(time.perf_counter() - begun)
        if ANCHOR:
            ANCHOR[0].sync()


@dalsegno.agent
async def looks_async(count: int) -> None:
    for n in range(count):
        begun = time.perf_counter()
        await look_async(n)
        MARKS.append(time.perf_counter() - begun)
        if ANCHOR:
            ANCHOR[0].sync()


@dalsegno.agent
async def acts_async(count: int) -> None:
    for n in range(count):
        begun = time.perf_counter()
        await act_async(n)
        MARKS.append(time.perf_counter() - begun)
        if ANCHOR:
            ANCHOR[0].sync()


@dalsegno.agent
def long(count: int) -> None:
    for n in range(count):
        look(n)
    MARKS[:] = [time.perf_counter()]
    BACK.set()
    dalsegno.signal("more")


@dalsegno.agent
async def long_async(count: int) -> None:
    for n in range(count):
        await look_async(n)
    MARKS[:] = [time.perf_counter()]
    BACK.set()
    await aio.signal("more")


AGENTS: list[dalsegno.Agent[..., Any]] = [looks, puts, acts, looks_async, acts_async, long, long_async]


def one_at_a_time(folder: Path, rounds: int) -> dict[str, tuple[list[float], list[float]]]:
    """For each row how long its steps took, and raw syncs between them."""
    rows: dict[str, tuple[list[float], list[float]]] = {}
    for turn in range(rounds):
        for row, agent, durability in (
            ("read_only", looks, None),
            ("read_only async", looks_async, None),
            ("idempotent", puts, None),
            ("strict", looks, "strict"),
            ("once", acts, None),
            ("once async", acts_async, None),
        ):
            anchor = Anchor(folder)
            with dalsegno.open(folder / f"{row}-{turn}", AGENTS, durability=durability) as app:  # type: ignore[arg-type]
                app.run(agent, "warm", 20)
                if not row.startswith("read_only"):
                    ANCHOR.append(anchor)
                MARKS.clear()
                app.run(agent, "run", STEPS)
                ANCHOR.clear()
            times, syncs = rows.setdefault(row, ([], []))
            times.extend(MARKS)
            syncs.extend(anchor.times)
    return rows


def many(folder: Path, agent: Any, runs: int, steps: int) -> float:
    """Steps a second."""
    with dalsegno.open(folder, AGENTS) as app:
        begun = time.perf_counter()
        for each in [app.start(agent, f"run {n}", steps) for n in range(runs)]:
            each.result()
        return runs * steps / (time.perf_counter() - begun)


async def many_async(folder: Path, agent: Any, runs: int, steps: int) -> float:
    async with await aio.open(folder, AGENTS) as app:
        begun = time.perf_counter()
        await asyncio.gather(*(app.run(agent, f"run {n}", steps) for n in range(runs)))
        return runs * steps / (time.perf_counter() - begun)


def resume(folder: Path, agent: Any, rounds: int) -> list[float]:
    """Seconds from opening to where the record ends."""
    with dalsegno.open(folder, AGENTS) as app:
        app.start(agent, "run", FINISHED)
        while not app.runs(status=["checkpointed"]):
            time.sleep(0.05)
    times = []
    for _ in range(rounds):
        MARKS.clear()
        BACK.clear()
        begun = time.perf_counter()
        with dalsegno.open(folder, AGENTS) as app:
            app.signal("run", "other")  # Takes it up.
            BACK.wait()
            times.append(MARKS[0] - begun)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="dalsegno-bench-", dir=os.environ.get("DALSEGNO_BENCH_FOLDER")))
    try:
        found: list[dict[str, Any]] = []
        for row, (times, syncs) in one_at_a_time(folder, options.rounds).items():
            # A `once` step is synced twice: what it intends, and what came of it.
            count = 0 if not syncs else 2 if row.startswith("once") else 1
            sync = statistics.median(syncs) if syncs else 0.0
            median = statistics.median(times)
            line = {"row": row, "us": 1e6 * median, "own_us": 1e6 * (median - count * sync)}
            if syncs:
                line |= {"fdatasync_us": 1e6 * sync, "ratio": median / sync}
            found.append(line)
        for row, plain in (("read_only", looks), ("once", acts)):
            rate = many(folder / f"many {row}", plain, 64, 50)
            found.append({"row": f"{row}, 64 at once", "steps_a_second": round(rate)})
        for row, agent in (("read_only async", looks_async), ("once async", acts_async)):
            rate = asyncio.run(many_async(folder / f"many {row}", agent, 64, 50))
            found.append({"row": f"{row}, 64 at once", "steps_a_second": round(rate)})
        for row, longs in (("resume", long), ("resume async", long_async)):
            back = statistics.median(resume(folder / row, longs, options.rounds))
            found.append({"row": f"{row}, {FINISHED} steps", "ms": round(1e3 * back, 1)})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for line in found:
        if options.json:
            print(json.dumps(line))
        else:
            cells = (f"{key} {value:,.1f}" for key, value in line.items() if isinstance(value, (int, float)))
            print(f"{line['row']:30} {'   '.join(cells)}")


if __name__ == "__main__":
    main()
