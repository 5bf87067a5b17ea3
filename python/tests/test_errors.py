"""Failures: recorded, tried again, raised again as what they were."""

from __future__ import annotations

import builtins
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Open

import dalsegno

LOG: list[str] = []


@pytest.fixture(autouse=True)
def _clear() -> None:
    LOG.clear()


class CardDeclined(Exception):
    pass


class Awkward(Exception):
    def __init__(self, code: int, why: str) -> None:
        super().__init__(code, why)
        self.code = code

    def __str__(self) -> str:
        return f"{self.code}!"


@dalsegno.tool(effect="idempotent")
def charge(how: str) -> str:
    LOG.append(how)
    match how:
        case "declined":
            raise CardDeclined("no money")
        case "key":
            raise KeyError("k")
        case "awkward":
            raise Awkward(7, "x")
        case "local":

            class Local(Exception):
                pass

            raise Local("inside")
        case "half":
            raise ValueError("half \ud83d")
        case "mute":
            raise Mute
        case "several":
            group: Any = getattr(builtins, "ExceptionGroup", None)
            raise group("several", [CardDeclined("no money"), ValueError("plain")])
        case "os":
            raise FileNotFoundError(2, "No such file", "x.txt")
        case _:
            raise ValueError(how)


class Mute(Exception):
    def __str__(self) -> str:
        return str(1 / 0)


@dalsegno.agent
def careful(how: str) -> list[str]:
    try:
        charge(how)
    except Exception as e:
        seen = e
    dalsegno.signal("go")
    return [type(seen).__name__, str(seen), type(seen.__cause__).__name__]


@pytest.mark.parametrize(
    ("how", "name", "text"),
    [
        ("plain", "ValueError", "plain"),
        ("declined", "CardDeclined", "no money"),
        ("key", "KeyError", "'k'"),
        ("local", "StepFailed", "test_errors.charge.<locals>.Local: inside"),
        ("awkward", "Awkward", "7!"),
        ("os", "FileNotFoundError", "[Errno 2] No such file: 'x.txt'"),
        ("half", "ValueError", r"half \ud83d"),
        pytest.param(
            "several",
            "ExceptionGroup",
            "several (2 sub-exceptions): ValueError: plain; test_errors.CardDeclined: no money",
            marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="no groups"),
        ),
        ("mute", "Mute", "(it does not say what: ZeroDivisionError in its __str__)"),
    ],
)
def test_an_exception_comes_back_as_what_it_was(opened: Open, how: str, name: str, text: str) -> None:
    app = opened(careful)
    app.start(careful, "r", how)
    end = time.monotonic() + 20
    while app.why("r").standing != "waits-for-signal":
        assert time.monotonic() < end
    app = opened(careful)
    app.signal("r", "go")
    seen = app.get("r").result()
    assert seen[0] == name
    assert text in seen[1]
    # It was raised from the record: nothing was done again.
    assert seen[2] == "NoneType"
    assert LOG == [how]


def test_the_first_time_the_original_is_the_cause(opened: Open) -> None:
    app = opened(careful)
    app.start(careful, "r", "declined")
    app.signal("r", "go")
    assert app.get("r").result()[2] in ("CardDeclined", "NoneType")


@dalsegno.agent
def careless(how: str) -> str:
    return charge(how)


def test_a_run_that_raises_fails_and_tells_what_and_where(opened: Open) -> None:
    app = opened(careless)
    with pytest.raises(dalsegno.RunFailed, match=r"step charge#1: .*no money") as caught:
        app.run(careless, "r", "declined")
    assert isinstance(caught.value.__cause__, CardDeclined)
    assert caught.value.run == "r"
    assert caught.value.failure is not None
    assert caught.value.failure.step == "charge#1"
    app = opened(careless)
    with pytest.raises(dalsegno.RunFailed, match="no money"):
        app.run(careless, "r", "declined")
    assert LOG == ["declined"]


@dalsegno.tool(effect="read_only", retries=dalsegno.Retry(3, first=0.01))
def flaky(fails: int) -> int:
    LOG.append("try")
    if len(LOG) <= fails:
        raise ConnectionError("gone")
    return dalsegno.current_call().attempt


@dalsegno.agent
def retried(fails: int) -> int:
    return flaky(fails)


def test_a_step_is_tried_again(opened: Open) -> None:
    app = opened(retried)
    assert app.run(retried, "r", 2) == 3
    assert len(LOG) == 3


def test_and_not_too_often(opened: Open) -> None:
    app = opened(retried)
    with pytest.raises(dalsegno.RunFailed) as caught:
        app.run(retried, "r", 9)
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert len(LOG) == 3


