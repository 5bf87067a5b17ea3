"""Tools and models: functions whose calls are steps when they are called in a run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from types import MethodType
from typing import Any, Concatenate, Generic, Literal, NamedTuple, ParamSpec, TypeVar, cast, overload

from . import _threads
from ._calls import Signature, check_function, is_async, name_of, wants_key, wrap
from ._dalsegno import Call, Manner
from ._errors import BadUse, NotSerialisable
from ._frames import PLACE, Execution, Frame, frame
from ._perform import UNKNOWN, Body, Probe, StepCall, perform, result_of
from ._times import Time, seconds

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Effect = Literal["read_only", "idempotent", "once"]


class Retry(NamedTuple):
    """How often a step is tried, and how long it waits in between (cut by up to a half, at random).

    >>> @dalsegno.tool(effect="idempotent", retries=Retry(5, first=0.2, longest=10))
    ... def charge(amount: int, *, key: str) -> str: ...
    """

    attempts: int
    first: Time = 0.1
    factor: float = 2.0
    longest: Time = 60.0


class Approval(NamedTuple):
    """That a person has to approve a call before it is made (`None` for ever)."""

    expires: Time | None = None
    wait: Time | None = None


class Tool(Generic[P, R_co]):
    """A function whose calls are steps when they are made in the code of a run, and plain calls elsewhere."""

    __name__: str
    __qualname__: str
    __dalsegno_made__ = "a tool"

    def __init__(
        self,
        code: Callable[P, R_co],
        *,
        is_model: bool,
        effect: Effect,
        name: str | None,
        retries: int | Retry,
        timeout: Time | None,
        probe: Callable[..., Any] | None,
        approval: bool | Approval,
        not_done: Iterable[type[BaseException]],
        ignore: str | Iterable[str],
    ) -> None:
        check_function(code, "tools and models")
        self.name = name or name_of(code)
        ignored = frozenset([ignore] if isinstance(ignore, str) else ignore)
        if effect not in ("read_only", "idempotent", "once"):
            raise ValueError(f"{self.name}: effect={effect!r} is none of read_only, idempotent, once")
        if probe is not None and effect != "once":
            raise ValueError(f"{self.name}: only a tool with effect='once' can be in doubt, and needs a probe")
        if probe is not None and not callable(probe):
            raise TypeError(f"{self.name}: its probe, a {type(probe).__name__}, is no function")
        limit = seconds(timeout)
        if limit is not None and not limit > 0:
            raise ValueError(f"{self.name}: timeout={timeout} leaves no time: give seconds, or None")
        self.code = code
        self._words = f"step {self.name!r}"
        self.is_async = is_async(code)
        self.probe = probe
        self.not_done = tuple(not_done)
        if not all(isinstance(one, type) and issubclass(one, BaseException) for one in self.not_done):
            raise TypeError(f"{self.name}: not_done={not_done!r} are no exceptions: give a list of their classes")
        self.wants_key = wants_key(code)
        self.signature = Signature(code, ignored, frozenset({"key"} if self.wants_key else ()))
        retry = retries if isinstance(retries, Retry) else Retry(max(1, retries))
        gate = approval if isinstance(approval, Approval) else Approval() if approval else None
        self.is_model, self.effect, self.timeout = is_model, effect, limit
        pauses = (retry.attempts, seconds(retry.first), retry.factor, seconds(retry.longest))
        asks = None if gate is None else (seconds(gate.expires), seconds(gate.wait))
        self.manner = Manner(is_model, effect, pauses, limit, probe is not None, asks)
        wrap(self, code)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        place = PLACE.get()
        if type(place) is not Frame:
            return self._plain(args, kwargs)
        place.check()
        if (place.execution.tasks is not None) is not self.is_async:
            raise self._in_the_wrong_agent(place.execution)
        made: R_co = self._step(place, args, kwargs, self.code)
        return made

    def _in_the_wrong_agent(self, execution: Execution) -> BadUse:
        if self.is_async:
            return BadUse(
                f"tool {self.name!r} is async, and agent {execution.agent!r} is not: make the agent `async def`"
            )
        return BadUse(
            f"tool {self.name!r} is a plain function, and would stop the event loop: make it `async def`, or "
            f"write `await dalsegno.aio.to_thread({self.name}, …)`"
        )

    def _plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R_co:
        place = PLACE.get()
        if self.wants_key and "key" not in kwargs:
            # Called by another step: its key is good for one call of each tool.
            key = f"{place.key}/{self.name}" if isinstance(place, Call) else ""
            kwargs = {**kwargs, "key": key}
        return self.code(*args, **kwargs)

    def _step(self, found: Frame, args: tuple[Any, ...], kwargs: dict[str, Any], code: Callable[..., Any]) -> Any:
        if self.wants_key and "key" in kwargs:
            raise BadUse(f"tool {self.name!r} was given a key: in a run it is given its own")
        try:
            written = self.signature.write(args, kwargs, self._words)
        except NotSerialisable:
            raise
        except TypeError as e:
            raise TypeError(f"{self.name}: {e}") from None

        tasks = found.execution.tasks
        if tasks is not None:
            step = found.ctx.call(self.name, self.manner, written)
            # If it is recorded, nothing has to be made ready to do it.
            body = functools.partial(_Doing, self, args, kwargs, code)
            return StepCall(found, self.name, step, tasks, self.signature.result, body, None)
        told = found.ctx.call_here(self.name, self.manner, written)
        if told[0] == "done":
            return result_of(found, self.name, self.signature.result, told[1])
        return perform(found, told[-1], _Doing(self, args, kwargs, code), told)

    @overload
    def __get__(self, instance: None, owner: type, /) -> Tool[P, R_co]: ...
    @overload
    def __get__(
        self: Tool[Concatenate[Any, Q], R_co], instance: object, owner: type | None = None, /
    ) -> Tool[Q, R_co]: ...
    def __get__(self, instance: Any, owner: type | None = None, /) -> Any:
        # As a function has it: of an object it is a method.
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        # By its name, as functions are.
        return getattr(self, "__qualname__", self.name)

    def __repr__(self) -> str:
        return f"<dalsegno {'model' if self.is_model else 'tool'} {self.name} ({self.effect})>"


class _Doing(Body):
    """One call of a tool, to be done."""

    __slots__ = ("args", "function", "kwargs", "tool")

    def __init__(
        self, tool: Tool[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], code: Callable[..., Any]
    ) -> None:
        # As the class above makes it, but without calling that: this is on the way of every step.
        self.tool, self.args, self.kwargs, self.function = tool, args, kwargs, code
        self.name, self.signature, self.beside = tool.name, tool.signature, tool.timeout is not None
        self.raised = self.written = None

    @property
    def effect(self) -> str:
        return self.tool.effect

    @property
    def not_done(self) -> tuple[type[BaseException], ...]:
        return self.tool.not_done

    def do(self, call: Call) -> Any:
        if self.tool.wants_key:
            return self.function(*self.args, **{**self.kwargs, "key": call.key})
        return self.function(*self.args, **self.kwargs)

    def probe(self, call: Call) -> Any:
        probe = self.tool.probe
        return UNKNOWN if probe is None else _ask(probe, call, self.args, self.kwargs)


def _ask(probe: Callable[..., Any], call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Asks a probe: with the key alone, or with the arguments of the call too, as it likes."""
    parameters = inspect.signature(probe).parameters
    takes = [p for p in parameters.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    if len(takes) <= 1 and "key" not in {p.name for p in parameters.values() if p not in takes}:
        return probe(call.key)
    return probe(*args, **kwargs, key=call.key)


@overload
def tool(code: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    effect: Effect = "once",
    name: str | None = None,
    retries: int | Retry = 1,
    timeout: Time | None = None,
    probe: Callable[..., Probe | Awaitable[Probe]] | None = None,
    approval: bool | Approval = False,
    not_done: Iterable[type[BaseException]] = (),
    ignore: str | Iterable[str] = (),
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    code: Callable[P, R] | None = None,
    /,
    *,
    effect: Effect = "once",
    name: str | None = None,
    retries: int | Retry = 1,
    timeout: Time | None = None,
    probe: Callable[..., Any] | None = None,
    approval: bool | Approval = False,
    not_done: Iterable[type[BaseException]] = (),
    ignore: str | Iterable[str] = (),
) -> Any:
    """Makes a function a tool: what it does is done once, and handed back from the record ever after.

    | | |
    |---|---|
    | ``effect`` | ``read_only``: it may run again; ``idempotent``: it may be sent again with the same key; |
    | | ``once`` (if nothing is said): never sent twice |
    | ``probe`` | of a ``once`` tool that a crash left in doubt: asked, by the key, whether it happened; |
    | | without one a person is asked |
    | ``retries`` | how often it is tried in all, or a :class:`Retry` |
    | ``timeout`` | the time (seconds) that one attempt may take |
    | ``approval`` | a person has to approve exactly this call |
    | ``not_done`` | exceptions that say that it surely did not happen |
    | ``ignore`` | arguments that are not recorded |

    A keyword-only argument ``key`` is given the idempotency key.

    >>> @dalsegno.tool(effect="idempotent", retries=3, timeout=30)
    ... def charge(order: Order, *, key: str = "") -> Receipt:
    ...     return bank.charge(order.amount, idempotency_key=key)
    """

    def make_tool(code: Callable[P, R]) -> Tool[P, R]:
        return Tool(
            code,
            is_model=False,
            effect=effect,
            name=name,
            retries=retries,
            timeout=timeout,
            probe=probe,
            approval=approval,
            not_done=not_done,
            ignore=ignore,
        )

    return make_tool if code is None else make_tool(code)


@overload
def model(code: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def model(
    *,
    name: str | None = None,
    retries: int | Retry = 1,
    timeout: Time | None = None,
    ignore: str | Iterable[str] = (),
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def model(
    code: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    retries: int | Retry = 1,
    timeout: Time | None = None,
    ignore: str | Iterable[str] = (),
) -> Any:
    """Makes a function a call of a model: without an effect outside, but never the same twice, and paid for.

    >>> @dalsegno.model(retries=3, timeout=60)
    ... def ask(prompt: str) -> str:
    ...     return client.complete(prompt).text
    """

    def make_model(code: Callable[P, R]) -> Tool[P, R]:
        return Tool(
            code,
            is_model=True,
            effect="read_only",
            name=name,
            retries=retries,
            timeout=timeout,
            probe=None,
            approval=False,
            not_done=(),
            ignore=ignore,
        )

    return make_model if code is None else make_model(code)


def to_thread(called: Tool[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
    """Calls a plain tool from an async agent: on a thread, so that the event loop goes on.

    >>> pages = await asyncio.gather(*(dalsegno.aio.to_thread(fetch, url) for url in urls))
    """
    if isinstance(called, MethodType):
        bound = called.__self__
        called, args = called.__func__, (bound, *args)
    if not isinstance(called, Tool):
        raise BadUse(f"{called!r} is no tool: decorate it with @dalsegno.tool, or call it in one")
    if called.is_async:
        raise BadUse(f"tool {called.name!r} is async: write `await {called.name}(…)`")
    found = frame()
    if found is None or found.execution.tasks is None:
        raise BadUse(f"dalsegno.aio.to_thread({called.name}, …) belongs into the code of an async agent")

    def code(*args: Any, **kwargs: Any) -> Any:
        return _threads.awaited(lambda: called.code(*args, **kwargs))

    return cast("Coroutine[Any, Any, R]", called._step(found, args, kwargs, code))
