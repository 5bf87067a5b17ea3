"""Graphs of LangGraph over our saver: durability, interrupts, time travel, subgraphs, encryption, two writers, runs."""

from __future__ import annotations

import asyncio
import operator
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

import dalsegno
from dalsegno.langgraph import DalsegnoSaver, Superseded

Durability = Literal["sync", "async", "exit"]
DURABILITIES: list[Durability] = ["sync", "async", "exit"]
CALLS: list[str] = []


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    turns: int


@pytest.fixture(autouse=True)
def _clear() -> None:
    CALLS.clear()


@pytest.fixture
def saver(place: Path) -> Iterator[DalsegnoSaver]:
    with DalsegnoSaver(place) as opened:
        yield opened


def at(thread: str, **more: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, **more}}


def answer(state: Chat) -> dict[str, Any]:
    CALLS.append("answer")
    text = f"to {state['messages'][-1].content}"
    return {"messages": [AIMessage(text)], "turns": state.get("turns", 0) + 1}


def chat(saver: DalsegnoSaver) -> Any:
    builder = StateGraph(Chat)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def said(graph: Any, config: RunnableConfig) -> list[str]:
    return [message.content for message in graph.get_state(config).values.get("messages", [])]


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_conversation_goes_on(place: Path, durability: Durability) -> None:
    for turn in range(3):
        with DalsegnoSaver(place) as saver:
            out = chat(saver).invoke({"messages": [HumanMessage(f"q{turn}")]}, at("1"), durability=durability)
            assert out["turns"] == turn + 1
    with DalsegnoSaver(place) as saver:
        assert said(chat(saver), at("1")) == ["q0", "to q0", "q1", "to q1", "q2", "to q2"]
        checkpoints = len(list(saver.list(at("1"))))
        assert checkpoints == (3 if durability == "exit" else 9)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_the_same_in_async_code(place: Path, durability: Durability) -> None:
    async def main() -> None:
        async with DalsegnoSaver(place) as saver:
            graph = chat(saver)
            for turn in range(3):
                await graph.ainvoke({"messages": [HumanMessage(f"q{turn}")]}, at("1"), durability=durability)
            state = await graph.aget_state(at("1"))
            assert [m.content for m in state.values["messages"]] == ["q0", "to q0", "q1", "to q1", "q2", "to q2"]
            assert [s.config async for s in graph.aget_state_history(at("1"))]

    asyncio.run(main())


class Order(TypedDict):
    what: str
    log: Annotated[list[str], operator.add]


def ordering(saver: DalsegnoSaver) -> Any:
    def prepare(state: Order) -> dict[str, Any]:
        CALLS.append("prepare")
        return {"log": [f"prepare {state['what']}"]}

    def ask(state: Order) -> dict[str, Any]:
        said = interrupt({"approve": state["what"]})
        CALLS.append("ask")
        return {"log": [f"said {said}"]}

    def other(state: Order) -> dict[str, Any]:
        CALLS.append("other")
        return {"log": ["other"]}

    builder = StateGraph(Order)
    for node in (prepare, ask, other):
        builder.add_node(node.__name__, node)
    builder.add_edge(START, "prepare")
    builder.add_edge("prepare", "ask")
    builder.add_edge("prepare", "other")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_an_interrupt_survives_a_restart(place: Path, durability: Durability) -> None:
    with DalsegnoSaver(place) as saver:
        out = ordering(saver).invoke({"what": "tea", "log": []}, at("1"), durability=durability)
        assert [i.value for i in out["__interrupt__"]] == [{"approve": "tea"}]
    with DalsegnoSaver(place) as saver:
        graph = ordering(saver)
        assert graph.get_state(at("1")).next == ("ask",)
        out = graph.invoke(Command(resume="yes"), at("1"), durability=durability)
        assert sorted(out["log"]) == ["other", "prepare tea", "said yes"]
        assert CALLS == ["prepare", "other", "ask"]


