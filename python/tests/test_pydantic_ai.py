"""Agents of Pydantic AI in runs of ours: killed anywhere, each model and each tool is called once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai_server import Asked, Call, Reply, Server
from pydantic_ai import Agent, FunctionToolset, UnexpectedModelBehavior
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import dalsegno
from dalsegno.pydantic_ai import DalsegnoAgent, DalsegnoDurability

WORKER = Path(__file__).with_name("pydantic_ai_worker.py")


def script(asked: Asked) -> Reply:
    """Looks up two cities at once, books one that there is not, then one that there is, files it."""
    match len(asked.outputs):
        case 0:
            return [Call("weather", {"city": city}, f"w{at}") for at, city in enumerate(("Rome", "Bonn"))]
        case 2:
            return [Call("book", {"city": "Atlantis"}, "b0")]
        case 3:
            return [Call("book", {"city": "Rome"}, "b1")]
        case 4:
            return [Call("file", {"text": "ticket"}, "f1")]
        case _:
            return f"done: {asked.outputs[-2]} {asked.outputs[-1]}"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(script).running() as running:
        yield running


def spawn(place: Path, server: Server, way: str, dies_at: int) -> tuple[int, str, str]:
    command = [sys.executable, WORKER, place, server.url, place.with_name("log"), way, dies_at]
    process = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=90)
    return process.returncode, process.stdout, process.stderr


@pytest.mark.parametrize("way", ["plain", "streamed"])
def test_killed_at_every_tool(tmp_path: Path, server: Server, way: str) -> None:
    place = tmp_path / "store"
    for dies_at in (1, 2, 3, 4) if way == "plain" else (3,):
        status, out, err = spawn(place, server, way, dies_at)
        assert (status, out) == (-9, ""), err
    status, out, err = spawn(place, server, way, 0)
    assert status == 0, err
    assert 'result done: {"city":"Rome","price":99.5} filed ticket\n' in out
    assert f"heard {way == 'streamed'}\n" in out
    # Each answer was asked for once, however often the process died between them.
    assert [len(asked.outputs) for asked in server.asked] == [0, 2, 3, 4, 5]
    log = (tmp_path / "log").read_text().splitlines()
    assert set(log) == {"weather Rome", "weather Bonn", "book Rome for Ann"}
    # A tool that had ended is not called again.
    assert len(log) <= 3 + 4
    assert (tmp_path / "log.filed").read_text().splitlines() == ["file ticket"]


class _Setup:
    url = ""


def simple(tool_effect: str) -> DalsegnoAgent[object, str]:
    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=_Setup.url, api_key="none"))
    agent = Agent(model, name="simple")

    @agent.tool_plain(metadata={"dalsegno": {"effect": tool_effect}})
    async def book(city: str) -> str:
        BOOKED.append(city)
        return f"booked {city}"

    return DalsegnoAgent(agent)


BOOKED: list[str] = []


def book_script(asked: Asked) -> Reply:
    return "; ".join(asked.outputs) if asked.outputs else [Call("book", {"city": asked.users[-1]}, "b1")]


@dalsegno.agent
async def two_at_once(cities: list[str]) -> list[str]:
    agent = simple("once")
    results = await asyncio.gather(*(agent.run(city) for city in cities))
    return [result.output for result in results]


def test_agents_beside_each_other(place: Path) -> None:
    BOOKED.clear()
    with Server(book_script).running() as server, dalsegno.open(place, agents=[two_at_once]) as app:
        _Setup.url = server.url
        cities = ["Rome", "Bonn", "Oslo"]
        # All calls have the same id: the server gives it to each.
        assert app.run(two_at_once, "r", cities) == ["booked Rome", "booked Bonn", "booked Oslo"]
        assert sorted(BOOKED) == sorted(cities)
        assert app.replay("r").same
        assert len(server.asked) == 6


def test_outside_of_a_run_it_is_the_agent() -> None:
    BOOKED.clear()
    with Server(book_script).running() as server:
        _Setup.url = server.url
        assert asyncio.run(simple("once").run("Rome")).output == "booked Rome"
        assert BOOKED == ["Rome"]


def failing(messages: Any, info: AgentInfo) -> Any:
    CALLS.append("asked")
    raise UnexpectedModelBehavior("it is down")


CALLS: list[str] = []


@dalsegno.agent
async def unlucky() -> str:
    agent = Agent(
        FunctionModel(failing), name="unlucky", capabilities=[DalsegnoDurability(model_config={"retries": 3})]
    )
    try:
        return (await agent.run("go")).output
    except UnexpectedModelBehavior as e:
        return f"failed: {e}"


def test_a_model_that_fails_is_tried_again_and_then_fails(place: Path) -> None:
    CALLS.clear()
    with dalsegno.open(place, agents=[unlucky]) as app:
        assert app.run(unlucky, "r") == "failed: it is down"
        assert CALLS == ["asked"] * 3
        assert app.replay("r").same


async def pay(amount: int) -> str:
    """Pays."""
    BOOKED.append("paid")
    return "paid"


@dalsegno.agent
async def with_more_tools() -> str:
    more = FunctionToolset([pay], id="more")
    return (await simple("once").run("Rome", toolsets=[more])).output


def test_tools_that_come_too_late_are_refused(place: Path) -> None:
    BOOKED.clear()
    with Server(book_script).running() as server, dalsegno.open(place, agents=[with_more_tools]) as app:
        _Setup.url = server.url
        with pytest.raises(dalsegno.RunFailed, match="FunctionToolset 'more' cannot be added at runtime"):
            app.run(with_more_tools, "r")
        assert not BOOKED


@dalsegno.agent
async def streaming(city: str) -> str:
    async with simple("once").run_stream(city) as result:
        return await result.get_output()


def test_run_stream_in_a_run(place: Path) -> None:
    BOOKED.clear()
    with Server(book_script).running() as server, dalsegno.open(place, agents=[streaming]) as app:
        _Setup.url = server.url
        assert app.run(streaming, "r", "Rome") == "booked Rome"
        assert app.replay("r").same
        assert BOOKED == ["Rome"]
        assert len(server.asked) == 2


def test_names_of_steps_stay_as_they_are(place: Path) -> None:
    """They are in the records of runs that are under way."""
    with Server(book_script).running() as server, dalsegno.open(place, agents=[two_at_once]) as app:
        _Setup.url = server.url
        app.run(two_at_once, "r", ["Rome"])
        text = str(app.why("r"))
    for name in ("simple__model.request#1", "simple__function_toolset__<agent>.call_tool:book b1#1"):
        assert f"run#1/{name}" in text
