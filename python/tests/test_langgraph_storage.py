"""What the threads of LangGraph cost, and that nothing of them is lost: space, reading, kill -9, several processes."""

from __future__ import annotations

import operator
import random
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph_worker import at, counting
from test_postgres import database  # noqa: F401
from typing_extensions import TypedDict

import dalsegno
from dalsegno import _dalsegno
from dalsegno.langgraph import DalsegnoSaver

WORKER = Path(__file__).with_name("langgraph_worker.py")


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


def words(seed: str, size: int = 2000) -> str:
    """A text that does not compress to nothing."""
    rng = random.Random(seed)
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789 ", k=size))


def converse(saver: BaseCheckpointSaver[Any], messages: int, thread: str = "1") -> None:
    """A conversation of so many messages of 2 KB, half of them the model's."""
    builder = StateGraph(Chat)
    builder.add_node("answer", lambda state: {"messages": [AIMessage(words(f"a{len(state['messages'])}"))]})
    builder.add_edge(START, "answer")
    graph: Any = builder.compile(checkpointer=saver)
    for turn in range(messages // 2):
        graph.invoke({"messages": [HumanMessage(words(f"q{turn}"))]}, at(thread), durability="async")
    assert len(graph.get_state(at(thread)).values["messages"]) == messages


def size(place: Path) -> int:
    """What is written. The file that is written to is made 16 MB long beforehand, and is zeros behind its end."""
    return sum(len(file.read_bytes().rstrip(b"\0")) for file in place.rglob("*") if file.is_file())


def ours(place: Path, messages: int, serde: SerializerProtocol | None = None) -> int:
    with DalsegnoSaver(place, serde=serde) as saver:
        converse(saver, messages)
    return size(place)


def sqlite(place: Path, messages: int) -> int:
    place.mkdir()
    with SqliteSaver.from_conn_string(str(place / "checkpoints.db")) as saver:
        converse(saver, messages)
    return size(place)


def test_a_conversation_costs_what_is_said_in_it(tmp_path: Path) -> None:
    cipher = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    rows = {
        "DalsegnoSaver": [ours(tmp_path / f"ours {n}", n) for n in (100, 400)],
        "DalsegnoSaver, encrypted": [ours(tmp_path / f"encrypted {n}", n, cipher) for n in (100, 400)],
        "SqliteSaver": [sqlite(tmp_path / f"sqlite {n}", n) for n in (100, 400)],
    }
    print(f"\n{'bytes on disk':28}{'100 messages':>14}{'400 messages':>14}{'ratio':>8}")
    for name, (few, many) in rows.items():
        print(f"{name:28}{few:14,}{many:14,}{many / few:8.1f}")
    for name in ("DalsegnoSaver", "DalsegnoSaver, encrypted"):
        few, many = rows[name]
        assert many / few < 5, name
    assert rows["DalsegnoSaver"][1] * 10 < rows["SqliteSaver"][1]


def test_what_is_deleted_leaves_the_disk(tmp_path: Path) -> None:
    place = tmp_path / "store"
    with DalsegnoSaver(place) as saver:
        converse(saver, 60, "kept")
    before = size(place)
    with DalsegnoSaver(place) as saver:
        converse(saver, 100, "pruned")
        converse(saver, 100, "deleted")
        saver.copy_thread("kept", "copy")
        full = size(place)
        saver.prune(["pruned"])
        saver.delete_thread("deleted")
        assert len(list(saver.list(at("pruned")))) == 1
        assert list(saver.list(at("deleted"))) == []
        saver.delete_thread("pruned")
        after = size(place)
        print(f"\nbefore {before:,}, with two conversations more {full:,}, without them {after:,}")
        assert after - before < (full - before) * 0.45
    with DalsegnoSaver(place) as saver:
        for thread in ("kept", "copy"):
            found = saver.get_tuple(at(thread))
            assert found is not None
            assert len(found.checkpoint["channel_values"]["messages"]) == 60
        assert saver.get_tuple(at("deleted")) is None


def test_deleting_under_who_goes_on(tmp_path: Path) -> None:
    with dalsegno.open(tmp_path / "store") as app:
        first, second = DalsegnoSaver(app), DalsegnoSaver(app)
        converse(first, 10)
        found = first.get_tuple(at("1"))
        assert found is not None
        second.delete_thread("1")
        # As a graph does that was at work: the next checkpoint behind the one that it has read.
        checkpoint = {**found.checkpoint, "id": found.checkpoint["id"] + "x"}
        first.put(found.config, checkpoint, {"step": 9}, {})  # type: ignore[arg-type]
        for saver in (first, second, DalsegnoSaver(app)):
            again = saver.get_tuple(at("1"))
            assert again is not None
            assert again.checkpoint["channel_values"] == found.checkpoint["channel_values"]
            assert len(list(saver.list(at("1")))) == 1


def test_deleting_very_much(tmp_path: Path) -> None:
    with dalsegno.open(tmp_path / "store") as app:
        saver = DalsegnoSaver(app)
        thread = saver._keeper.thread("1")
        asked = saver._keeper.streams.append(thread.stream, None, [("value", "", bytes(2000))] * 9000)
        assert asked.pending.wait()[0] is None
        saver.delete_thread("1")
        assert len(thread.gone & set(range(1, 9001))) == 9000
        assert thread.head == 9000 + 3 + 3


class Counting:
    """Streams that count how many events are read."""

    def __init__(self, streams: _dalsegno.Streams) -> None:
        self._streams = streams
        self.events = 0
        self.payloads_read = 0

    def read(self, stream: str, begin: int, limit: int) -> _dalsegno.Asked:
        self.events += limit
        return self._streams.read(stream, begin, limit)

    def payloads(self, stream: str, sequences: list[int]) -> _dalsegno.Asked:
        self.payloads_read += len(sequences)
        return self._streams.payloads(stream, sequences)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._streams, name)


