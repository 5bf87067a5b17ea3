"""Waits: a run that waits leaves memory, with its stack, and costs nothing."""

from __future__ import annotations

import datetime
import threading
import time
from dataclasses import dataclass

import pytest
from conftest import Open

import dalsegno

LOG: list[str] = []


@pytest.fixture(autouse=True)
def _clear() -> None:
    LOG.clear()


@dataclass
class Paid:
    amount: int


@dalsegno.tool
def ship(order: str) -> str:
    LOG.append(f"ship {order}")
    return f"shipped {order}"


def until(app: dalsegno.App, run: str, what: str) -> None:
    """Waits until a run has left memory, and waits for something."""
    end = time.monotonic() + 20
    while (why := app.why(run)).details["status"] != "checkpointed" or not why.standing.endswith(what):
        assert time.monotonic() < end, why
        time.sleep(0.005)


@dalsegno.agent
def order(name: str) -> str:
    LOG.append("begin")
    try:
        if not dalsegno.approval("accept", {"order": name}):
            return "rejected"
        paid = dalsegno.signal("paid", Paid)
        assert isinstance(paid, Paid)
        return f"{ship(name)} for {paid.amount}"
    finally:
        LOG.append("finally")


def test_approvals_and_signals_unwind_the_stack_and_come_back(opened: Open) -> None:
    app = opened(order)
    threads = threading.active_count()
    run = app.start(order, "r", "tea")
    until(app, "r", "approval")
    assert LOG == ["begin", "finally"]
    assert threading.active_count() <= threads + 1
    app = opened(order)
    app.approve("r", "accept", by="ann")
    until(app, "r", "signal")
    app.signal("r", "paid", Paid(7))
    assert app.get("r").result() == "shipped tea for 7"
    assert LOG.count("ship tea") == 1
    with pytest.raises(dalsegno.RunEnded):
        app.signal("r", "paid", Paid(8))
    assert run.name == "r"


def test_a_rejection_is_an_answer(opened: Open) -> None:
    app = opened(order)
    app.start(order, "r", "tea")
    until(app, "r", "approval")
    app.reject("r", "accept", by="bob", why="no")
    assert app.get("r").result() == "rejected"
    with pytest.raises((dalsegno.ApprovalError, dalsegno.RunEnded)):
        app.approve("r", "accept", by="ann")


@dalsegno.agent
def sleeper(seconds: float) -> datetime.timedelta:
    begun = dalsegno.now()
    dalsegno.sleep(datetime.timedelta(seconds=seconds))
    return dalsegno.now() - begun


def test_a_sleep_is_as_long_as_it_says_also_over_a_restart(opened: Open) -> None:
    app = opened(sleeper, stay_in_memory=0)
    app.start(sleeper, "r", 0.6)
    until(app, "r", "time")
    app = opened(sleeper)
    assert app.get("r").result() >= datetime.timedelta(seconds=0.6)


@dalsegno.agent
def impatient() -> str:
    try:
        dalsegno.signal("never", timeout=0.05)
    except TimeoutError as e:
        return f"{type(e).__name__}"
    return "?"


def test_a_signal_may_be_waited_for_for_a_while(opened: Open) -> None:
    assert opened(impatient).run(impatient, "r") == "StepTimeout"


@dalsegno.agent
def parent(names: list[str]) -> list[str]:
    return [dalsegno.child(order, name) for name in names]


@dalsegno.agent
def teller(to: str) -> None:
    dalsegno.send_signal(to, "paid", Paid(3))


def test_children_and_signals_between_runs(opened: Open) -> None:
    app = opened(parent, order, teller)
    app.start(parent, "p", ["tea"])
    end = time.monotonic() + 20
    while not (children := app.runs(agent=order)):
        assert time.monotonic() < end
    child = children[0].run
    until(app, child, "approval")
    app.approve(child, "accept", by="ann")
    app.run(teller, "t", child)
    assert app.get("p").result() == ["shipped tea for 3"]
    assert app.replay("p").same


@dalsegno.agent
def failing(text: str) -> str:
    raise ValueError(text)


@dalsegno.agent
def caring() -> str:
    try:
        return dalsegno.child(failing, "no tea")
    except dalsegno.ChildFailed as e:
        return str(e)


def test_a_child_that_fails_raises(opened: Open) -> None:
    app = opened(failing, caring)
    assert "ValueError: no tea" in app.run(caring, "r")


def test_a_cancelled_run_is_cancelled(opened: Open) -> None:
    app = opened(order)
    run = app.start(order, "r", "tea")
    until(app, "r", "approval")
    app.cancel("r", "enough")
    with pytest.raises(dalsegno.RunCancelled):
        run.result()


@dalsegno.tool(approval=True)
def publish(text: str) -> str:
    LOG.append(text)
    return "published"


@dalsegno.agent
def publisher(text: str) -> str:
    try:
        return publish(text)
    except dalsegno.Rejected as e:
        return f"rejected at {e.step}"


@pytest.mark.parametrize("yes", [True, False])
def test_a_tool_may_need_a_person(opened: Open, yes: bool) -> None:
    app = opened(publisher)
    run = app.start(publisher, "r", "x")
    until(app, "r", "approval")
    assert LOG == []
    if yes:
        app.approve("r", "publish", by="ann")
        assert run.result() == "published"
    else:
        app.reject("r", "publish", by="ann")
        assert run.result().startswith("rejected at ")
        assert LOG == []


def test_hundreds_of_runs_that_wait_have_no_threads(opened: Open) -> None:
    app = opened(order)
    for n in range(200):
        app.start(order, f"r{n}", "tea")
    end = time.monotonic() + 60
    while len(app.runs(status=["checkpointed"])) < 200:
        assert time.monotonic() < end
        time.sleep(0.02)
    waiting = [t for t in threading.enumerate() if t.name.startswith("dalsegno-run")]
    assert len(waiting) < 200
    app.approve("r7", "accept", by="ann")
    app.signal("r7", "paid", Paid(1))
    assert app.get("r7").result() == "shipped tea for 1"
