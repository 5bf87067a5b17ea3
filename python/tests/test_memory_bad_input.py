"""What a memory cannot do is refused in words, the same in runs and outside, and changes nothing."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from conftest import Open

import dalsegno
from dalsegno import MemoryFailure, TooLarge
from dalsegno._memory import MemoryMethods

MIB = 1 << 20
AnyMemory = MemoryMethods[Any, Any, Any, Any]
NAIVE = datetime.datetime(2026, 5, 1)
LATER, EARLIER = (datetime.datetime(2026, month, 1, tzinfo=datetime.timezone.utc) for month in (6, 5))

Ask = Callable[[Any], object]

# What is asked of a memory that has one document, with a vector of 3 dimensions; what is raised, and what it says.
BAD: dict[str, tuple[Ask, type[Exception], str]] = {
    "no text": (lambda m: m.add(""), MemoryFailure, "a document needs text"),
    "50 MB": (lambda m: m.add("x" * 50_000_000), TooLarge, "has 50000000, the limit is 4194304"),
    "bytes": (lambda m: m.add(b"x"), MemoryFailure, "the text is a bytes: give a str"),
    "surrogate": (lambda m: m.add("\ud800"), MemoryFailure, "the text is no text"),
    "kind": (lambda m: m.add("x", "rumour"), MemoryFailure, 'the kind "rumour" is none of fact, constraint, decision'),
    "scope": (lambda m: m.add("x", scope="me"), MemoryFailure, 'the scope "me" is none of "shared"'),
    "confidence": (lambda m: m.add("x", confidence=1.5), MemoryFailure, "a confidence of 1.5"),
    "no confidence": (lambda m: m.add("x", confidence=math.nan), MemoryFailure, "a confidence of nan"),
    "no zone": (lambda m: m.add("x", valid_from=NAIVE), MemoryFailure, "valid_from has no time zone"),
    "swapped": (lambda m: m.add("x", valid_from=LATER, valid_until=EARLIER), MemoryFailure, "swap the times"),
    "long title": (lambda m: m.add("x", title="t" * 2000), TooLarge, "a title has 2000, the limit is 1000"),
    "many tags": (lambda m: m.add("x", tags=map(str, range(65))), TooLarge, "tags of a document has 65"),
    "dimension": (lambda m: m.add("x", vector=[1.0, 2.0]), MemoryFailure, "vector of 2 dimensions, but .* have 3"),
    "query dimension": (lambda m: m.search(vector=bytes(4)), MemoryFailure, "vector of 4 dimensions, but .* have 3"),
    "NaN": (lambda m: m.add("x", vector=[0.5, math.nan, 1.0]), MemoryFailure, "component 1 of the vector is NaN"),
    "infinite": (
        lambda m: m.search(vector=numpy.array([0.5, 0.5, -math.inf])),
        MemoryFailure,
        "component 2 of the vector is -inf",
    ),
    "too large a number": (
        lambda m: m.add("x", vector=[1e300, 0, 0]),
        MemoryFailure,
        "component 0 of the vector is inf",
    ),
    "no dimensions": (lambda m: m.add("x", vector=[]), MemoryFailure, "a vector without dimensions"),
    "many dimensions": (lambda m: m.add("x", vector=bytes(20_000)), MemoryFailure, "20000, the limit is 16384"),
    "a matrix": (lambda m: m.add("x", vector=numpy.zeros((2, 3))), MemoryFailure, "an array of 2 axes is no vector"),
    "words as vector": (lambda m: m.search(vector="123"), MemoryFailure, "a str is no vector"),
    "model": (lambda m: m.add("x", vector=bytes(3), model="other"), MemoryFailure, "model other, but .* are of mine"),
    "nothing to search": (lambda m: m.search(), MemoryFailure, "give words, a vector, or both"),
    "query": (lambda m: m.search("x" * (MIB + 1)), TooLarge, "has 1048577, the limit is 1048576"),
    "limit": (lambda m: m.search("x", limit=-1), MemoryFailure, "the limit is -1"),
    "high limit": (lambda m: m.search("x", limit=10_001), TooLarge, "10001, the limit is 10000"),
    "language": (
        lambda m: m.search("x", ranking=dalsegno.Ranking(language="klingon")),
        MemoryFailure,
        'the language "klingon" is none of none, arabic',
    ),
    "b": (lambda m: m.search("x", ranking=dalsegno.Ranking(b=2.0)), MemoryFailure, "b is 2000, and may be from 0 to"),
    "version": (lambda m: m.search("x", as_of=-1), MemoryFailure, "the version is -1"),
    "hash": (lambda m: m.search("x", as_of=dalsegno.Version(1, "x")), MemoryFailure, "the hash of the version is none"),
    "document": (lambda m: m.get(99), MemoryFailure, "has no document 99"),
    "no document": (lambda m: m.get("oven"), MemoryFailure, "the document is 'oven'"),
    "correct": (lambda m: m.correct(99, "x"), MemoryFailure, "has no document 99"),
    "forget": (lambda m: m.forget([1, 99]), MemoryFailure, "has no document 99"),
    "reason": (lambda m: m.retract(1, "r" * 2000), TooLarge, "2000, the limit is 1000"),
}


@dalsegno.agent
def asks(case: str) -> str:
    memory = dalsegno.memory("kitchen")
    try:
        return f"nothing was raised, but given: {BAD[case][0](memory)}"
    except dalsegno.Error as e:
        return f"{type(e).__name__}: {e}"


@pytest.mark.parametrize("case", BAD)
def test_bad_input(opened: Open, case: str) -> None:
    ask, error, words = BAD[case]
    app = opened(asks)
    memory = app.memory("kitchen")
    memory.add("There is an oven.", vector=[1.0, 2.0, 3.0], model="mine")
    with pytest.raises(error, match=words) as raised:
        ask(memory)
    assert type(raised.value) is error
    said = app.run(asks, "run", case)
    assert said.startswith(f"{error.__name__}: "), said
    with pytest.raises(error, match=words):
        raise error(said)
    assert memory.version().sequence == 1
    assert app.replay("run").same


def test_a_query_may_be_empty_or_long(opened: Open) -> None:
    memory = opened().memory("kitchen")
    memory.add("There is an oven.")
    for empty in ("", " ", "?!…", "\0"):
        found = memory.search(empty)
        assert (found.hits, found.words) == ((), ())
    long = memory.search("oven " * (MIB // 5))
    assert [hit.id for hit in long.hits] == [1]
    many = memory.search(" ".join(f"w{n}" for n in range(300)))
    assert (len(many.words), many.words_left_out) == (256, 44)


@pytest.mark.parametrize("name", ["", "x" * 1000, "a\0b"])
def test_names_that_cannot_be_one(opened: Open, name: str) -> None:
    app = opened(named)
    with pytest.raises(MemoryFailure):
        app.memory(name).version()
    with pytest.raises(dalsegno.RunFailed):
        app.run(named, "run", name)


@dalsegno.agent
def named(name: str) -> int:
    return dalsegno.memory(name).version().sequence


@dalsegno.agent
def as_of_a_time() -> object:
    return dalsegno.memory("kitchen").search("oven", as_of=EARLIER)


def test_a_run_searches_versions_and_not_times(opened: Open) -> None:
    with pytest.raises(dalsegno.RunFailed, match=r"not recorded: ask app\.memory"):
        opened(as_of_a_time).run(as_of_a_time, "run")


def test_a_closed_store(opened: Open) -> None:
    app = opened()
    memory = app.memory("kitchen")
    app.close()
    with pytest.raises(dalsegno.Closed):
        memory.add("oven")
