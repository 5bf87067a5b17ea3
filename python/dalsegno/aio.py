"""The same for async agents and async programs: everything here is awaited.

>>> @dalsegno.agent
... async def research(topic: str) -> list[str]:
...     plan = await ask(f"Plan a report on {topic}")
...     async with asyncio.TaskGroup() as group:
...         found = [group.create_task(search(part)) for part in plan.splitlines()]
...     await dalsegno.aio.sleep(3600)
...     return [task.result() for task in found]
...
>>> async with await dalsegno.aio.open("./agents.dalsegno", agents=[research]) as app:
...     print(await app.run(research, "on whales", "whales"))
"""

from __future__ import annotations

import asyncio
import datetime
import os
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from . import _steps, _threads
from ._agents import Agent
from ._ask import Asked, Asks, Budget, Recovered, Replayed, RunInfo, Settings, Why
from ._conversations import Said
from ._dalsegno import Order
from ._embed import Embedder, EmbedWant, StaticTable
from ._errors import BadUse
from ._frames import PLACE, Frame
from ._memory import MemoryMethods, MemoryWant, OutsideMethods
from ._memory_given import Vector
from ._memory_said import Change, Document, Found, Revision, Version
from ._resources import Resource
from ._steps import Answer
from ._times import Time
from ._tools import to_thread
from ._values import read

