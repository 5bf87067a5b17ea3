"""Memories in runs and outside: written once, found the same ever after."""

from __future__ import annotations

import asyncio
import datetime
import re
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from conftest import Open

import dalsegno
from dalsegno import Found, aio
from dalsegno.testing import CrashEverywhere

UTC = datetime.timezone.utc
OVEN = "The oven takes 12 minutes to heat up."
NUTS = "No nuts: a guest is allergic."


def bits(found: Found) -> list[tuple[int, int, int]]:
    """What must be the same, bit for bit."""
    return [(hit.rank, hit.id, hit.score) for hit in found.hits]


# --- Outside of runs ---------------------------------------------------------------------------------


def test_what_is_added_is_found_with_all_that_was_said(opened: Open) -> None:
    kitchen = opened().memory("kitchen", by="ann")
    noon, night = datetime.datetime(2026, 5, 1, 12, tzinfo=UTC), datetime.datetime(2026, 5, 1, 23, tzinfo=UTC)
    oven = kitchen.add(
        OVEN,
        title="Oven",
        sources=["manual.pdf", "mail/17"],
        tags=["heat"],
        confidence=0.9,
        scope="agent/cook",
        valid_from=noon,
        valid_until=night,
    )
    found = kitchen.search("heating the oven")
    [hit] = found.hits
    assert (hit.id, hit.rank, hit.text, hit.title, hit.kind) == (oven, 1, OVEN, "Oven", "fact")
    assert (hit.sources, hit.tags, hit.confidence) == (("manual.pdf", "mail/17"), ("heat",), 0.9)
    assert (hit.scope, hit.valid_from, hit.valid_until) == ("agent/cook", noon, night)
    assert type(hit.score) is int
    assert hit.score > 0
    assert abs(datetime.datetime.now(UTC) - hit.recorded) < datetime.timedelta(minutes=1)
    assert found.version == kitchen.version()
    assert found.words == ("heat", "oven")
    document = kitchen.get(oven)
    assert (document.by, document.text, document.ended, document.version) == ("ann", OVEN, None, kitchen.version())
    with pytest.raises(FrozenInstanceError):
        document.text = "other"  # type: ignore[misc]


def test_filters_choose_among_hits(opened: Open) -> None:
    kitchen = opened().memory("kitchen")
    may = datetime.datetime(2026, 5, 1, tzinfo=UTC)
    fact = kitchen.add("oven one", tags=["a", "b"], valid_until=may)
    plan = kitchen.add("oven two", "plan", tags=["b"], scope="run/monday")
    sure = kitchen.add("oven three", "constraint", tags=["c"], confidence=0.5)

    def ids(**filters: Any) -> set[int]:
        listed = {document.id for document in kitchen.list(**filters)}
        assert listed == {hit.id for hit in kitchen.search("oven", **filters).hits}
        return listed

    assert ids() == {fact, plan, sure}
    assert ids(kinds="fact") == {fact}
    assert ids(kinds=["fact", "plan"]) == {fact, plan}
    assert ids(tags=["a", "b"]) == {fact}
    assert ids(any_tags=["a", "c"]) == {fact, sure}
    assert ids(scope="run/monday") == {plan}
    assert ids(scope=["run/monday", "shared"]) == {fact, plan, sure}
    assert ids(confidence_from=0.6) == {fact, plan}
    assert ids(valid_at=may) == {plan, sure}
    assert ids(valid_at=may - datetime.timedelta(seconds=1)) == {fact, plan, sure}
    assert ids(recorded_from=datetime.datetime.now(UTC) + datetime.timedelta(days=1)) == set()
    assert ids(recorded_until=datetime.datetime(1960, 1, 1, tzinfo=UTC)) == set()
    assert [document.id for document in kitchen.list(after=fact, limit=1)] == [plan]
    assert len(kitchen.search("oven", limit=2).hits) == 2
    cut = kitchen.search("oven", context_bytes=20)
    assert len(cut.hits) == 2
    assert [(left.rank, left.bytes) for left in cut.left_out] == [(3, len("oven three"))]