def test_time_travel(saver: DalsegnoSaver) -> None:
    graph = chat(saver)
    for turn in range(3):
        graph.invoke({"messages": [HumanMessage(f"q{turn}")]}, at("1"))
    history = list(graph.get_state_history(at("1")))
    assert [len(state.values.get("messages", [])) for state in history] == [6, 5, 4, 4, 3, 2, 2, 1, 0]
    then = next(state for state in history if state.next == () and len(state.values["messages"]) == 2)
    graph.invoke({"messages": [HumanMessage("instead")]}, then.config)
    assert said(graph, at("1")) == ["q0", "to q0", "instead", "to instead"]
    # The other future is still there.
    assert said(graph, history[0].config) == ["q0", "to q0", "q1", "to q1", "q2", "to q2"]
    # Replayed from a checkpoint in the middle, and with a changed state.
    before = next(state for state in history if state.next == ("answer",) and len(state.values["messages"]) == 3)
    changed = graph.update_state(before.config, {"messages": [HumanMessage("again")]})
    graph.invoke(None, changed)
    assert said(graph, at("1")) == ["q0", "to q0", "q1", "again", "to again"]


def test_subgraphs_have_their_own_checkpoints(place: Path) -> None:
    def build(saver: DalsegnoSaver) -> Any:
        def inner_step(state: Order) -> dict[str, Any]:
            CALLS.append("inner")
            return {"log": ["inner"]}

        def inner_ask(state: Order) -> dict[str, Any]:
            return {"log": [f"inner said {interrupt('well?')}"]}

        inner = StateGraph(Order)
        inner.add_node("step", inner_step)
        inner.add_node("ask", inner_ask)
        inner.add_edge(START, "step")
        inner.add_edge("step", "ask")
        outer = StateGraph(Order)
        outer.add_node("inner", inner.compile())
        outer.add_edge(START, "inner")
        return outer.compile(checkpointer=saver)

    with DalsegnoSaver(place) as saver:
        build(saver).invoke({"what": "tea", "log": []}, at("1"))
    with DalsegnoSaver(place) as saver:
        graph = build(saver)
        state = graph.get_state(at("1"), subgraphs=True)
        namespace = state.tasks[0].state.config["configurable"]["checkpoint_ns"]
        assert namespace.startswith("inner:")
        assert state.tasks[0].state.values["log"] == ["inner"]
        out = graph.invoke(Command(resume="fine"), at("1"))
        assert out["log"] == ["inner", "inner said fine"]
        assert CALLS == ["inner"]
        assert {found.config["configurable"]["checkpoint_ns"] for found in saver.list(at("1"))} == {"", namespace}


def test_parallel_nodes(saver: DalsegnoSaver) -> None:
    def spread(state: Order) -> list[Send]:
        return [Send("work", {"what": str(n), "log": []}) for n in range(8)]

    builder = StateGraph(Order)
    builder.add_node("work", lambda state: {"log": [state["what"]]})
    builder.add_conditional_edges(START, spread, ["work"])
    builder.add_edge("work", END)
    graph = builder.compile(checkpointer=saver)
    assert graph.invoke({"what": "", "log": []}, at("1"))["log"] == [str(n) for n in range(8)]
    assert graph.get_state(at("1")).values["log"] == [str(n) for n in range(8)]


def joined(value: list[str], writes: list[list[str]]) -> list[str]:
    return value + [item for write in writes for item in write]


class Notes(TypedDict):
    notes: Annotated[list[str], DeltaChannel(joined, snapshot_frequency=4)]


def test_channels_of_deltas(place: Path) -> None:
    def build(saver: DalsegnoSaver) -> Any:
        builder = StateGraph(Notes)
        builder.add_node("note", lambda state: {"notes": [f"note {len(state['notes'])}"]})
        builder.add_edge(START, "note")
        return builder.compile(checkpointer=saver)

    expected = []
    for turn in range(9):
        with DalsegnoSaver(place) as saver:
            expected += [f"in {turn}", f"note {2 * turn + 1}"]
            assert build(saver).invoke({"notes": [f"in {turn}"]}, at("1"))["notes"] == expected
    with DalsegnoSaver(place) as saver:
        before = len(list(saver.list(at("1"))))
        saver.copy_thread("1", "2")
        saver.prune(["1"])
        assert 1 <= len(list(saver.list(at("1")))) < before
        for thread in ("1", "2"):
            assert build(saver).get_state(at(thread)).values["notes"] == expected
        assert build(saver).invoke({"notes": ["more"]}, at("1"))["notes"] == [*expected, "more", "note 19"]


