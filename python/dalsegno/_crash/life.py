"""One process: from opening the store to its end or its death."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from .. import _watch
from .._agents import Agent
from .._ask import Asks, Settings, problem
from .._dalsegno import Call, Crash, Pending
from .._values import loads, read, write
from .world import Ledger

RUN = "run"
_STUCK_SECONDS = 20.0
_QUIET_SECONDS = 0.02


class Killed(BaseException):
    """Leaves code of a process that is dead."""


class Ask(NamedTuple):
    """What a person is asked."""

    kind: Literal["approval", "doubt", "signal"]
    run: str
    name: str
    """Of the approval, the step in doubt, or the signal."""
    shown: Any
    """What is to be approved; the key of a step in doubt."""


class Reply(NamedTuple):
    """What the person says: `approve`, `reject`, `happened`, `did_not_happen`, `fail`, `signal` or `nothing`."""

    answer: str
    value: Any = None


Person = Callable[[Ask, Ledger], Reply]


def honest(ask: Ask, ledger: Ledger) -> Reply:
    """Approves everything, and answers doubts by looking at what was done."""
    if ask.kind == "approval":
        return Reply("approve")
    if ask.kind == "doubt":
        seen = ledger.under(ask.shown)
        return Reply("happened", loads(seen.result or "null")) if seen else Reply("did_not_happen")
    return Reply("nothing")


class Watch:
    """Counts what tools do, and ends their process."""

    def __init__(self, crash: Crash, ledger: Ledger, kill: Callable[[], object] | None) -> None:
        self._crash = crash
        self._kill = kill
        self._ledger = ledger
        self._lock = threading.Lock()
        self.inside = 0
        self.moves = 0

    def _count(self, by: int) -> None:
        with self._lock:
            self.inside += by
            self.moves += 1

    def _moment(self, name: str) -> None:
        if self._crash.moment(name):
            if self._kill is not None:
                self._kill()
            raise Killed

    def _before(self, name: str, effect: str, call: Call) -> None:
        self._moment(f"before {effect} {name}")
        self._ledger.arrived(name, effect, call.key)

    def _after(self, name: str, effect: str, call: Call, value: Any) -> None:
        try:
            self._ledger.gave(name, effect, call.key, write(value, type(value)))
        except TypeError:
            pass  # It is refused, and not recorded.
        self._moment(f"after {effect} {name}")

    def call(self, name: str, effect: str, call: Call, code: Callable[[], Any]) -> Any:
        self._count(1)
        try:
            self._before(name, effect, call)
            value = code()
            self._after(name, effect, call, value)
            return value
        finally:
            self._count(-1)

    async def call_async(self, name: str, effect: str, call: Call, code: Callable[[], Any]) -> Any:
        self._count(1)
        try:
            self._before(name, effect, call)
            value = code()
            if isinstance(value, Awaitable):
                value = await value
            self._after(name, effect, call, value)
            return value
        finally:
            self._count(-1)


class Died(Exception):
    """The process is dead."""


class Stuck(Exception):
    """It stands still."""


@dataclass
class Job:
    """What a process is started for."""

    crash: Crash
    ledger: Ledger
    place: str
    agents: Iterable[Agent[..., Any]]
    agent: str
    given: str
    """What goes in, as JSON."""
    person: Person
    durability: float | Literal["strict"] | None
    kill: Callable[[], object] | None = None
    """What ends the process, if it is a real one."""

    def live(self) -> tuple[bool, str]:
        """Lives until the run has ended: whether with a result, and that as JSON or why there is none.

        Raises :class:`Died` or :class:`Stuck`.
        """
        watch = Watch(self.crash, self.ledger, self.kill)
        before, _watch.WATCH = _watch.WATCH, watch
        asks = None
        try:
            settings = Settings(self.durability, None, None, None, None, None, crash=self.crash)
            try:
                asks = Asks(self.place, self.agents, settings, None)
            except Exception:
                if self.crash.is_dead:
                    raise Died from None
                raise
            return self._work(asks, watch)
        except Died:
            if self.kill is not None:
                self.kill()
            raise
        finally:
            self.crash.power_off()
            if asks is not None:
                asks.crash()
            end = time.monotonic() + _STUCK_SECONDS
            while watch.inside:
                if time.monotonic() > end:
                    raise Stuck("a tool does not end")
                time.sleep(0.001)
            _watch.WATCH = before

    def _wait(self, pending: Pending) -> Any:
        answered = threading.Event()
        pending.then(answered.set)
        end = time.monotonic() + _STUCK_SECONDS
        while not answered.wait(0.002):
            if self.crash.is_dead:
                raise Died
            if time.monotonic() > end:
                raise Stuck("the store does not answer")
        answer = pending.answer()
        if self.crash.is_dead:
            raise Died
        if answer[0] is not None:
            raise problem(answer)
        return None if answer[1] is None else read(answer[1])

    def _work(self, asks: Asks, watch: Watch) -> tuple[bool, str]:
        core = asks.core
        self._wait(core.start(self.agent, RUN, self.given, (None, None, None, None), "", 0, False))
        moves, quiet_since, begun = -1, time.monotonic(), time.monotonic()
        while True:
            open_runs = self._wait(core.runs(["pending", "running", "checkpointed"], None, False, False, 0))
            if not open_runs:
                return self._ended(core.result(RUN))
            now = time.monotonic()
            if self._answer(asks) or watch.inside or moves != (moves := watch.moves + self.crash.count):
                quiet_since = now
                begun = now
            elif now - quiet_since > _QUIET_SECONDS:
                timers = [run["next_timer_us"] for run in open_runs if run["next_timer_us"] is not None]
                if timers:
                    self.crash.skip_to(min(timers))
                    quiet_since = now
                elif any(run["attention"] for run in open_runs) or now - begun > _STUCK_SECONDS:
                    raise Stuck(str(self._wait(core.why(open_runs[0]["run"]))[1]))
            time.sleep(0.0005)

    def _ended(self, pending: Pending) -> tuple[bool, str]:
        answered = threading.Event()
        pending.then(answered.set)
        while not answered.wait(0.002):
            if self.crash.is_dead:
                raise Died
        answer = pending.answer()
        return (True, answer[1] or "null") if answer[0] is None else (False, answer[1])

    def _answer(self, asks: Asks) -> bool:
        """Answers what runs ask; whether there was something."""
        core, answered = asks.core, False
        for kind, run, name, shown in self._wait(core.asks()):
            reply = self.person(Ask(kind, run, name, shown), self.ledger)
            answered = answered or reply.answer != "nothing"
            if reply.answer == "approve":
                self._wait(core.approve(run, name, "a person"))
            elif reply.answer == "reject":
                self._wait(core.reject(run, name, "a person", str(reply.value or "")))
            elif reply.answer == "signal":
                self._wait(core.signal(run, name, write(reply.value, type(reply.value))))
            elif reply.answer != "nothing":
                written = write(reply.value, type(reply.value))
                self._wait(core.resolve(run, name, reply.answer, written, "a person"))
        return answered
