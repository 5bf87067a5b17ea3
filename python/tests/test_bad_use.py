"""What must not be done is told in clear words, and stops the run cleanly."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from conftest import Open

import dalsegno

LOG: list[str] = []


@pytest.fixture(autouse=True)
def _clear() -> None:
    LOG.clear()


class Client:
    pass


@dalsegno.tool(effect="read_only")
def look(what: Any) -> Any:
    LOG.append("look")
    return Client() if what == "client" else what


@dalsegno.agent
def looker(what: str) -> Any:
    return look(Client() if what == "argument" else what)


def test_a_result_that_cannot_be_recorded_names_the_step_and_the_type(opened: Open) -> None:
    with pytest.raises(
        dalsegno.RunFailed, match=r"step look#1: it gave a test_bad_use\.Client, which cannot"
    ) as caught:
        opened(looker).run(looker, "r", "client")
    assert isinstance(caught.value.__cause__, dalsegno.NotSerialisable)


def test_an_argument_that_cannot_be_recorded_names_the_step_and_the_type(opened: Open) -> None:
    with pytest.raises(dalsegno.RunFailed, match=r"step 'look': its argument 'what', a test_bad_use\.Client"):
        opened(looker).run(looker, "r", "argument")
    assert LOG == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (10**5000, "a int, cannot be recorded: Exceeds the limit"),
        (
            functools.reduce(lambda inner, _: [inner], range(5000), cast(Any, 1)),
            "a list, cannot be recorded: maximum recursion",
        ),
    ],
    ids=["digits", "depth"],
)
def test_plain_values_that_are_too_much(opened: Open, value: Any, words: str) -> None:
    app = opened(gives_back)
    with pytest.raises(dalsegno.NotSerialisable, match=f"agent 'gives_back': its argument 'what', {words}") as caught:
        app.run(gives_back, "r", value)
    # An agent could not be given it again.
    assert "ignore=" not in str(caught.value)
    with pytest.raises(dalsegno.NotSerialisable, match="signal 'go'"):
        app.signal("r", "go", value)


@dalsegno.agent
def gives_back(what: Any) -> Any:
    return look(what)


@dalsegno.agent
def tells(how: str) -> Any:
    match how:
        case "decision":
            return dalsegno.decide("go", Client())
        case "event":
            return dalsegno.event("seen", Client())
        case "checkpoint":
            return dalsegno.checkpoint("there", Client())
        case "approval":
            return dalsegno.approval("refund", Client())
        case "signal":
            return dalsegno.send_signal("another", "paid", Client())
        case "conversation":
            return dalsegno.conversation("chat").append(Client())


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ("decision", "go"),
        ("event", "seen"),
        ("checkpoint", "there"),
        ("approval", "refund"),
        ("signal", "paid"),
        ("conversation", "chat"),
    ],
)
def test_what_cannot_be_told_names_what_it_is_for_and_the_type(opened: Open, how: str, name: str) -> None:
    words = rf"{how} '{name}': a test_bad_use\.Client cannot be recorded"
    with pytest.raises(dalsegno.RunFailed, match=words) as caught:
        opened(tells).run(tells, "r", how)
    assert isinstance(caught.value.__cause__, dalsegno.NotSerialisable)


def test_half_a_character_is_recorded(opened: Open) -> None:
    given = {"name": "\udcff.txt", "said": ["ü \ud83d"]}
    assert opened(gives_back).run(gives_back, "r", given) == given
    assert opened(gives_back).get("r").result() == given
    assert LOG == ["look"]


@dalsegno.tool(effect="read_only", ignore="client")
def with_client(client: Client, n: int) -> int:
    return n + 1


@dalsegno.agent
def uses_client() -> int:
    return with_client(Client(), 1)


def test_but_it_may_be_left_out(opened: Open) -> None:
    assert opened(uses_client).run(uses_client, "r") == 2


@dalsegno.agent
def gives_client() -> Any:
    return Client()


def test_a_run_that_gives_what_cannot_be_recorded_fails(opened: Open) -> None:
    with pytest.raises(dalsegno.RunFailed, match=r"agent 'gives_client' gave a test_bad_use\.Client"):
        opened(gives_client).run(gives_client, "r")


@dalsegno.tool(effect="idempotent")
def leave(how: str) -> str:
    LOG.append(how)
    if len(LOG) == 1:
        raise SystemExit(3) if how == "exit" else KeyboardInterrupt
    return "done"


@dalsegno.agent
def leaver(how: str) -> str:
    return leave(how)


@pytest.mark.parametrize("how", ["exit", "interrupt"])
def test_what_is_no_exception_is_no_outcome_and_the_run_goes_on_later(opened: Open, how: str) -> None:
    app = opened(leaver)
    with pytest.raises(dalsegno.NotMoving, match="in step 'leave': the run was left as by a crash"):
        app.run(leaver, "r", how)
    app = opened(leaver)
    assert app.get("r").result() == "done"
    assert LOG == [how, how]


@dalsegno.agent
def threaded(how: str) -> str:
    caught: list[str] = []

    def beside() -> None:
        try:
            look("x")
        except dalsegno.BadUse as e:
            caught.append(str(e))

    if how == "pool":
        POOL.submit(beside).result()
    else:
        context = contextvars.copy_context()
        thread = threading.Thread(target=(lambda: context.run(beside)) if how == "copied" else beside)
        thread.start()
        thread.join()
    return caught[0] if caught else "a plain call"


POOL = concurrent.futures.ThreadPoolExecutor(1)


@pytest.mark.parametrize("how", ["copied", "thread", "pool"])
def test_a_run_used_from_another_thread(opened: Open, how: str) -> None:
    assert "used from another thread than its own" in opened(threaded).run(threaded, "r", how)
    assert LOG == []
    # The pool is not the run's: what others do there is a plain call.
    assert POOL.submit(look, "y").result() == "y"
    LOG.clear()


@dalsegno.agent
def misspelt(sound: bool) -> str:
    look("x")
    if not MENDED:
        return misspelled  # type: ignore[name-defined,no-any-return]  # noqa: F821
    return "mended"


MENDED: list[bool] = []


def test_a_mistake_in_the_code_does_not_end_the_run(opened: Open) -> None:
    MENDED.clear()
    app = opened(misspelt)
    with pytest.raises(dalsegno.NeedsAttention, match=r"name 'misspelled' is not defined \(test_bad_use\.py:\d+\)"):
        app.run(misspelt, "r", True)
    MENDED.append(True)
    app.clear_attention("r")
    assert app.get("r").result() == "mended"
    assert len(LOG) == 1


@dalsegno.tool(effect="read_only")
def broken_tool() -> str:
    return misspelled  # type: ignore[name-defined,no-any-return]  # noqa: F821


@dalsegno.agent
def uses_broken_tool() -> str:
    return broken_tool()


def test_a_mistake_in_a_tool_is_its_failure(opened: Open) -> None:
    with pytest.raises(dalsegno.RunFailed, match="misspelled"):
        opened(uses_broken_tool).run(uses_broken_tool, "r")


def one(n: int) -> int:
    LOG.append("one")
    return n


def two(n: int) -> int:
    LOG.append("two")
    return n


FIRST, SECOND = (dalsegno.tool(effect="read_only")(code) for code in (one, two))


@dalsegno.agent(name="changed")
def before() -> int:
    FIRST(1)
    dalsegno.signal("go")
    return 1


@dalsegno.agent(name="changed")
def after() -> int:
    SECOND(1)
    dalsegno.signal("go")
    return 2


@dalsegno.agent(name="changed")
def other_input() -> int:
    FIRST(2)
    dalsegno.signal("go")
    return 2


@pytest.mark.parametrize(
    ("changed", "then", "now"), [(after, "tool one#1", "tool two#1"), (other_input, 'n\\":1', 'n\\":2')]
)
def test_code_that_was_changed_is_a_mismatch_with_both_sides(
    opened: Open, changed: dalsegno.Agent[[], int], then: str, now: str
) -> None:
    app = opened(before)
    app.start(before, "r")
    while app.why("r").standing != "waits-for-signal":
        pass
    LOG.clear()
    app = opened(changed)
    app.signal("r", "go")
    with pytest.raises(dalsegno.Mismatch) as caught:
        app.get("r").result()
    assert then in str(caught.value)
    assert now in str(caught.value)
    for words in (str(caught.value), str(app.why("r")), app.why("r").to_do):
        assert "branch on dalsegno.patched" in words
    assert LOG == []
    assert not app.replay("r").same
    # With the old code back, it goes on.
    app = opened(before)
    app.clear_attention("r")
    assert app.get("r").result() == 1


@dalsegno.agent(name="asks")
def asks() -> int:
    return 1 if dalsegno.approval("publish", "text") else 0


@dalsegno.agent(name="asks")
def does_something_before_it_asks() -> int:
    return SECOND(2) if dalsegno.approval("publish", str(SECOND(1))) else 0


def test_a_step_in_front_of_a_pending_approval_is_a_mismatch(opened: Open) -> None:
    app = opened(asks)
    app.start(asks, "r")
    while app.why("r").standing != "waits-for-approval":
        pass
    LOG.clear()
    app = opened(does_something_before_it_asks)
    app.approve("r", "publish#1", by="ann")
    with pytest.raises(dalsegno.Mismatch, match=r"recorded approval publish#1 .* now it wants tool two#1"):
        app.get("r").result()
    assert LOG == []
    # With the old code back, the answer counts.
    app = opened(asks)
    app.clear_attention("r")
    assert app.get("r").result() == 1


@dalsegno.agent(name="changed")
def other_arguments(what: str) -> int:
    return 3


def test_an_agent_that_takes_other_arguments(opened: Open) -> None:
    app = opened(before)
    app.start(before, "r")
    while app.why("r").standing != "waits-for-signal":
        pass
    app = opened(other_arguments)
    app.signal("r", "go")
    with pytest.raises(dalsegno.NotMoving, match="does not take the input"):
        app.get("r").result()


@dalsegno.agent
def asks_store() -> str:
    return str(APP[0].runs())


APP: list[dalsegno.App] = []


def test_a_run_that_asks_its_own_store(opened: Open) -> None:
    APP[:] = [opened(asks_store)]
    with pytest.raises(dalsegno.RunFailed, match="asks its own store"):
        APP[0].run(asks_store, "r")
    APP.clear()


def test_what_belongs_into_a_run() -> None:
    for call in (lambda: dalsegno.sleep(1), dalsegno.now, lambda: dalsegno.signal("x"), lambda: dalsegno.aio.now()):
        with pytest.raises(dalsegno.BadUse, match="outside of a run"):
            call()
    with pytest.raises(dalsegno.BadUse, match="outside of a step"):
        dalsegno.current_call()


def test_decorators_find_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="none of read_only"):
        dalsegno.tool(effect="twice")(one)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="needs a probe"):
        dalsegno.tool(effect="read_only", probe=lambda key: dalsegno.UNKNOWN)(one)
    with pytest.raises(TypeError, match="has no argument"):
        dalsegno.tool(ignore="m")(one)
    for seconds in (0, -1, float("nan")):
        with pytest.raises(ValueError, match=r"one: timeout=.* leaves no time"):
            dalsegno.tool(timeout=seconds)(one)
    with pytest.raises(TypeError, match="one: not_done='ValueError' are no exceptions"):
        dalsegno.tool(not_done="ValueError")(one)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="one: its probe, a int, is no function"):
        dalsegno.tool(probe=3)(one)  # type: ignore[call-overload]


# --- async -------------------------------------------------------------------------------------------


@dalsegno.tool(effect="read_only")
async def alook(n: int) -> int:
    LOG.append("alook")
    return n


@dalsegno.agent
async def forgets(kept: bool) -> int:
    call = alook(1)
    if not kept:
        del call
    return await alook(2) if not kept else 3


@pytest.mark.parametrize("kept", [True, False])
def test_a_step_that_is_never_awaited(opened: Open, kept: bool) -> None:
    with pytest.raises(dalsegno.RunFailed, match="step 'alook' of run 'r' was called and never awaited"):
        opened(forgets).run(forgets, "r", kept)
    assert LOG == []


@dalsegno.agent
async def awaits_twice(how: str) -> int:
    call = alook(1)
    if how == "closed":
        call.close()
    first = await call
    return await call if how == "twice" else first


@pytest.mark.parametrize("how", ["twice", "closed"])
def test_a_step_that_is_awaited_twice(opened: Open, how: str) -> None:
    app = opened(awaits_twice)
    with pytest.raises(dalsegno.RunFailed, match="step 'alook' was awaited before: keep what it gave"):
        app.run(awaits_twice, "r", how)
    assert app.run(awaits_twice, "s", "once") == 1
    assert LOG == (["alook"] if how == "closed" else ["alook", "alook"])


@dalsegno.agent
async def blocks(how: str) -> Any:
    match how:
        case "tool":
            return look(1)
        case "sleep":
            return dalsegno.sleep(1)
        case "to_thread":
            return await asyncio.to_thread(look, 1)
        case "async to_thread":
            return await dalsegno.aio.to_thread(alook, 1)
        case "no tool":
            return await dalsegno.aio.to_thread(one, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("tool", r"would stop the event loop: .*`await dalsegno\.aio\.to_thread\(look"),
        ("sleep", "write `await dalsegno.aio.sleep"),
        ("to_thread", r"used from another thread .*dalsegno\.aio\.to_thread for"),
        ("async to_thread", "write `await alook"),
        ("no tool", "<function one .* is no tool: decorate it"),
    ],
)
def test_plain_steps_in_an_async_agent(opened: Open, how: str, words: str) -> None:
    with pytest.raises(dalsegno.RunFailed, match=words):
        opened(blocks).run(blocks, "r", how)


@dalsegno.agent
def not_async(how: str) -> Any:
    return alook(1) if how == "tool" else dalsegno.aio.sleep(1)


@pytest.mark.parametrize(("how", "words"), [("tool", "make the agent `async def`"), ("sleep", "write dalsegno.sleep")])
def test_async_steps_in_a_plain_agent(opened: Open, how: str, words: str) -> None:
    with pytest.raises(dalsegno.RunFailed, match=words):
        opened(not_async).run(not_async, "r", how)


@dalsegno.agent
def cancels_another() -> str:
    try:
        ASKED[0].cancel("victim")
    except dalsegno.BadUse as e:
        return str(e)
    return "it was cancelled"


@dalsegno.agent
async def cancels_another_async() -> str:
    try:
        await ASYNC[0].cancel("victim")
    except dalsegno.BadUse as e:
        return str(e)
    return "it was cancelled"


@dalsegno.agent
def victim() -> bool:
    return dalsegno.signal("go on", bool)


ASKED: list[dalsegno.App] = []
ASYNC: list[dalsegno.aio.AsyncApp] = []


def test_what_a_run_asks_of_its_own_store_is_not_done(opened: Open) -> None:
    app = opened(cancels_another, victim)
    ASKED[:] = [app]
    app.start(victim, "victim")
    assert "asks its own store" in app.run(cancels_another, "run")
    app.signal("victim", "go on", True)
    assert app.get("victim").result() is True


def test_what_an_async_run_asks_of_its_own_store_is_not_done(place: Path) -> None:
    async def main() -> None:
        async with await dalsegno.aio.open(place, agents=[cancels_another_async, victim]) as app:
            ASYNC[:] = [app]
            await app.start(victim, "victim")
            assert "asks its own store" in await app.run(cancels_another_async, "run")
            await app.signal("victim", "go on", True)
            assert await (await app.get("victim")).result() is True

    asyncio.run(main())


def test_waiting_in_an_event_loop(opened: Open) -> None:
    app = opened(looker)

    async def main() -> None:
        with pytest.raises(dalsegno.BadUse, match="stops the event loop"):
            app.run(looker, "r", "x")

    asyncio.run(main())


@dalsegno.agent
async def shares_context() -> str:
    context = contextvars.copy_context()

    async def work() -> int:
        await asyncio.sleep(0)
        return await alook(1)

    tasks = [asyncio.get_running_loop().create_task(work(), context=context) for _ in range(2)]  # type: ignore[call-arg,unused-ignore]
    done = await asyncio.gather(*tasks, return_exceptions=True)
    return str([str(one) for one in done])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tasks cannot be given a context")
def test_tasks_that_share_a_context(opened: Open) -> None:
    assert "shares another task's context" in opened(shares_context).run(shares_context, "r")
