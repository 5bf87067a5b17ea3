"""Who watches what tools do: the test kit, and nobody else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ._dalsegno import Call


class Watch(Protocol):
    """Is told of every execution of a tool, and may end the process before or after it."""

    def call(self, name: str, effect: str, call: Call, code: Callable[[], Any]) -> Any:
        """Does it, in a plain agent."""

    def call_async(self, name: str, effect: str, call: Call, code: Callable[[], Any]) -> Awaitable[Any]:
        """Does it, in an async agent."""


WATCH: Watch | None = None
