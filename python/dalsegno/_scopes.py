"""Steps that a framework makes inside of its own tasks, with identities that do not depend on those.

A framework makes tasks as it likes, and names them as it likes; that may be another way in its next version. So what
it calls is made in the scope where it was started, and has a name of its own there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

from ._dalsegno import Ctx
from ._errors import BadUse
from ._frames import PLACE, Execution, Frame, frame
from ._times import Time
from ._tools import Retry, Tool

_NAME_LIMIT_BYTES = 100

Effect = Literal["read_only", "idempotent", "once"]


class Scope(NamedTuple):
    """Where in a run something is made."""

    execution: Execution
    ctx: Ctx
    is_for_next: bool = False
    """Whether it is for what the framework is about to start; that has no scope of its own then."""

    def branch(self, name: str) -> Scope:
        """A scope in here."""
        return Scope(self.execution, self.ctx.branch(clean(name)))


SCOPE: ContextVar[Scope | None] = ContextVar("dalsegno scope", default=None)


class Manner(NamedTuple):
    """How a step is made: as :func:`dalsegno.tool` has it."""

    effect: Effect = "once"
    retries: int | Retry = 1
    timeout: Time | None = None
    probe: Callable[..., Any] | None = None
    not_done: Iterable[type[BaseException]] = ()


def here(what: str) -> Scope | None:
    """The scope of this code, in the code of an async agent; nothing in no run."""
    found = frame()
    if found is None:
        return None
    if found.execution.tasks is None:
        raise BadUse(f"{what} belongs into an async agent, and {found.execution.agent!r} is not: make it `async def`")
    return Scope(found.execution, found.ctx)


def current(what: str) -> Scope | None:
    """The scope where the framework was started; else the one of this code. Nothing in no run, or inside of a step."""
    place = PLACE.get()
    if not isinstance(place, Frame):
        return None
    scope = SCOPE.get()
    return scope if scope is not None and scope.execution is place.execution else here(what)


@contextmanager
def inside(scope: Scope | None) -> Iterator[None]:
    """What a framework does from here on is made in this scope."""
    token = SCOPE.set(scope)
    try:
        yield
    finally:
        SCOPE.reset(token)


def step(
    scope: Scope, name: str, input: Any, code: Callable[[], Awaitable[Any]], manner: Manner, is_model: bool = False
) -> Awaitable[Any]:
    """A step in a scope. What goes in and what comes out is JSON."""

    async def call(input: Any) -> Any:
        return await code()

    made = Tool(
        call,
        is_model=is_model,
        effect=manner.effect,
        name=clean(name),
        retries=manner.retries,
        timeout=manner.timeout,
        probe=None if manner.probe is None else _by_key(manner.probe),
        approval=False,
        not_done=manner.not_done,
        ignore=(),
    )
    token = PLACE.set(Frame(scope.execution, scope.ctx))
    try:
        return made(input)
    finally:
        PLACE.reset(token)


def _by_key(probe: Callable[..., Any]) -> Callable[[str], Any]:
    def ask(key: str) -> Any:
        return probe(key)

    return ask


def clean(name: str) -> str:
    """A name for a step or scope; of one that is too long, the beginning and a hash."""
    cleaned = re.sub(r"[/#!@\x00-\x1f\x7f]", "-", name) or "call"
    if len(cleaned.encode()) <= _NAME_LIMIT_BYTES:
        return cleaned
    begin = cleaned.encode()[: _NAME_LIMIT_BYTES - 20].decode(errors="ignore")
    return f"{begin}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"
