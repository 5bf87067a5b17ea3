"""Garbage that is collected in the code of a run: its finalisers run in whatever code is there, at any time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Open

import dalsegno
from dalsegno import aio

CLOSED: list[str] = []
WITH_GARBAGE: list[bool] = []


@dalsegno.tool(effect="read_only")
async def look(what: str) -> str:
    return f"<{what}>"


class Client:
    """Closes itself as the client of OpenAI does."""

    def __del__(self) -> None:
        asyncio.get_running_loop().create_task(self.aclose())

    async def aclose(self) -> None:
        await asyncio.sleep(0.05)
        CLOSED.append("closed")


def until_closed() -> None:
    end = time.monotonic() + 20
    while not CLOSED:
        assert time.monotonic() < end, "it is not closed"
        time.sleep(0.005)


# What is freed too early is only missed when something else is there: hence the junk.
IN_THE_MIDDLE_OF_A_SET = """
import asyncio, contextvars, gc, sys
import dalsegno
from dalsegno._scopes import here, inside

others = [contextvars.ContextVar(f"of another library {n}") for n in range(20)]
junk = []

class Client:
    def __init__(self):
        self.me = self

    async def aclose(self):
        pass

    def __del__(self):
        asyncio.get_running_loop().create_task(self.aclose())
        junk.append([b"\\xff" * n for n in range(8, 600, 8) for _ in range(8)])

@dalsegno.agent
async def agent():
    for var in others:
        var.set(object())
    scope = here("this test")
    for n in range(300):
        gc.disable()
        gc.collect()
        for _ in range(3):
            Client()
        # The garbage is collected at each of the first allocations once.
        gc.set_threshold(n % 60 + 1)
        gc.enable()
        with inside(scope):
            pass
        if n % 10 == 0:
            await asyncio.sleep(0)
    gc.set_threshold(700)
    return "done"

with dalsegno.open(sys.argv[1], agents=[agent]) as app:
    print(app.run(agent, "r"))
"""


def test_a_finaliser_in_the_middle_of_a_set(place: Path) -> None:
    """Up to Python 3.11 garbage is collected there, and a `set` in the same context is the end of the process."""
    command = [sys.executable, "-X", "faulthandler", "-c", IN_THE_MIDDLE_OF_A_SET, str(place)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert (process.returncode, process.stdout) == (0, "done\n"), process.stderr


@dalsegno.agent
async def makes_garbage() -> str:
    async def aclose() -> str:
        return await look("mine")

    if WITH_GARBAGE:
        Client()
    return await asyncio.create_task(aclose())


def test_a_task_of_a_finaliser_has_no_number(opened: Open) -> None:
    WITH_GARBAGE[:] = [True]
    app = opened(makes_garbage)
    assert app.run(makes_garbage, "r") == "<mine>"
    # Garbage is collected at another time in a replay.
    WITH_GARBAGE.clear()
    assert app.replay("r").same


def test_a_task_of_a_finaliser_outlives_the_run(opened: Open) -> None:
    CLOSED.clear()
    WITH_GARBAGE[:] = [True]
    app = opened(makes_garbage)
    app.run(makes_garbage, "r")
    until_closed()


@dalsegno.agent
async def makes_garbage_when_it_is_left() -> str:
    try:
        return str(await aio.signal("go"))
    finally:
        Client()


def test_a_finaliser_in_a_run_that_is_left(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    CLOSED.clear()
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    app = opened(makes_garbage_when_it_is_left, stay_in_memory=0)
    app.start(makes_garbage_when_it_is_left, "r")
    until_closed()
    app.signal("r", "go", "went")
    assert app.get("r").result() == "went"
    assert not ignored


class MakesSteps:
    def __del__(self) -> None:
        asyncio.get_running_loop().create_task(self.aclose())

    async def aclose(self) -> None:
        try:
            CLOSED.append(await look("theirs"))
        except dalsegno.BadUse as e:
            CLOSED.append(str(e))


@dalsegno.agent
async def makes_steps_by_a_finaliser() -> str:
    MakesSteps()
    while not CLOSED:
        await asyncio.sleep(0)
    return await look("mine")


def test_a_finaliser_makes_no_steps(opened: Open) -> None:
    CLOSED.clear()
    assert opened(makes_steps_by_a_finaliser).run(makes_steps_by_a_finaliser, "r") == "<mine>"
    assert "made by a finaliser" in CLOSED[0]


class Patient(Client):
    """Waits for more than itself."""

    async def aclose(self) -> None:
        await asyncio.wait_for(asyncio.sleep(0.05), 5)
        await asyncio.create_task(asyncio.sleep(0))
        CLOSED.append("closed")


@dalsegno.agent
async def with_a_patient_client() -> str:
    Patient()
    return await look("it")


def test_what_a_finaliser_waits_for_is_none_of_the_runs_either(opened: Open) -> None:
    CLOSED.clear()
    app = opened(with_a_patient_client)
    assert app.run(with_a_patient_client, "r") == "<it>"
    until_closed()