def test_the_newest_is_found_without_the_past(tmp_path: Path) -> None:
    place = tmp_path / "store"
    with DalsegnoSaver(place) as saver:
        graph = counting(saver, 600)
        graph.invoke({"log": ["go"]}, {**at("1"), "recursion_limit": 1000}, durability="async")
    with DalsegnoSaver(place) as saver:
        counted = Counting(saver._keeper.streams)
        saver._keeper.streams = counted  # type: ignore[assignment]
        found = saver.get_tuple(at("1"))
        assert found is not None
        assert len(found.checkpoint["channel_values"]["log"]) == 600
        thread = saver._keeper.thread("1")
        assert thread.head > 1200
        assert thread.low > thread.head - 40
        assert counted.events <= 40
        assert counted.payloads_read <= 4
        assert len(list(saver.list(at("1"), limit=3))) == 3


def spawn(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKER), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_kill_between_steps_loses_nothing(tmp_path: Path) -> None:
    place, steps = tmp_path / "store", 40
    begun: list[str] = []
    rng = random.Random(1)
    while True:
        process = spawn("count", place, steps)
        assert process.stdout is not None
        survives = rng.randrange(1, 8)
        ended = ""
        for line in process.stdout:
            if line.startswith("end"):
                ended = line.strip()
                break
            begun.append(line.strip())
            survives -= 1
            if survives == 0:
                process.kill()
                break
        process.communicate()
        if ended:
            break
        with DalsegnoSaver(place) as saver:
            # When a step began, everything before it had been acknowledged.
            state = counting(saver, steps).get_state(at("1"))
            assert len(state.values["log"]) >= int(begun[-1].split()[1])
    assert ended.split(",")[1:] == ["go", *(f"step {n}" for n in range(1, steps))]
    assert [int(line.split()[1]) for line in begun] == sorted(int(line.split()[1]) for line in begun)


def test_a_graph_in_a_run_that_is_killed(tmp_path: Path) -> None:
    place, calls = tmp_path / "store", tmp_path / "calls"
    log: list[str] = []
    for what in ("tea", "cake"):
        calls.write_text("")
        process = spawn("run", place, calls, what)
        assert process.communicate(timeout=60)[0] == ""
        assert process.returncode == -9
        assert calls.read_text().splitlines() == [f"find {what}", "more"]
        process = spawn("run", place, calls, what)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        log += [what, f"<find {what}>", "<more>", f"<check {len(log) + 3}>"]
        assert out.strip() == ",".join(log)
        # Nothing was called twice, although the graph has gone through it all again.
        assert calls.read_text().splitlines() == [f"find {what}", "more", f"check {len(log) - 1}"]


def test_a_deletion_that_is_killed(tmp_path: Path) -> None:
    place = tmp_path / "store"
    rng = random.Random(2)
    empty = 0
    for _ in range(6):
        with DalsegnoSaver(place) as saver:
            empty = empty or size(place)
            converse(saver, 40)
        process = spawn("delete", place)
        assert process.stdout is not None
        assert process.stdout.readline() == "begin\n"
        try:
            process.wait(rng.random() / 30)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        with DalsegnoSaver(place) as saver:
            left = saver.get_tuple(at("1"))
            # All of it, or nothing of it.
            assert left is None or len(left.checkpoint["channel_values"]["messages"]) == 40
            assert list(saver.list(at("1"))) == [] or left is not None
            saver.delete_thread("1")
        # A conversation is 280 KB; what its events were stays.
        assert size(place) < empty + 400_000


def test_many_threads_and_processes_in_a_database(database: str) -> None:  # noqa: F811
    workers = [spawn("many", database, name, 8, 5) for name in ("a", "b", "c")]
    for worker in workers:
        out, err = worker.communicate(timeout=120)
        assert out == "done\n", err
    with DalsegnoSaver(database) as saver:
        for name in ("a", "b", "c"):
            for n in range(8):
                found = saver.get_tuple(at(f"{name}-{n}"))
                assert found is not None
                expected = [entry for turn in range(5) for entry in (f"{name} {turn}", str(2 * turn + 1))]
                assert found.checkpoint["channel_values"]["log"] == expected
                saver.delete_thread(f"{name}-{n}")
