"""Embedders: recorded under their id, never asked again; vectors of numbers, bytes and arrays."""

from __future__ import annotations

import json
import struct
import threading
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
from conftest import Open

import dalsegno
from dalsegno import Embedder, StaticTable, Vector, aio
from dalsegno.testing import CrashEverywhere

ROWS = {"[UNK]": (9.0, 9.0), "pear": (1.0, 0.0), "car": (0.0, 1.0), "apple": (1.0, 0.25)}


@pytest.fixture(autouse=True)
def table(tmp_path: Path) -> StaticTable:
    """A model so small that a test can write it down."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {word: n for n, word in enumerate(ROWS)}, "unk_token": "[UNK]"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    data = b"".join(struct.pack("<2f", *row) for row in ROWS.values())
    header = json.dumps({"t": {"dtype": "F32", "shape": [len(ROWS), 2], "data_offsets": [0, len(data)]}}).encode()
    (folder / "tiny.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    TABLES[:] = [StaticTable(folder)]
    CALLS.clear()
    return TABLES[0]


TABLES: list[StaticTable] = []
CALLS: list[list[str]] = []


def numbers(texts: list[str]) -> list[list[float]]:
    CALLS.append(texts)
    return [[float(text.count("a")), float(text.count("e")), 1.0] for text in texts]


MINE = Embedder(numbers, name="letters", dimensions=3, version="1")


def test_vectors_are_numbers_bytes_or_arrays() -> None:
    same = Vector.of([3.0, -4.0, 100.0])
    assert same.components == bytes([15, 236, 127])
    for form in (
        (3, -4, 100),
        numpy.array([3, -4, 100]),
        numpy.array([3, -4, 100], dtype=numpy.float32),
        numpy.array([3.0, 9, -4, 9, 100, 9])[::2],
        bytes([15, 236, 127]),
        numpy.array([15, -20, 127], dtype=numpy.int8),
        bytearray([15, 236, 127]),
        same,
    ):
        assert Vector.of(form) == same, form
    assert same.dimensions == 3


def test_a_table_embeds_outside_of_runs(table: StaticTable, tmp_path: Path) -> None:
    assert table.dimensions == 2
    assert table.id.startswith("tiny#")
    pear, apple, nothing = table.embed(["pear", "Apple", ""])
    assert (pear.components, nothing.components) == (bytes([127, 0]), bytes(2))
    assert apple.components == bytes([127, 124])
    assert pear.model == table.id
    assert StaticTable(tmp_path / "tiny", dimensions=1, name="cut").id.startswith("cut#")


def test_a_table_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(dalsegno.MemoryFailure, match="check the folder of the model"):
        StaticTable(tmp_path / "nothing")
    with pytest.raises(dalsegno.MemoryFailure, match="2 components, not 7"):
        StaticTable(tmp_path / "tiny", dimensions=7)


@dalsegno.agent
def by_meaning(query: str) -> list[tuple[int, int]]:
    memory = dalsegno.memory("things")
    texts = ["a pear", "a car"]
    for text, vector in zip(texts, dalsegno.embed(TABLES[0], texts), strict=True):
        memory.add(text, vector=vector)
    [vector] = dalsegno.embed(TABLES[0], [query])
    return [(hit.id, hit.score) for hit in memory.search(query, vector=vector).hits]


def test_hybrid_search_in_a_run(opened: Open) -> None:
    app = opened(by_meaning)
    found = app.run(by_meaning, "run", "apple")
    assert found[0][0] == 1
    assert opened(by_meaning).run(by_meaning, "run", "apple") == found


def test_a_memory_refuses_vectors_of_another_model(opened: Open, table: StaticTable) -> None:
    memory = opened().memory("things")
    memory.add("a pear", vector=table.embed(["pear"])[0])
    other = Embedder(lambda texts: [[1.0, 2.0] for _ in texts], name="other", dimensions=2)
    with pytest.raises(dalsegno.MemoryFailure, match=f"model {other.id}, but .* are of {table.id}"):
        memory.add("a car", vector=other.embed(["car"])[0])
    with pytest.raises(dalsegno.MemoryFailure, match=f"model {other.id}, but .* are of {table.id}"):
        memory.search(vector=other.embed(["car"])[0])
    assert memory.search(vector=table.embed(["pear"])[0]).hits[0].id == 1


@dalsegno.agent
def with_mine(texts: list[str]) -> list[str]:
    return [vector.components.hex() for vector in dalsegno.embed(MINE, texts)]


@dalsegno.agent
async def with_mine_async(texts: list[str]) -> list[str]:
    return [vector.components.hex() for vector in await aio.embed(MINE, texts)]


@pytest.mark.parametrize("agent", [with_mine, with_mine_async])
def test_a_function_is_asked_once(opened: Open, agent: dalsegno.Agent[[list[str]], list[str]]) -> None:
    app = opened(agent)
    made = app.run(agent, "run", ["banana", "tree"])
    assert made == [vector.components.hex() for vector in MINE.embed(["banana", "tree"])]
    assert CALLS == [["banana", "tree"]] * 2
    app = opened(agent)
    assert app.run(agent, "run", ["banana", "tree"]) == made
    assert app.replay("run").same
    assert len(CALLS) == 2


@pytest.mark.parametrize("agent", [with_mine, with_mine_async])
def test_killed_anywhere(crash_everywhere: CrashEverywhere, agent: dalsegno.Agent[[list[str]], list[str]]) -> None:
    crash_everywhere(agent, ["banana"])


def test_other_texts_are_a_mismatch(opened: Open) -> None:
    @dalsegno.agent(name="with_mine")
    def changed(texts: list[str]) -> list[str]:
        return [vector.components.hex() for vector in dalsegno.embed(MINE, texts[:1])]

    opened(with_mine).run(with_mine, "run", ["banana", "tree"])
    assert not opened(changed).replay("run").same


class Down(Exception):
    pass


def down(_: list[str]) -> list[list[float]]:
    CALLS.append([])
    raise Down("the server is away")


BROKEN = {
    "raises": (Embedder(down, name="down", dimensions=3), "the server is away"),
    "count": (Embedder(lambda texts: [[1.0]], name="few", dimensions=1), "1 vectors for 2 texts"),
    "dimensions": (
        Embedder(lambda t: [[1.0]] * 2, name="small", dimensions=3),
        "of 1 dimensions, and is said to have 3",
    ),
    "NaN": (Embedder(lambda t: [[float("nan")]] * 2, name="nan", dimensions=1), "component 0 of the vector is NaN"),
    "words": (Embedder(lambda t: ["a", "b"], name="words", dimensions=1), "a str is no vector"),  # type: ignore[list-item]
}


@dalsegno.agent
def with_broken(which: str) -> str:
    try:
        return str(dalsegno.embed(BROKEN[which][0], ["a", "b"]))
    except Exception as e:
        return f"{type(e).__name__}: {e}"


@pytest.mark.parametrize("which", BROKEN)
def test_functions_that_fail(opened: Open, which: str) -> None:
    said = opened(with_broken).run(with_broken, "run", which)
    assert BROKEN[which][1] in said
    assert opened(with_broken).run(with_broken, "run", which) == said
    if which == "raises":
        assert said == "Down: the server is away"
        assert len(CALLS) == 1


def test_bad_use(opened: Open) -> None:
    async def later(texts: list[str]) -> list[list[float]]:
        return []

    with pytest.raises(dalsegno.BadUse, match="is async"):
        Embedder(later, name="later", dimensions=3)  # type: ignore[arg-type]
    with pytest.raises(dalsegno.BadUse, match="give a list with it"):
        MINE.embed("banana")
    with pytest.raises(dalsegno.BadUse, match="outside of a run"):
        dalsegno.embed(MINE, ["banana"])
    with pytest.raises(dalsegno.BadUse, match="is no embedder"):
        dalsegno.embed(numbers, ["banana"])  # type: ignore[arg-type]
    with pytest.raises(dalsegno.RunFailed, match="1001 texts, the limit is 1000"):
        opened(with_mine).run(with_mine, "run", ["x"] * 1001)
    assert CALLS == []


def test_embedding_lets_go_of_the_interpreter(table: StaticTable) -> None:
    """Others run meanwhile: nobody is kept waiting for as long as it takes."""
    longest, ends = [0.0], threading.Event()

    def look() -> None:
        last = time.monotonic()
        while not ends.is_set():
            now = time.monotonic()
            longest[0], last = max(longest[0], now - last), now

    thread = threading.Thread(target=look)
    thread.start()
    begun = time.monotonic()
    table.embed(["pear car apple " * 2000] * 20)
    took = time.monotonic() - begun
    ends.set()
    thread.join()
    assert longest[0] < took / 2
