"""A process with a graph of LangGraph, for tests that kill it."""

from __future__ import annotations

import asyncio
import operator
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

import dalsegno
from dalsegno.langgraph import DalsegnoSaver


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def at(thread: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread}}


def counting(saver: BaseCheckpointSaver[Any], steps: int, says: bool = False) -> Any:
    """A graph that counts. It can say on stdout when a step begins, and so that all before it is saved."""

    def step(state: State) -> dict[str, Any]:
        if says:
            print(f"begin {len(state['log'])}", flush=True)
        return {"log": [f"step {len(state['log'])}"]}

    builder = StateGraph(State)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", lambda state: "step" if len(state["log"]) < steps else "__end__")
    return builder.compile(checkpointer=saver)


def count(place: str, steps: int) -> None:
    with DalsegnoSaver(place) as saver:
        graph = counting(saver, steps, says=True)
        there = graph.get_state(at("1")).values.get("log")
        config: RunnableConfig = {**at("1"), "recursion_limit": steps + 5}
        out = graph.invoke(None if there else {"log": ["go"]}, config, durability="sync")
        print("end", *out["log"], sep=",", flush=True)


def many(place: str, worker: str, threads: int, turns: int) -> None:
    """Several threads of a process, each with threads of LangGraph of its own."""

    async def main() -> None:
        async with DalsegnoSaver(place) as saver:
            builder = StateGraph(State)
            builder.add_node("step", lambda state: {"log": [f"{len(state['log'])}"]})
            builder.add_edge(START, "step")
            graph: Any = builder.compile(checkpointer=saver)

            async def talk(thread: str) -> None:
                for turn in range(turns):
                    await graph.ainvoke({"log": [f"{worker} {turn}"]}, at(thread))

            await asyncio.gather(*(talk(f"{worker}-{n}") for n in range(threads)))

    asyncio.run(main())
    print("done", flush=True)


@dalsegno.tool(effect="once", probe=lambda key: dalsegno.UNKNOWN)
async def look_up(what: str) -> str:
    with Path(sys.argv[3]).open("a") as calls:
        calls.write(f"{what}\n")
    return f"<{what}>"


@dalsegno.agent
async def researcher(what: str) -> list[str]:
    """A graph in a run: its nodes call tools of ours. The first time it is killed between two of them."""

    async def find(state: State) -> dict[str, Any]:
        return {"log": [await look_up(f"find {state['log'][-1]}"), await look_up("more")]}

    async def check(state: State) -> dict[str, Any]:
        marker = Path(f"{sys.argv[3]}.{what}")
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"log": [await look_up(f"check {len(state['log'])}")]}

    builder = StateGraph(State)
    builder.add_node("find", find)
    builder.add_node("check", check)
    builder.add_edge(START, "find")
    builder.add_edge("find", "check")
    graph: Any = builder.compile(checkpointer=SAVERS[-1])
    out = await graph.ainvoke({"log": [what]}, at("1"))
    return list(out["log"])


SAVERS: list[DalsegnoSaver] = []


def in_a_run(place: str, what: str) -> None:
    with dalsegno.open(place, agents=[researcher]) as app:
        SAVERS.append(DalsegnoSaver(app))
        print(*app.run(researcher, what, what), sep=",", flush=True)
        # To replay changes nothing, in the thread of the graph neither.
        before = [found.checkpoint["id"] for found in SAVERS[-1].list(at("1"))]
        assert app.replay(what).same
        assert [found.checkpoint["id"] for found in SAVERS[-1].list(at("1"))] == before


def delete(place: str) -> None:
    with DalsegnoSaver(place) as saver:
        print("begin", flush=True)
        saver.delete_thread("1")
        print("end", flush=True)


if __name__ == "__main__":
    match sys.argv[1]:
        case "delete":
            delete(sys.argv[2])
        case "count":
            count(sys.argv[2], int(sys.argv[3]))
        case "many":
            many(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
        case "run":
            in_a_run(sys.argv[2], sys.argv[4])
