"""Making a step: asks the core, and does what it says.

| it says | then |
|---|---|
| `execute` | the function is called, here, and its result or exception is the answer |
| `inside` | the function of a plan step is called, in the scope of that |
| `probe` | the probe is asked whether it happened |
| `done`, `failed` | the code goes on with that |
| `unwind` | the run waits, or stopped: the code is left |

Invariant: what is no `Exception` (Ctrl-C, `SystemExit`) is never an outcome of a step. The run is left as by a
crash, and goes on from its record.
"""

from __future__ import annotations

import asyncio
import collections.abc
import contextvars
import functools
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, ClassVar, Generic, TypeVar

from . import _threads, _watch
from ._calls import Signature
from ._dalsegno import Call, Ctx, Step
from ._errors import Failure, NotSerialisable, Unwind
from ._frames import PLACE, Execution, Frame
from ._raising import exception_of, failure_of
from ._tasks import Tasks, threadsafe
from ._values import Coder, coder, read_with, type_words, write_and_read_with

T = TypeVar("T")


class Probe:
    """What a probe found out about a step that may have happened."""

    __slots__ = ("happened", "result")

    def __init__(self, happened: bool | None, result: Any = None) -> None:
        self.happened = happened
        self.result = result

    def __repr__(self) -> str:
        return {None: "UNKNOWN", False: "DID_NOT_HAPPEN"}.get(self.happened, f"happened({self.result!r})")


DID_NOT_HAPPEN = Probe(False)
"""For a probe to return: it did not happen, and will not: it may be sent."""
UNKNOWN = Probe(None)
"""For a probe to return: that cannot be said, a person has to look."""


def happened(result: Any = None) -> Probe:
    """For a probe to return: it happened, with this result."""
    return Probe(True, result)


class Body:
    """What a step does, if it is to be done."""

    __slots__ = ("beside", "code", "hint", "name", "raised", "signature", "written")
    effect: ClassVar[Any] = ""
    """Of a tool; nothing for other steps."""
    not_done: ClassVar[Any] = ()

    def __init__(
        self,
        name: str,
        code: Callable[[], Any] | None = None,
        *,
        hint: Any = Any,
        signature: Signature | None = None,
    ) -> None:
        self.name = name
        self.code: Callable[..., Any] | None = code
        self.hint = hint
        self.signature = signature
        """Of what its result is, if it is a function's."""
        self.beside = False
        """On another thread, or in another task: so that it can be left when it takes too long."""
        self.raised: BaseException | None = None
        self.written: tuple[str, Any] | None = None
        """Its result, if it was done here: as JSON, and as that is read."""

    def do(self, call: Call) -> Any:
        """Does it."""
        return None if self.code is None else self.code()

    def probe(self, call: Call) -> Any:
        """Asks whether it happened."""
        raise AssertionError("only a tool has a probe")

    def result(self, text: str) -> Any:
        """What the code sees of a result."""
        # An attempt that was left may still write its own.
        written = self.written
        if written is not None and written[0] == text:
            return written[1]
        return read_with(self._coder(), text)

    def _coder(self) -> Coder:
        """How its result is written and read."""
        return coder(self.hint) if self.signature is None else self.signature.coder("return")

    def failure(self, parts: tuple[str, str, str, str | None]) -> Exception:
        """What the code sees of a failure."""
        error = exception_of(Failure(*parts))
        if self.raised is not None:
            error.__cause__ = self.raised
        return error

    def write(self, value: Any) -> str:
        """The function has returned: its result as JSON."""
        try:
            signature = self.signature
            known = None if signature is None else signature.of_result
            self.written = write_and_read_with(known or self._coder(), value)
        except Exception as e:
            what = type_words(type(value))
            raise NotSerialisable(f"it gave a {what}, which cannot be recorded: {e}") from e
        return self.written[0]

    def failed(self, step: Step, asked: int, error: Exception) -> None:
        """The function has raised."""
        self.raised = error
        step.failed(asked, failure_of(error, self.not_done))

    def probed(self, step: Step, asked: int, found: Any) -> None:
        """The probe has returned."""
        if not isinstance(found, Probe):
            words = f"it gave a {type_words(type(found))}: give dalsegno.happened(…), DID_NOT_HAPPEN or UNKNOWN"
            step.failed(asked, Failure("misuse", "terminal", words))
        elif found.happened:
            try:
                step.probed(asked, True, self.write(found.result))
            except NotSerialisable as e:
                step.failed(asked, failure_of(e))
        else:
            step.probed(asked, found.happened)


def interrupted(execution: Execution, name: str, error: BaseException) -> None:
    """A step raised what is no outcome of it."""
    words = f"{type(error).__name__} in step {name!r}: the run was left as by a crash, and goes on from its record"
    execution.ctx.interrupted(words)


