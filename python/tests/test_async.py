"""Async agents: identities do not depend on the order of scheduling."""

from __future__ import annotations

import asyncio
import collections
import random
import sys
import threading
import time
import types
import weakref
from pathlib import Path
from typing import Any, cast

import pytest
from conftest import Open

import dalsegno
from dalsegno import aio
from dalsegno._tasks import Tasks

LOG: list[Any] = []


@pytest.fixture(autouse=True)
def _clear() -> None:
    LOG.clear()


@dalsegno.tool(effect="read_only")
async def look(what: str) -> str:
    LOG.append(what)
    await asyncio.sleep(random.random() / 200)
    return f"<{what}>"


@dalsegno.tool(effect="read_only")
def slow_look(what: str) -> str:
    LOG.append(what)
    time.sleep(0.01)
    return f"<{what}>"


async def work(what: str) -> str:
    await asyncio.sleep(random.random() / 200)
    return await look(f"2 {await look(what)}")


@dalsegno.plan_step
async def planned(what: str) -> list[str]:
    return list(await asyncio.gather(work(f"{what} a"), work(f"{what} b")))


@dalsegno.agent
async def branchy(n: int, ask: bool) -> list[str]:
    names = [str(k) for k in range(n)]
    found = list(await asyncio.gather(*map(look, names)))
    found += await asyncio.gather(*map(work, names))
    found += await asyncio.gather(*(aio.to_thread(slow_look, name) for name in names))
    found += [task for group in await asyncio.gather(*map(planned, names)) for task in group]
    tasks = [asyncio.create_task(work(name)) for name in names]
    for done in asyncio.as_completed(tasks):
        await done
    await asyncio.wait(tasks)
    if sys.version_info >= (3, 11):
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(work(f"group {name}")) for name in names]
    if ask:
        await aio.signal("go")
    return found + [task.result() for task in tasks] + [await asyncio.wait_for(look("end"), 5)]


class ShuffledLoop(asyncio.SelectorEventLoop):
    """Runs what is ready in another order every time."""

    def _run_once(self) -> None:
        ready: collections.deque[Any] = self._ready  # type: ignore[attr-defined]
        shuffled = list(ready)
        random.shuffle(shuffled)
        ready.clear()
        ready.extend(shuffled)
        super()._run_once()  # type: ignore[misc]


def run_on(loop: asyncio.AbstractEventLoop, main: Any) -> Any:
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main)
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def checkpointed(app: aio.AsyncApp, run: str) -> None:
    end = time.monotonic() + 20
    while not any(found.run == run for found in await app.runs(status=["checkpointed"])):
        assert time.monotonic() < end, await app.why(run)
        await asyncio.sleep(0.005)


@dalsegno.tool(effect="idempotent")
async def put(n: int) -> int:
    return n


@dalsegno.agent
async def puts_until_others_had_a_turn() -> int:
    for n in range(20_000):
        await put(n)  # It never waits for anything but the disk.
        if len(LOG) >= 30:
            return n
    return -1


def test_steps_that_wait_for_the_disk_only_let_others_have_a_turn(place: Path) -> None:
    async def ticks() -> None:
        while True:
            await asyncio.sleep(0.001)
            LOG.append("tick")

    async def main() -> int:
        async with await aio.open(place, agents=[puts_until_others_had_a_turn]) as app:
            ticking = asyncio.create_task(ticks())
            made: int = await app.run(puts_until_others_had_a_turn, "r")
            ticking.cancel()
            return made

    assert asyncio.run(main()) >= 0


def test_a_loop_is_kept_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("dalsegno._tasks.time.monotonic", lambda: now)

    ready: list[str] = []
    tasks = Tasks(cast(asyncio.AbstractEventLoop, types.SimpleNamespace(_ready=ready)))
    assert tasks.is_idle()
    ready.append("something else to do")
    assert not tasks.is_idle()
    ready.clear()
    now += 0.01
    assert not tasks.is_idle()
    tasks.has_turned()
    assert tasks.is_idle()
    assert not Tasks(cast(asyncio.AbstractEventLoop, object())).is_idle()


