"""A process with agents of the OpenAI Agents SDK, for tests that kill it.

Arguments: the store, the address of the server, `chat` or `responses`, `whole` or `streamed`, a log, what to do,
and where to be killed: the n-th line of the log.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    Model,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

import dalsegno
from dalsegno import openai_agents
from dalsegno.openai_agents import DalsegnoSession

set_tracing_disabled(True)
PLACE, URL, API, WAY, LOG, WHAT, DIES_AT = sys.argv[1:8] if len(sys.argv) > 7 else ("", "", "", "", "", "", "0")


def log(text: str) -> None:
    """Writes a line, and dies if it is the one to die at."""
    with Path(LOG).open("a") as file:
        file.write(f"{text}\n")
    if len(Path(LOG).read_text().splitlines()) == int(DIES_AT):
        os.kill(os.getpid(), signal.SIGKILL)


def model(name: str) -> Model:
    client = AsyncOpenAI(base_url=URL, api_key="none", max_retries=0)
    return (OpenAIChatCompletionsModel if API == "chat" else OpenAIResponsesModel)(name, client)


@openai_agents.function_tool(effect="idempotent")
async def weather(city: str) -> str:
    """The weather in a city."""
    # The first is the last to be ready.
    await asyncio.sleep(0.05 if city == "Rome" else 0.01)
    log(f"weather {city}")
    return f"sunny in {city}"


BOOK_EFFECT: Any = os.environ.get("BOOK_EFFECT", "idempotent")


@openai_agents.function_tool(effect=BOOK_EFFECT)
def book(city: str) -> str:
    """Books a flight."""
    log(f"book {city}")
    return f"booked {city}"


async def polite(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered="rude" in str(input))


def team() -> Agent[Any]:
    """One who looks up, and one who books."""
    clerk = Agent(name="clerk", instructions="clerk", model=model("clerk"), tools=[book])
    helper = Agent(name="helper", instructions="helper", model=model("helper"), tools=[weather])
    return Agent(
        name="front",
        instructions="front",
        model=model("front"),
        tools=[weather, helper.as_tool("ask_helper", "Asks the helper.")],
        handoffs=[clerk],
        input_guardrails=[InputGuardrail(polite)],
    )


@dalsegno.agent
async def travel(request: str, session: str) -> str:
    log(f"begin {request}") if not Path(f"{LOG}.{request}").exists() else None
    Path(f"{LOG}.{request}").touch()
    kept = DalsegnoSession(session, APPS[-1]) if session else None
    if WAY == "whole":
        return str((await Runner.run(team(), request, session=kept)).final_output)
    result = Runner.run_streamed(team(), request, session=kept)
    deltas = ""
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            deltas += event.data.delta
    print(f"deltas {deltas}", flush=True)
    return str(result.final_output)


APPS: list[dalsegno.App] = []


def main() -> None:
    with dalsegno.open(PLACE, agents=[travel]) as app:
        APPS.append(app)
        if "RESOLVE" in os.environ:
            app.resolve(WHAT, os.environ["RESOLVE"], "happened", "booked Rome by hand", by="ann")
        print("result", app.run(travel, WHAT, WHAT, "of Ann"), flush=True)
        assert app.replay(WHAT).same
        session = DalsegnoSession("of Ann", app)
        print("session", len(asyncio.run(session.get_items())), flush=True)


if __name__ == "__main__":
    main()
