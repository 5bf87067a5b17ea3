"""What is asked of threads: put, get, list, copy.

Invariant: a checkpoint, the values that are new in it, and what its event says stand in one append: all of it is there,
or nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from .. import _dalsegno
from .._errors import Error, StoreError
from .._streams import Asking, name_of, stream_name
from . import records, values
from .records import CheckpointRecord, Ref, Write, WritesRecord
from .thread import Put, Thread, put_words, writes_words

PREFIX = "langgraph/"
SEEN = "__dalsegno_seen"
"""In a config: how the checkpoint was found; `newest` if as the newest one."""

_THREADS_KEPT = 1024
_INSIDE_BYTES = 256
"""A value that is no longer than this is in the record of its checkpoint."""
_COPIED_AT_ONCE = 5000


class Superseded(Error):
    """Somebody else has gone on with the thread since it was read: this is not its newest checkpoint any more."""


class Found(NamedTuple):
    """Which checkpoint is meant."""

    put: Put
    head: int
    """Where the stream was. What was written later does not belong to what was found."""


class Keeper:
    """The threads of a store."""

    def __init__(self, streams: _dalsegno.Streams) -> None:
        self.streams = streams
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._sealed = values.Sealed()
        self._lock = threading.Lock()

    def thread(self, thread_id: str) -> Thread:
        return self._thread(stream_name(PREFIX, thread_id), thread_id)

    def _thread(self, stream: str, thread_id: str | None) -> Thread:
        with self._lock:
            found = self._threads.get(stream)
            if found is None:
                found = self._threads[stream] = Thread(self.streams, stream, thread_id)
            self._threads.move_to_end(stream)
            while len(self._threads) > _THREADS_KEPT:
                self._threads.popitem(last=False)
            return found

    def threads(self) -> Asking[list[Thread]]:
        """All there are."""
        names: list[str] = yield self.streams.names(PREFIX)
        return [self._thread(name, name_of(PREFIX, name)) for name in names]

    # Putting

    def put(
        self,
        serde: SerializerProtocol,
        thread_id: str,
        ns: str,
        parent: str | None,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        is_next: bool,
    ) -> Asking[None]:
        """Puts a checkpoint; only behind the newest one, if it is meant to be the next."""
        thread = self.thread(thread_id)
        yield from thread.follow()
        known = (yield from self._refs_of(thread, ns, parent)) if parent else {}
        id = checkpoint["id"]
        without_values = {key: value for key, value in checkpoint.items() if key != "channel_values"}
        dumped = serde.dumps_typed(without_values), serde.dumps_typed(metadata)
        refs: dict[str, Ref] | None = None
        while True:
            if refs is None or any(ref.seq in thread.gone for ref in refs.values()):
                # The first time; or somebody has just deleted a value that was there.
                known = {channel: ref for channel, ref in known.items() if ref.seq not in thread.gone}
                refs, new = self._new_refs(serde, (thread.stream, ns), checkpoint, new_versions, known)
                packed = records.pack_checkpoint(CheckpointRecord(*dumped, refs))
            newest = yield from thread.newest(ns)
            if is_next and parent is not None and newest is not None and newest.id != parent:
                raise Superseded(
                    f"thread {thread_id!r} has gone on to checkpoint {newest.id} since it was read at {parent}: "
                    "somebody else works on it; read it again, or give the checkpoint_id to fork it there"
                )
            first_write = min(thread.writes.get((ns, id), ()), default=None)
            long_id = thread_id if name_of(PREFIX, thread.stream) is None else None
            words = put_words(ns, id, parent, metadata.get("run_id"), newest, first_write, long_id)
            expected = thread.head
            events: list[tuple[str, str, bytes | None]] = [("value", "", value) for value in new]
            events.append(("checkpoint", words, packed))
            head: int | None = yield self.streams.append(thread.stream, expected, events)
            if head is not None:
                break
            yield from thread.follow()
        thread.take([(expected + 1 + at, kind, said, []) for at, (kind, said, _) in enumerate(events)])
        thread.refs[ns] = (id, _absolute(refs, head))

    def _new_refs(
        self,
        serde: SerializerProtocol,
        of: tuple[str, str],
        checkpoint: Checkpoint,
        new_versions: ChannelVersions,
        known: Mapping[str, Ref],
    ) -> tuple[dict[str, Ref], list[bytes]]:
        """Where the values of a checkpoint will be, and those that are to be stored before it."""
        refs: dict[str, Ref] = {}
        new: list[tuple[str, bytes]] = []
        for channel, value in checkpoint["channel_values"].items():
            version = checkpoint["channel_versions"].get(channel)
            there = known.get(channel)
            if there is not None and there.version == version and version is not None and channel not in new_versions:
                refs[channel] = there
                continue
            dumped = values.dump(serde, value, (*of, channel), self._sealed)
            refs[channel] = Ref(version, None, dumped)
            if len(dumped.data) > _INSIDE_BYTES:
                new.append((channel, dumped.data))
        for at, (channel, _) in enumerate(new):
            version, _, dumped = refs[channel]
            refs[channel] = Ref(version, at - len(new), dumped._replace(data=b""))
        return refs, [data for _, data in new]

    def _refs_of(self, thread: Thread, ns: str, id: str) -> Asking[dict[str, Ref]]:
        """Where the values of a checkpoint are."""
        cached = thread.refs.get(ns)
        if cached is not None and cached[0] == id:
            return cached[1]
        put = yield from thread.find(ns, id)
        if put is None:
            return {}
        return (yield from self._record(thread, put)).refs

    def put_writes(
        self,
        serde: SerializerProtocol,
        thread_id: str,
        ns: str,
        id: str,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> Asking[None]:
        """Puts what a task has written."""
        thread = self.thread(thread_id)
        dumped = [
            Write(WRITES_IDX_MAP.get(channel, idx), channel, *serde.dumps_typed(value))
            for idx, (channel, value) in enumerate(writes)
        ]
        packed = records.pack_writes(WritesRecord(task_id, task_path, dumped))
        words = writes_words(ns, id)
        head: int = yield self.streams.append(thread.stream, None, [("writes", words, packed)])
        thread.take([(head, "writes", words, [])])

    # Getting

    def find(self, thread_id: str, ns: str, id: str | None) -> Asking[Found | None]:
        """A checkpoint, or the newest."""
        thread = self.thread(thread_id)
        yield from thread.follow()
        head = thread.head
        put = yield from (thread.newest(ns) if id is None else thread.find(ns, id))
        return None if put is None else Found(put, head)

    def get(
        self,
        serde: SerializerProtocol,
        thread_id: str,
        ns: str,
        id: str | None,
        until: int | None = None,
    ) -> Asking[CheckpointTuple | None]:
        """A checkpoint, or the newest, with the writes for it; up to a place in the stream."""
        while True:
            found = yield from self.find(thread_id, ns, id)
            if found is None:
                return None
            thread = self.thread(thread_id)
            try:
                return (yield from self.tuple_of(serde, thread, found.put, None, until))
            except _Gone:
                # Deleted in the meantime; or damaged, and then it is not deleted when it is looked for again.
                yield from thread.follow()
                if found.put.seq not in thread.gone:
                    raise

    def tuple_of(
        self,
        serde: SerializerProtocol,
        thread: Thread,
        put: Put,
        filter: Mapping[str, Any] | None,
        until: int | None = None,
    ) -> Asking[CheckpointTuple | None]:
        """A checkpoint as LangGraph has it; nothing if its metadata are not as wanted."""
        write_seqs = yield from thread.writes_of(put, until)
        raw: list[bytes | None] = yield self.streams.payloads(thread.stream, [put.seq, *write_seqs])
        record = records.unpack_checkpoint(_there(raw[0], thread, put), put.seq)
        metadata = serde.loads_typed(record.metadata)
        if filter and any(metadata.get(key) != wanted for key, wanted in filter.items()):
            return None
        channel_values = yield from self._values(serde, thread, put, record)
        checkpoint = serde.loads_typed(record.checkpoint)
        checkpoint["channel_values"] = channel_values
        writes = _folded(serde, [records.unpack_writes(data) for data in raw[1:] if data is not None])
        configurable = {"thread_id": thread.thread_id, "checkpoint_ns": put.ns}
        parent = None if put.parent is None else {"configurable": {**configurable, "checkpoint_id": put.parent}}
        config = {"configurable": {**configurable, "checkpoint_id": put.id}}
        return CheckpointTuple(config, checkpoint, metadata, parent, writes)  # type: ignore[arg-type]

    def _values(
        self, serde: SerializerProtocol, thread: Thread, put: Put, record: CheckpointRecord
    ) -> Asking[dict[str, Any]]:
        seqs = [ref.seq for ref in record.refs.values() if ref.seq is not None]
        raw: list[bytes | None] = (yield self.streams.payloads(thread.stream, seqs)) if seqs else []
        there = dict(zip(seqs, raw, strict=True))
        found = {}
        for channel, (_, seq, value) in record.refs.items():
            stored = value if seq is None else value._replace(data=_there(there[seq], thread, put))
            found[channel] = values.load(serde, stored, (thread.stream, put.ns, channel), self._sealed)
        thread.refs[put.ns] = (put.id, record.refs)
        return found

    def _record(self, thread: Thread, put: Put) -> Asking[CheckpointRecord]:
        raw: list[bytes | None] = yield self.streams.payloads(thread.stream, [put.seq])
        return records.unpack_checkpoint(_there(raw[0], thread, put), put.seq)

    def records(self, thread: Thread, puts: Sequence[Put]) -> Asking[dict[Put, CheckpointRecord]]:
        """Several at once."""
        raw: list[bytes | None] = yield self.streams.payloads(thread.stream, [put.seq for put in puts])
        found = zip(puts, raw, strict=True)
        return {put: records.unpack_checkpoint(_there(data, thread, put), put.seq) for put, data in found}

    def listed(
        self, thread_id: str | None, ns: str | None, id: str | None, before: str | None
    ) -> Asking[list[tuple[Thread, Put]]]:
        """Checkpoints of a thread, or of all, the newest first."""
        threads = (yield from self.threads()) if thread_id is None else [self.thread(thread_id)]
        found = []
        for thread in threads:
            yield from thread.follow()
            yield from thread.complete()
            for put in thread.live():
                fits = (ns is None or put.ns == ns) and (id is None or put.id == id)
                if fits and (before is None or put.id < before):
                    found.append((thread, put))
        return sorted(found, key=lambda item: item[1].id, reverse=True)

    # Copying

    def copy(self, source_id: str, target_id: str) -> Asking[None]:
        """Copies a thread: all of its checkpoints, values and writes. What they have in common is stored once."""
        source, target = self.thread(source_id), self.thread(target_id)
        yield from source.follow()
        yield from source.complete()
        puts = {put.seq: put for put in source.live()}
        writes = {seq: key for key, seqs in source.writes.items() for seq in seqs}
        seqs = sorted(seq for seq in {*puts, *writes, *source.values} if seq not in source.gone)
        long_id = target_id if name_of(PREFIX, target.stream) is None else None
        moved: dict[int, int] = {}
        for begin in range(0, len(seqs), _COPIED_AT_ONCE):
            some = seqs[begin : begin + _COPIED_AT_ONCE]
            raw: list[bytes | None] = yield self.streams.payloads(source.stream, some)
            yield from target.follow()
            newest: dict[str, Put | None] = {}
            for ns in {puts[seq].ns for seq in some if seq in puts}:
                newest[ns] = yield from target.newest(ns)
            events: list[tuple[str, str, bytes | None]] = []
            for seq, data in zip(some, raw, strict=True):
                if data is None:
                    raise _Gone(f"thread {source_id!r} was deleted, or is damaged, while it was copied")
                at = target.head + 1 + len(events)
                moved[seq] = at
                if seq in puts:
                    put = puts[seq]
                    record = records.unpack_checkpoint(data, seq)
                    there = {name: ref._replace(seq=_moved(ref.seq, moved)) for name, ref in record.refs.items()}
                    packed = records.pack_checkpoint(record._replace(refs=there))
                    first = min((moved[s] for s in source.writes.get((put.ns, put.id), ()) if s in moved), default=None)
                    words = put_words(put.ns, put.id, put.parent, put.run_id, newest[put.ns], first, long_id)
                    events.append(("checkpoint", words, packed))
                    last = newest[put.ns]
                    if last is None or put.id >= last.id:
                        newest[put.ns] = put._replace(seq=at)
                elif seq in writes:
                    events.append(("writes", writes_words(*writes[seq]), data))
                else:
                    events.append(("value", "", data))
            head: int | None = yield self.streams.append(target.stream, target.head, events)
            if head is None:
                raise Superseded(f"thread {target_id!r} was written to while {source_id!r} was copied to it: try again")


class _Gone(StoreError):
    """What should be there is not."""


def _there(data: bytes | None, thread: Thread, put: Put) -> bytes:
    if data is None:
        raise _Gone(
            f"checkpoint {put.id} of thread {thread.thread_id!r} cannot be read: a part of it is missing or damaged; "
            "see all of it with `dalsegno verify`"
        )
    return data


def _moved(seq: int | None, moved: Mapping[int, int]) -> int | None:
    return None if seq is None else moved[seq]


def _absolute(refs: Mapping[str, Ref], seq: int) -> dict[str, Ref]:
    return {
        channel: ref._replace(seq=seq + ref.seq) if ref.seq is not None and ref.seq < 0 else ref
        for channel, ref in refs.items()
    }


def _folded(serde: SerializerProtocol, all_writes: Sequence[WritesRecord]) -> list[PendingWrite]:
    """What was written, each once: the first that counts, but of errors and interrupts the last."""
    kept: dict[tuple[str, int], tuple[str, Write]] = {}
    for record in all_writes:
        replaces = all(write.channel in WRITES_IDX_MAP for write in record.writes)
        for write in record.writes:
            key = (record.task_id, write.idx)
            if replaces or key not in kept:
                kept[key] = (record.task_path, write)
    ordered = sorted(kept.items(), key=lambda item: writes_sort_key(item[1][0], item[0][0], item[0][1]))
    return [
        (task_id, write.channel, serde.loads_typed((write.type, write.data))) for (task_id, _), (_, write) in ordered
    ]