@pytest.mark.parametrize("seed", range(8))
def test_shuffled_tasks_have_the_same_identities(place: Path, seed: int) -> None:
    random.seed(seed)

    async def first() -> None:
        async with await aio.open(place, agents=[branchy]) as app:
            await app.start(branchy, "r", 3, True)
            await checkpointed(app, "r")

    async def second() -> list[str]:
        async with await aio.open(place, agents=[branchy]) as app:
            await app.signal("r", "go")
            result = await (await app.get("r")).result()
            assert (await app.replay("r")).same
            return result  # type: ignore[no-any-return]

    run_on(ShuffledLoop(), first())
    done = sorted(LOG)
    LOG.clear()
    result = run_on(ShuffledLoop(), second())
    # Everything but the last step came from the record.
    assert LOG == ["end"]
    assert len(done) == 3 + 6 + 3 + 12 + 6 + (6 if sys.version_info >= (3, 11) else 0)
    assert result[:3] == ["<0>", "<1>", "<2>"]
    assert result[-1] == "<end>"


def test_a_plain_program_runs_async_agents_too(opened: Open) -> None:
    app = opened(branchy)
    result = app.run(branchy, "r", 2, False)
    count = len(LOG)
    assert opened(branchy).run(branchy, "r", 2, False) == result
    assert app.run is not None
    assert len(LOG) == count


@dalsegno.agent
async def waits_in_tasks() -> list[str]:
    async def one(name: str) -> str:
        text: str = await aio.signal(name)
        return await look(text)

    return list(await asyncio.gather(one("a"), one("b"), one("c")))


def test_a_run_leaves_memory_when_all_its_tasks_wait(opened: Open) -> None:
    app = opened(waits_in_tasks)
    begun = time.monotonic()
    app.start(waits_in_tasks, "r")
    while not app.runs(status=["checkpointed"]):
        assert time.monotonic() - begun < 20
    # At once: nobody had to wait to see whether it does something of its own.
    assert time.monotonic() - begun < 0.9
    for name in ("c", "a", "b"):
        app.signal("r", name, name.upper())
    assert app.get("r").result() == ["<A>", "<B>", "<C>"]
    assert sorted(LOG) == ["A", "B", "C"]
    assert app.replay("r").same


@dalsegno.agent
async def waits_for_several(how: str) -> list[str]:
    async def one(name: str) -> str:
        await look(name)
        return str(await aio.signal(name)) if name != "c" else "at once"

    if how == "group":
        make_group: Any = getattr(asyncio, "TaskGroup", None)
        async with make_group() as group:
            tasks = [group.create_task(one(name)) for name in "abc"]
    else:
        tasks = [asyncio.create_task(one(name)) for name in "abc"]
        if how == "first":
            await tasks[2]
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(tasks)
    return [await task for task in tasks]


@pytest.mark.parametrize("how", ["group", "all", "first"])
def test_a_run_leaves_memory_when_it_waits_for_several_tasks(opened: Open, how: str) -> None:
    if how == "group" and sys.version_info < (3, 11):
        pytest.skip("no TaskGroup")
    app = opened(waits_for_several)
    begun = time.monotonic()
    app.start(waits_for_several, "r", how)
    while not app.runs(status=["checkpointed"]):
        assert time.monotonic() - begun < 20
    assert time.monotonic() - begun < 0.9
    app.signal("r", "a", "A")
    app.signal("r", "b", "B")
    assert app.get("r").result() == ["A", "B", "at once"]


class Thing:
    pass


@dalsegno.agent
async def lets_go() -> bool:
    thing = Thing()
    kept = weakref.ref(thing)
    asyncio.create_task(aio.signal("never"))
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.05, future.set_result, None)
    await future
    del thing
    return kept() is not None


def test_what_the_code_lets_go_of_is_kept_by_nobody(opened: Open) -> None:
    assert opened(lets_go).run(lets_go, "r") is False


@dalsegno.agent
async def waits_for_its_own() -> str:
    async def own() -> str:
        await asyncio.sleep(0.3)
        return await look("own")

    task = asyncio.create_task(own())
    sleeper = asyncio.create_task(_forever())
    done = await task
    sleeper.cancel()
    return done


async def _forever() -> None:
    await aio.sleep(3600)


def test_what_code_waits_for_of_its_own_is_waited_for(opened: Open) -> None:
    assert opened(waits_for_its_own).run(waits_for_its_own, "r") == "<own>"


