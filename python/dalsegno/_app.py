"""The open store, for plain code."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

from ._agents import Agent
from ._ask import Asks, Budget, Recovered, Replayed, RunInfo, Settings, Why
from ._errors import BadUse
from ._frames import PLACE, Frame
from ._times import Time

if TYPE_CHECKING:
    from ._memory import Memory

P = ParamSpec("P")
R = TypeVar("R")


class Run(Generic[R]):
    """A run, for who waits for it."""

    def __init__(self, app: App, name: str, agent: Agent[..., R] | None) -> None:
        self._app = app
        self._agent = agent
        self.name = name

    def result(self) -> R:
        """Waits for its end, and gives its result or raises why there is none."""
        result: R = self._app._wait(self._app._asks.result(self.name, self._agent))
        return result

    def __repr__(self) -> str:
        return f"<dalsegno run {self.name}>"


class App:
    """An open store, and the agents that execute its runs. :func:`dalsegno.open` makes it.

    Runs go on in the background until it is closed; ``with dalsegno.open(…) as app:`` closes it. A process that just
    ends is a crash like any other: nothing is lost.
    """

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
                "agents with dalsegno.child, send signals with dalsegno.send_signal, use memories with dalsegno.memory"
            )
        if asyncio._get_running_loop() is not None:
            raise BadUse("this stops the event loop: open the store with `await dalsegno.aio.open(…)`, and await it")

    def _wait(self, asked: Any) -> Any:
        """Waits for an answer, on this thread; Ctrl-C works."""
        return asked.wait()

    def using(self, *, budget: Budget | None = None, queue: str = "", priority: int = 0) -> App:
        """The same, for starting runs with a budget, in a queue, with a priority.

        >>> app.using(budget=Budget(tokens=50_000), queue="slow").start(research, "on whales", "whales")
        """
        return App(self._open, budget, queue, priority)

    def run(self, agent: Agent[P, R], run: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Starts a run of an agent under a name, and waits for its result.

        If there is a run of this name, it is that one: calling it again, also after a crash, goes on with it, and gives
        the result that it had.

        >>> report = app.run(research, "on whales", "whales")
        """
        result: R = self._wait(self._asks.start(agent, run, args, kwargs, self._with, True))
        return result

    def start(self, agent: Agent[P, R], run: str, /, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Starts a run of an agent under a name, and does not wait for it."""
        self._wait(self._asks.start(agent, run, args, kwargs, self._with, False))
        return Run(self, run, agent)

    def get(self, run: str) -> Run[Any]:
        """A run by its name."""
        return Run(self, run, self._wait(self._asks.agent_of(run)))

    def approve(self, run: str, approval: str, *, by: str) -> None:
        """Says yes to what a run asks a person."""
        self._wait(self._asks.approve(run, approval, by))

    def reject(self, run: str, approval: str, *, by: str, why: str = "") -> None:
        """Says no to what a run asks a person."""
        self._wait(self._asks.reject(run, approval, by, why))

    def signal(self, run: str, name: str, value: Any = None) -> None:
        """Sends a signal to a run."""
        self._wait(self._asks.signal(run, name, value))

    def resolve(
        self,
        run: str,
        step: str,
        verdict: Literal["happened", "did_not_happen", "fail"],
        result: Any = None,
        *,
        by: str,
    ) -> None:
        """Says of a step in doubt (as ``charge#1``) that it happened, with its result; or did not; or fails the run."""
        self._wait(self._asks.resolve(run, step, verdict, result, by))

    def cancel(self, run: str, reason: str = "") -> None:
        """Ends a run, and its children."""
        self._wait(self._asks.cancel(run, reason))

    def clear_attention(self, run: str) -> None:
        """Lets a run go on that only a person can move on: its code was mended, say."""
        self._wait(self._asks.clear_attention(run))

    def set_budget(self, run: str, budget: Budget) -> None:
        """What a run may use from now on, with its children."""
        self._wait(self._asks.set_budget(run, budget))

    def runs(
        self,
        *,
        status: Iterable[str] = (),
        agent: Agent[..., Any] | str | None = None,
        attention: bool = False,
        newest: bool = False,
        limit: int = 0,
    ) -> list[RunInfo]:
        """The runs there are: of some status, of an agent, those that need a person."""
        found: list[RunInfo] = self._wait(self._asks.runs(status, agent, attention, newest, limit))
        return found

    def why(self, run: str) -> Why:
        """Why a run is where it is, what it waits for, and what to do about it; ``print(app.why(run))``."""
        found: Why = self._wait(self._asks.why(run))
        return found

    def replay(self, run: str) -> Replayed:
        """Runs today's code against the record of a run, and executes nothing: does it go the same way?"""
        found: Replayed = self._wait(self._asks.replay(run))
        return found

    def fork(
        self,
        run: str,
        *,
        at: int | None = None,
        name: str | None = None,
        outcomes: dict[str, Any] | None = None,
        input: dict[str, Any] | None = None,
    ) -> Run[Any]:
        """Starts another run with the same past: up to an event, with other outcomes, with another input."""
        forked: str = self._wait(self._asks.fork(run, at, name, outcomes or {}, input))
        return self.get(forked)

    def memory(self, name: str, *, by: str | None = None) -> Memory:
        """A memory of this store, outside of runs; ``by`` is in whose name it is written. In a run use
        :func:`dalsegno.memory`.

        >>> kitchen = app.memory("kitchen", by="ann")
        >>> kitchen.add("The oven heats up in 12 minutes.", sources=["manual.pdf"])
        >>> print(kitchen.search("heating the oven").hits[0].text)
        """
        from ._memory import Memory

        return Memory(self, name, by)

    def recovered(self) -> list[Recovered]:
        """What was done with each run that was not finished when the store was opened, and why."""
        found: list[Recovered] = self._wait(self._asks.recovered())
        return found

    def close(self, grace: float = 10.0) -> None:
        """Closes the store. Steps that are under way have so many seconds to end; runs go on at the next opening."""
        self._open.close(grace)

    def __enter__(self) -> App:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # Who leaves in a hurry (Ctrl-C) does not wait for steps.
        hurries = error is not None and not isinstance(error, Exception)
        self.close(1.0 if hurries else 10.0)


def open(
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
) -> App:
    """Opens a store in a folder (or makes it), or in a database, and takes up every run that was not finished.

    >>> app = dalsegno.open("./agents.dalsegno", agents=[research])
    >>> app = dalsegno.open("postgres://agents@db.example/agents", agents=[research])

    ``durability`` is how much of what was read and what models said a power cut may take: a time (20 ms if nothing is
    said), or ``"strict"`` for nothing. Async agents run in an event loop of the app's own, on a thread. ``resources``
    are functions that say what a :meth:`Resource.custom` or :meth:`Resource.url` looks like, or `None` if it is gone.
    """
    settings = Settings(durability, max_running, queues, lease, stay_in_memory, session, None, resources)
    return App(Asks(place, agents, settings, None))