def unreadable(execution: Execution, name: str, error: Exception) -> None:
    """What is recorded of a step is of no use to the code any more."""
    words = (
        f"what is recorded for step {name!r} cannot be read: {error}: bring the old type back, or one that reads both"
    )
    execution.ctx.interrupted(words)


# --- On a thread -------------------------------------------------------------------------------------


def result_of(frame: Frame, name: str, read_it: Callable[[str], Any], text: str) -> Any:
    """What the code is given; if that cannot be read any more, the run is left."""
    try:
        return read_it(text)
    except Exception as e:
        unreadable(frame.execution, name, e)
        raise Unwind("the run was left") from e


def perform(frame: Frame, step: Step, body: Body, told: tuple[Any, ...] | None = None) -> Any:
    """Makes a step, in the code of a plain agent; `told` is what it has heard of it already."""
    while True:
        if told is None:
            told = step.hear()
        what = told[0]
        if what == "done":
            written = body.written
            if written is not None and written[0] == told[1]:
                return written[1]
            return result_of(frame, body.name, body.result, told[1])
        if what == "failed":
            raise body.failure(told[1])
        if what == "unwind":
            raise Unwind(f"run {frame.ctx.run!r} was left")
        if body.beside and what != "inside":
            context = contextvars.copy_context()
            _threads.run(functools.partial(context.run, _answer, frame, step, body, told, False))
            told = None
        else:
            told = _answer(frame, step, body, told, True)


def _answer(frame: Frame, step: Step, body: Body, told: tuple[Any, ...], hears: bool) -> tuple[Any, ...] | None:
    """Does what the core asks for, on this thread. What is heard then, if anything is."""
    what, asked, given = told[0], told[1], told[2]
    token = PLACE.set(Frame(frame.execution, given) if what == "inside" else given)
    try:
        if what == "probe":
            value = body.probe(given)
        elif _watch.WATCH is not None and what == "execute":
            value = _watch.WATCH.call(body.name, body.effect, given, functools.partial(body.do, given))
        else:
            value = body.do(given)
    except Exception as e:
        body.failed(step, asked, e)
        return None
    except Unwind:
        raise
    except BaseException as e:
        interrupted(frame.execution, body.name, e)
        raise
    else:
        if what == "probe":
            body.probed(step, asked, value)
            return None
        try:
            text = body.write(value)
        except NotSerialisable as e:
            step.failed(asked, failure_of(e))
            return None
    finally:
        PLACE.reset(token)
    return step.done(asked, text, hears)


# --- In an event loop --------------------------------------------------------------------------------


