"""What a step costs, beside a raw fdatasync of the same bytes in the same run. Medians.

    python bench/steps.py            # after `maturin develop --release`
    python bench/steps.py --json

| row | what is measured |
|---|---|
| `fdatasync` | writing the bytes of a step's record over a file, and syncing it |
| `read_only` | one step of a plain agent, which waits for no disk |
| `once` | intent and outcome are synced |
| `strict` | a `read_only` one whose outcome is synced |
| `… async` | the same in an async agent |
| `64 at once` | steps a second of 64 runs beside each other |
| `resume` | from opening the store to the first step that is executed, in a run with 5,000 finished steps |
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import dalsegno
from dalsegno import aio

STEPS = 400
FINISHED = 5000
MARKS: list[float] = []


@dalsegno.tool(effect="read_only")
def look(n: int) -> str:
    return "x" * 100


@dalsegno.tool(effect="once")
def act(n: int) -> str:
    return "x" * 100


@dalsegno.tool(effect="read_only", name="look")
async def look_async(n: int) -> str:
    return "x" * 100


@dalsegno.tool(effect="once", name="act")
async def act_async(n: int) -> str:
    return "x" * 100


@dalsegno.agent
def looks(count: int) -> list[float]:
    times = [time.perf_counter()]
    for n in range(count):
        look(n)
        times.append(time.perf_counter())
    MARKS[:] = times
    return []


@dalsegno.agent
def acts(count: int) -> list[float]:
    times = [time.perf_counter()]
    for n in range(count):
        act(n)
        times.append(time.perf_counter())
    MARKS[:] = times
    return []


@dalsegno.agent
async def looks_async(count: int) -> list[float]:
    times = [time.perf_counter()]
    for n in range(count):
        await look_async(n)
        times.append(time.perf_counter())
    MARKS[:] = times
    return []


@dalsegno.agent
async def acts_async(count: int) -> list[float]:
    times = [time.perf_counter()]
    for n in range(count):
        await act_async(n)
        times.append(time.perf_counter())
    MARKS[:] = times
    return []


@dalsegno.agent
def long(count: int) -> None:
    for n in range(count):
        look(n)
    MARKS[:] = [time.perf_counter()]
    dalsegno.signal("more")


@dalsegno.agent
async def long_async(count: int) -> None:
    for n in range(count):
        await look_async(n)
    MARKS[:] = [time.perf_counter()]
    await aio.signal("more")


AGENTS: list[dalsegno.Agent[..., Any]] = [looks, acts, looks_async, acts_async, long, long_async]


def gaps() -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(MARKS)]


def raw(folder: Path, count: int, size: int) -> list[float]:
    """Writes over a file that was written and synced before, so that a sync has nothing but the bytes to write."""
    times = []
    content = b"x" * size
    file = os.open(folder / "raw", os.O_CREAT | os.O_RDWR)
    os.write(file, b"\0" * size * count)
    os.fsync(file)
    for at in range(count):
        begun = time.perf_counter()
        os.pwrite(file, content, at * size)
        os.fdatasync(file)
        times.append(time.perf_counter() - begun)
    os.close(file)
    return times


def one_at_a_time(folder: Path, rounds: int) -> dict[str, list[float]]:
    rows: dict[str, list[float]] = {}
    for turn in range(rounds):
        rows.setdefault("fdatasync", []).extend(raw(folder, STEPS, 250))
        for row, agent, durability in (
            ("read_only", looks, None),
            ("once", acts, None),
            ("strict", looks, "strict"),
            ("read_only async", looks_async, None),
            ("once async", acts_async, None),
        ):
            with dalsegno.open(folder / f"{row}-{turn}", AGENTS, durability=durability) as app:  # type: ignore[arg-type]
                app.run(agent, "warm", 20)
                app.run(agent, "run", STEPS)
                rows.setdefault(row, []).extend(gaps())
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
        begun = time.perf_counter()
        with dalsegno.open(folder, AGENTS) as app:
            app.signal("run", "other")  # Takes it up.
            while not MARKS:
                time.sleep(0.0005)
            times.append(MARKS[0] - begun)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="dalsegno-bench-", dir=os.environ.get("DALSEGNO_BENCH_FOLDER")))
    try:
        rows = one_at_a_time(folder, options.rounds)
        sync = statistics.median(rows["fdatasync"])
        found = []
        for row, times in rows.items():
            median = statistics.median(times)
            # A `once` step is synced twice: what it intends, and what came of it.
            syncs = {"fdatasync": 1, "once": 2, "once async": 2, "strict": 1}.get(row, 0)
            own = 1e6 * (median - syncs * sync)
            found.append({"row": row, "us": round(1e6 * median, 1), "ratio": round(median / sync, 3), "own_us": own})
        for row, agent in (("read_only", looks), ("once", acts)):
            rate = many(folder / f"many {row}", agent, 64, 50)
            found.append({"row": f"{row}, 64 at once", "steps_a_second": round(rate), "ratio": 1 / rate / sync})
        for row, agent in (("read_only async", looks_async), ("once async", acts_async)):
            rate = asyncio.run(many_async(folder / f"many {row}", agent, 64, 50))
            found.append({"row": f"{row}, 64 at once", "steps_a_second": round(rate), "ratio": 1 / rate / sync})
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
