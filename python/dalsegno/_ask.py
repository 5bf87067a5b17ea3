"""What can be asked of an open store; plain code waits for the answer, async code awaits it."""

from __future__ import annotations

import asyncio
import atexit
import datetime
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from . import _agents, _dalsegno, _errors, _strays, _tasks
from ._agents import Agent
from ._calls import written
from ._errors import BadUse, Failure, RunError
from ._raising import run_failed
from ._times import Time, seconds
from ._values import read


@dataclass(frozen=True)
class Budget:
    """What a run and its children may use together. What is not set is not limited."""

    steps: int | None = None
    """Model and tool calls."""
    tokens: int | None = None
    cost_micros: int | None = None
    """Money, in millionths."""
    wall: Time | None = None
    """Time since the run was created."""

    def limits(self) -> tuple[int | None, int | None, int | None, float | None]:
        """As the core has it."""
        return self.steps, self.tokens, self.cost_micros, seconds(self.wall)


@dataclass(frozen=True)
class RunInfo:
    """A run in a list."""

    run: str
    agent: str | None
    status: str
    created: datetime.datetime
    updated: datetime.datetime
    attention: str | None
    """Why only a person can move it on."""
    next_timer: datetime.datetime | None


@dataclass(frozen=True)
class Why:
    """Why a run is where it is. As a text it is for people."""

    standing: str
    because: str
    to_do: str
    details: dict[str, Any] = field(repr=False)
    text: str = field(repr=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Replayed:
    """What came of a replay."""

    steps: int
    divergence: tuple[str, str, str] | None
    """What sort, what is recorded, and what the code does now."""
    text: str = field(repr=False)
    unchecked: int = 0
    """How many searches could not be made again: something of what they found is forgotten."""

    @property
    def same(self) -> bool:
        """Whether the code goes the same way."""
        return self.divergence is None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Recovered:
    """What was done with a run when the store was opened, and why."""

    run: str
    agent: str
    action: Literal["resumed", "started", "still-waiting", "needs-person", "not-registered", "broken", "failed"]
    why: str

    def __str__(self) -> str:
        return f"{self.run} of {self.agent}: {self.action}: {self.why}"


class Settings:
    """How a store is opened, as the core has it."""

    def __init__(
        self,
        durability: Time | Literal["strict"] | None,
        max_running: int | None,
        queues: Iterable[str] | None,
        lease: Time | None,
        stay: Time | None,
        session: str | None,
        crash: _dalsegno.Crash | None = None,
        resources: Mapping[str, Callable[[str], str | None]] | None = None,
    ) -> None:
        self.resources = list((resources or {}).items())
        self.crash = crash
        self.durability = 0.0 if durability == "strict" else seconds(durability)
        self.max_running = max_running
        self.queues = None if queues is None else list(queues)
        self.lease = seconds(lease)
        self.stay = seconds(stay)
        self.session = session


class Asked:
    """A question, and what its answer is read as."""

    def __init__(self, asks: Asks, pending: _dalsegno.Pending, then: Callable[[str | None], Any]) -> None:
        self._asks = asks
        self._pending = pending
        self._then = then

    def wait(self) -> Any:
        """On this thread."""
        try:
            return self._take(self._pending.wait())
        except _Attention as e:
            raise self._asks.attention(e.parts, self._asks.core.attention_of(e.run).wait()) from None

    async def awaited(self) -> Any:
        """On this loop."""
        try:
            return self._take(await _answer(self._pending))
        except _Attention as e:
            raise self._asks.attention(e.parts, await _answer(self._asks.core.attention_of(e.run))) from None

    def _take(self, answer: tuple[Any, ...]) -> Any:
        if answer[0] is None:
            return self._then(answer[1])
        if answer[0] == "NeedsAttention" and answer[2] is not None:
            raise _Attention(answer)
        raise problem(answer)


class _Attention(Exception):
    """A run needs a person: which sort of exception that is has to be looked up."""

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts
        self.run: str = parts[2]


def problem(parts: tuple[Any, ...]) -> Exception:
    """An exception, as the core tells of it."""
    name, words, run, failure = parts
    if name == "RunFailed":
        return run_failed(words, run, None if failure is None else Failure(*failure))
    error: Exception = getattr(_errors, name, _errors.Error)(_in_python(words))
    if isinstance(error, RunError):
        error.run = run
    return error


async def _answer(pending: _dalsegno.Pending) -> tuple[Any, ...]:
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[None] = loop.create_future()

    def put() -> None:
        if not answered.done():
            answered.set_result(None)

    pending.then(lambda: _tasks.threadsafe(loop, put))
    await answered
    return pending.answer()


class Asks:
    """An open store, and what can be asked of it."""

    def __init__(
        self,
        place: str | os.PathLike[str],
        agents: Iterable[Agent[..., Any]],
        settings: Settings,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self.agents: dict[str, Agent[..., Any]] = {}
        for agent in agents:
            if not isinstance(agent, Agent):
                raise BadUse(f"{agent!r} is no agent: decorate it with @dalsegno.agent")
            if self.agents.setdefault(agent.name, agent) is not agent:
                raise BadUse(f"there are two agents {agent.name!r}: give one another name, @dalsegno.agent(name=…)")
        place = checked_place(place)
        _strays.install()
        self._loop = _Loop(loop)
        known, its_loop = self.agents, self._loop.get
        known_to_core = [(name, agent.is_loop) for name, agent in known.items()]

        def start(name: str, ctx: _dalsegno.Ctx, text: str) -> None:
            _agents.start(known[name], ctx, text, its_loop)

        self.core = _dalsegno.open(place, known_to_core, start, settings)
        _OPEN.add(self)

    def _asked(self, pending: _dalsegno.Pending, of: Any = Any) -> Asked:
        return Asked(self, pending, lambda text: None if text is None else read(text, of))

    def attention(self, parts: tuple[Any, ...], looked_up: tuple[Any, ...]) -> Exception:
        """The exception for a run that needs a person."""
        name = read(looked_up[1]) if looked_up[0] is None else parts[0]
        return problem((name, *parts[1:]))

    def start(
        self,
        agent: Agent[..., Any],
        run: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        how: tuple[Budget | None, str, int],
        wait: bool,
    ) -> Asked:
        name = _agents.find(self.agents, agent)
        budget, queue, priority = how
        limits = (budget or Budget()).limits()
        pending = self.core.start(name, run, agent.write_input(args, kwargs), limits, queue, priority, wait)
        return self._asked(pending, agent.signature.hint("return"))

    def result(self, run: str, agent: Agent[..., Any] | None) -> Asked:
        return self._asked(self.core.result(run), Any if agent is None else agent.signature.hint("return"))

    def agent_of(self, run: str) -> Asked:
        return Asked(self, self.core.agent_of(run), lambda text: self.agents.get(read(text or "null")))

    def approve(self, run: str, approval: str, by: str) -> Asked:
        return self._asked(self.core.approve(run, approval, by))

    def reject(self, run: str, approval: str, by: str, why: str) -> Asked:
        return self._asked(self.core.reject(run, approval, by, why))

    def signal(self, run: str, name: str, value: Any) -> Asked:
        return self._asked(self.core.signal(run, name, written(value, f"signal {name!r}")))

    def resolve(self, run: str, step: str, verdict: str, result: Any, by: str) -> Asked:
        if verdict not in ("happened", "did_not_happen", "fail"):
            raise ValueError(f"{verdict!r} is none of happened, did_not_happen, fail")
        return self._asked(self.core.resolve(run, step, verdict, written(result, f"step {step!r}"), by))

    def cancel(self, run: str, reason: str) -> Asked:
        return self._asked(self.core.cancel(run, reason))

    def clear_attention(self, run: str) -> Asked:
        return self._asked(self.core.clear_attention(run))

    def set_budget(self, run: str, budget: Budget) -> Asked:
        return self._asked(self.core.set_budget(run, budget.limits()))

    def runs(
        self, status: Iterable[str], agent: Agent[..., Any] | str | None, attention: bool, newest: bool, limit: int
    ) -> Asked:
        name = agent.name if isinstance(agent, Agent) else agent
        return Asked(self, self.core.runs(statuses(status), name, attention, newest, limit), read_runs)

    def why(self, run: str) -> Asked:
        return Asked(self, self.core.why(run), read_why)

    def replay(self, run: str) -> Asked:
        def then(text: str | None) -> Replayed:
            steps, divergence, unchecked, words = read(text or "[]")
            return Replayed(steps, None if divergence is None else tuple(divergence), words, unchecked)

        return Asked(self, self.core.replay(run), then)

    def fork(
        self, run: str, at: int | None, name: str | None, outcomes: dict[str, Any], input: dict[str, Any] | None
    ) -> Asked:
        others = [(step, written(value, f"step {step!r}")) for step, value in outcomes.items()]
        given = None if input is None else written(input, "the input")
        return self._asked(self.core.fork(run, at, name, others, given))

    def recovered(self) -> Asked:
        pending = self.core.recovered()
        return Asked(self, pending, lambda text: [Recovered(*found) for found in read(text or "[]")])

    def close(self, grace: float) -> None:
        _OPEN.discard(self)
        try:
            closed = self.core.close(grace)
        finally:
            self._loop.close()
        if closed is not None:
            raise problem(closed)

    def crash(self) -> None:
        """Leaves everything as a crash would; for tests."""
        _OPEN.discard(self)
        self.core.crash()
        self._loop.close()


class _Loop:
    """The event loop of async agents: one that is given, or one of its own, made when it is needed."""

    def __init__(self, given: asyncio.AbstractEventLoop | None) -> None:
        self._loop = given
        self._is_own = given is None
        self._lock = threading.Lock()

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run_loop, args=(self._loop,), name="dalsegno-loop", daemon=True).start()
            return self._loop

    def close(self) -> None:
        with self._lock:
            loop = self._loop
        if self._is_own and loop is not None:
            _tasks.threadsafe(loop, loop.stop)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        while True:
            try:
                loop.run_forever()
                break
            except (KeyboardInterrupt, SystemExit):
                # asyncio ends a loop for these, whichever task has raised it. Its run is left as by a crash, and has
                # been told so; the loop is that of all the others as well.
                continue
        # What was left has its last `finally`.
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=5))
    finally:
        loop.close()


