"""Agents of the OpenAI Agents SDK in runs of ours: killed anywhere, each model and each tool is called once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    LocalShellTool,
    Model,
    ModelBehaviorError,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents.mcp import MCPServer
from agents.memory import Session
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as McpTool
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseIncompleteEvent
from openai_agents_worker import polite
from openai_server import Asked, Call, Reply, Server

import dalsegno
from dalsegno import openai_agents
from dalsegno.openai_agents import DalsegnoSession

set_tracing_disabled(True)
WORKER = Path(__file__).with_name("openai_agents_worker.py")


def script(asked: Asked) -> Reply:
    """Front asks for the weather twice at once, then asks the helper, then hands over to the clerk, who books."""
    done = len(asked.outputs)
    if asked.model == "helper":
        return "it is fine" if done else [Call("weather", {"city": "Oslo"}, "h1")]
    if asked.model == "front":
        if done == 2:
            return [Call("ask_helper", {"input": "well?"}, "a1")]
        if done == 3:
            return [Call("transfer_to_clerk", {}, "t1")]
        return [Call("weather", {"city": city}, f"w{at}") for at, city in enumerate(("Rome", "Bonn"))]
    return f"done: {asked.outputs[-1]}" if "booked" in asked.outputs[-1] else [Call("book", {"city": "Rome"}, "b1")]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(script).running() as running:
        yield running


def spawn(place: Path, server: Server, api: str, way: str, dies_at: int, **more: str) -> tuple[int, str, str]:
    log = place.with_name("log")
    command = [sys.executable, WORKER, place, server.url, api, way, log, "go", dies_at]
    process = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=60, env={**os.environ, **more}
    )
    return process.returncode, process.stdout, process.stderr


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("way", ["whole", "streamed"])
def test_killed_at_every_tool(tmp_path: Path, server: Server, api: str, way: str) -> None:
    place = tmp_path / "store"
    for dies_at in (1, 2, 3, 4, 5) if (api, way) == ("chat", "whole") else (3, 5):
        status, out, err = spawn(place, server, api, way, dies_at)
        assert (status, out) == (-9, ""), err
    status, out, err = spawn(place, server, api, way, 0)
    assert status == 0, err
    assert "result done: booked Rome\n" in out
    if way == "streamed":
        assert "deltas done: booked Rome\n" in out
    # Each model was asked once for each answer, although the process died five times between them.
    assert [asked.model for asked in server.asked] == ["front", "front", "helper", "helper", "front", "clerk", "clerk"]
    log = (tmp_path / "log").read_text().splitlines()
    # A tool that died while it was at work is called again, with the same key; one that had ended is not.
    assert log[0] == "begin go"
    assert {line: log.count(line) for line in log}.keys() == {
        "begin go",
        "weather Rome",
        "weather Bonn",
        "weather Oslo",
        "book Rome",
    }
    assert len(log) <= 5 + 5
    # The session has each item once: a request, five calls with what they gave, an answer.
    assert "session 12\n" in out, out


def test_not_killed(tmp_path: Path, server: Server) -> None:
    status, out, err = spawn(tmp_path / "store", server, "chat", "whole", 0)
    assert status == 0, err
    log = (tmp_path / "log").read_text().splitlines()
    assert sorted(log) == ["begin go", "book Rome", "weather Bonn", "weather Oslo", "weather Rome"]
    assert len(server.asked) == 7
    assert "session 12\n" in out


def test_a_tool_in_doubt_is_not_called_again(tmp_path: Path, server: Server) -> None:
    place = tmp_path / "store"
    assert spawn(place, server, "chat", "whole", 5, BOOK_EFFECT="once")[0] == -9
    for _ in range(2):
        status, out, err = spawn(place, server, "chat", "whole", 0, BOOK_EFFECT="once")
        assert (status, out) == (1, "")
        assert "InDoubt" in err
        assert "book b1#1" in err
    status, out, err = spawn(place, server, "chat", "whole", 0, BOOK_EFFECT="once", RESOLVE="book b1#1")
    assert status == 0, err
    assert "result done: booked Rome by hand\n" in out
    assert (tmp_path / "log").read_text().splitlines().count("book Rome") == 1
    assert len(server.asked) == 7


class _Setup:
    url = ""


def simple(name: str, **more: Any) -> Agent[Any]:
    client = AsyncOpenAI(base_url=_Setup.url, api_key="none", max_retries=0)
    return Agent(name=name, instructions=name, model=OpenAIChatCompletionsModel(name, client), **more)


@dalsegno.agent
async def guarded(request: str) -> str:
    agent = simple("clerk", input_guardrails=[InputGuardrail(polite)], tools=[plain_book])
    try:
        return str((await Runner.run(agent, request)).final_output)
    except InputGuardrailTripwireTriggered:
        return "refused"


@function_tool
def plain_book(city: str) -> str:
    """Books."""
    BOOKED.append(city)
    return f"booked {city}"


plain_book.name = "book"
BOOKED: list[str] = []


def book_script(asked: Asked) -> Reply:
    return f"done: {asked.outputs[-1]}" if asked.outputs else [Call("book", {"city": "Rome"}, "b1")]


def test_guardrails_and_plain_tools(place: Path) -> None:
    BOOKED.clear()
    with Server(book_script).running() as server, dalsegno.open(place, agents=[guarded]) as app:
        _Setup.url = server.url
        assert app.run(guarded, "kind", "please") == "done: booked Rome"
        assert app.run(guarded, "rude", "be rude") == "refused"
        assert BOOKED == ["Rome"]
        assert app.replay("kind").same
        assert app.replay("rude").same


class Archive(MCPServer):
    """A server of the Model Context Protocol, in this process."""

    @property
    def name(self) -> str:
        return "archive"

    async def connect(self) -> None:
        pass

    async def cleanup(self) -> None:
        pass

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[McpTool]:
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        return [McpTool(name="book", description="Books.", input_schema=schema)]

    async def call_tool(self, tool_name: str, arguments: dict[str, Any] | None, meta: Any = None) -> CallToolResult:
        BOOKED.append((arguments or {})["city"])
        return CallToolResult(content=[TextContent(type="text", text="booked by MCP")])

    async def list_prompts(self) -> Any:
        raise NotImplementedError

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        raise NotImplementedError


@dalsegno.agent
async def with_mcp(request: str) -> str:
    return str((await Runner.run(simple("clerk", mcp_servers=[Archive()]), request)).final_output)


@dalsegno.agent
async def with_a_shell(request: str) -> str:
    shell = LocalShellTool(executor=lambda request: "never")
    return str((await Runner.run(simple("clerk", tools=[shell]), request)).final_output)


def test_mcp_servers_and_tools_that_cannot_be_steps(place: Path) -> None:
    BOOKED.clear()
    with Server(book_script).running() as server, dalsegno.open(place, agents=[with_mcp, with_a_shell]) as app:
        _Setup.url = server.url
        assert "booked by MCP" in app.run(with_mcp, "r", "please")
        assert app.replay("r").same
        assert BOOKED == ["Rome"]
        assert "call_tool" not in str(app.why("r"))
        with pytest.raises(dalsegno.RunFailed, match="cannot be made steps"):
            app.run(with_a_shell, "s", "please")


@dalsegno.agent
async def with_a_session(streamed: bool) -> str:
    session = SQLiteSession("of Ann")
    if streamed:
        Runner.run_streamed(simple("clerk", tools=[plain_book]), "go", session=session)
    return str((await Runner.run(simple("clerk", tools=[plain_book]), "go", session=session)).final_output)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_session_that_is_not_recorded(place: Path, streamed: bool) -> None:
    with Server(book_script).running() as server, dalsegno.open(place, agents=[with_a_session]) as app:
        _Setup.url = server.url
        with pytest.raises(dalsegno.RunFailed, match=r"a SQLiteSession in a run .* give a .*DalsegnoSession"):
            app.run(with_a_session, "r", streamed)
        assert not server.asked


@openai_agents.function_tool(effect="once", needs_approval=True, name_override="book")
async def careful_book(city: str) -> str:
    """Books a flight, if somebody agrees."""
    BOOKED.append(city)
    return f"booked {city}"


@dalsegno.agent
async def asks_first() -> str:
    agent = simple("clerk", tools=[careful_book])
    result = await Runner.run(agent, "go")
    state = result.to_state()
    agreed = await dalsegno.aio.approval("book")
    for wanted in result.interruptions:
        state.approve(wanted) if agreed else state.reject(wanted)
    return str((await Runner.run(agent, state)).final_output)


def test_a_tool_that_needs_approval(place: Path) -> None:
    BOOKED.clear()
    with Server(book_script).running() as server:
        _Setup.url = server.url
        with dalsegno.open(place, agents=[asks_first]) as app:
            app.start(asks_first, "r")
            while (standing := app.why("r").standing) != "waits-for-approval":
                assert standing != "ended"
        with dalsegno.open(place, agents=[asks_first]) as app:
            app.approve("r", "book", by="ann")
            assert app.get("r").result() == "done: booked Rome"
            assert app.replay("r").same
        assert BOOKED == ["Rome"]
        assert len(server.asked) == 2


class CutShort(Model):
    """Says that it could not say all."""

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        CUT.append("asked")
        response = Response(
            id="r1",
            created_at=1,
            model="m",
            object="response",
            output=[],
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
            status="incomplete",
        )
        yield ResponseIncompleteEvent(response=response, sequence_number=0, type="response.incomplete")
        await asyncio.sleep(0.05)
        raise ModelBehaviorError("it was cut short")


CUT: list[str] = []


@dalsegno.agent
async def copes() -> str:
    result = Runner.run_streamed(Agent(name="clerk", model=CutShort()), "go")
    try:
        async for _ in result.stream_events():
            pass
    except ModelBehaviorError:
        await dalsegno.aio.signal("go on")
        return "coped"
    return "?"


def test_an_answer_that_is_cut_short_is_recorded_as_that(place: Path) -> None:
    CUT.clear()
    with dalsegno.open(place, agents=[copes]) as app:
        app.start(copes, "r")
        while (standing := app.why("r").standing) != "waits-for-signal":
            assert standing != "ended"
    with dalsegno.open(place, agents=[copes]) as app:
        app.signal("r", "go on")
        assert app.get("r").result() == "coped"
    # It is not asked again: it might say something else then.
    assert CUT == ["asked"]


def test_outside_of_a_run_it_is_the_sdk(tmp_path: Path) -> None:
    async def main() -> str:
        agent = simple("clerk", tools=[plain_book])
        async with DalsegnoSession("s", tmp_path / "store") as session:
            assert isinstance(session, Session)
            result = await Runner.run(agent, "go", session=session)
            again = await Runner.run(agent, "again", session=session, run_config=RunConfig())
            assert len(await session.get_items()) == 6, await session.get_items()
            assert (await session.get_items(2))[0] == {"content": "again", "role": "user"}
            assert again.final_output == result.final_output
            popped = await session.pop_item()
            assert popped is not None
            assert len(await session.get_items()) == 5
            await session.add_items([{"role": "user", "content": "more"}])
            assert (await session.get_items())[-1] == {"role": "user", "content": "more"}
            assert len(await session.get_items()) == 6, await session.get_items()
            await session.clear_session()
            assert await session.get_items() == []
            assert await session.pop_item() is None
            await session.add_items([{"role": "user", "content": "new"}])
            assert await session.get_items() == [{"role": "user", "content": "new"}]
        async with DalsegnoSession("s", tmp_path / "store") as session:
            assert await session.get_items() == [{"role": "user", "content": "new"}]
        return str(result.final_output)

    with Server(book_script).running() as server:
        _Setup.url = server.url
        assert asyncio.run(main()) == "done: booked Rome"
