"""A process with an agent of Pydantic AI, for tests that kill it.

Arguments: the store, the address of the server, a log, `plain` or `streamed`, and where to be killed: the n-th line of
the log. 0 is nowhere.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastmcp.client import Client
from fastmcp.client.transports import StdioTransport
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import dalsegno
from dalsegno.pydantic_ai import DalsegnoAgent

PLACE, URL, LOG, WAY, DIES_AT = sys.argv[1:6] if len(sys.argv) > 5 else ("", "http://none", "", "", "0")


def log(text: str) -> None:
    """Writes a line, and dies if it is the one to die at."""
    with Path(LOG).open("a") as file:
        file.write(f"{text}\n")
    if len(Path(LOG).read_text().splitlines()) == int(DIES_AT):
        os.kill(os.getpid(), signal.SIGKILL)


class Booked(BaseModel):
    city: str
    price: float


@dataclass
class Traveller:
    name: str


def clerk() -> DalsegnoAgent[Traveller, str]:
    model = OpenAIChatModel("clerk", provider=OpenAIProvider(base_url=URL, api_key="none"))
    here = Path(__file__).with_name("mcp_server.py")
    archive = MCPToolset(Client(StdioTransport(sys.executable, [str(here), f"{LOG}.filed"])), id="archive")
    agent: Agent[Traveller, str] = Agent(
        model, name="clerk", deps_type=Traveller, instructions="clerk", toolsets=[archive]
    )

    @agent.tool_plain(metadata={"dalsegno": {"effect": "read_only"}})
    async def weather(city: str) -> str:
        # The first is the last to be ready.
        await asyncio.sleep(0.05 if city == "Rome" else 0.01)
        log(f"weather {city}")
        return f"sunny in {city}"

    @agent.tool(retries=2)
    def book(context: RunContext[Traveller], city: str) -> Booked:
        if city == "Atlantis":
            raise ModelRetry("there is no such city")
        log(f"book {city} for {context.deps.name}")
        return Booked(city=city, price=99.5)

    async def heard(context: RunContext[Traveller], events: AsyncIterable[Any]) -> None:
        async for event in events:
            if type(event).__name__ == "PartDeltaEvent":
                HEARD.append(event)

    return DalsegnoAgent(
        agent,
        tool_config={"effect": "idempotent"},
        mcp_config={"effect": "idempotent"},
        event_stream_handler=heard if WAY == "streamed" else None,
    )


HEARD: list[Any] = []


@dalsegno.agent
async def travel(request: str) -> str:
    result = await clerk().run(request, deps=Traveller("Ann"))
    return result.output


def main() -> None:
    with dalsegno.open(PLACE, agents=[travel]) as app:
        print("result", app.run(travel, "go", "go"), flush=True)
        print("heard", bool(HEARD), flush=True)
        replayed = app.replay("go")
        assert replayed.same, replayed


if __name__ == "__main__":
    main()
