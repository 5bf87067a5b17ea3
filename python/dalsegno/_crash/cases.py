"""Runs an agent once per moment, and kills it there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .._agents import Agent
from .._dalsegno import Crash
from .._errors import BadUse
from .life import Died, Job, Person, Stuck, honest
from .processes import live_in_process
from .world import Ledger, World

_LIVES_LIMIT = 100


@dataclass(frozen=True)
class Report:
    """What was done."""

    moments: int
    """At which a process could die, when nothing is disturbed."""
    crashes: int
    lives: int

    def __str__(self) -> str:
        return f"{self.moments} moments, {self.crashes} crashes, {self.lives} processes: nothing twice, nothing lost"


class Broken(AssertionError):
    """A case in which something went wrong, and how it came to that."""

    def __init__(self, what: str, died_at: list[int], moments: list[str]) -> None:
        self.what, self.died_at, self.moments = what, died_at, moments
        lines = "\n".join(f"  {moment}" for moment in moments)
        died = f"processes died at moments {died_at}" if died_at else "no process was killed"
        super().__init__(f"{what}\n{died}:\n{lines}")


@dataclass
class _Played:
    result: tuple[bool, str]
    ledger: Ledger
    seen: Any
    lives: int
    last: int
    """How many moments the last life had."""
    moments: list[str] = field(repr=False)


class CrashEverywhere:
    """Kills an agent at every moment; the fixture ``crash_everywhere`` is one."""

    def __call__(
        self,
        agent: Agent[..., Any],
        *args: Any,
        kwargs: dict[str, Any] | None = None,
        agents: Iterable[Agent[..., Any]] = (),
        world: World | None = None,
        person: Person = honest,
        again: int = 0,
        any_result: bool = False,
        fails: bool = False,
        durability: float | Literal["strict"] | None = None,
        processes: bool | int = False,
    ) -> Report:
        """Raises :class:`Broken` for the first case in which something happened twice, or not at all.

        | | |
        |---|---|
        | ``kwargs`` | named arguments of the agent |
        | ``agents`` | others that it starts |
        | ``world`` | what its tools change: ``reset()``, and perhaps ``seen()`` |
        | ``person`` | who answers; if nothing is said, somebody who approves everything and tells the truth |
        | ``again`` | the process that takes over dies, too, at each of its first so many moments |
        | ``any_result`` | the result may differ: a model never says the same twice |
        | ``fails`` | it is meant to fail, each time in the same way |
        | ``processes`` | real ones, with SIGKILL: at every moment, or at so many of them. `person` is not used there |

        >>> def test_orders_survive(crash_everywhere):
        ...     crash_everywhere(order, 42, world=bank)
        """
        if not isinstance(agent, Agent):
            raise BadUse(f"{agent!r} is no agent: decorate it with @dalsegno.agent")
        case = _Case(agent, agent.write_input(args, kwargs or {}), list(agents), world, person, durability)
        case.processes = bool(processes)
        undisturbed = case.play([])
        succeeded, said = undisturbed.result
        if succeeded is fails:
            # Else a test would be green whose agent has done nothing.
            words = "it is meant to fail, and gave" if succeeded else "it fails also when nothing is disturbed:"
            raise Broken(f"{words} {said}", [], undisturbed.moments)
        lives, crashes = undisturbed.lives, 0
        every = range(undisturbed.last)
        if processes is not True and processes:
            every = range(0, undisturbed.last, max(1, undisturbed.last // processes))
        for moment in every:
            for died_at in ([moment], *([moment, more] for more in range(again))):
                played = case.play(died_at)
                lives += played.lives
                crashes += played.lives - 1
                wrong = _wrong(played, undisturbed, any_result)
                if wrong:
                    raise Broken(wrong, died_at, played.moments)
        return Report(undisturbed.last, crashes, lives)


def _wrong(played: _Played, undisturbed: _Played, any_result: bool) -> str | None:
    # First what was done: a result that differs is often only what came of it.
    wrong = played.ledger.differs_from(undisturbed.ledger)
    if wrong:
        return wrong
    if played.seen != undisturbed.seen:
        return f"the world has seen {played.seen!r}, undisturbed it is {undisturbed.seen!r}"
    if played.result != undisturbed.result and not any_result:
        return f"the result is {_words(played.result)}, undisturbed it is {_words(undisturbed.result)}"
    return None


def _words(result: tuple[bool, str]) -> str:
    return result[1] if result[0] else f"a failure ({result[1]})"


class _Case:
    processes = False

    def __init__(
        self,
        agent: Agent[..., Any],
        given: str,
        agents: list[Agent[..., Any]],
        world: World | None,
        person: Person,
        durability: float | Literal["strict"] | None,
    ) -> None:
        self.agent, self.given = agent, given
        self.agents = [agent, *agents]
        self.world, self.person, self.durability = world, person, durability

    def play(self, died_at: list[int]) -> _Played:
        """Each process dies at its moment, the last one does not."""
        if self.world is not None:
            self.world.reset()
        if not self.processes:
            return self._play(died_at, Crash(True), Ledger(), None)
        with tempfile.TemporaryDirectory(prefix="dalsegno-crash-") as folder:
            return self._play(died_at, Crash(False), Ledger(), Path(folder))

    def _play(self, died_at: list[int], crash: Crash, ledger: Ledger, folder: Path | None) -> _Played:
        told: _Played | None = None
        effects = 0
        moments: list[str] = []
        for life in range(_LIVES_LIMIT):
            dies_at = died_at[life] if life < len(died_at) else None
            crash.begin_life(dies_at)
            job = Job(crash, ledger, "store", self.agents, self.agent.name, self.given, self.person, self.durability)
            last = 0
            try:
                if folder is None:
                    try:
                        result = job.live()
                        last = crash.count
                    finally:
                        moments = crash.names
                else:
                    lived = live_in_process(job, self.agent, folder, dies_at)
                    moments.extend(lived.moments)
                    ledger = Ledger(folder / "ledger")
                    if lived.result is None:
                        raise Died
                    result, last = lived.result, lived.count
            except Died:
                continue
            except Stuck as e:
                raise Broken(str(e), died_at, moments) from None
            finally:
                crash.end_life()
            # What was told must be so for ever: the next process looks.
            if told is None:
                seen = getattr(self.world, "seen", lambda: None)()
                told = _Played(result, ledger, seen, life + 1, last, moments)
                effects = ledger.count()
            elif told.result != result or effects != ledger.count():
                words = f"{_words(told.result)} was told, and lost: now it is {_words(result)}"
                raise Broken(words, died_at, moments)
            else:
                return told
        raise Broken("it never ends", died_at, moments)
