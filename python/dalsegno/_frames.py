"""Where code is: in a run and which scope of it, inside of a step, or in no run at all.

A frame belongs to the thread of a plain agent, or to one task of an async agent. Tasks that are made in a run
get frames of their own, see `_tasks.py`.

Invariant: a step is made only by who the frame belongs to. So identities follow the order of the code, and no
scheduling can change them.
"""

from __future__ import annotations

import asyncio
import weakref
from contextvars import ContextVar
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ._dalsegno import Call, Ctx
from ._errors import BadUse

if TYPE_CHECKING:
    from ._tasks import Tasks


class Execution:
    """One execution of an agent's code, from its start until it is left."""

    def __init__(self, ctx: Ctx, agent: str, tasks: Tasks | None) -> None:
        self.ctx = ctx
        self.agent = agent
        self.tasks = tasks
        """What an async agent has running; `None` for a plain one."""
        self.unawaited: dict[int, str] = {}
        """Steps that were made, and are not awaited yet."""
        self.conversations: dict[str, Any] = {}
        self.problem: BadUse | None = None
        """What is wrong with the code, found where it could not be told."""

    def never_awaited(self, name: str) -> None:
        """A step was made and thrown away."""
        if self.problem is None:
            self.problem = BadUse(
                f"step {name!r} of run {self.ctx.run!r} was called and never awaited: write `await {name}(…)`"
            )

    def check_end(self) -> None:
        """What is wrong with code that has come to its end."""
        for name in self.unawaited.values():
            self.never_awaited(name)
        if self.problem is not None:
            raise self.problem


class Frame:
    """A place in a run where steps can be made."""

    __slots__ = ("_stray", "_task", "_thread", "ctx", "execution")

    def __init__(self, execution: Execution, ctx: Ctx, stray: str | None = None) -> None:
        self.execution = execution
        self.ctx = ctx
        self._thread = get_ident()
        self._task: weakref.ref[asyncio.Task[object]] | None = None
        self._stray = stray

    def belongs_to(self, task: asyncio.Task[object]) -> None:
        """Only this task makes steps here."""
        self._task = weakref.ref(task)

    def is_stray(self, why: str) -> bool:
        """Whether no step can be made here, for this reason."""
        return self._stray == why

    def check(self) -> None:
        """Raises if no step can be made here, by who asks."""
        execution = self.execution
        if execution.problem is not None:
            raise execution.problem
        if self._thread != get_ident():
            raise BadUse(
                f"run {self.ctx.run!r} is used from another thread than its own: do it in the agent itself, or make "
                "the agent async and use tasks, or dalsegno.aio.to_thread for a plain tool"
            )
        tasks = execution.tasks
        if tasks is not None:
            task = asyncio.current_task(tasks.loop)
            if self._task is None and task is not None:
                self.belongs_to(task)
            elif self._task is None or self._task() is not task:
                raise BadUse(self._stray or self._elsewhere())
            # A plain agent is told so by the step that it makes.
            if tasks.is_left:
                raise asyncio.CancelledError(f"run {self.ctx.run!r} was left")
        if self._stray:
            raise BadUse(self._stray)

    def _elsewhere(self) -> str:
        return (
            f"run {self.ctx.run!r} is used from a task that shares another task's context: make tasks with "
            "asyncio.create_task, gather or a TaskGroup, in the code of the run"
        )


PLACE: ContextVar[Frame | Call | None] = ContextVar("dalsegno", default=None)
"""Inside of a step's function, where tools are plain calls, it is that call."""


def frame() -> Frame | None:
    """Where steps can be made, if this is in a run and not inside of a step."""
    place = PLACE.get()
    if not isinstance(place, Frame):
        return None
    place.check()
    return place


def frame_for(what: str) -> Frame:
    """The same; raises outside of a run."""
    found = frame()
    if found is None:
        inside = "inside of a step" if isinstance(PLACE.get(), Call) else "outside of a run"
        raise BadUse(f"dalsegno.{what} was called {inside}: it belongs into the code of an agent")
    return found


def current_call() -> Call:
    """The execution of the step that this code is called by: its idempotency key and its usage.

    >>> @dalsegno.model
    ... def ask(prompt: str) -> str:
    ...     answer = client.complete(prompt)
    ...     dalsegno.current_call().tokens(answer.tokens_in, answer.tokens_out)
    ...     return answer.text
    """
    place = PLACE.get()
    if isinstance(place, Call):
        return place
    raise BadUse("dalsegno.current_call was called outside of a step: it belongs into the function of a tool or model")


def current_run() -> str | None:
    """The name of the run that this code is in, in the code of the agent itself."""
    place = PLACE.get()
    return place.ctx.run if isinstance(place, Frame) else None
