"""Conversations, loops, named children: what a run keeps without keeping everything again."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import Open

import dalsegno
from dalsegno import aio
from dalsegno.testing import CrashEverywhere

ASKED: list[int] = []


@dalsegno.model
def reply(chat: dalsegno.Conversation) -> str:
    ASKED.append(len(chat))
    return f"reply {len(chat)} to {chat[-1]['content']}"


@dalsegno.agent
def talk(turns: int) -> list[str]:
    chat = dalsegno.conversation("chat")
    assert dalsegno.conversation("chat") is chat
    for turn in range(turns):
        chat.append({"role": "user", "content": f"question {turn}"})
        chat.append({"role": "assistant", "content": reply(chat)})
    return [message["content"] for message in chat]


def test_a_conversation_is_recorded_message_by_message(opened: Open) -> None:
    ASKED.clear()
    app = opened(talk)
    said = app.run(talk, "talk", 3)
    assert said[-1] == "reply 5 to question 2"
    assert ASKED == [1, 3, 5]
    assert app.replay("talk").same


def folder_size(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@dalsegno.agent
def long_talk(turns: int) -> int:
    chat = dalsegno.conversation("chat")
    for turn in range(turns):
        chat.append({"role": "user", "content": f"{turn} " + "x" * 2000})
        reply(chat)
    return len(chat)


def test_a_long_conversation_costs_its_own_length(opened: Open, place: Path) -> None:
    with dalsegno.open(place, agents=[long_talk]) as app:
        app.run(long_talk, "long", 400)
    # Whole inputs would be 160 MB.
    assert folder_size(place) < 24_000_000


@dalsegno.model(name="reply")
async def reply_async(chat: aio.Conversation) -> str:
    await asyncio.sleep(0)
    return f"reply {len(chat)}"


@dalsegno.agent
async def talk_async(turns: int) -> list[str]:
    chat = await aio.conversation("chat")
    for _ in range(turns):
        await chat.append("question")
        await chat.append(await reply_async(chat))
    return chat.messages


def test_an_async_one(opened: Open) -> None:
    app = opened(talk_async)
    assert app.run(talk_async, "talk", 2) == ["question", "reply 1", "question", "reply 3"]
    assert app.replay("talk").same


@dalsegno.agent
def says_something_else(word: str) -> None:
    chat = dalsegno.conversation("chat")
    chat.append(WORDS[0])
    reply_to(chat)
    dalsegno.signal("go on")


WORDS = ["one"]


@dalsegno.model
def reply_to(chat: dalsegno.Conversation) -> str:
    return "yes"


MESSAGES: list[Any] = [("user", "hi"), {"at": datetime.datetime(2026, 1, 1), "raw": b"\xff"}, {"$a": {1}}, "\ud83d"]


@dalsegno.model
def repeat(chat: dalsegno.Conversation) -> list[Any]:
    return chat.messages


@dalsegno.agent(loop=True)
def collects(turn: int) -> list[Any] | dalsegno.Again:
    chat = dalsegno.conversation("chat")
    for message in MESSAGES:
        chat.append(message)
    assert repeat(chat) == chat.messages == MESSAGES * (turn + 1)
    dalsegno.signal(f"turn {turn}")
    return chat.messages if turn == 1 else dalsegno.again(turn + 1)


def test_messages_may_be_anything_that_can_be_recorded(opened: Open) -> None:
    app = opened(collects)
    app.start(collects, "r", 0)
    for turn in range(2):
        while app.why("r").standing != "waits-for-signal":
            pass
        app = opened(collects)
        app.signal("r", f"turn {turn}")
    assert app.get("r").result() == MESSAGES * 2


def test_another_message_is_a_mismatch(opened: Open) -> None:
    WORDS[0] = "one"
    app = opened(says_something_else)
    app.start(says_something_else, "talk", "x")
    while not app.runs(status=["checkpointed"]):
        pass
    WORDS[0] = "two"
    assert not app.replay("talk").same


@dalsegno.agent
def gives_it(turns: int) -> object:
    chat = dalsegno.conversation("chat")
    chat.append("hello")
    return chat


def test_a_conversation_is_no_result(opened: Open) -> None:
    with pytest.raises(dalsegno.RunFailed, match="can be given to a step"):
        opened(gives_it).run(gives_it, "talk", 1)


@dalsegno.tool(effect="read_only")
def look(turn: int) -> int:
    ASKED.append(turn)
    return turn * turn


@dalsegno.agent(loop=True)
def looks(turn: int, until: int, *, total: int = 0) -> int | dalsegno.Again:
    chat = dalsegno.conversation("turns")
    chat.append(turn)
    total += look(turn)
    if turn + 1 < until:
        return dalsegno.again(turn + 1, until, total=total)
    assert list(chat) == list(range(until))
    return total


def test_a_loop_is_given_what_its_last_turn_gave(opened: Open) -> None:
    ASKED.clear()
    app = opened(looks)
    assert app.run(looks, "loop", 0, 5) == 30
    assert ASKED == [0, 1, 2, 3, 4]
    assert opened(looks).run(looks, "loop", 0, 5) == 30
    assert ASKED == [0, 1, 2, 3, 4]


@dalsegno.agent(loop=True)
async def looks_async(turn: int) -> str | dalsegno.Again:
    await aio.sleep(0.001)
    return "done" if turn == 3 else dalsegno.again(turn + 1)


def test_an_async_loop(opened: Open) -> None:
    assert opened(looks_async).run(looks_async, "loop", 0) == "done"


@dalsegno.agent
def no_loop() -> object:
    return dalsegno.again()


def test_only_a_loop_may_go_on(opened: Open) -> None:
    with pytest.raises(dalsegno.RunFailed, match="loop=True"):
        opened(no_loop).run(no_loop, "loop")


@dalsegno.agent
def leaf(n: int) -> int:
    return n + 1


@dalsegno.agent
def parent() -> int:
    return dalsegno.child_as("the leaf", leaf, 1)


def test_a_child_has_a_name(opened: Open) -> None:
    app = opened(parent, leaf)
    assert app.run(parent, "parent") == 2
    assert app.get("the leaf").result() == 2


def test_a_loop_survives_everything(crash_everywhere: CrashEverywhere) -> None:
    assert crash_everywhere(looks, 0, 3).crashes > 5