@dalsegno.agent
async def goes_on_behind_a_gather() -> str:
    async def one() -> str:
        return await look("one")

    other = asyncio.create_task(_forever())
    await asyncio.gather(one(), one())
    await asyncio.sleep(0.3)
    done = await look("end")
    other.cancel()
    return done


def test_code_that_is_about_to_go_on_does_not_wait(opened: Open) -> None:
    app = opened(goes_on_behind_a_gather)
    app.start(goes_on_behind_a_gather, "r")
    begun = time.monotonic()
    while not app.runs(status=["completed"]):
        assert time.monotonic() - begun < 20, app.why("r")
        time.sleep(0.01)


@dalsegno.tool(effect="read_only", timeout=0.1, retries=2)
async def too_slow() -> None:
    LOG.append("try")
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        LOG.append("cancelled")
        raise


@dalsegno.agent
async def impatient() -> str:
    try:
        await too_slow()
    except TimeoutError as e:
        return type(e).__name__
    return "?"


def test_a_step_that_takes_too_long_is_cancelled(opened: Open) -> None:
    assert opened(impatient).run(impatient, "r") == "StepTimeout"
    assert LOG == ["try", "cancelled", "try", "cancelled"]


@dalsegno.tool(effect="read_only")
async def broken() -> None:
    await asyncio.sleep(0.02)
    raise ValueError("broken")


@dalsegno.tool(effect="read_only")
async def endless() -> None:
    await asyncio.sleep(60)


@dalsegno.agent
async def group_fails() -> str:
    make_group: Any = getattr(asyncio, "TaskGroup", None)
    try:
        async with make_group() as group:
            group.create_task(endless())
            group.create_task(broken())
    except BaseException as e:
        seen = repr(e)
        await aio.signal("go")
        return seen
    return "?"


@dalsegno.tool(effect="read_only")
def first(items: list[int]) -> int:
    return next(iter(items))


@dalsegno.agent
async def takes_first() -> str:
    try:
        return str(await aio.to_thread(first, []))
    except RuntimeError as e:
        return str(e)


def test_a_plain_tool_that_stops_an_iteration(opened: Open) -> None:
    assert opened(takes_first).run(takes_first, "r") == "it raised StopIteration"
    assert opened(takes_first).replay("r").same


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no TaskGroup")
def test_a_group_that_fails_leaves_the_others(opened: Open) -> None:
    app = opened(group_fails)
    app.start(group_fails, "r")
    while not app.runs(status=["checkpointed"]):
        pass
    app = opened(group_fails)
    app.signal("r", "go")
    assert "ValueError('broken')" in app.get("r").result()


@dalsegno.tool(effect="read_only")
async def fails(how: str) -> None:
    raise ValueError(how)


@dalsegno.agent
async def group_is_left() -> None:
    make_group: Any = getattr(asyncio, "TaskGroup", None)
    async with make_group() as group:
        group.create_task(fails("b"))
        group.create_task(fails("a"))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no TaskGroup")
def test_a_run_that_fails_in_a_group_says_of_what(opened: Open) -> None:
    words = r"ExceptionGroup: .*: step fails#1: ValueError: b; step fails#2: ValueError: a"
    with pytest.raises(dalsegno.RunFailed, match=words):
        opened(group_is_left).run(group_is_left, "r")


@dalsegno.agent
async def misspelt_in_a_group() -> str:
    async def part() -> str:
        if not LOG:
            return misspelled  # type: ignore[name-defined,no-any-return]  # noqa: F821
        return "mended"

    make_group: Any = getattr(asyncio, "TaskGroup", None)
    async with make_group() as group:
        task = group.create_task(part())
    return str(task.result())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no TaskGroup")
def test_a_mistake_in_a_task_of_a_group_does_not_end_the_run(opened: Open) -> None:
    app = opened(misspelt_in_a_group)
    with pytest.raises(dalsegno.NeedsAttention, match=r"NameError: name 'misspelled' .*\(test_async\.py:\d+\)"):
        app.run(misspelt_in_a_group, "r")
    LOG.append("mended")
    app.clear_attention("r")
    assert app.get("r").result() == "mended"


@dalsegno.agent
def raises_a_group() -> None:
    raise ExceptionGroup("invalid", [AssertionError("a"), ValueError("b")])  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no groups")
