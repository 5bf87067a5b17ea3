"""Beside DBOS and LangGraph, in one run: durable steps, 64 at once, resuming, bytes on disk. Medians, as ratios.

    python bench/peers.py                 # installs its peers into an environment of its own; not a part of CI
    python bench/peers.py --only step --rounds 5

| row | what is measured |
|---|---|
| `step` | one durable step after the other in one run: its outcome is on disk before the code goes on |
| `many` | 64 runs at once, time for each step of them |
| `resume` | from opening to the first new step of a run with 5,000 finished ones, whose process was killed |
| `bytes` | what is on disk of a conversation of 400 messages of 2 KB, where a model is asked after each second one; |
| `allocated` | ours with what segments of the log are made larger by than what is in them |

Each measure of each system is a process of its own; rounds are interleaved. `raw` is a write over a file of the same
bytes and an fdatasync. SQLite is as the peers open it: `synchronous=FULL` for both, with `journal_mode=delete` by DBOS
and `wal` by LangGraph. PostgreSQL is one server with its defaults. Ours is opened with `durability="strict"`, so that
nothing that it has told is ever lost; LangGraph is invoked with `durability="sync"`. A step of LangGraph is a
superstep, which is what it records. It has no replay: what is resumed is its last state. `dalsegno-loop` is ours in the
same way, an agent that goes on with `dalsegno.again`, in a folder and in PostgreSQL; `langgraph-dalsegno` is LangGraph
with our saver in a folder.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

import argparse
import glob
import itertools
import json
import operator
import os
import pwd
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

HERE = Path(__file__).resolve().parent
PEERS = ["dbos==3.3.*", "langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres", "psycopg[binary]"]
STEPS, RUNS, FINISHED, MESSAGES, BYTES = 100, 64, 5000, 400, 2000
SYSTEMS = [
    "raw",
    "dalsegno-folder",
    "dalsegno-postgres",
    "dalsegno-loop",
    "dalsegno-loop-postgres",
    "dbos-sqlite",
    "dbos-postgres",
    "langgraph-sqlite",
    "langgraph-postgres",
    "langgraph-dalsegno",
]
LEASE_SECONDS = 2.0
"""So long a run on a shared store is not taken over from a process that is dead. That is waited for, not measured."""
MARKS: list[float] = []
BACK = threading.Event()
"""There is a mark. Who looks for it again and again has the interpreter when others want it."""

try:
    import dalsegno as d
except ImportError:  # In the process that only starts the others.
    pass


def words(number: int) -> str:
    """A message, which is never the same and does not shrink much."""
    return f"{number} " + random.Random(number).randbytes(BYTES // 2).hex()


def gaps() -> float:
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(MARKS))


def end_now() -> None:
    """As by a kill: nothing is closed. What nobody waits for has had its time."""
    time.sleep(0.2)
    os.kill(os.getpid(), 9)


# --- Each system: measure(kind, place) gives a number, or None if it has no such thing -----------------


class State(TypedDict):
    """Of LangGraph."""

    n: int
    until: int
    text: str


class Chat(TypedDict):
    """Of LangGraph."""

    said: Annotated[list[str], operator.add]


def raw(kind: str, place: str) -> float | None:
    if kind != "step":
        return None
    content = b"x" * 250
    file = os.open(Path(place) / "raw", os.O_CREAT | os.O_RDWR)
    os.write(file, b"\0" * len(content) * STEPS)
    os.fsync(file)
    for at in range(STEPS):
        MARKS.append(time.perf_counter())
        os.pwrite(file, content, at * len(content))
        os.fdatasync(file)
    MARKS.append(time.perf_counter())
    return gaps()


def dalsegno(kind: str, place: str, is_loop: bool) -> float | None:
    @d.tool(effect="read_only")
    def step(n: int) -> str:
        if n >= 0:
            MARKS.append(time.perf_counter())
            BACK.set()
        if n == FINISHED and kind == "build":
            end_now()
        return "x" * 100

    @d.agent
    def steps(count: int, first: int) -> None:
        for n in range(count):
            step(first + n)

    @d.agent(loop=True)
    def turns(n: int, until: int) -> d.Again | None:
        step(n)
        return d.again(n + 1, until) if n + 1 < until else None

    @d.model
    def ask(chat: d.Conversation) -> str:
        return words(len(chat))

    @d.agent
    def talk() -> None:
        chat = d.conversation("chat")
        while len(chat) < MESSAGES:
            chat.append(words(len(chat)))
            chat.append(ask(chat))

    if is_loop and kind not in ("step", "build", "resume"):
        return None
    agents: list[Any] = [steps, turns, talk]
    begun = time.perf_counter()
    durability: Any = 0.02 if kind in ("build", "resume") else "strict"
    with d.open(place, agents, durability=durability, lease=LEASE_SECONDS) as app:
        if kind == "bytes":
            app.run(talk, "talk")
            return None
        if kind == "many":
            for run in [app.start(steps, f"run {n}", STEPS // 5, -FINISHED) for n in range(RUNS)]:
                run.result()
            return (time.perf_counter() - begun) / (RUNS * (STEPS // 5))
        if kind == "resume":
            BACK.wait()
            return MARKS[0] - begun
        count = FINISHED + 1 if kind == "build" else STEPS
        if is_loop:
            app.run(turns, "run", 0, count)
        else:
            app.run(steps, "run", count, 0)
    return gaps()


def dbos(kind: str, place: str) -> float | None:
    from dbos import DBOS, SetWorkflowID

    begun = time.perf_counter()
    DBOS(config={"name": "bench", "system_database_url": place, "run_admin_server": False, "log_level": "CRITICAL"})

    @DBOS.step()
    def step(n: int) -> str:
        if n >= 0:
            MARKS.append(time.perf_counter())
            BACK.set()
        if n == FINISHED and kind == "build":
            end_now()
        return "x" * 100

    @DBOS.workflow()
    def steps(count: int, first: int) -> None:
        for n in range(count):
            step(first + n)

    @DBOS.step()
    def say(turn: int) -> str:
        return words(turn)

    @DBOS.step()
    def ask(chat: list[str]) -> str:
        return words(len(chat))

    @DBOS.workflow()
    def talk() -> None:
        chat: list[str] = []
        while len(chat) < MESSAGES:
            chat.append(say(len(chat)))
            chat.append(ask(chat))

    DBOS.launch()
    if kind == "resume":
        BACK.wait()
        end = MARKS[0] - begun
        print(json.dumps({"value": end}), flush=True)
        end_now()
    if kind == "bytes":
        talk()
    elif kind == "many":
        begun = time.perf_counter()
        for handle in [DBOS.start_workflow(steps, STEPS // 5, -FINISHED) for _ in range(RUNS)]:
            handle.get_result()
        return (time.perf_counter() - begun) / (RUNS * (STEPS // 5))
    else:
        with SetWorkflowID("run"):
            steps(FINISHED + 1 if kind == "build" else STEPS, 0)
    DBOS.destroy()
    return gaps() if kind == "step" else None


def langgraph(kind: str, place: str, is_ours: bool) -> float | None:
    from langgraph.graph import END, START, StateGraph

    # What is imported is not measured, of nobody.
    if is_ours:
        from dalsegno.langgraph import DalsegnoSaver
    elif place.startswith("postgres"):
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import ConnectionPool
    else:
        import sqlite3

        from langgraph.checkpoint.sqlite import SqliteSaver

    begun = time.perf_counter()

    def step(state: Any) -> Any:
        if state["until"] != STEPS // 5:
            MARKS.append(time.perf_counter())
        if state["n"] == FINISHED and kind == "build":
            end_now()
        return {"n": state["n"] + 1, "text": "x" * 100}

    def say(state: Any) -> Any:
        return {"said": [words(len(state["said"]))]}

    def ask(state: Any) -> Any:
        return {"said": [words(len(state["said"]))]}

    def saver() -> Any:
        if is_ours:
            return DalsegnoSaver(place)
        if place.startswith("postgres"):
            how: Any = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
            size = 16 if kind == "many" else 1
            connections: Any = ConnectionPool(place, min_size=size, max_size=size, kwargs=how)
            made: Any = PostgresSaver(connections)
        else:
            made = SqliteSaver(sqlite3.connect(place, check_same_thread=False))
        made.setup()
        return made

    saved = saver()
    builder: Any
    if kind == "bytes":
        builder = StateGraph(Chat)
        builder.add_node("say", say)
        builder.add_node("ask", ask)
        builder.add_edge(START, "say")
        builder.add_edge("say", "ask")
        builder.add_conditional_edges("ask", lambda state: END if len(state["said"]) >= MESSAGES else "say")
    else:
        builder = StateGraph(State)
        builder.add_node("step", step)
        builder.add_edge(START, "step")
        builder.add_conditional_edges("step", lambda state: END if state["n"] >= state["until"] else "step")
    graph = builder.compile(checkpointer=saved)

    def run(name: str, given: Any) -> None:
        config = {"configurable": {"thread_id": name}, "recursion_limit": 3 * FINISHED}
        graph.invoke(given, config, durability="sync")

    if kind == "bytes":
        run("talk", {"said": []})
        return None
    if kind == "many":
        from concurrent.futures import ThreadPoolExecutor

        begun = time.perf_counter()
        with ThreadPoolExecutor(RUNS) as pool:
            list(pool.map(lambda n: run(f"run {n}", {"n": 0, "until": STEPS // 5, "text": ""}), range(RUNS)))
        return (time.perf_counter() - begun) / (RUNS * (STEPS // 5))
    if kind == "resume":
        run("run", None)
        return MARKS[0] - begun
    run("run", {"n": 0, "until": FINISHED + 1 if kind == "build" else STEPS, "text": ""})
    return gaps()


def measure(system: str, kind: str, place: str) -> float | None:
    if system == "raw":
        return raw(kind, place)
    if system.startswith("dalsegno"):
        return dalsegno(kind, place, "loop" in system)
    if system.startswith("dbos"):
        return dbos(kind, place)
    return langgraph(kind, place, system == "langgraph-dalsegno")


# --- All of them, one after the other -----------------------------------------------------------------


@contextmanager
def server() -> Iterator[Callable[[str], str] | None]:
    """A PostgreSQL server; gives the address of a new database by its name."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    if not found:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="dalsegno-bench-pg", dir=os.environ.get("DALSEGNO_BENCH_FOLDER")))
    os.chmod(folder, 0o755)
    user: Any = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    if user:
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)

    def does(*command: str) -> str:
        command = (f"{found[0]}/{command[0]}", *command[1:])
        said: str = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd="/", **user).stdout
        return said

    data = str(folder / "data")
    does("initdb", "-N", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-D", data)
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c max_connections=300"
    start = [f"{found[0]}/pg_ctl", "start", "-w", "-s", "-D", data, "-l", str(folder / "log"), "-o", options]
    subprocess.run(start, check=True, cwd="/", **user)

    def make(name: str) -> str:
        does("psql", "-h", str(folder), "-U", "postgres", "-c", f'create database "{name}"')
        return f"postgresql://postgres@localhost/{name}?host={folder}"

    def size(name: str) -> int:
        return int(does("psql", "-h", str(folder), "-U", "postgres", "-Atc", f"select pg_database_size('{name}')"))

    make.size = size  # type: ignore[attr-defined]
    try:
        yield make
    finally:
        does("pg_ctl", "stop", "-m", "immediate", "-s", "-D", data)
        shutil.rmtree(folder, ignore_errors=True)


def environment() -> str:
    """The Python of the peers, with this package in it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target"))
    python = target / "peers" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(target / "peers")], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "-q", *PEERS], check=True)
    return str(python)


def child(python: str, system: str, kind: str, place: str) -> float | None:
    command = [python, __file__, "--measure", system, kind, place]
    # The package is used as it was built: `maturin develop --release`.
    where = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    ran = subprocess.run(command, capture_output=True, text=True, env=where, timeout=580)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    if kind == "build":
        assert ran.returncode == -9, ran.stderr[-2000:]
        return None
    assert lines, ran.stderr[-2000:]
    found: float | None = json.loads(lines[-1])["value"]
    return found


def on_disk(folder: Path) -> int:
    files = [folder] if folder.is_file() else [path for path in folder.rglob("*") if path.is_file()]
    files += list(folder.parent.glob(f"{folder.name}-*"))
    return sum(path.stat().st_blocks * 512 for path in files)


def written(folder: Path) -> int:
    """Without what a segment has for later: it is made of zeros, so that a sync has only bytes to write."""
    return sum(len(path.read_bytes().rstrip(b"\0")) for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=["step", "many", "resume", "bytes"])
    parser.add_argument("--systems", nargs="*", default=SYSTEMS)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps({"value": measure(*options.measure)}), flush=True)
        return
    python = environment()
    folder = Path(tempfile.mkdtemp(prefix="dalsegno-peers-", dir=os.environ.get("DALSEGNO_BENCH_FOLDER")))
    found: dict[tuple[str, str], list[float]] = {}
    try:
        with server() as make:
            for kind in options.only:
                for turn in range(options.rounds if kind != "bytes" else 1):
                    for system in options.systems:
                        value = one(python, system, kind, folder, f"{system}-{kind}-{turn}", make, found)
                        if value is not None:
                            found.setdefault((kind, system), []).append(value)
                            print(f"  {kind} {system} {value:.6g}", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sync = statistics.median(found.get(("step", "raw"), [float("nan")]))
    for (kind, system), values in found.items():
        middle = statistics.median(values)
        if kind in ("bytes", "allocated"):
            print(f"{kind:9} {system:20} {middle / 1e6:10.2f} MB")
        else:
            ratio = f"{middle / sync:8.2f} fdatasyncs" if kind != "resume" else ""
            print(f"{kind:9} {system:20} {1e3 * middle:10.3f} ms {ratio}")


def one(python: str, system: str, kind: str, folder: Path, name: str, make: Any, found: Any) -> float | None:
    database = name.replace("-", "_")
    if system.endswith("postgres"):
        if make is None:
            return None
        place = make(database)
        place = place.replace("postgresql://", "postgres://") if system.startswith("dalsegno") else place
    elif system == "dbos-sqlite":
        place = f"sqlite:///{folder / name}"
    else:
        place = str(folder / name)
        if system == "raw":
            Path(place).mkdir()
    if kind == "resume":
        if system == "raw":
            return None
        child(python, system, "build", place)
        if system.startswith("dalsegno") and system.endswith("postgres"):
            time.sleep(LEASE_SECONDS + 1)
        return child(python, system, "resume", place)
    if kind == "bytes" and (system == "raw" or "loop" in system):
        return None
    before = make.size(database) if kind == "bytes" and system.endswith("postgres") else 0
    value = child(python, system, kind, place)
    if kind != "bytes":
        return value
    if system in ("dalsegno-folder", "langgraph-dalsegno"):
        found["allocated", system] = [float(on_disk(folder / name))]
        return float(written(folder / name))
    return float(make.size(database) - before if system.endswith("postgres") else on_disk(folder / name))


if __name__ == "__main__":
    main()
