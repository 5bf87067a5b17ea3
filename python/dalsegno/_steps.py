"""What an agent's code can do besides calling tools, as it is asked of the core.

`dalsegno` has each as a function for plain agents, `dalsegno.aio` for async ones.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Coroutine, Iterable
from types import MethodType
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, cast, overload

from ._agents import Agent
from ._calls import Signature, check_function, is_async, name_of, wrap, written
from ._conversations import Said
from ._dalsegno import Ctx, Step
from ._errors import BadUse, Failure, StepTimeout
from ._frames import frame, frame_for
from ._perform import Body, make
from ._resources import Resource
from ._times import Time, seconds
from ._values import write

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
SaidT = TypeVar("SaidT", bound=Said)

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class Answer(NamedTuple):
    """What a person said to a request. It is true if that is yes."""

    answer: str
    """``approved``, ``rejected``, ``expired`` or ``no-answer``."""
    by: str
    note: str

    @property
    def approved(self) -> bool:
        """Whether it is yes."""
        return self.answer == "approved"

    def __bool__(self) -> bool:
        return self.approved


class Want(Generic[T]):
    """A step that is wanted."""

    def __init__(self, what: str, step: Callable[[Ctx], Step], then: Callable[[Any], T], hint: Any = Any) -> None:
        self.what = what
        self.step = step
        self.then = then
        self.hint = hint

    def body(self) -> Body:
        """What its result and its failures are read with."""
        return Body(self.what, hint=self.hint)

    def here(self) -> T:
        """Made now, in the code of a plain agent."""
        found = frame_for(self.what)
        if found.execution.tasks is not None:
            raise BadUse(f"dalsegno.{self.what} stops the event loop: write `await dalsegno.aio.{self.what}(…)`")
        return cast(T, make(found, self.body(), self.step, self.then))

    def awaited(self) -> Coroutine[Any, Any, T]:
        """To be awaited, in the code of an async agent."""
        found = frame_for(f"aio.{self.what}")
        if found.execution.tasks is None:
            raise BadUse(f"dalsegno.aio.{self.what} belongs into an async agent: write dalsegno.{self.what}(…)")
        return cast("Coroutine[Any, Any, T]", make(found, self.body(), self.step, self.then))


def _same(value: Any) -> Any:
    return value


def sleep(time: Time) -> Want[None]:
    return Want("sleep", lambda ctx: ctx.sleep(seconds(time)), _same)


def decide(name: str, choice: T, because: str) -> Want[T]:
    # What is recorded wins, so it is read as what the code has in its hand.
    hint = type(choice)
    made = written(choice, f"decision {name!r}")
    shown = f"[{made},{write(because)}]" if because else f"[{made}]"
    return Want("decide", lambda ctx: ctx.decide(name, shown), lambda made: cast(T, made[0]), list[hint])  # type: ignore[valid-type]


def event(kind: str, content: Any) -> Want[None]:
    shown = written(content, f"event {kind!r}")
    return Want("event", lambda ctx: ctx.event(kind, shown), _same)


def signal(name: str, of: Any, timeout: Time | None) -> Want[Any]:
    def take(came: list[Any]) -> Any:
        if came:
            return came[0]
        raise_late = StepTimeout(f"signal {name!r} did not come within {seconds(timeout)} s")
        raise_late.failure = Failure("timed-out", "terminal", str(raise_late))
        raise raise_late

    return Want("signal", lambda ctx: ctx.signal(name, seconds(timeout)), take, list[of])


def send_signal(run: str, name: str, content: Any) -> Want[None]:
    shown = written(content, f"signal {name!r}")
    return Want("send_signal", lambda ctx: ctx.send_signal(run, name, shown), _same)


def approval(name: str, of: Any, expires: Time | None, wait: Time | None) -> Want[Answer]:
    shown = None if of is None else written(of, f"approval {name!r}")
    return Want(
        "approval",
        lambda ctx: ctx.approval(name, shown, seconds(expires), seconds(wait)),
        lambda said: Answer(*said),
    )


def child(agent: Agent[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Want[R]:
    return _child(agent, None, args, kwargs)


def _child(agent: Agent[..., R], name: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Want[R]:
    if not isinstance(agent, Agent):
        raise BadUse(f"{agent!r} is no agent: decorate it with @dalsegno.agent")
    given = agent.write_input(args, kwargs)
    hint = agent.signature.hint("return")
    return Want("child", lambda ctx: ctx.child(agent.name, given, name), _same, hint)


def child_as(name: str, agent: Agent[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Want[R]:
    return _child(agent, name, args, kwargs)


def conversation(name: str, of: type[SaidT]) -> Want[SaidT]:
    def then(messages: list[Any]) -> SaidT:
        found = frame_for("conversation").execution.conversations
        if name not in found:
            found[name] = of(name)
            found[name]._take_all(messages)
        return cast(SaidT, found[name])

    return Want("conversation", lambda ctx: ctx.conversation(name), then, list[Any])


def message(said: Said, message: Any) -> Want[None]:
    text, read_back = said.written(message)
    return Want("append", lambda ctx: ctx.message(said.name, text), lambda _: said._take(text, read_back))


def checkpoint(
    name: str,
    state: Any,
    progress: tuple[int, int] | None,
    pinned: bool,
    holding: Iterable[Resource],
    releasing: Iterable[Resource],
) -> Want[None]:
    shown, held, released = written(state, f"checkpoint {name!r}"), list(holding), list(releasing)
    return Want(
        "checkpoint",
        lambda ctx: ctx.checkpoint(name, shown, progress, pinned, held, released),
        _same,
    )


def now() -> Want[datetime.datetime]:
    # In whole microseconds: a float would not tell them apart.
    return Want("now", lambda ctx: ctx.now(), lambda us: _EPOCH + datetime.timedelta(microseconds=us))


def random() -> Want[float]:
    return Want("random", lambda ctx: ctx.random(), lambda number: (number >> 11) / (1 << 53))


def uuid4() -> Want[uuid.UUID]:
    return Want("uuid4", lambda ctx: ctx.uuid(), uuid.UUID)


def patched(change: str) -> Want[bool]:
    return Want("patched", lambda ctx: ctx.patched(change), _same)


class PlanStep(Generic[P, R_co]):
    """A part of the plan; :func:`plan_step` makes it."""

    __dalsegno_made__ = "a plan step"

    def __init__(self, code: Callable[P, R_co], name: str | None) -> None:
        check_function(code, "plan steps")
        self.code = code
        self.name = name or name_of(code)
        self.is_async = is_async(code)
        self.signature = Signature(code)
        wrap(self, code)

    @overload
    def __get__(self, instance: None, owner: type, /) -> PlanStep[P, R_co]: ...
    @overload
    def __get__(
        self: PlanStep[Concatenate[Any, Q], R_co], instance: object, owner: type | None = None, /
    ) -> PlanStep[Q, R_co]: ...
    def __get__(self, instance: Any, owner: type | None = None, /) -> Any:
        # As a function has it: of an object it is a method.
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        found = frame()
        if found is None:
            return self.code(*args, **kwargs)
        if (found.execution.tasks is not None) is not self.is_async:
            now, wanted = ("async", "plain") if self.is_async else ("plain", "async")
            raise BadUse(f"plan step {self.name!r} is {now}, and agent {found.execution.agent!r} is {wanted}")
        body = Body(self.name, lambda: self.code(*args, **kwargs), signature=self.signature)
        return cast(R_co, make(found, body, lambda ctx: ctx.plan(self.name)))
