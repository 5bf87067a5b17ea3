"""Where in its stream each checkpoint of a thread is.

A thread is a stream. What its events say is read from the end backwards, only as far as is needed: for the newest
checkpoint that is a few events, however long the thread is. What was read stays in memory, and the end is followed
before each use, because other processes write too.

| event | says |
|---|---|
| `value` | nothing; its bytes are the value of a channel |
| `checkpoint` | namespace, id, parent, run; a newer id that is there already (`n`); where writes for it begin (`w`) |
| `writes` | the namespace and id of the checkpoint that they belong to |
| `forgotten` | which events before are deleted |
| `erased` | that this is done |

Invariant: of everything from `low` on, up to `head`, it is known what it is.
"""

from __future__ import annotations

import json
import threading
from typing import Any, NamedTuple

from .. import _dalsegno
from .._streams import Asking
from .records import Ref

_FIRST_PAGE = 32
_LAST_PAGE = 8192

Event = tuple[int, str, str, list[int]]


class Put(NamedTuple):
    """A checkpoint in its stream."""

    seq: int
    ns: str
    id: str
    parent: str | None
    run_id: str | None
    newer: tuple[str, int] | None
    """The newest checkpoint of its namespace when it was put, if that is not this one."""
    writes_from: int | None
    """Where the first of its writes is, if that was there before it."""


class Thread:
    """What is known of a thread."""

    def __init__(self, streams: _dalsegno.Streams, stream: str, thread_id: str | None) -> None:
        self._streams = streams
        self._lock = threading.Lock()
        self._page = _FIRST_PAGE
        self._unerased: set[int] = set()
        self._last: dict[str, Put] = {}
        self.stream = stream
        self.thread_id = thread_id
        self.head = -1
        self.low = 0
        self.puts: dict[tuple[str, str], Put] = {}
        self.writes: dict[tuple[str, str], list[int]] = {}
        self.values: set[int] = set()
        self.replaced: set[int] = set()
        """Checkpoints that were put again."""
        self.gone: set[int] = set()
        self.refs: dict[str, tuple[str, dict[str, Ref]]] = {}
        """Of each namespace, where the values of a checkpoint are, mostly the newest."""

    def follow(self) -> Asking[None]:
        """Comes to the end of the stream."""
        if self.head < 0:
            head: int = yield self._streams.head(self.stream)
            with self._lock:
                if self.head < 0:
                    self.head, self.low = head, head + 1
            return
        while True:
            events: list[Event] = yield self._streams.read(self.stream, self.head + 1, _LAST_PAGE)
            self.take(events)
            if len(events) < _LAST_PAGE:
                return

    def take(self, events: list[Event]) -> None:
        """Learns of events behind the head; those that are known are passed over."""
        with self._lock:
            for event in events:
                if event[0] == self.head + 1:
                    self.head = event[0]
                    self._learn(event, True)

    def newest(self, ns: str) -> Asking[Put | None]:
        """The checkpoint of a namespace with the greatest id."""
        while True:
            last = self._last.get(ns)
            if last is None:
                if self.low <= 1:
                    return None
                yield from self._back()
                continue
            if last.seq not in self.gone:
                if last.newer is None:
                    return last
                while self.low > last.newer[1]:
                    yield from self._back(last.newer[1])
                newer = self.puts.get((ns, last.newer[0]))
                if newer is not None and newer.seq not in self.gone:
                    return newer
            # What was the newest is deleted.
            yield from self.complete()
            live = [put for put in self.live() if put.ns == ns]
            return max(live, key=lambda put: put.id, default=None)

    def find(self, ns: str, id: str) -> Asking[Put | None]:
        """A checkpoint by its id."""
        while (ns, id) not in self.puts and self.low > 1:
            yield from self._back()
        put = self.puts.get((ns, id))
        return None if put is None or put.seq in self.gone else put

    def writes_of(self, put: Put, until: int | None = None) -> Asking[list[int]]:
        """Where the writes for a checkpoint are, in the order in which they came."""
        while put.writes_from is not None and self.low > put.writes_from:
            yield from self._back(put.writes_from)
        found = self.writes.get((put.ns, put.id), ())
        return sorted(seq for seq in found if seq not in self.gone and (until is None or seq <= until))

    def complete(self) -> Asking[None]:
        """Reads all that there is; and ends what a crash has interrupted."""
        while self.low > 1:
            yield from self._back()
        if self._unerased:
            yield self._streams.erase(self.stream, sorted(self._unerased))
            yield from self.follow()

    def live(self) -> list[Put]:
        """All checkpoints that are known and not deleted."""
        return [put for put in list(self.puts.values()) if put.seq not in self.gone]

    def _back(self, wanted: int | None = None) -> Asking[None]:
        """Reads on backwards: a page, each larger than the last; or up to where something is."""
        low = self.low
        begin = max(1, low - self._page)
        if wanted is not None:
            begin = max(wanted, low - _LAST_PAGE, 1)
        self._page = min(self._page * 4, _LAST_PAGE)
        events: list[Event] = yield self._streams.read(self.stream, begin, low - begin)
        with self._lock:
            if self.low != low:
                return
            self.low = begin
            for event in reversed(events):
                self._learn(event, False)

    def _learn(self, event: Event, is_newer: bool) -> None:
        """Learns of the event behind all that is known, or of the one before."""
        seq, kind, words, forgotten = event
        if kind == "value":
            self.values.add(seq)
        elif kind == "checkpoint":
            put = _put(seq, json.loads(words))
            key = (put.ns, put.id)
            other = self.puts.get(key)
            if other is not None:
                self.replaced.add(min(other.seq, seq))
            if is_newer or other is None:
                self.puts[key] = put
            if is_newer or put.ns not in self._last:
                self._last[put.ns] = put
            if self.thread_id is None:
                self.thread_id = json.loads(words).get("t")
        elif kind == "writes":
            said = json.loads(words)
            self.writes.setdefault((said["s"], said["i"]), []).append(seq)
        elif kind == "forgotten":
            self.gone.update(forgotten)
            if is_newer or seq not in self.gone:
                self._unerased.add(seq)
        elif kind == "erased":
            # Read backwards it comes first; then `forgotten` finds itself in `gone`.
            self._unerased.discard(int(words))
            self.gone.add(int(words))


def put_words(
    ns: str,
    id: str,
    parent: str | None,
    run_id: Any,
    newest: Put | None,
    writes_from: int | None,
    thread_id: str | None,
) -> str:
    """What the event of a checkpoint says."""
    said: dict[str, Any] = {"s": ns, "i": id}
    if parent is not None:
        said["p"] = parent
    if isinstance(run_id, str):
        said["r"] = run_id
    if newest is not None and newest.id > id:
        said["n"] = [newest.id, newest.seq]
    if writes_from is not None:
        said["w"] = writes_from
    if thread_id is not None:
        said["t"] = thread_id
    return json.dumps(said, separators=(",", ":"))


def writes_words(ns: str, id: str) -> str:
    """What the event of writes says."""
    return json.dumps({"s": ns, "i": id}, separators=(",", ":"))


def _put(seq: int, said: dict[str, Any]) -> Put:
    newer = said.get("n")
    return Put(
        seq,
        said["s"],
        said["i"],
        said.get("p"),
        said.get("r"),
        None if newer is None else (newer[0], newer[1]),
        said.get("w"),
    )
