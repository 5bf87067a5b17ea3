"""What a process can do to an open store: Ctrl-C, forks, ending, threads that compute."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from conftest import Open

import dalsegno

HEAD = """
import asyncio, multiprocessing, os, sys, threading, time
import dalsegno
from dalsegno import aio

def log(text):
    with open(sys.argv[1] + ".log", "a") as file:
        file.write(text + "\\n")

@dalsegno.tool(effect="idempotent")
def work(n: int, seconds: float) -> int:
    log(f"begin {n}")
    time.sleep(seconds)
    log(f"end {n}")
    return n

@dalsegno.agent
def worker(count: int, seconds: float) -> int:
    return sum(work(n, seconds) for n in range(count))

@dalsegno.tool(effect="idempotent")
async def awork(n: int, seconds: float) -> int:
    log(f"begin {n}")
    await asyncio.sleep(seconds)
    log(f"end {n}")
    return n

@dalsegno.agent
async def aworker(count: int, seconds: float) -> int:
    return sum(await asyncio.gather(*(awork(n, seconds) for n in range(count))))

AGENTS = [worker, aworker]
"""


def started(place: Path, code: str, *more: str) -> subprocess.Popen[str]:
    """A process of its own."""
    script = HEAD + textwrap.dedent(code)
    command = [sys.executable, "-X", "faulthandler", "-c", script, str(place), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str], within: float = 30) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # Shows where it hangs.
        out, err = process.communicate()
        pytest.fail(f"it did not end:\n{out}\n{err}")
    return process.returncode, out, err


def logged(place: Path, text: str, process: subprocess.Popen[str]) -> None:
    """Waits until a process has logged something."""
    end = time.monotonic() + 30
    log = Path(f"{place}.log")
    while not (log.exists() and text in log.read_text()):
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


@pytest.mark.parametrize(
    "code",
    [
        "dalsegno.open(sys.argv[1], agents=AGENTS).run(worker, 'r', 2, 20.0)",
        "with dalsegno.open(sys.argv[1], agents=AGENTS) as app: app.run(worker, 'r', 2, 20.0)",
        "dalsegno.open(sys.argv[1], agents=AGENTS).run(aworker, 'r', 1, 20.0)",
        """
        async def main():
            async with await aio.open(sys.argv[1], agents=AGENTS) as app:
                await app.run(aworker, 'r', 1, 20.0)
        asyncio.run(main())
        """,
        """
        async def main():
            async with await aio.open(sys.argv[1], agents=AGENTS) as app:
                await app.run(worker, 'r', 1, 20.0)
        asyncio.run(main())
        """,
    ],
    ids=["bare", "with", "its own loop", "a loop", "a loop and a thread"],
)
def test_ctrl_c_ends_a_program_that_waits(place: Path, code: str) -> None:
    process = started(place, code)
    logged(place, "begin 0", process)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    status, _, err = ended(process)
    assert time.monotonic() - begun < 8
    assert status in (130, -signal.SIGINT, 1), err
    assert "KeyboardInterrupt" in err
    # It goes on, with the same step.
    with dalsegno.open(place) as app:
        assert app.runs()[0].status in ("running", "checkpointed")


CLOSING = """
def begun():
    while not (os.path.exists(sys.argv[1] + ".log") and "begin 0" in open(sys.argv[1] + ".log").read()):
        time.sleep(0.005)

def closing(app):
    app.start(worker, 'r', 1, 60.0)
    begun()
    log("waits")
"""
SILENT = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
silent = f"postgres://nobody:nothing@127.0.0.1:{listener.getsockname()[1]}/none"

def heard():
    peer, _ = listener.accept()
    peer.recv(1)
    log("waits")
    time.sleep(60)
threading.Thread(target=heard, daemon=True).start()
"""


@pytest.mark.parametrize(
    "code",
    [
        CLOSING + "app = dalsegno.open(sys.argv[1], agents=AGENTS); closing(app); app.close(60)",
        CLOSING + "with dalsegno.open(sys.argv[1], agents=AGENTS) as app: closing(app)",
        CLOSING
        + """
async def main():
    app = await aio.open(sys.argv[1], agents=AGENTS)
    await app.start(worker, 'r', 1, 60.0)
    await asyncio.to_thread(begun)
    log("waits")
    await app.close(60)
asyncio.run(main())
""",
        SILENT + "dalsegno.open(silent, agents=AGENTS)",
        SILENT + "asyncio.run(aio.open(silent, agents=AGENTS))",
    ],
    ids=["close", "the end of with", "close in a loop", "open", "open in a loop"],
)
def test_ctrl_c_ends_a_program_that_opens_or_closes(place: Path, code: str) -> None:
    process = started(place, code)
    logged(place, "waits", process)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    status, _, err = ended(process)
    assert time.monotonic() - begun < 8
    assert status in (130, -signal.SIGINT, 1), err
    assert "KeyboardInterrupt" in err


def test_a_killed_program_goes_on(place: Path) -> None:
    code = "print(dalsegno.open(sys.argv[1], agents=AGENTS).run(worker, 'r', 4, 0.2))"
    process = started(place, code)
    logged(place, "begin 2", process)
    process.kill()
    ended(process)
    status, out, err = ended(started(place, code))
    assert (status, out) == (0, "6\n"), err
    log = Path(f"{place}.log").read_text().splitlines()
    assert log.count("begin 0") == log.count("begin 1") == 1
    assert log.count("begin 2") == 2


