"""What a type checker makes of a program that uses the package: mypy reads this, nothing runs it."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import assert_type

import dalsegno
from dalsegno import aio


@dataclass
class Report:
    text: str


@dalsegno.model(retries=3, timeout=60)
def ask(prompt: str) -> str:
    return prompt


@dalsegno.tool
async def send(text: str, *, key: str = "") -> Report:
    return Report(text)


class Shop:
    @dalsegno.tool(effect="read_only", ignore="self")
    def sell(self, count: int) -> float:
        return count / 2

    @dalsegno.plan_step
    def day(self, count: int) -> str:
        return str(count)


@dalsegno.agent
def plain(topic: str, count: int = 1) -> Report:
    assert_type(ask(topic), str)
    assert_type(Shop().sell(1), float)
    assert_type(Shop().day(1), str)
    assert_type(dalsegno.decide("go", True), bool)
    assert_type(dalsegno.signal("paid", Report), Report)
    assert_type(dalsegno.memory("kitchen").add("x"), int)
    return Report(topic)


@dalsegno.agent(name="async")
async def awaits(topic: str) -> Report:
    assert_type(await send(topic), Report)
    assert_type(await aio.to_thread(Shop().sell, 1), float)
    # What is wanted of a result (any object, to be shown) is not wanted of the tool or the agent.
    print(await aio.to_thread(ask, topic), await aio.child(plain, topic, count=2), await send(topic))
    return await send(topic)


def use() -> None:
    # By itself an agent is the function that it was.
    assert_type(plain("topic", count=2), Report)
    with dalsegno.open("store", agents=[plain, awaits]) as app:
        assert_type(app.run(plain, "run", "topic", count=3), Report)
        assert_type(app.start(awaits, "run", "topic").result(), Report)
        assert_type(app.memory("kitchen").search("x"), dalsegno.Found)
        print(app.run(awaits, "run", "topic"))


async def use_async() -> None:
    assert_type(await awaits("topic"), Report)
    async with await aio.open("store", agents=[plain, awaits]) as app:
        assert_type(await app.run(plain, "run", "topic"), Report)
        assert_type(await app.memory("kitchen").search("x"), dalsegno.Found)
        print(await app.run(awaits, "run", "topic"), await (await app.start(plain, "run", "topic")).result())