class Odd:
    """Nothing that msgpack knows."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd)

    def __hash__(self) -> int:
        return 1


def test_no_pickle_unless_it_is_asked_for(place: Path) -> None:
    def build(saver: DalsegnoSaver) -> Any:
        builder = StateGraph(Order)
        builder.add_node("odd", lambda state: {"what": Odd()})
        builder.add_edge(START, "odd")
        return builder.compile(checkpointer=saver)

    with DalsegnoSaver(place) as saver, pytest.raises(TypeError):
        build(saver).invoke({"what": "", "log": []}, at("1"), durability="sync")
    with DalsegnoSaver(place, serde=JsonPlusSerializer(pickle_fallback=True)) as saver:
        build(saver).invoke({"what": "", "log": []}, at("2"), durability="sync")
        assert build(saver).get_state(at("2")).values["what"] == Odd()


def test_encryption(place: Path) -> None:
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    secret = "a secret that nobody may read " * 20
    for turn in range(3):
        with DalsegnoSaver(place, serde=serde) as saver:
            chat(saver).invoke({"messages": [HumanMessage(f"{secret} {turn}")]}, at("1"))
    with DalsegnoSaver(place, serde=serde) as saver:
        assert said(chat(saver), at("1"))[4] == f"{secret} 2"
        saver.copy_thread("1", "2")
        assert said(chat(saver), at("2")) == said(chat(saver), at("1"))
    stored = b"".join(file.read_bytes() for file in place.rglob("*") if file.is_file())
    assert b"secret" not in stored
    with DalsegnoSaver(place) as saver, pytest.raises(NotImplementedError):
        chat(saver).get_state(at("1"))


@pytest.mark.parametrize("name", ["ünï/cøde 😀", "a\nb", "x" * 500, "%41", "langgraph/1", "%" + "0" * 64, "7"])
def test_any_name_of_a_thread(place: Path, name: str) -> None:
    with DalsegnoSaver(place) as saver:
        chat(saver).invoke({"messages": [HumanMessage("q")]}, at(name))
        chat(saver).invoke({"messages": [HumanMessage("q")]}, at("another"))
    with DalsegnoSaver(place) as saver:
        assert said(chat(saver), at(name)) == ["q", "to q"]
        threads = {found.config["configurable"]["thread_id"] for found in saver.list(None)}
        assert threads == {name, "another"}
        saver.delete_thread(name)
        assert said(chat(saver), at(name)) == []
        assert said(chat(saver), at("another")) == ["q", "to q"]


def test_ids_may_be_numbers_and_uuids_everywhere(saver: DalsegnoSaver) -> None:
    run = uuid.uuid4()
    config: RunnableConfig = {"configurable": {"thread_id": 7}, "metadata": {"run_id": str(run)}}
    for turn in range(2):
        chat(saver).invoke({"messages": [HumanMessage(f"q{turn}")]}, config)
    saver.prune([7])  # type: ignore[list-item]
    assert len(list(saver.list(config))) == 1
    saver.delete_for_runs([run])  # type: ignore[list-item]
    assert list(saver.list(config)) == []


def test_who_was_overtaken_is_refused(place: Path) -> None:
    async def main(**settings: Any) -> list[Any]:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow(state: Chat) -> dict[str, Any]:
            if state["messages"][-1].content == "slow":
                begun.set()
                await go_on.wait()
            return {"messages": [AIMessage(f"to {state['messages'][-1].content}")]}

        builder = StateGraph(Chat)
        builder.add_node("slow", slow)
        builder.add_edge(START, "slow")
        async with DalsegnoSaver(place, **settings) as saver:
            graph: Any = builder.compile(checkpointer=saver)
            await graph.ainvoke({"messages": [HumanMessage("first")]}, at("1"), durability="sync")
            first = asyncio.create_task(graph.ainvoke({"messages": [HumanMessage("slow")]}, at("1"), durability="sync"))
            await begun.wait()
            await graph.ainvoke({"messages": [HumanMessage("fast")]}, at("1"), durability="sync")
            go_on.set()
            ended = await asyncio.gather(first, return_exceptions=True)
            return [*ended, [m.content for m in (await graph.aget_state(at("1"))).values["messages"]]]

    refused, now = asyncio.run(main())
    assert isinstance(refused, Superseded)
    assert "somebody else works on it" in str(refused)
    assert now[-2:] == ["fast", "to fast"]
    went_on, _ = asyncio.run(main(allow_forks=True))
    assert went_on["messages"][-1].content == "to slow"


def test_an_interrupt_is_answered_once(saver: DalsegnoSaver) -> None:
    both = threading.Barrier(2)

    def ask(state: Order) -> dict[str, Any]:
        said = interrupt("well?")
        both.wait(30)
        return {"log": [f"said {said}"]}

    builder = StateGraph(Order)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    graph: Any = builder.compile(checkpointer=saver)
    graph.invoke({"what": "tea", "log": []}, at("1"), durability="sync")

    def resume(said: str) -> Any:
        try:
            return graph.invoke(Command(resume=said), at("1"), durability="sync")["log"]
        except Superseded as e:
            return e

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(resume, ["yes", "no"]))
    refused = [end for end in ended if isinstance(end, Superseded)]
    assert len(refused) == 1
    assert graph.get_state(at("1")).values["log"] in ended


@dalsegno.tool(effect="read_only")
def look_up(what: str) -> str:
    CALLS.append(what)
    return f"<{what}>"


@dalsegno.agent
def plain_agent(what: str) -> list[str]:
    builder = StateGraph(Order)
    builder.add_node("first", lambda state: {"log": [look_up(state["what"])]})
    builder.add_node("second", lambda state: {"log": [look_up("more")]})
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    graph: Any = builder.compile(checkpointer=SAVERS[-1])
    return list(graph.invoke({"what": what, "log": []}, at("1"))["log"])


SAVERS: list[DalsegnoSaver] = []


def test_a_graph_in_a_plain_agent(place: Path) -> None:
    with dalsegno.open(place, agents=[plain_agent]) as app:
        SAVERS.append(DalsegnoSaver(app))
        assert app.run(plain_agent, "r", "tea") == ["<tea>", "<more>"]
        checkpoints = len(list(SAVERS[-1].list(at("1"))))
        assert app.replay("r").same
        assert len(list(SAVERS[-1].list(at("1")))) == checkpoints
        assert app.run(plain_agent, "s", "cake") == ["<tea>", "<more>", "<cake>", "<more>"]
        assert app.replay("r").same
        assert app.replay("s").same
        assert CALLS == ["tea", "more", "cake", "more"]


@dalsegno.tool(effect="read_only")
def count(thread: str) -> int:
    return len(list(SAVERS[-1].list(at(thread))))


@dalsegno.agent
def historian(in_a_tool: bool) -> int:
    return count("1") if in_a_tool else len(list(SAVERS[-1].list(at("1"))))


@dalsegno.agent
async def async_historian() -> int:
    return len([one async for one in SAVERS[-1].alist(at("1"))])


def test_the_history_of_a_thread_is_no_step(place: Path) -> None:
    with dalsegno.open(place, agents=[plain_agent, historian, async_historian]) as app:
        SAVERS.append(DalsegnoSaver(app))
        app.run(plain_agent, "r", "tea")
        with pytest.raises(dalsegno.RunFailed, match="lists checkpoints"):
            app.run(historian, "in the code", False)
        with pytest.raises(dalsegno.RunFailed, match="lists checkpoints"):
            app.run(async_historian, "in async code")
        assert app.run(historian, "in a tool", True) == 4
