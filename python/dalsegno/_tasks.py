"""Tasks of an async agent: their scopes, and whether they can go on by themselves.

**Scopes.** A task that is made in a run gets a scope of its own, named after its coroutine's function and
numbered in the order in which tasks are made in the scope that makes them. So the steps of a task have the same
identities whatever else is scheduled when. That needs a task factory on the loop, which is put in front of
the one that is there. A step that is itself made into a task, as in ``gather(search(a), search(b))``, has
its identity already. A task that a finaliser makes, to close a connection, say, is none of the run's: garbage is
collected at any time, in whatever code is running then.

Invariant: the factory leaves the context as it is that it is called in. It may be called in the middle of
`ContextVar.set`: up to 3.11 that allocates, which may collect garbage, and another `set` in the same context
would free what the first one is reading (https://github.com/python/cpython/issues/148891).

**Quiet.** A run that only waits leaves memory. Whether its code can go on by itself is seen from what its tasks
wait for: a step, another task of the run, a `gather`, `asyncio.wait` or `TaskGroup` of such. If a task waits for
something else, that is given a second.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import re
import sys
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Sized
from types import CodeType, FrameType
from typing import Any

from ._dalsegno import Bell
from ._frames import PLACE, Execution, Frame

AnyTask = asyncio.Task[Any]
KEPT_AT_MOST = 0.005
"""So long (seconds) a loop is kept by steps that wait for the disk only."""
_GROUP: type | None = getattr(asyncio, "TaskGroup", None)
_NO_CODE = (lambda: None).__code__
_ON_COMPLETION: CodeType | None = next(
    (
        const
        for const in getattr(getattr(asyncio.tasks, "_wait", None), "__code__", _NO_CODE).co_consts
        if isinstance(const, CodeType) and const.co_name == "_on_completion"
    ),
    None,
)
"""What tasks call that `asyncio.wait` waits for, when they are done."""


class Tasks:
    """The tasks of one execution."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.all: weakref.WeakSet[AnyTask] = weakref.WeakSet()
        self.waiters: weakref.WeakSet[asyncio.Future[None]] = weakref.WeakSet()
        self.is_left = False
        """The run goes on without them."""
        self._execution: Execution | None = None
        # Private, and there since the beginning of asyncio. A loop without it counts as busy.
        self._ready: Sized | None = getattr(loop, "_ready", None)
        self._looks = False
        self._changed = False
        self._said = False
        """Whether the driver was told that they wait."""
        self._turned = time.monotonic()
        """When the loop surely had a turn for others."""

    def begin(self, execution: Execution) -> None:
        """Whose tasks these are."""
        self._execution = execution

    def waiter(self) -> asyncio.Future[None]:
        """Something to wait for a step with."""
        made: asyncio.Future[None] = self.loop.create_future()
        self.waiters.add(made)
        self.look_soon()
        return made

    def is_idle(self) -> bool:
        """Whether the loop would go to sleep next, as far as can be seen, and may be kept for a sync instead.

        What comes from outside, as a timer or a socket, is not seen before it has a turn. So it has one every now and
        then, also beside steps that never wait.
        """
        ready = self._ready
        if ready is None or len(ready) > self._looks:
            return False
        return time.monotonic() - self._turned < KEPT_AT_MOST

    def has_turned(self) -> None:
        """The loop had a turn."""
        self._turned = time.monotonic()

    def look_soon(self) -> None:
        """Something has changed: sees what they wait for, when they have gone on."""
        self._changed = True
        self._look_again()

    def _look_again(self) -> None:
        if not self._looks:
            self._looks = True
            self.loop.call_soon(self._look)

    def go_on(self) -> None:
        """A step goes on whose function has waited: the driver takes the code for running again, until it is told."""
        if self._said:
            self.look_soon()

    def leave(self) -> None:
        """Cancels all of them: the run is left."""
        self.is_left = True
        for task in list(self.all):
            task.cancel()

    def _look(self) -> None:
        self._looks = self._said = False
        changed, self._changed = self._changed, False
        execution = self._execution
        if execution is None or execution.ctx.is_left:
            return
        pending: dict[AnyTask, Any] = {}
        for task in list(self.all):
            if task.done():
                continue
            awaited = getattr(task, "_fut_waiter", None)
            if awaited is None or awaited.done():
                # It is about to go on.
                self.look_soon()
                return
            pending[task] = awaited
        joins: _Joins | None = None
        sure = True
        for awaited in pending.values():
            if awaited in self.waiters or awaited in self.all:
                continue
            children = getattr(awaited, "_children", None)
            if children is None:
                joins = joins or _Joins(pending)
                children = joins.children(awaited)
            if changed and (not children or any(child.done() for child in children)):
                # A task may be done, and who waits for it not told yet.
                self._look_again()
                return
            sure = sure and bool(children) and all(child in self.all for child in children)
        self._said = True
        execution.ctx.waits(sure)