class Ear:
    """Is called by the core, from any thread, when there is something to hear."""

    __slots__ = ("tasks", "waiter")

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self.waiter: asyncio.Future[None] | None = None

    def __call__(self) -> None:
        threadsafe(self.tasks.loop, self.wake)

    def wake(self) -> None:
        """On the loop."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        # Who waited may be the last one to go on for now.
        self.tasks.look_soon()


class StepCall(collections.abc.Coroutine[Any, Any, T], Generic[T]):
    """A step of an async agent: has its identity, and is made when it is awaited.

    It is a coroutine: ``await`` it, or give it to ``asyncio.gather``, ``create_task`` or a ``TaskGroup``.
    """

    __slots__ = ("__name__", "_body", "_frame", "_made", "_read", "_step", "_tasks", "_then")
    __dalsegno_step__ = True

    def __init__(
        self,
        frame: Frame,
        name: str,
        step: Step,
        tasks: Tasks,
        read_it: Callable[[str], Any],
        body: Callable[[], Body],
        then: Callable[[Any], T] | None,
    ) -> None:
        self._frame, self._step, self._tasks = frame, step, tasks
        self._read, self._body, self._then = read_it, body, then
        self._made: Generator[Any, Any, T] | None = None
        self.__name__ = name
        frame.execution.unawaited[id(self)] = name

    def _begin(self) -> Generator[Any, Any, T]:
        if self._made is None:
            self._frame.execution.unawaited.pop(id(self), None)
            self._made = self._make()
        return self._made

    def _make(self) -> Generator[Any, Any, Any]:
        told = self._step.heard(self._tasks.is_idle())
        if told is not None and told[0] == "done":
            # It is recorded, and nothing has to be made ready to do it.
            result = _awaited_result(self._frame, self.__name__, self._read, told[1])
        else:
            performance = _Performance(self._frame, self._step, self._body(), self._tasks)
            result = yield from performance.run(told).__await__()
        return result if self._then is None else self._then(result)

    def send(self, value: Any) -> Any:
        return self._begin().send(value)

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> Any:
        if val is None and tb is None:
            return self._begin().throw(typ)
        return self._begin().throw(typ, val, tb)

    def close(self) -> None:
        self._step.let_go()
        # Begun, if it was not: whoever awaits it now is told.
        self._begin().close()

    def __await__(self) -> Generator[Any, None, T]:
        if self._made is not None:
            raise RuntimeError(f"step {self.__name__!r} was awaited before: keep what it gave")
        del self._frame.execution.unawaited[id(self)]
        self._made = made = self._make()
        return made

    def __del__(self) -> None:
        if self._made is None:
            execution = self._frame.execution
            if execution.unawaited.pop(id(self), None) is not None:
                execution.never_awaited(self.__name__)


def _awaited_result(frame: Frame, name: str, read_it: Callable[[str], Any], text: str) -> Any:
    """What the code is given; if that cannot be read any more, the run is left."""
    try:
        return read_it(text)
    except Exception as e:
        unreadable(frame.execution, name, e)
        raise asyncio.CancelledError("the run was left") from e


class _Performance:
    """A step that is being made, in an event loop."""

    def __init__(self, frame: Frame, step: Step, body: Body, tasks: Tasks) -> None:
        self.frame, self.step, self.body, self.tasks = frame, step, body, tasks
        self.ear = Ear(tasks)
        self.beside: asyncio.Task[None] | None = None

    async def run(self, told: tuple[Any, ...] | None) -> Any:
        """Makes the step; `told` is what was heard of it already."""
        step = self.step
        step.heard_by(self.ear)
        if told is None:
            # There may be something by now of which the ear was not told.
            told = step.heard(self.tasks.is_idle())
        try:
            while True:
                if told is None:
                    self.ear.waiter = self.tasks.waiter()
                    await self.ear.waiter
                    self.tasks.has_turned()
                    told = step.heard(self.tasks.is_idle())
                    continue
                self.leave_beside()
                what = told[0]
                if what == "done":
                    return _awaited_result(self.frame, self.body.name, self.body.result, told[1])
                if what == "failed":
                    raise self.body.failure(told[1])
                if what == "unwind":
                    raise asyncio.CancelledError(f"run {self.frame.ctx.run!r} was left")
                await self.answer(told)
                told = step.heard(self.tasks.is_idle())
                self.tasks.go_on()
        except (asyncio.CancelledError, GeneratorExit):
            # Who waited does not any more: an effect that must not be repeated is in doubt then.
            step.let_go()
            self.leave_beside()
            raise

    def leave_beside(self) -> None:
        """What took too long is not waited for."""
        if self.beside is not None:
            self.beside.cancel()
            self.beside = None

    async def answer(self, told: tuple[Any, ...]) -> None:
        if told[0] == "inside":
            inside = Frame(self.frame.execution, told[2])
            task = asyncio.current_task()
            if task is not None:
                inside.belongs_to(task)
            await self.execute(told, inside)
        elif self.body.beside:
            token = PLACE.set(told[2])
            try:
                self.beside = self.tasks.loop.create_task(self.execute(told, told[2]))
            finally:
                PLACE.reset(token)
        else:
            await self.execute(told, told[2])

    async def execute(self, told: tuple[Any, ...], place: Frame | Call) -> None:
        what, asked, given = told
        body, step = self.body, self.step
        token = PLACE.set(place)
        try:
            watch = _watch.WATCH
            if what == "probe":
                value = body.probe(given)
            elif watch is not None and what == "execute":
                value = watch.call_async(body.name, body.effect, given, functools.partial(body.do, given))
            else:
                value = body.do(given)
            if asyncio.iscoroutine(value) or isinstance(value, collections.abc.Awaitable):
                value = await value
        except Exception as e:
            body.failed(step, asked, e)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as e:
            interrupted(self.frame.execution, body.name, e)
            raise asyncio.CancelledError("the run was left") from e
        else:
            if what == "probe":
                body.probed(step, asked, value)
            else:
                try:
                    text = body.write(value)
                except NotSerialisable as e:
                    step.failed(asked, failure_of(e))
                else:
                    step.done(asked, text, False)
        finally:
            PLACE.reset(token)


def make(frame: Frame, body: Body, step: Callable[[Ctx], Step], then: Callable[[Any], T] | None = None) -> Any:
    """Makes a step: its result in a plain agent, something to await in an async one."""
    tasks = frame.execution.tasks
    if tasks is not None:
        return StepCall(frame, body.name, step(frame.ctx), tasks, body.result, lambda: body, then)
    result = perform(frame, step(frame.ctx), body)
    return result if then is None else then(result)