def test_a_memory_as_it_was(opened: Open) -> None:
    kitchen = opened().memory("kitchen", by="ann")
    oven = kitchen.add(OVEN, sources=["manual.pdf"])
    then = kitchen.version()
    before = kitchen.search("oven")
    at = datetime.datetime.now(UTC)
    new = kitchen.correct(oven, "The new oven heats up in 7 minutes.", sources=["mail/17"])
    kitchen.add(NUTS, "constraint")
    assert [hit.id for hit in kitchen.search("oven").hits] == [new]
    for as_of in (then, then.sequence, at):
        old = kitchen.search("oven", as_of=as_of)
        assert (bits(old), old.digest, old.version) == (bits(before), before.digest, then)
        assert [document.id for document in kitchen.list(as_of=as_of)] == [oven]
        assert kitchen.version(as_of) == then
    assert kitchen.search("oven", as_of=datetime.datetime(1969, 1, 1, tzinfo=UTC)).hits == ()
    first, second = kitchen.history(new)
    assert (first.id, first.text, second.id, second.ended) == (oven, OVEN, new, None)
    assert first.ended is not None
    assert (first.ended.how, first.ended.corrected_by, first.ended.by) == ("corrected", new, "ann")
    changes = kitchen.changes(after=then)
    assert [(change.what, change.documents, change.new) for change in changes] == [
        ("corrected", (oven,), new),
        ("added", (3,), None),
    ]
    assert len(kitchen.changes()) == 3
    assert [change.sequence for change in kitchen.changes(until=then)] == [1]
    with pytest.raises(dalsegno.MemoryFailure, match="another history"):
        kitchen.search("oven", as_of=dalsegno.Version(1, "0" * 64))
    with pytest.raises(dalsegno.MemoryFailure, match="no version 9 yet"):
        kitchen.search("oven", as_of=9)


def test_what_is_forgotten_is_gone_and_said_to_be(opened: Open, place: Path) -> None:
    kitchen = opened().memory("kitchen", by="ann")
    secret = "the marmalade is behind the flour"
    id = kitchen.add(secret)
    other = kitchen.add(OVEN)
    then = kitchen.version()
    kitchen.retract(other, "it was sold")
    assert kitchen.forget([id], "the owner asked for it") == 4
    assert kitchen.search("marmalade").hits == ()
    assert kitchen.search("marmalade", as_of=then).forgotten_since == 1
    with pytest.raises(dalsegno.DocumentEnded, match="forgotten by ann"):
        kitchen.get(id)
    with pytest.raises(dalsegno.DocumentEnded, match="retracted by ann"):
        kitchen.correct(other, "It heats up.")
    [revision] = kitchen.history(id)
    assert revision.text == ""
    assert revision.ended is not None
    assert (revision.ended.how, revision.ended.reason) == ("forgotten", "the owner asked for it")
    ended = kitchen.get(other).ended
    assert ended is not None
    assert (ended.how, ended.reason) == ("retracted", "it was sold")
    opened()
    for file in place.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes(), file


def test_a_score_is_explained(opened: Open) -> None:
    kitchen = opened().memory("kitchen")
    vector = dalsegno.Vector.of([1.0, 2.0, 3.0])
    kitchen.add(OVEN, vector=vector)
    kitchen.add(NUTS, vector=[3.0, 2.0, 1.0])
    hit = kitchen.search("oven", vector=vector, explain=True).hits[0]
    assert hit.explanation is not None
    words, by_vector = hit.explanation.words, hit.explanation.vector
    assert words is not None
    assert by_vector is not None
    assert [(term.word, term.tf, term.df) for term in words.terms] == [("oven", 1, 1)]
    assert words.score == words.terms[0].score
    assert by_vector.dot == sum(c * c for c in (127, 127, 127))
    assert hit.score == words.fused + by_vector.fused
    assert kitchen.search("oven").hits[0].explanation is None


