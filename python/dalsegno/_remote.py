"""A store that another process has open: its runs can be told something, and looked at."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Literal

from . import _dalsegno
from ._ask import Budget, RunInfo, Why, checked_place, problem, read_runs, read_why, statuses
from ._calls import written
from ._errors import BadUse
from ._frames import PLACE, Frame


class Remote:
    """The store in a folder, beside the process that has it open, or while none has.

    What is sent is a letter, and on disk when the method returns. With ``wait`` (seconds) it returns when the owner has
    taken it up, and raises :class:`NotTaken` if that was not in time, which does not take it back, or was refused.
    For a database just open it, without agents: any number of processes may.

    >>> with dalsegno.Remote("./agents.dalsegno") as remote:
    ...     remote.approve("report on whales", "publish", by="ann", wait=5)
    """

    def __init__(self, place: str | os.PathLike[str]) -> None:
        place = checked_place(place)
        if place.startswith(("postgres://", "postgresql://")):
            raise BadUse("any number of processes may open a database: use dalsegno.open, without agents")
        self._core = _dalsegno.open_remote(place)

    def _wait(self, pending: _dalsegno.Pending) -> str | None:
        place = PLACE.get()
        if isinstance(place, Frame):
            raise BadUse(f"run {place.ctx.run!r} uses a store beside its own in its code: do that in a tool")
        if asyncio._get_running_loop() is not None:
            raise BadUse("this stops the event loop: use a Remote with `await asyncio.to_thread(…)`")
        answer = pending.wait()
        if answer[0] is not None:
            raise problem(answer)
        found: str | None = answer[1]
        return found

    def signal(self, run: str, name: str, value: Any = None, *, wait: float | None = None) -> None:
        """Sends a signal to a run."""
        self._wait(self._core.signal(run, name, written(value, f"signal {name!r}"), wait))

    def approve(self, run: str, approval: str, *, by: str, wait: float | None = None) -> None:
        """Says yes to what a run asks a person."""
        self._wait(self._core.approve(run, approval, by, wait))

    def reject(self, run: str, approval: str, *, by: str, why: str = "", wait: float | None = None) -> None:
        """Says no to what a run asks a person."""
        self._wait(self._core.reject(run, approval, by, why, wait))

    def resolve(
        self,
        run: str,
        step: str,
        verdict: Literal["happened", "did_not_happen", "fail"],
        result: Any = None,
        *,
        by: str,
        wait: float | None = None,
    ) -> None:
        """Says of a step in doubt that it happened, with its result; or did not; or fails the run."""
        if verdict not in ("happened", "did_not_happen", "fail"):
            raise ValueError(f"{verdict!r} is none of happened, did_not_happen, fail")
        self._wait(self._core.resolve(run, step, verdict, written(result, f"step {step!r}"), by, wait))

    def cancel(self, run: str, reason: str = "", *, wait: float | None = None) -> None:
        """Ends a run, and its children."""
        self._wait(self._core.cancel(run, reason, wait))

    def clear_attention(self, run: str, *, wait: float | None = None) -> None:
        """Lets a run go on that only a person can move on."""
        self._wait(self._core.clear_attention(run, wait))

    def set_budget(self, run: str, budget: Budget, *, wait: float | None = None) -> None:
        """What a run may use from now on, with its children."""
        self._wait(self._core.set_budget(run, budget.limits(), wait))

    def runs(
        self,
        *,
        status: Iterable[str] = (),
        agent: str | None = None,
        attention: bool = False,
        newest: bool = False,
        limit: int = 0,
    ) -> list[RunInfo]:
        """The runs there are."""
        return read_runs(self._wait(self._core.runs(statuses(status), agent, attention, newest, limit)))

    def why(self, run: str) -> Why:
        """Why a run is where it is, and what it waits for."""
        return read_why(self._wait(self._core.why(run)))

    def close(self) -> None:
        """Lets go of the store."""
        self._core.close()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