_OPEN: weakref.WeakSet[Asks] = weakref.WeakSet()
_PID = os.getpid()


def _at_exit() -> None:
    """What is open when the interpreter ends is closed, with little patience: a crash would do no harm."""
    for asks in list(_OPEN):
        try:
            asks.close(1.0)
        except Exception:
            pass
    # Those that nobody closed and nobody has any more may still be starting something.
    if os.getpid() == _PID:
        _dalsegno.shut()


atexit.register(_at_exit)


def checked_place(place: str | os.PathLike[str]) -> str:
    """Where a store is; what looks like an address and is none of a database would be made a folder."""
    found = os.fspath(place)
    if not isinstance(found, str):
        raise BadUse(f"a store cannot be opened by {type(found).__name__}: give a path as a text, or postgres://…")
    if any("\ud800" <= char <= "\udfff" for char in found):
        raise BadUse(f"the path {found!a} is no Unicode: give the store another name")
    if re.match(r"\w[\w+.-]*://", found) and not found.startswith(("postgres://", "postgresql://")):
        raise BadUse(
            f"{found.split('://')[0]}:// is no store: give a folder, or postgres://user:password@host/database"
        )
    return found


def statuses(status: Iterable[str]) -> list[str]:
    """What runs are wanted, checked."""
    wanted = [status] if isinstance(status, str) else list(status)
    known = {"pending", "running", "checkpointed", "completed", "failed", "cancelled"}
    if not known.issuperset(wanted):
        raise ValueError(f"{', '.join(sorted(set(wanted) - known))}: not one of {', '.join(sorted(known))}")
    return wanted


def _in_python(words: str) -> str:
    """What the core advises, as it is called here."""
    return words.replace("or branch on ctx.patched", "or branch on dalsegno.patched")


def read_why(text: str | None) -> Why:
    """As the core tells it."""
    details, words = read(_in_python(text or "[]"))
    return Why(details["standing"], details["because"], details["to_do"], details, words)


def read_runs(text: str | None) -> list[RunInfo]:
    """As the core tells it."""
    return [_info(found) for found in read(text or "[]")]


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def _time(us: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(microseconds=us)


def _info(found: dict[str, Any]) -> RunInfo:
    timer = found["next_timer_us"]
    return RunInfo(
        found["run"],
        found["agent"],
        found["status"],
        _time(found["created_us"]),
        _time(found["updated_us"]),
        found["attention"],
        None if timer is None else _time(timer),
    )