@pytest.mark.parametrize(
    "code",
    [
        "app = dalsegno.open(sys.argv[1], agents=AGENTS)",
        "app = dalsegno.open(sys.argv[1], agents=AGENTS); app.run(worker, 'r', 2, 0.0)",
        "app = dalsegno.open(sys.argv[1], agents=AGENTS); app.start(worker, 'r', 100, 0.01)",
        "app = dalsegno.open(sys.argv[1], agents=AGENTS); app.start(aworker, 'r', 100, 5.0)",
        "app = dalsegno.open(sys.argv[1], agents=AGENTS); app.start(worker, 'r', 1, 60.0); time.sleep(0.1)",
        "dalsegno.open(sys.argv[1], agents=AGENTS).start(worker, 'r', 5, 0.1)",
        """
        async def main():
            app = await aio.open(sys.argv[1], agents=AGENTS)
            await app.start(aworker, 'r', 3, 60.0)
            await app.start(worker, 's', 3, 0.0)
        asyncio.run(main())
        """,
        "app = dalsegno.open(sys.argv[1], agents=AGENTS); app.start(worker, 'r', 9, 0.1); del app; time.sleep(0.1)",
        "app = dalsegno.open(sys.argv[1], agents=AGENTS)\nsys.exit(0)",
    ],
)
def test_a_program_may_just_end(place: Path, code: str) -> None:
    status, _, err = ended(started(place, code))
    assert status == 0, err
    assert "Traceback" not in err
    with dalsegno.open(place) as app:
        app.runs()


FORK = """
app = dalsegno.open(sys.argv[1], agents=AGENTS)
app.run(worker, 'r', 2, 0.0)
child = os.fork()
if child == 0:
    try:
        app.run(worker, 's', 2, 0.0)
    except dalsegno.Forked as e:
        print("forked:", e, flush=True)
    {end}
_, status = os.waitpid(child, 0)
print(status, app.run(worker, 't', 2, 0.0))
"""


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)", "del app; import gc; gc.collect(); sys.exit(0)"])
def test_a_fork_is_told_and_does_no_harm(place: Path, end: str) -> None:
    status, out, err = ended(started(place, FORK.format(end=end)))
    assert status == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("forked: this process was forked from the one that has opened the store")
    assert lines[-1] == "0 1"


def test_a_fork_in_a_step_is_told(place: Path) -> None:
    code = """
    def inside(queue):
        try:
            queue.put(work(1, 0.0))
            dalsegno.now()
        except dalsegno.Error as e:
            queue.put(f"{type(e).__name__}: {e}")

    @dalsegno.agent
    def forking() -> list[str]:
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        process = context.Process(target=inside, args=(queue,))
        process.start()
        said = queue.get()
        process.join()
        return [str(said), str(work(3, 0.0))]

    print(dalsegno.open(sys.argv[1], agents=[forking]).run(forking, "r"))
    """
    status, out, err = ended(started(place, code))
    assert status == 0, err
    assert "Forked: this process was forked from the one that has the run" in out
    assert "'3'" in out


def test_a_pool_of_processes_works_beside(place: Path) -> None:
    code = """
    def double(n):
        return 2 * n

    @dalsegno.tool(effect="read_only")
    def pooled(n: int) -> list[int]:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(double, range(n))

    @dalsegno.agent
    def pools() -> list[int]:
        return pooled(4)

    with dalsegno.open(sys.argv[1], agents=[pools]) as app:
        print(app.run(pools, "r"))
    """
    status, out, err = ended(started(place, code))
    assert (status, out) == (0, "[0, 2, 4, 6]\n"), err


@dalsegno.tool(effect="once")
def synced(n: int) -> int:
    return n


@dalsegno.agent
def syncs(count: int) -> int:
    return sum(synced(n) for n in range(count))


def test_waiting_for_the_disk_lets_other_threads_run(opened: Open) -> None:
    app = opened(syncs, durability="strict")
    counts, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            counts[0] += 1

    alone = _count_alone(0.3)
    thread = threading.Thread(target=count)
    thread.start()
    begun = time.monotonic()
    app.run(syncs, "r", 200)
    taken = time.monotonic() - begun
    stop.set()
    thread.join()
    # Whoever kept the interpreter while waiting for 400 syncs would leave next to nothing of it.
    share = counts[0] / taken / alone
    assert share > 0.2, f"{share:.2f} of {alone:.0f}/s in {taken:.2f} s"


def _count_alone(seconds: float) -> float:
    count, end = 0, time.monotonic() + seconds
    stop = threading.Event()
    while time.monotonic() < end:
        for _ in range(1000):
            if not stop.is_set():
                count += 1
    return count / seconds


def test_busy_threads_do_not_stop_runs(opened: Open) -> None:
    app = opened(syncs)
    stop = threading.Event()
    threads = [threading.Thread(target=lambda: [None for _ in iter(stop.is_set, True)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert app.run(syncs, "r", 10) == 45
    finally:
        stop.set()
        for thread in threads:
            thread.join()
