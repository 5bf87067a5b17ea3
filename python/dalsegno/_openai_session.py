"""Sessions of the OpenAI Agents SDK, kept in a store.

A session is a stream: an event for each item, and one for each that is taken back.

Invariant: in a run, what is read and what is added is a step. So it is the same at every replay, and what a run has
added is in the session once, also if the process dies in the middle.
"""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._app import App
from ._errors import Error
from ._frames import current_call
from ._scopes import Manner, current, step
from ._streams import Asking, Place, awaited, stream_name
from .aio import AsyncApp

if TYPE_CHECKING:
    from agents.items import TResponseInputItem
    from agents.memory import SessionSettings

PREFIX = "openai-session/"
_PAGE = 256

Event = tuple[int, str, str, list[int]]

_READ = Manner(effect="read_only")
_WRITTEN = Manner(effect="idempotent")


class DalsegnoSession:
    """What was said in a session, in a store: a folder, a database (``postgres://…``), or one that is open.

    >>> session = DalsegnoSession("conversation of Ann", app)
    >>> await Runner.run(clerk, "And on Monday?", session=session)
    """

    def __init__(
        self,
        session_id: str,
        place: str | os.PathLike[str] | App | AsyncApp,
        *,
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings
        self._place = Place(place)
        self._streams = self._place.streams
        self._stream = stream_name(PREFIX, session_id)

    def close(self) -> None:
        """Closes the store, if this has opened it."""
        self._place.close()

    async def __aenter__(self) -> DalsegnoSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """What was said, or the last of it."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        scope = current("a session")

        async def head() -> int:
            return await awaited(self._head())

        until = await (head() if scope is None else step(scope, "session.get_items", self.session_id, head, _READ))
        return await awaited(self._items(until, limit))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Adds what was said. All of it is there when this returns, or nothing."""
        if not items:
            return
        scope = current("a session")
        if scope is None:
            await awaited(self._add(items, None, False))
            return

        async def add() -> None:
            call = current_call()
            await awaited(self._add(items, call.key, call.attempt > 1))

        await step(scope, "session.add_items", items, add, _WRITTEN)

    async def pop_item(self) -> TResponseInputItem | None:
        """Takes back what was said last."""
        scope = current("a session")
        if scope is None:
            return await awaited(self._pop(None, False))

        async def pop() -> Any:
            call = current_call()
            return await awaited(self._pop(call.key, call.attempt > 1))

        popped: TResponseInputItem | None = await step(scope, "session.pop_item", self.session_id, pop, _WRITTEN)
        return popped

    async def clear_session(self) -> None:
        """Deletes what was said. It is gone from the disk when this returns."""
        scope = current("a session")
        if scope is None:
            await awaited(self._clear())
            return

        async def clear() -> None:
            await awaited(self._clear())

        await step(scope, "session.clear_session", self.session_id, clear, _WRITTEN)

    # The stream

    def _head(self) -> Asking[int]:
        head: int = yield self._streams.head(self._stream)
        return head

    def _live(self, until: int, limit: int | None) -> Asking[list[int]]:
        """Where the items are, up to a place: all, or the last."""
        found: list[int] = []
        gone: set[int] = set()
        popped = 0
        end = until
        while end > 0 and (limit is None or len(found) < limit):
            begin = max(1, end - _PAGE + 1)
            events: list[Event] = yield self._streams.read(self._stream, begin, end - begin + 1)
            for seq, kind, _, forgotten in reversed(events):
                gone.update(forgotten)
                if kind == "clear":
                    end = 0
                    break
                if kind == "pop":
                    popped += 1
                elif kind == "item" and seq not in gone:
                    if popped:
                        popped -= 1
                    else:
                        found.append(seq)
            else:
                end = begin - 1
        found = found if limit is None else found[:limit]
        return sorted(found)

    def _items(self, until: int, limit: int | None) -> Asking[list[TResponseInputItem]]:
        seqs = yield from self._live(until, limit)
        raw: list[bytes | None] = yield self._streams.payloads(self._stream, seqs)
        # What somebody has cleared since is not there any more.
        return [json.loads(data) for data in raw if data is not None]

    def _add(self, items: list[TResponseInputItem], key: str | None, is_again: bool) -> Asking[None]:
        if is_again and (yield from self._is_done("item", key)):
            return
        words = key or ""
        events: list[tuple[str, str, bytes | None]] = []
        for item in items:
            try:
                data = json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()
            except (TypeError, ValueError) as e:
                raise Error(f"an item of session {self.session_id!r} is no JSON: {e}") from e
            events.append(("item", words, data))
        yield self._streams.append(self._stream, None, events)

    def _pop(self, key: str | None, is_again: bool) -> Asking[TResponseInputItem | None]:
        if is_again:
            done = yield from self._is_done("pop", key)
            if done:
                seqs = yield from self._live(done - 1, 1)
                return (yield from self._read_one(seqs))
        while True:
            head: int = yield self._streams.head(self._stream)
            seqs = yield from self._live(head, 1)
            if not seqs:
                return None
            popped = yield from self._read_one(seqs)
            at: int | None = yield self._streams.append(self._stream, head, [("pop", key or "", None)])
            if at is not None:
                return popped

    def _read_one(self, seqs: list[int]) -> Asking[TResponseInputItem | None]:
        raw: list[bytes | None] = yield self._streams.payloads(self._stream, seqs)
        return json.loads(raw[0]) if raw and raw[0] is not None else None

    def _is_done(self, wanted: str, key: str | None) -> Asking[int]:
        """Where it was done, by the key of the step; 0 if it was not."""
        head: int = yield self._streams.head(self._stream)
        while head > 0:
            begin = max(1, head - _PAGE + 1)
            events: list[Event] = yield self._streams.read(self._stream, begin, head - begin + 1)
            for seq, kind, words, _ in reversed(events):
                if kind == wanted and words == key:
                    return seq
            head = begin - 1
        return 0

    def _clear(self) -> Asking[None]:
        head: int = yield self._streams.append(self._stream, None, [("clear", "", None)])
        items: list[int] = []
        for begin in range(1, head, _PAGE):
            events: list[Event] = yield self._streams.read(self._stream, begin, _PAGE)
            items += [seq for seq, kind, _, _ in events if kind == "item" and seq < head]
        if items:
            yield self._streams.forget(self._stream, None, items)
