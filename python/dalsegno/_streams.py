"""Streams of a store that a module keeps for itself, for plain code and for async code.

What is asked of a stream is written once, as a generator that yields questions and is sent the answers; `wait` and
`awaited` drive it.
"""

from __future__ import annotations

import hashlib
import os
import urllib.parse
from collections.abc import Generator
from typing import Any, TypeVar

from . import _ask, _dalsegno
from ._app import App
from ._app import open as open_app
from .aio import AsyncApp

T = TypeVar("T")

Asking = Generator[_dalsegno.Asked, Any, T]
"""Asks streams, and ends in a result."""

_NAME_LIMIT_BYTES = 200


class Place:
    """An open store, one's own or somebody else's, and the streams in it."""

    def __init__(self, place: str | os.PathLike[str] | App | AsyncApp) -> None:
        self._own = None if isinstance(place, App | AsyncApp) else open_app(place)
        app = place if isinstance(place, App | AsyncApp) else self._own
        assert app is not None
        self.streams = _dalsegno.Streams(app._open.core)

    def close(self) -> None:
        """Closes the store, if it is one's own."""
        if self._own is not None:
            self._own.close()


def wait(asking: Asking[T]) -> T:
    """Asks, and waits for each answer on this thread."""
    try:
        asked = next(asking)
        while True:
            answer = asked.pending.wait()
            asked = asking.send(_taken(asked, answer)) if answer[0] is None else asking.throw(_ask.problem(answer))
    except StopIteration as e:
        result: T = e.value
        return result


async def awaited(asking: Asking[T]) -> T:
    """Asks, and awaits each answer."""
    try:
        asked = next(asking)
        while True:
            answer = await _ask._answer(asked.pending)
            asked = asking.send(_taken(asked, answer)) if answer[0] is None else asking.throw(_ask.problem(answer))
    except StopIteration as e:
        result: T = e.value
        return result


def _taken(asked: _dalsegno.Asked, answer: tuple[Any, ...]) -> Any:
    return asked.take()


def stream_name(prefix: str, name: str) -> str:
    """The name of a stream for something that may be called anything."""
    quoted = prefix + urllib.parse.quote(name, safe=" -_.~@+=,;:()[]{}!*'$&/")
    if name and len(quoted) <= _NAME_LIMIT_BYTES:
        return quoted
    return f"{prefix}%{hashlib.sha256(name.encode()).hexdigest()}"


def name_of(prefix: str, stream: str) -> str | None:
    """What a stream was named after; `None` if that was too long to be in its name."""
    quoted = stream.removeprefix(prefix)
    return None if len(quoted) == 65 and quoted.startswith("%") else urllib.parse.unquote(quoted)