@dalsegno.tool(effect="idempotent", retries=5)
def hopeless() -> None:
    LOG.append("try")
    raise dalsegno.Terminal("never")


@dalsegno.agent
def hopes() -> None:
    hopeless()


def test_what_is_terminal_is_not_tried_again(opened: Open) -> None:
    with pytest.raises(dalsegno.RunFailed) as caught:
        opened(hopes).run(hopes, "r")
    assert isinstance(caught.value.__cause__, dalsegno.Terminal)
    assert LOG == ["try"]


@dalsegno.tool(effect="read_only", timeout=0.1)
def slow(seconds: float) -> str:
    time.sleep(seconds)
    LOG.append("slept")
    return "slept"


@dalsegno.agent
def hurried(seconds: float) -> str:
    try:
        return slow(seconds)
    except TimeoutError as e:
        return type(e).__name__


def test_a_step_may_take_too_long(opened: Open) -> None:
    app = opened(hurried)
    begun = time.monotonic()
    assert app.run(hurried, "r", 3.0) == "StepTimeout"
    assert time.monotonic() - begun < 2
    assert app.run(hurried, "s", 0.0) == "slept"


@dalsegno.tool(effect="once", not_done=[ConnectionRefusedError])
def pay(how: str) -> str:
    LOG.append(how)
    if how == "unsure":
        raise TimeoutError("no answer")
    if how == "refused":
        raise ConnectionRefusedError("closed")
    return "paid"


@dalsegno.agent
def payer(how: str) -> str:
    return pay(how)


def test_a_once_step_that_fails_is_in_doubt_and_a_person_says(opened: Open) -> None:
    app = opened(payer)
    with pytest.raises(dalsegno.InDoubt, match="nobody knows whether tool pay#1 happened"):
        app.run(payer, "r", "unsure")
    with pytest.raises(dalsegno.NotInDoubt):
        app.resolve("r", "pay#2", "happened", by="ann")
    app.resolve("r", "pay#1", "happened", "paid by ann", by="ann")
    assert app.get("r").result() == "paid by ann"
    assert LOG == ["unsure"]


def test_unless_it_says_that_it_did_not_happen(opened: Open) -> None:
    with pytest.raises(dalsegno.RunFailed) as caught:
        opened(payer).run(payer, "r", "refused")
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


def was_paid(key: str) -> dalsegno.Probe:
    LOG.append("probe")
    return dalsegno.happened("found") if key else dalsegno.UNKNOWN


@dalsegno.tool(effect="once", probe=was_paid)
def pay_probed() -> str:
    LOG.append("pay")
    raise TimeoutError("no answer")


@dalsegno.agent
def payer_probed() -> str:
    return pay_probed()


def test_a_probe_is_asked_before_a_person(opened: Open) -> None:
    assert opened(payer_probed).run(payer_probed, "r") == "found"
    assert LOG == ["pay", "probe"]


def test_names_of_runs_that_are_not(opened: Open) -> None:
    app = opened(careful)
    with pytest.raises(dalsegno.RunNotFound):
        app.get("nobody")
    with pytest.raises(dalsegno.RunNotFound):
        app.why("nobody")
    with pytest.raises(dalsegno.Error):
        app.run(careful, "", "x")
    with pytest.raises(dalsegno.BadUse, match="not registered"):
        app.run(careless, "r", "x")


@pytest.mark.parametrize("place", ["postgre://ann@db/agents", "sqlite:///agents.db", "https://db.example/agents"])
def test_an_address_that_is_none_makes_no_folder(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for open_it in (dalsegno.open, dalsegno.Remote):
        with pytest.raises(dalsegno.BadUse, match=f"{place.split('://')[0]}:// is no store"):
            open_it(place)
    assert not list(tmp_path.iterdir())


@dalsegno.agent
def walks(where: Path) -> str:
    return str(where)


def test_an_agent_is_given_any_path(opened: Open) -> None:
    assert opened(walks).run(walks, "r", Path("a\udcff")) == "a\udcff"


def test_a_path_that_is_no_unicode(tmp_path: Path) -> None:
    for open_it in (dalsegno.open, dalsegno.Remote):
        with pytest.raises(dalsegno.BadUse, match="is no Unicode: give the store another name"):
            open_it(f"{tmp_path}/\udcff")
    assert not list(tmp_path.iterdir())


def test_a_store_that_is_open_or_closed(opened: Open, tmp_path: object) -> None:
    app = opened(careful)
    with pytest.raises(dalsegno.StoreError):
        dalsegno.open(f"{tmp_path}/store")
    app.close()
    with pytest.raises(dalsegno.Closed):
        app.run(careful, "r", "x")
    app.close()
