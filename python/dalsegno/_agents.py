"""Agents: functions whose executions are runs; and how they are executed."""

from __future__ import annotations

import asyncio
import contextvars
import os
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, overload

from . import _tasks, _threads
from ._calls import Signature, check_function, is_async, name_of, wrap
from ._dalsegno import Ctx
from ._errors import BadUse, NotSerialisable, Unwind
from ._frames import PLACE, Execution, Frame
from ._raising import failure_of, is_carried, leaves
from ._values import check_back, type_words, write_and_read_with

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Again:
    """For an agent that is a loop to return: another turn, with these arguments. :func:`again` makes it."""

    __slots__ = ("args", "kwargs")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        given = [repr(value) for value in self.args] + [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"again({', '.join(given)})"


def again(*args: Any, **kwargs: Any) -> Again:
    """Ends a turn of an agent that is a loop; the next one is called with these arguments.

    They are written down, and nothing before is needed any more: a run of a million turns is taken up at its last.

    >>> @dalsegno.agent(loop=True)
    ... def watch(url: str, seen: int = 0) -> str | dalsegno.Again:
    ...     dalsegno.sleep(3600)
    ...     page = fetch(url)
    ...     return page.title if page.is_new else dalsegno.again(url, seen + 1)
    """
    return Again(args, kwargs)


class Agent(Generic[P, R_co]):
    """A function whose executions are runs. Called by itself, it is the plain function that it was."""

    __qualname__: str
    __dalsegno_made__ = "an agent"

    def __init__(self, code: Callable[..., Any], name: str | None, is_loop: bool = False) -> None:
        check_function(code, "agents")
        self.code = code
        self.is_loop = is_loop
        self.name = name or name_of(code)
        self.is_async = is_async(code)
        self.signature = Signature(code)
        wrap(self, code)

    def __set_name__(self, owner: type, name: str) -> None:
        if next(iter(self.signature.signature.parameters), None) in ("self", "cls"):
            raise TypeError(
                f"agent {self.name!r} is a method of {owner.__name__}, whose object is gone when the run is taken up: "
                "make it a function, or a @staticmethod above @dalsegno.agent"
            )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self.code(*args, **kwargs)

    def write_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The arguments of a run, as they are recorded."""
        text = self.signature.write(args, kwargs, f"agent {self.name!r}")
        try:
            # What cannot be read is told now: the run could never begin.
            found, named = self.signature.read(text)
            check_back(dict(self.signature.bind(args, kwargs)), dict(self.signature.bind(tuple(found), named)))
        except NotSerialisable:
            raise
        except Exception as e:
            raise NotSerialisable(f"the input of agent {self.name!r} cannot be read back: {e}") from e
        return text

    def write_result(self, value: Any) -> str:
        """The result of a run, as it is recorded."""
        try:
            return write_and_read_with(self.signature.coder("return"), value)[0]
        except NotSerialisable:
            raise
        except Exception as e:
            what = type_words(type(value))
            raise NotSerialisable(f"agent {self.name!r} gave a {what}, which cannot be recorded: {e}") from e

    def __reduce__(self) -> str:
        # By its name, as functions are.
        return getattr(self, "__qualname__", self.name)

    def __repr__(self) -> str:
        return f"<dalsegno agent {self.name}>"


class PlainAgent(Agent[P, R_co]):
    """An agent that is a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return cast(R_co, self.code(*args, **kwargs))


class AsyncAgent(Agent[P, R_co]):
    """An agent whose function is to be awaited."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        return cast("Coroutine[Any, Any, R_co]", self.code(*args, **kwargs))


@overload
def agent(code: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncAgent[P, R]: ...  # type: ignore[overload-overlap]
@overload
def agent(code: Callable[P, R], /) -> PlainAgent[P, R]: ...
@overload
def agent(*, name: str | None = None) -> _Maker: ...
@overload
def agent(*, name: str | None = None, loop: Literal[True]) -> _LoopMaker: ...
def agent(code: Callable[..., Any] | None = None, /, *, name: str | None = None, loop: bool = False) -> Any:
    """Makes a function an agent: each execution is a run, which survives the process.

    Its code runs again whenever the run is taken up, so it must come to the same steps: no clock, no randomness, no
    I/O outside of tools (:func:`now`, :func:`random` and :func:`uuid4` give recorded ones).

    >>> @dalsegno.agent
    ... def research(topic: str) -> Report:
    ...     plan = ask(f"Plan a report on {topic}")
    ...     return Report([search(part) for part in plan.splitlines()])

    With ``loop=True`` it may return :func:`again`.
    """
    if code is None:
        return _LoopMaker(name) if loop else _Maker(name)
    return _Maker(name)(code)


class _Maker:
    def __init__(self, name: str | None) -> None:
        self._name = name

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, code: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncAgent[P, R]: ...
    @overload
    def __call__(self, code: Callable[P, R], /) -> PlainAgent[P, R]: ...
    def __call__(self, code: Callable[..., Any], /) -> Any:
        return (AsyncAgent if is_async(code) else PlainAgent)(code, self._name)


class _LoopMaker:
    def __init__(self, name: str | None) -> None:
        self._name = name

    @overload
    def __call__(self, code: Callable[P, Coroutine[Any, Any, R | Again]], /) -> Agent[P, R]: ...
    @overload
    def __call__(self, code: Callable[P, R | Again], /) -> Agent[P, R]: ...
    def __call__(self, code: Callable[..., Any], /) -> Any:
        return Agent(code, self._name, True)


def start(agent: Agent[..., Any], ctx: Ctx, text: str, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Starts the code of a run, where it belongs. Called by the core, on a thread of its."""
    if not agent.is_async:
        _threads.run(lambda: contextvars.Context().run(_on_thread, agent, ctx, text))
        return
    its_loop = loop()
    execution = Execution(ctx, agent.name, _tasks.Tasks(its_loop))
    its_loop.call_soon_threadsafe(_in_loop, execution, agent, text)


def _arguments(agent: Agent[..., Any], ctx: Ctx, text: str) -> tuple[list[Any], dict[str, Any]] | None:
    """The arguments of a run; `None` if the agent has others by now."""
    try:
        args, kwargs = agent.signature.read(text)
        agent.signature.signature.bind(*args, **kwargs)
        return args, kwargs
    except Exception as e:
        ctx.interrupted(f"agent {agent.name!r} does not take the input that the run was started with: {e}")
        return None


def _end(execution: Execution, agent: Agent[..., Any], result: Any) -> None:
    """The code has returned."""
    ctx = execution.ctx
    try:
        execution.check_end()
        if isinstance(result, Again):
            ctx.again(agent.write_input(result.args, result.kwargs))
            return
        ctx.returned(agent.write_result(result))
    except Exception as e:
        ctx.failed(failure_of(e))


_BROKEN = (NameError, AttributeError, ImportError, SyntaxError, AssertionError)
"""What only a mistake in the code raises: mending it helps, and the run must not end of it."""


def _failed(ctx: Ctx, error: Exception) -> None:
    """The code has raised."""
    failure = failure_of(error)
    # Also one in a task of a group, which the group raises with others.
    mistakes = (leaf for leaf in leaves(error) if isinstance(leaf, _BROKEN) and not is_carried(leaf))
    mistake = next(mistakes, None)
    if mistake is not None:
        # One that was only made, to be raised in a group, was raised nowhere itself.
        where = (traceback.extract_tb(mistake.__traceback__) or traceback.extract_tb(error.__traceback__))[-1]
        message = failure_of(mistake).message
        ctx.broken(f"{message} ({os.path.basename(where.filename)}:{where.lineno})", failure)
    else:
        ctx.failed(failure)


def _interrupted(ctx: Ctx, error: BaseException) -> None:
    name = type(error).__name__
    ctx.interrupted(f"its code raised {name}: the run was left as by a crash, and goes on from its record")


def _on_thread(agent: Agent[..., Any], ctx: Ctx, text: str) -> None:
    try:
        given = _arguments(agent, ctx, text)
        if given is None:
            return
        execution = Execution(ctx, agent.name, None)
        PLACE.set(Frame(execution, ctx))
        try:
            result = agent.code(*given[0], **given[1])
        except Unwind:
            if not ctx.is_left:
                ctx.interrupted("its code raised dalsegno.Unwind")
        except Exception as e:
            _failed(ctx, e)
        except BaseException as e:
            _interrupted(ctx, e)
        else:
            _end(execution, agent, result)
    finally:
        ctx.is_over()


def _in_loop(execution: Execution, agent: Agent[..., Any], text: str) -> None:
    """Starts the code of a run, on its loop."""
    ctx, tasks = execution.ctx, execution.tasks
    assert tasks is not None
    loop = tasks.loop
    _tasks.install(loop)
    tasks.begin(execution)
    bell = _tasks.bell(loop)
    if bell is not None:
        ctx.rings(bell)
    main = contextvars.Context().run(loop.create_task, _main(execution, agent, text))
    tasks.all.add(main)
    ctx.unwind_with(lambda: _tasks.threadsafe(loop, tasks.leave))


async def _main(execution: Execution, agent: Agent[..., Any], text: str) -> None:
    ctx, tasks = execution.ctx, execution.tasks
    assert tasks is not None
    try:
        given = _arguments(agent, ctx, text)
        if given is None:
            return
        frame = Frame(execution, ctx)
        me = asyncio.current_task()
        assert me is not None
        frame.belongs_to(me)
        token = PLACE.set(frame)
        try:
            result = await agent.code(*given[0], **given[1])
        except (asyncio.CancelledError, Unwind) as e:
            # Left by the engine; or by who cancels all tasks of a loop that ends.
            if not ctx.is_left:
                _interrupted(ctx, e)
        except Exception as e:
            _failed(ctx, e)
        except BaseException as e:
            _interrupted(ctx, e)
            if isinstance(e, (KeyboardInterrupt, SystemExit)):
                raise
        else:
            _end(execution, agent, result)
        finally:
            PLACE.reset(token)
            await _others(tasks, me)
    finally:
        ctx.is_over()


async def _others(tasks: _tasks.Tasks, me: asyncio.Task[Any]) -> None:
    """Leaves the tasks that nobody has awaited: what they do after the run does not count."""
    others = [task for task in list(tasks.all) if task is not me and not task.done()]
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)


def find(agents: dict[str, Agent[..., Any]], wanted: Agent[..., Any] | str) -> str:
    """The name of an agent."""
    if isinstance(wanted, str):
        return wanted
    if not isinstance(wanted, Agent):
        raise BadUse(f"{wanted!r} is no agent: decorate it with @dalsegno.agent")
    if agents.get(wanted.name) is not wanted:
        known = ", ".join(sorted(agents)) or "none"
        raise BadUse(f"agent {wanted.name!r} is not registered, only {known}: dalsegno.open(…, agents=[{wanted.name}])")
    return wanted.name