__all__ = [
    "AsyncApp",
    "AsyncMemory",
    "AsyncRun",
    "Conversation",
    "RunMemory",
    "approval",
    "checkpoint",
    "child",
    "child_as",
    "conversation",
    "decide",
    "embed",
    "event",
    "memory",
    "now",
    "open",
    "patched",
    "random",
    "send_signal",
    "signal",
    "sleep",
    "to_thread",
    "uuid4",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def sleep(time: Time) -> Coroutine[Any, Any, None]:
    """As :func:`dalsegno.sleep`."""
    return _steps.sleep(time).awaited()


def decide(name: str, choice: T, *, because: str = "") -> Coroutine[Any, Any, T]:
    """As :func:`dalsegno.decide`."""
    return _steps.decide(name, choice, because).awaited()


def event(kind: str, content: Any = None) -> Coroutine[Any, Any, None]:
    """As :func:`dalsegno.event`."""
    return _steps.event(kind, content).awaited()


@overload
def signal(name: str, of: type[T], *, timeout: Time | None = None) -> Coroutine[Any, Any, T]: ...
@overload
def signal(name: str, *, timeout: Time | None = None) -> Coroutine[Any, Any, Any]: ...
def signal(name: str, of: Any = Any, *, timeout: Time | None = None) -> Coroutine[Any, Any, Any]:
    """As :func:`dalsegno.signal`."""
    return _steps.signal(name, of, timeout).awaited()


def send_signal(run: str, name: str, value: Any = None) -> Coroutine[Any, Any, None]:
    """As :func:`dalsegno.send_signal`."""
    return _steps.send_signal(run, name, value).awaited()


def approval(
    name: str, of: Any = None, *, expires: Time | None = None, wait: Time | None = None
) -> Coroutine[Any, Any, Answer]:
    """As :func:`dalsegno.approval`."""
    return _steps.approval(name, of, expires, wait).awaited()


def child(agent: Agent[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
    """As :func:`dalsegno.child`."""
    return _steps.child(agent, args, kwargs).awaited()


def child_as(name: str, agent: Agent[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
    """As :func:`dalsegno.child_as`."""
    return _steps.child_as(name, agent, args, kwargs).awaited()


class Conversation(Said):
    """As :class:`dalsegno.Conversation`."""

    def append(self, message: Any) -> Coroutine[Any, Any, None]:
        """Says something: to be awaited before the next thing is said."""
        return _steps.message(self, message).awaited()


def conversation(name: str) -> Coroutine[Any, Any, Conversation]:
    """As :func:`dalsegno.conversation`."""
    return _steps.conversation(name, Conversation).awaited()


class RunMemory(
    MemoryMethods[
        Coroutine[Any, Any, int],
        Coroutine[Any, Any, Found],
        Coroutine[Any, Any, Document],
        Coroutine[Any, Any, Version],
    ]
):
    """As :class:`dalsegno.RunMemory`, to be awaited."""

    def _ask(self, what: str, order: Order, then: Callable[[Any], Any]) -> Any:
        return MemoryWant(self.name, self._by, what, order, then).awaited()


def memory(name: str, *, by: str | None = None) -> RunMemory:
    """As :func:`dalsegno.memory`: ``await aio.memory("kitchen").search("oven")``."""
    return RunMemory(name, by)


def embed(embedder: StaticTable | Embedder, texts: Iterable[str]) -> Coroutine[Any, Any, list[Vector]]:
    """As :func:`dalsegno.embed`."""
    return EmbedWant(embedder, texts).awaited()


def checkpoint(
    name: str,
    state: Any = None,
    *,
    progress: tuple[int, int] | None = None,
    pinned: bool = False,
    holding: Iterable[Resource] = (),
    releasing: Iterable[Resource] = (),
) -> Coroutine[Any, Any, None]:
    """As :func:`dalsegno.checkpoint`."""
    return _steps.checkpoint(name, state, progress, pinned, holding, releasing).awaited()


def now() -> Coroutine[Any, Any, datetime.datetime]:
    """As :func:`dalsegno.now`."""
    return _steps.now().awaited()


def random() -> Coroutine[Any, Any, float]:
    """As :func:`dalsegno.random`."""
    return _steps.random().awaited()


def uuid4() -> Coroutine[Any, Any, uuid.UUID]:
    """As :func:`dalsegno.uuid4`."""
    return _steps.uuid4().awaited()


def patched(change: str) -> Coroutine[Any, Any, bool]:
    """As :func:`dalsegno.patched`."""
    return _steps.patched(change).awaited()


class AsyncRun(Generic[R]):
    """A run, for who awaits it."""

    def __init__(self, app: AsyncApp, name: str, agent: Agent[..., R] | None) -> None:
        self._app = app
        self._agent = agent
        self.name = name

    async def result(self) -> R:
        """Waits for its end, and gives its result or raises why there is none."""
        result: R = await self._app._await(self._app._asks.result(self.name, self._agent))
        return result

    def __repr__(self) -> str:
        return f"<dalsegno run {self.name}>"


class AsyncMemory(
    OutsideMethods[
        Coroutine[Any, Any, int],
        Coroutine[Any, Any, Found],
        Coroutine[Any, Any, Document],
        Coroutine[Any, Any, Version],
        Coroutine[Any, Any, list[Revision]],
        Coroutine[Any, Any, list[Change]],
        Coroutine[Any, Any, list[Document]],
    ]
):
    """As :class:`dalsegno.Memory`, to be awaited."""

    def __init__(self, app: AsyncApp, name: str, by: str | None) -> None:
        super().__init__(name, by)
        self._app = app

    async def _ask(self, what: str, order: Order, then: Callable[[Any], Any]) -> Any:
        asks = self._app._asks
        pending = asks.core.memory(self.name, self._by, order)
        return await self._app._await(Asked(asks, pending, lambda text: then(read(text or "null"))))


class AsyncApp:
    """As :class:`dalsegno.App`, to be awaited. Async agents run in the event loop that opened it."""

    def __init__(self, asks: Asks, budget: Budget | None = None, queue: str = "", priority: int = 0) -> None:
        self._open = asks
        self._with = (budget, queue, priority)

    @property
    def _asks(self) -> Asks:
        """What can be asked of the store. Whoever asks begins at once, so it is checked before that."""
        self._check()
        return self._open

    def _check(self) -> None:
        """Raises where the store is not to be asked."""
        place = PLACE.get()
        if isinstance(place, Frame):
            raise BadUse(
                f"run {place.ctx.run!r} asks its own store: what depends on that cannot be replayed; start other "
                "agents with dalsegno.aio.child, send signals with dalsegno.aio.send_signal, use memories with "
                "dalsegno.aio.memory"
            )

    async def _await(self, asked: Any) -> Any:
        return await asked.awaited()

    def using(self, *, budget: Budget | None = None, queue: str = "", priority: int = 0) -> AsyncApp:
        """As :meth:`dalsegno.App.using`."""
        return AsyncApp(self._open, budget, queue, priority)

    async def run(self, agent: Agent[P, R], run: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """As :meth:`dalsegno.App.run`."""
        result: R = await self._await(self._asks.start(agent, run, args, kwargs, self._with, True))
        return result

    async def start(self, agent: Agent[P, R], run: str, /, *args: P.args, **kwargs: P.kwargs) -> AsyncRun[R]:
        """As :meth:`dalsegno.App.start`."""
        await self._await(self._asks.start(agent, run, args, kwargs, self._with, False))
        return AsyncRun(self, run, agent)

    async def get(self, run: str) -> AsyncRun[Any]:
        """As :meth:`dalsegno.App.get`."""
        return AsyncRun(self, run, await self._await(self._asks.agent_of(run)))

    async def approve(self, run: str, approval: str, *, by: str) -> None:
        """As :meth:`dalsegno.App.approve`."""
        await self._await(self._asks.approve(run, approval, by))

    async def reject(self, run: str, approval: str, *, by: str, why: str = "") -> None:
        """As :meth:`dalsegno.App.reject`."""
        await self._await(self._asks.reject(run, approval, by, why))

    async def signal(self, run: str, name: str, value: Any = None) -> None:
        """As :meth:`dalsegno.App.signal`."""
        await self._await(self._asks.signal(run, name, value))

    async def resolve(
        self,
        run: str,
        step: str,
        verdict: Literal["happened", "did_not_happen", "fail"],
        result: Any = None,
        *,
        by: str,
    ) -> None:
        """As :meth:`dalsegno.App.resolve`."""
        await self._await(self._asks.resolve(run, step, verdict, result, by))

    async def cancel(self, run: str, reason: str = "") -> None:
        """As :meth:`dalsegno.App.cancel`."""
        await self._await(self._asks.cancel(run, reason))

    async def clear_attention(self, run: str) -> None:
        """As :meth:`dalsegno.App.clear_attention`."""
        await self._await(self._asks.clear_attention(run))

    async def set_budget(self, run: str, budget: Budget) -> None:
        """As :meth:`dalsegno.App.set_budget`."""
        await self._await(self._asks.set_budget(run, budget))

    async def runs(
        self,
        *,
        status: Iterable[str] = (),
        agent: Agent[..., Any] | str | None = None,
        attention: bool = False,
        newest: bool = False,
        limit: int = 0,
    ) -> list[RunInfo]:
        """As :meth:`dalsegno.App.runs`."""
        found: list[RunInfo] = await self._await(self._asks.runs(status, agent, attention, newest, limit))
        return found

    async def why(self, run: str) -> Why:
        """As :meth:`dalsegno.App.why`."""
        found: Why = await self._await(self._asks.why(run))
        return found

    async def replay(self, run: str) -> Replayed:
        """As :meth:`dalsegno.App.replay`."""
        found: Replayed = await self._await(self._asks.replay(run))
        return found

    async def fork(
        self,
        run: str,
        *,
        at: int | None = None,
        name: str | None = None,
        outcomes: dict[str, Any] | None = None,
        input: dict[str, Any] | None = None,
    ) -> AsyncRun[Any]:
        """As :meth:`dalsegno.App.fork`."""
        forked: str = await self._await(self._asks.fork(run, at, name, outcomes or {}, input))
        return await self.get(forked)

    def memory(self, name: str, *, by: str | None = None) -> AsyncMemory:
        """As :meth:`dalsegno.App.memory`; its methods are awaited: ``await app.memory("kitchen").search("oven")``."""
        return AsyncMemory(self, name, by)

    async def recovered(self) -> list[Recovered]:
        """As :meth:`dalsegno.App.recovered`."""
        found: list[Recovered] = await self._await(self._asks.recovered())
        return found

    async def close(self, grace: float = 10.0) -> None:
        """As :meth:`dalsegno.App.close`."""
        # On a thread: steps that are under way need this loop to end. Not one of the loop's own, whose end
        # would wait for it.
        await _threads.awaited(lambda: self._open.close(grace))

    async def __aenter__(self) -> AsyncApp:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        # Who leaves in a hurry (Ctrl-C) does not wait for steps.
        hurries = error is not None and not isinstance(error, Exception)
        await self.close(1.0 if hurries else 10.0)


async def open(
    place: str | os.PathLike[str],
    agents: Iterable[Agent[..., Any]] = (),
    *,
    durability: Time | Literal["strict"] | None = None,
    max_running: int | None = None,
    queues: Iterable[str] | None = None,
    lease: Time | None = None,
    stay_in_memory: Time | None = None,
    session: str | None = None,
    resources: Mapping[str, Callable[[str], str | None]] | None = None,
) -> AsyncApp:
    """As :func:`dalsegno.open`. Async agents run in this event loop, plain ones on threads."""
    settings = Settings(durability, max_running, queues, lease, stay_in_memory, session, None, resources)
    loop = asyncio.get_running_loop()
    return AsyncApp(await _threads.awaited(lambda: Asks(place, agents, settings, loop)))