def test_rankings(opened: Open) -> None:
    kitchen = opened().memory("kitchen")
    kitchen.add("heating ovens")
    usual = kitchen.search("heat the oven")
    whole = kitchen.search("heat the oven", ranking=dalsegno.Ranking(language="none"))
    assert (usual.words, whole.words) == (("heat", "oven"), ("heat", "the", "oven"))
    assert usual.hits
    assert whole.hits == ()
    assert kitchen.search("heat", ranking=dalsegno.Ranking()).ranking == usual.ranking
    spelled = dalsegno.Ranking(language="english", stop_words=True, k1=1.2, b=0.75, fusion_k=10, depth=200)
    assert kitchen.search("heat", ranking=spelled).ranking == usual.ranking
    assert kitchen.search("heat", ranking=dalsegno.Ranking(k1=0.9)).ranking != usual.ranking


def test_the_same_awaited(place: Path) -> None:
    async def main() -> None:
        async with await aio.open(place) as app:
            kitchen = app.memory("kitchen", by="ann")
            added = await asyncio.gather(*(kitchen.add(f"oven {n}") for n in range(8)))
            assert sorted(added) == list(range(1, 9))
            then = await kitchen.version()
            new = await kitchen.correct(1, "stove")
            assert [hit.id for hit in (await kitchen.search("stove", explain=True)).hits] == [new]
            assert len((await kitchen.search("oven", as_of=then)).hits) == 8
            assert await kitchen.retract(2, "cold") == 10
            assert await kitchen.forget(3) == 11
            assert (await kitchen.get(new)).corrects == 1
            assert [revision.id for revision in await kitchen.history(1)] == [1, new]
            assert [change.what for change in await kitchen.changes(then)] == ["corrected", "retracted", "forgotten"]
            assert len(await kitchen.list()) == 6
            with pytest.raises(dalsegno.DocumentEnded):
                await kitchen.get(3)

    asyncio.run(main())


