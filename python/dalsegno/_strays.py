"""Threads that the code of a run starts: tools called there say that they cannot be steps.

A new thread knows nothing of the run, so that a tool called on it would be a plain call: not recorded, and done again
at every replay. Nobody would notice before the first crash. So threads and pools take along where they were started.

Only what is started in the code of a run is touched, and nothing inside of a step.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ._frames import PLACE, Frame

_submitting = threading.local()
_is_installed = False


def _in(place: Frame, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    token = PLACE.set(place)
    try:
        return work(*args, **kwargs)
    finally:
        PLACE.reset(token)


def install() -> None:
    """From now on."""
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    start = threading.Thread.start
    submit: Any = ThreadPoolExecutor.submit

    @functools.wraps(start)
    def start_stray(self: threading.Thread) -> None:
        place = PLACE.get()
        # The threads of a pool outlive who happens to have begun them: what is submitted counts.
        if isinstance(place, Frame) and not getattr(_submitting, "now", False):
            self.run = functools.partial(_in, place, self.run)  # type: ignore[method-assign]
        start(self)

    @functools.wraps(submit)
    def submit_stray(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        place = PLACE.get()
        if not isinstance(place, Frame):
            return submit(self, fn, *args, **kwargs)
        _submitting.now = True
        try:
            return submit(self, _in, place, fn, *args, **kwargs)
        finally:
            _submitting.now = False

    threading.Thread.start = start_stray  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submit_stray  # type: ignore[method-assign]
