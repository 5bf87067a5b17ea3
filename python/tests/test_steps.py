"""Plain agents: steps are made once, and handed back from the record ever after."""

from __future__ import annotations

import threading

import pytest
from conftest import Open

import dalsegno

LOG: list[object] = []


@pytest.fixture(autouse=True)
def _clear() -> None:
    LOG.clear()


@dalsegno.tool(effect="idempotent")
def charge(amount: int, *, key: str = "") -> str:
    LOG.append(("charge", amount, key))
    return f"charged {amount}"


@dalsegno.model
def ask(prompt: str) -> str:
    LOG.append(("ask", prompt))
    if dalsegno.current_run() is None and prompt == "in a step":
        dalsegno.current_call().tokens(10, 20)
    return prompt.upper()


@dalsegno.agent
def shop(item: str, count: int = 2) -> list[str]:
    text = ask(item)
    return [text, *(charge(n) for n in range(count))]


def test_a_tool_outside_of_a_run_is_a_plain_call() -> None:
    assert charge(3) == "charged 3"
    assert shop("tea", count=1) == ["TEA", "charged 0"]
    assert LOG == [("charge", 3, ""), ("ask", "tea"), ("charge", 0, "")]
    assert charge.__name__ == "charge"


def test_a_run_gives_its_result_and_gives_it_again_without_doing_anything(opened: Open) -> None:
    app = opened(shop)
    assert app.run(shop, "r", "tea") == ["TEA", "charged 0", "charged 1"]
    done = list(LOG)
    assert len(done) == 3
    assert app.run(shop, "r", "tea") == ["TEA", "charged 0", "charged 1"]
    app = opened(shop)
    assert app.run(shop, "r", "tea") == ["TEA", "charged 0", "charged 1"]
    assert app.get("r").result() == ["TEA", "charged 0", "charged 1"]
    assert done == LOG


def test_keys_are_given_to_who_wants_them_and_differ_by_step(opened: Open) -> None:
    opened(shop).run(shop, "r", "tea")
    keys = [entry[2] for entry in LOG if entry[0] == "charge"]  # type: ignore[index]
    assert len(set(keys)) == 2
    assert all(keys)


def test_an_input_that_differs_is_another_run(opened: Open) -> None:
    app = opened(shop)
    app.run(shop, "r", "tea")
    with pytest.raises(dalsegno.AlreadyStarted, match="another input"):
        app.run(shop, "r", "coffee")
    with pytest.raises(TypeError):
        app.run(shop, "s")  # type: ignore[call-arg]


@dalsegno.tool
def outer() -> str:
    return f"{charge(7)} in {dalsegno.current_call().attempt}"


@dalsegno.agent
def nested() -> str:
    return outer()


def test_a_tool_called_by_a_tool_is_a_plain_call_with_a_key_of_its_own(opened: Open) -> None:
    app = opened(nested)
    assert app.run(nested, "r") == "charged 7 in 1"
    assert app.replay("r").steps == 1
    assert str(LOG[0][2]).endswith("/charge")  # type: ignore[index]


@dalsegno.plan_step
def research(topic: str) -> list[str]:
    return [ask(f"{topic} {n}") for n in range(3)]


@dalsegno.agent
def planned(topic: str) -> str:
    found = research(topic)
    again = research(topic)
    return ask(" ".join(found + again))


def test_plan_steps_have_scopes_of_their_own(opened: Open) -> None:
    app = opened(planned)
    assert app.run(planned, "r", "x") == "X 0 X 1 X 2 X 0 X 1 X 2"
    assert len(LOG) == 7
    replayed = app.replay("r")
    assert replayed.same
    assert "the same end" in str(replayed)
    assert len(LOG) == 7


@dalsegno.agent
def values() -> tuple[object, ...]:
    moments = (dalsegno.now(), dalsegno.now(), dalsegno.random(), dalsegno.uuid4())
    dalsegno.event("noted", {"moments": 4})
    dalsegno.sleep(0)
    LOG.append(moments)
    chosen = dalsegno.decide("which", len(LOG), because="it is counted")
    dalsegno.signal("go")
    return (*moments, chosen, dalsegno.patched("new way"))


def test_what_differs_every_time_is_recorded(opened: Open) -> None:
    app = opened(values)
    run = app.start(values, "r")
    app.signal("r", "go")
    first = run.result()
    app = opened(values)
    assert app.run(values, "r") == first
    # What is recorded wins; a replay tells that the code would decide otherwise now.
    divergence = app.replay("r").divergence
    assert divergence is not None
    assert divergence[0] == "another decision"
    assert all(seen == LOG[0] for seen in LOG)
    assert first[0] <= first[1]  # type: ignore[operator]
    assert first[5] is True


def test_many_runs_at_a_time(opened: Open) -> None:
    app = opened(shop)
    runs = [app.start(shop, f"r{n}", f"tea {n}", 1) for n in range(50)]
    assert [run.result()[0] for run in runs] == [f"TEA {n}" for n in range(50)]
    assert len(app.runs(status=["completed"], agent=shop)) == 50
    assert len(app.runs(limit=7)) == 7


def test_many_threads_ask_at_a_time(opened: Open) -> None:
    app = opened(shop)
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(app.run(shop, f"r{n % 5}", "tea", 1)[0])) for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == ["TEA"] * 20
    assert len(LOG) == 10


def test_a_fork_goes_another_way_and_repeats_nothing(opened: Open) -> None:
    app = opened(shop)
    app.run(shop, "r", "tea")
    done = len(LOG)
    fork = app.fork("r", outcomes={"ask#1": "COFFEE"}, name="f")
    assert fork.result()[0] == "COFFEE"
    assert len(LOG) == done + 2
    assert app.get("r").result()[0] == "TEA"


def test_budgets_stop_a_run_and_raising_them_lets_it_go_on(opened: Open) -> None:
    app = opened(shop)
    limited = app.using(budget=dalsegno.Budget(steps=2))
    with pytest.raises(dalsegno.BudgetExceeded):
        limited.run(shop, "r", "tea", 5)
    assert len(LOG) == 2
    app.set_budget("r", dalsegno.Budget(steps=10))
    assert len(app.get("r").result()) == 6
    assert len(LOG) == 6