def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    section = page.split("\n## Memory\n")[1].split("\n## ")[0]
    programs = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(programs) == 2
    for program in programs:
        (tmp_path / "program.py").write_text(program)
        command = [sys.executable, "program.py"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stderr
        print(ended.stdout)


# --- In runs -----------------------------------------------------------------------------------------


@dalsegno.agent
def cook(minutes: int) -> list[Any]:
    kitchen = dalsegno.memory("kitchen")
    oven = kitchen.add(f"The oven heats up in {minutes} minutes.", sources=["manual.pdf"])
    found = kitchen.search("heating the oven", limit=3)
    document = kitchen.get(oven)
    version = kitchen.version()
    new = kitchen.correct(oven, "The oven heats up in 7 minutes.")
    retracted = kitchen.retract(new, "it was sold")
    forgotten = kitchen.forget(oven, "the owner asked for it")
    after = kitchen.search("heating the oven")
    return [oven, bits(found), document.by, version.sequence, new, retracted, forgotten, bits(after)]


@dalsegno.agent
async def cook_async(minutes: int) -> list[Any]:
    kitchen = aio.memory("kitchen", by="the cook")
    oven = await kitchen.add(f"The oven heats up in {minutes} minutes.", sources=["manual.pdf"])
    found, document, version = await asyncio.gather(
        kitchen.search("heating the oven", limit=3), kitchen.get(oven), kitchen.version()
    )
    new = await kitchen.correct(oven, "The oven heats up in 7 minutes.")
    retracted = await kitchen.retract(new, "it was sold")
    forgotten = await kitchen.forget([oven], "the owner asked for it")
    after = await kitchen.search("heating the oven")
    return [oven, bits(found), document.by, version.sequence, new, retracted, forgotten, bits(after)]


@pytest.mark.parametrize(("agent", "by"), [(cook, "run/monday"), (cook_async, "the cook")])
def test_every_method_is_a_step(opened: Open, agent: dalsegno.Agent[[int], list[Any]], by: str) -> None:
    app = opened(agent)
    said = app.run(agent, "monday", 12)
    [rank, id, score] = said[1][0]
    assert (rank, id) == (1, 1)
    assert said == [1, [(1, 1, score)], by, 1, 2, 3, 4, []]
    # All of it is from the record now.
    app = opened(agent)
    assert app.run(agent, "monday", 12) == said
    assert app.memory("kitchen").version().sequence == 4
    replayed = app.replay("monday")
    assert replayed.same, replayed
    assert replayed.unchecked == 1


@pytest.mark.parametrize("agent", [cook, cook_async])
def test_killed_anywhere_it_is_written_once_and_found_the_same(
    crash_everywhere: CrashEverywhere, agent: dalsegno.Agent[[int], list[Any]]
) -> None:
    # Sequences are in its result: what was written twice would move them.
    crash_everywhere(agent, 12)


@dalsegno.agent
def recorder(text: str) -> list[Any]:
    shared = dalsegno.memory("shared")
    id = shared.add(text)
    found = shared.search(text)
    return [id, bits(found), shared.version().sequence]


def test_real_processes_killed_between_add_and_search(crash_everywhere: CrashEverywhere) -> None:
    crash_everywhere(recorder, "whales sing", processes=3)


@dalsegno.agent
def looks_twice() -> list[Any]:
    kitchen = dalsegno.memory("kitchen")
    first = kitchen.search("oven")
    go_on = dalsegno.signal("go on", bool)
    hits = [(hit.text, hit.sources, hit.forgotten is not None and hit.forgotten.reason) for hit in first.hits]
    return [bits(first), hits, bits(kitchen.search("oven")), go_on]


def test_what_a_run_found_stays_found_and_forgetting_reaches_it(opened: Open) -> None:
    app = opened(looks_twice)
    kitchen = app.memory("kitchen")
    oven = kitchen.add(OVEN, sources=["manual.pdf"])
    before = bits(kitchen.search("oven"))
    run = app.start(looks_twice, "monday")
    while "signal" not in str(app.why("monday")):
        pass
    kitchen.forget(oven, "the owner asked for it")
    new = kitchen.add("Another oven.")
    app.signal("monday", "go on", True)
    found, hits, now, _ = run.result()
    assert found == before
    assert hits == [("", ("manual.pdf",), "the owner asked for it")]
    assert [id for _, id, _ in now] == [new]
    assert "forgotten" in str(app.replay("monday"))


@dalsegno.agent(name="cook")
def other_cook(minutes: int) -> list[Any]:
    kitchen = dalsegno.memory("kitchen")
    kitchen.add(f"The stove heats up in {minutes} minutes.", sources=["manual.pdf"])
    return [bits(kitchen.search("heating the oven"))]


@dalsegno.agent(name="cook")
def simple_cook(minutes: int) -> list[Any]:
    kitchen = dalsegno.memory("kitchen")
    kitchen.add(f"The oven heats up in {minutes} minutes.", sources=["manual.pdf"])
    found = kitchen.search("heating the oven")
    return [bits(found), [hit.text for hit in found.hits]]


def test_a_replay_searches_again_and_compares(opened: Open) -> None:
    app = opened(simple_cook)
    said = app.run(simple_cook, "monday", 12)
    assert said[1] == ["The oven heats up in 12 minutes."]
    app.memory("kitchen").add("More about the oven.")
    assert app.replay("monday").same
    assert app.run(simple_cook, "monday", 12) == said
    replayed = opened(other_cook).replay("monday")
    assert replayed.divergence is not None
    _, recorded, now = replayed.divergence
    assert "The oven" in recorded
    assert "The stove" in now


@dalsegno.agent
def too_late(id: int) -> str:
    kitchen = dalsegno.memory("kitchen")
    try:
        kitchen.correct(id, "It is cold.")
    except dalsegno.DocumentEnded as e:
        dalsegno.event("noted", [str(e), str(e.failure)])
    return str(kitchen.correct(id, "It is cold."))


def test_that_somebody_was_faster_is_recorded(opened: Open) -> None:
    app = opened(too_late)
    kitchen = app.memory("kitchen", by="ann")
    oven = kitchen.add(OVEN)
    kitchen.correct(oven, "It is hot.")
    with pytest.raises(dalsegno.RunFailed, match="corrected by 2 by ann") as failed:
        app.run(too_late, "monday", oven)
    assert type(failed.value.__cause__) is dalsegno.DocumentEnded
    with pytest.raises(dalsegno.RunFailed, match="corrected by 2 by ann") as failed:
        opened(too_late).run(too_late, "monday", oven)
    assert type(failed.value.__cause__) is dalsegno.DocumentEnded


@dalsegno.agent
def adds_under_a_key(text: str) -> int:
    return dalsegno.memory("kitchen").add(text, key="oven")


def test_runs_share_a_memory_and_a_key_is_taken_once(opened: Open) -> None:
    app = opened(adds_under_a_key)
    assert app.run(adds_under_a_key, "first", OVEN) == 1
    assert app.run(adds_under_a_key, "second", NUTS) == 1
    assert [document.text for document in app.memory("kitchen").list()] == [OVEN]
    assert app.memory("other").list() == []


@dalsegno.agent
async def beside() -> list[list[int]]:
    async def one(name: str) -> list[int]:
        memory = aio.memory(name)
        return [await memory.add(f"{name} {n}") for n in range(3)]

    return await asyncio.gather(*(one(f"memory {n}") for n in range(4)))


def test_tasks_write_beside_each_other(opened: Open) -> None:
    app = opened(beside)
    assert app.run(beside, "run") == [[1, 2, 3]] * 4
    assert opened(beside).run(beside, "run") == [[1, 2, 3]] * 4


@dalsegno.tool(effect="read_only")
def quote(found: Found) -> list[dalsegno.Hit]:
    return list(found.hits)


@dalsegno.agent
def gives_all() -> tuple[Found, list[dalsegno.Hit], dalsegno.Document]:
    kitchen = dalsegno.memory("kitchen")
    found = kitchen.search("oven", vector=[1.0, 2.0])
    return found, quote(found), kitchen.get(found.hits[0].id)


def test_what_is_found_can_be_given_to_steps_and_returned(opened: Open) -> None:
    app = opened(gives_all)
    may = datetime.datetime(2026, 5, 1, tzinfo=UTC)
    app.memory("kitchen").add(OVEN, title="Oven", sources=["manual.pdf"], valid_from=may, vector=[1.0, 2.0])
    found, hits, document = app.run(gives_all, "run")
    assert tuple(hits) == found.hits
    outside = app.memory("kitchen").search("oven", vector=[1.0, 2.0])
    assert (found.hits, found.version, found.ranking) == (outside.hits, outside.version, outside.ranking)
    assert document == app.memory("kitchen").get(1)
    assert opened(gives_all).run(gives_all, "run") == (found, hits, document)


ASKED: list[dalsegno.App] = []


@dalsegno.agent
def asks_its_own_store() -> None:
    ASKED[0].memory("kitchen").add("nothing")


def test_a_run_does_not_go_around_its_record(opened: Open) -> None:
    app = opened(asks_its_own_store)
    ASKED[:] = [app]
    with pytest.raises(dalsegno.RunFailed, match=r"dalsegno\.memory"):
        app.run(asks_its_own_store, "run")
    assert app.memory("kitchen").list() == []
    with pytest.raises(dalsegno.BadUse, match="outside of a run"):
        dalsegno.memory("kitchen").add("nothing")