class _Joins:
    """By which futures a `TaskGroup` or `asyncio.wait` has somebody wait, and for which tasks.

    That is seen from what the tasks call when they are done. It is in the variables of the coroutine that waits too,
    but who reads those of another frame makes the interpreter keep a copy of them.
    """

    def __init__(self, tasks: Iterable[AnyTask]) -> None:
        self._groups: dict[Any, Any] = {}
        self._waits: dict[Any, tuple[int, list[AnyTask]]] = {}
        for task in tasks:
            # Private, and there since the beginning of asyncio. Without it, it is a wait for something else.
            for called in getattr(task, "_callbacks", None) or ():
                self._add(task, called[0])

    def _add(self, task: AnyTask, call: Any) -> None:
        group: Any = getattr(call, "__self__", None)
        code: Any = getattr(call, "__code__", None)
        if _GROUP is not None and isinstance(group, _GROUP):
            self._groups[getattr(group, "_on_completed_fut", None)] = group
        elif isinstance(code, CodeType) and code is _ON_COMPLETION:
            cells = zip(code.co_freevars, call.__closure__, strict=True)
            known = {name: cell.cell_contents for name, cell in cells}
            waiter, count = known.get("waiter"), known.get("counter")
            # With a time limit it goes on by itself.
            if waiter is not None and count is not None and known.get("timeout_handle", waiter) is None:
                self._waits.setdefault(waiter, (count, []))[1].append(task)

    def is_short(self, awaited: Any) -> bool:
        """Whether more is waited for by this than these tasks."""
        count, tasks = self._waits.get(awaited, (0, []))
        return count > len(tasks)

    def children(self, awaited: Any) -> list[Any]:
        """The tasks that are waited for by this; nothing if there is more, or nothing known of it."""
        if awaited in self._groups:
            return list(self._groups[awaited]._tasks)
        return [] if self.is_short(awaited) else self._waits.get(awaited, (0, []))[1]


_BELLS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Bell | None] = weakref.WeakKeyDictionary()


def bell(loop: asyncio.AbstractEventLoop) -> Bell | None:
    """What wakes a loop without the interpreter, if it can be woken like that. To be asked on the loop."""
    if loop not in _BELLS:
        made = Bell()
        try:
            loop.add_reader(made.fileno(), made.take)
            _BELLS[loop] = made
        except NotImplementedError:
            _BELLS[loop] = None
    return _BELLS[loop]


_making: set[int] = set()
"""For which coroutines a task is being made by a factory of ours."""


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Has tasks that are made in runs numbered, on this loop; again, if somebody has set another factory since."""
    before: Any = loop.get_task_factory()
    if hasattr(before, "__dalsegno_numbers__"):
        return

    def make(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> Any:
        if before is not None:
            return before(loop, coro, **more)
        return asyncio.Task(coro, loop=loop, **more)

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> Any:
        place = PLACE.get()
        # A factory of ours has it numbered already, if somebody has put another one between the two.
        if id(coro) in _making or not isinstance(place, Frame) or place.execution.tasks is None:
            return make(loop, coro, **more)
        tasks = place.execution.tasks
        if hasattr(coro, "__dalsegno_step__"):
            task = make(loop, coro, **more)
            tasks.all.add(task)
            return task
        # Also what such a task makes.
        is_finaliser = place.is_stray(_BY_FINALISER) or _is_finaliser(sys._getframe(1))
        try:
            child = Frame(place.execution, place.ctx, _BY_FINALISER) if is_finaliser else _child(place, coro)
        except BaseException:
            coro.close()  # The run was left: it is not begun, and nobody is to be warned of that.
            raise
        given = more.get("context")
        context = contextvars.copy_context() if given is None else given
        context.run(PLACE.set, child)
        _making.add(id(coro))
        try:
            # The task copies the context that it is made in, or enters the given one itself.
            task = context.run(make, loop, coro, **more) if given is None else make(loop, coro, **more)
        finally:
            _making.discard(id(coro))
        child.belongs_to(task)
        if not is_finaliser:
            tasks.all.add(task)
        return task

    setattr(factory, "__dalsegno_numbers__", True)  # noqa: B010
    loop.set_task_factory(factory)


_BY_FINALISER = "this task was made by a finaliser (`__del__`), at a time that nobody knows: make no steps there"
_FINALIZE = weakref.finalize.__call__.__code__


def _is_finaliser(caller: FrameType | None) -> bool:
    """Whether this was called by a finaliser, in whatever code that has interrupted."""
    while caller is not None and not caller.f_code.co_flags & inspect.CO_COROUTINE:
        if caller.f_code.co_name == "__del__" or caller.f_code is _FINALIZE:
            return True
        caller = caller.f_back
    return False


def _child(place: Frame, coro: Coroutine[Any, Any, Any]) -> Frame:
    name = getattr(coro, "__name__", None) or "task"
    name = re.sub(r"[/#!@\x00-\x1f]", "-", str(name))[:100] or "task"
    try:
        place.check()
    except Exception as e:
        # It is made where nobody can say in which order: no step can be made in it.
        return Frame(place.execution, place.ctx, stray=str(e))
    return Frame(place.execution, place.ctx.branch(name))


def threadsafe(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Calls something on a loop, from any thread; nothing if it is closed: then nobody waits there."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        pass