def test_nor_does_one_in_a_group_that_was_raised_nowhere_else(opened: Open) -> None:
    app = opened(raises_a_group)
    with pytest.raises(dalsegno.NeedsAttention, match=r"AssertionError: a \(test_async\.py:\d+\)"):
        app.run(raises_a_group, "r")


@dalsegno.agent
async def failing() -> None:
    raise LookupError("nothing")


@dalsegno.agent
async def parent() -> str:
    try:
        await aio.child(failing)
    except dalsegno.ChildFailed as e:
        moments = [await aio.now(), await aio.uuid4(), await aio.random()]
        await aio.event("noted", len(moments))
        await aio.decide("which", 3)
        return f"{e} {await aio.patched('x')}"
    return "?"


def test_everything_else_can_be_awaited(place: Path) -> None:
    async def main() -> None:
        async with await aio.open(place, agents=[parent, failing]) as app:
            assert "LookupError: nothing" in await app.run(parent, "r")
            assert (await app.replay("r")).same
            with pytest.raises(dalsegno.RunFailed):
                await app.run(failing, "f")
            runs = [await app.start(parent, f"r{n}") for n in range(10)]
            assert len(await asyncio.gather(*(run.result() for run in runs))) == 10

    asyncio.run(main())


@dalsegno.agent
async def approved() -> str:
    answer = await aio.approval("go", {"x": 1})
    return answer.by


def test_a_wait_for_a_result_can_be_given_up(place: Path) -> None:
    async def main() -> None:
        async with await aio.open(place, agents=[approved]) as app:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(app.run(approved, "r"), 0.1)
            await app.approve("r", "go", by="ann")
            assert await app.run(approved, "r") == "ann"

    asyncio.run(main())


def test_a_loop_that_ends_under_a_run_is_a_crash_and_no_more(place: Path) -> None:
    async def first() -> None:
        app = await aio.open(place, agents=[branchy])
        await app.start(branchy, "r", 3, False)
        await asyncio.sleep(0.01)
        await app.close(0.0)

    async def second() -> list[str]:
        app = await aio.open(place, agents=[branchy])
        try:
            return await app.run(branchy, "r", 3, False)
        finally:
            await app.close()

    asyncio.run(first())
    assert asyncio.run(second())[-1] == "<end>"


EAGER = [made for made in [getattr(asyncio, "eager_task_factory", None)] if made is not None]


@pytest.mark.parametrize("factory", EAGER)
def test_another_task_factory_keeps_working(place: Path, factory: Any) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        async with await aio.open(place, agents=[branchy]) as app:
            await app.run(branchy, "r", 2, False)
            assert (await app.replay("r")).same

    asyncio.run(main())


@pytest.mark.parametrize("is_around", [False, True], ids=["instead", "around"])
def test_a_task_factory_that_is_set_later_keeps_working(place: Path, is_around: bool) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with await aio.open(place, agents=[branchy]) as app:
            await app.run(branchy, "r", 2, False)
            ours = cast(Any, loop.get_task_factory())

            def factory(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> Any:
                LOG.append("made")
                return ours(loop, coro, **more) if is_around else asyncio.Task(coro, loop=loop, **more)

            loop.set_task_factory(factory)
            await app.run(branchy, "s", 2, False)
            assert "made" in LOG
            # Its tasks have the names that they had.
            assert (await app.replay("r")).same
            assert (await app.replay("s")).same

    asyncio.run(main())


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("in_a_task", [False, True])
def test_who_exits_leaves_the_others_alone(tmp_path: Path, error: type[BaseException], in_a_task: bool) -> None:
    """One that wants to end the process ends its own run only, and neither those beside it nor those to come."""
    goes_on = threading.Event()

    @dalsegno.tool(effect="read_only")
    async def slow() -> int:
        while not goes_on.is_set():
            await asyncio.sleep(0.001)
        return 1

    @dalsegno.agent
    async def innocent() -> int:
        return await slow()

    async def exits() -> None:
        raise error

    @dalsegno.agent
    async def bad() -> None:
        await (asyncio.gather(exits()) if in_a_task else exits())

    with dalsegno.open(tmp_path / "store", [innocent, bad]) as app:
        beside = app.start(innocent, "beside")
        with pytest.raises(dalsegno.NotMoving, match=error.__name__):
            app.run(bad, "bad")
        goes_on.set()
        assert beside.result() == 1
        assert app.run(innocent, "after") == 1
