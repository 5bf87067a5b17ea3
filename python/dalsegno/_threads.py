"""Threads for plain agents and for tools that may take too long.

They are kept for the next one for a while. They are daemons: the process may end with them, which is a crash like
any other to the runs that they were in.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
from collections.abc import Callable
from typing import TypeVar, cast

T = TypeVar("T")
_KEPT_SECONDS = 10.0
_lock = threading.Lock()
_idle: list[queue.SimpleQueue[Callable[[], object]]] = []
_count = 0


def run(work: Callable[[], object]) -> None:
    """Does something on a thread of its own."""
    global _count
    with _lock:
        if _idle:
            _idle.pop().put(work)
            return
        _count += 1
        name = f"dalsegno-run-{_count}"
    inbox: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
    inbox.put(work)
    thread = threading.Thread(target=_loop, args=(inbox,), name=name, daemon=True)
    # It is nobody's, whoever needs it first.
    contextvars.Context().run(thread.start)


def _loop(inbox: queue.SimpleQueue[Callable[[], object]]) -> None:
    while True:
        try:
            work = inbox.get(timeout=_KEPT_SECONDS)
        except queue.Empty:
            with _lock:
                if inbox in _idle:
                    _idle.remove(inbox)
                    return
            # Somebody has just taken it out, and is putting something in.
            work = inbox.get()
        try:
            work()
        except BaseException:
            # Whoever wants to know of it has been told.
            pass
        del work
        with _lock:
            _idle.append(inbox)


def _after_fork() -> None:
    """The threads are the parent's."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def awaited(work: Callable[[], T]) -> asyncio.Future[T]:
    """Does something on a thread of its own, in this context; to be awaited on this loop."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def put(result: T | None, error: BaseException | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(cast(T, result))
            else:
                future.set_exception(error)

    def on_thread() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = context.run(work)
        except StopIteration as e:
            # A future cannot carry it: it would stop who awaits it.
            error = RuntimeError("it raised StopIteration")
            error.__cause__ = e
        except BaseException as e:
            error = e
        try:
            loop.call_soon_threadsafe(put, result, error)
        except RuntimeError:
            # The loop is closed, and nobody waits.
            pass

    run(on_thread)
    return future
