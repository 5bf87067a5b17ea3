"""Deleting and pruning: what goes is gone from the disk when the call returns.

Invariant: a value goes only if no checkpoint that stays refers to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from langgraph.checkpoint.serde.base import SerializerProtocol

from .._streams import Asking
from .keeping import Keeper
from .records import CheckpointRecord
from .thread import Put, Thread


def delete_thread(keeper: Keeper, thread_id: str) -> Asking[None]:
    """Deletes everything of a thread."""
    thread = keeper.thread(thread_id)
    yield from _keep_only(keeper, thread, lambda put: False)


def delete_for_runs(keeper: Keeper, run_ids: Sequence[str]) -> Asking[None]:
    """Deletes the checkpoints that these runs have made, in whatever threads."""
    wanted = {str(run_id) for run_id in run_ids}
    threads = yield from keeper.threads()
    for thread in threads:
        yield from thread.follow()
        yield from thread.complete()
        if any(put.run_id in wanted for put in thread.live()):
            yield from _keep_only(keeper, thread, lambda put: put.run_id not in wanted)


def prune(keeper: Keeper, serde: SerializerProtocol, thread_ids: Sequence[str], strategy: str) -> Asking[None]:
    """Deletes all checkpoints of threads but the newest of each namespace, and what that is made from; or all."""
    if strategy not in ("keep_latest", "delete"):
        raise ValueError(f"strategy {strategy!r} is none of keep_latest, delete")
    for thread_id in thread_ids:
        thread = keeper.thread(str(thread_id))
        kept: set[int] = set()
        if strategy == "keep_latest":
            yield from thread.follow()
            yield from thread.complete()
            for ns in {put.ns for put in thread.live()}:
                newest = yield from thread.newest(ns)
                if newest is not None:
                    kept |= yield from _made_from(keeper, serde, thread, newest)
        yield from _keep_only(keeper, thread, lambda put, kept=kept: put.seq in kept)  # type: ignore[misc]


def _made_from(keeper: Keeper, serde: SerializerProtocol, thread: Thread, put: Put) -> Asking[set[int]]:
    """A checkpoint and its ancestors, as far as its channels of deltas are made from their writes."""
    records = yield from keeper.records(thread, [put])
    record: CheckpointRecord = records[put]
    counters = serde.loads_typed(record.metadata).get("counters_since_delta_snapshot") or {}
    missing = {channel for channel in counters if channel not in record.refs}
    kept = {put.seq}
    at: Put | None = put
    while missing and at is not None and at.parent is not None:
        at = yield from thread.find(at.ns, at.parent)
        if at is None or at.seq in kept:
            break
        kept.add(at.seq)
        records = yield from keeper.records(thread, [at])
        missing -= set(records[at].refs)
    return kept


def _keep_only(keeper: Keeper, thread: Thread, stays: Callable[[Put], bool]) -> Asking[None]:
    while not (yield from _kept_only(keeper, thread, stays)):
        # Somebody has written to the thread in between: what they wrote may need what was to go.
        pass


def _kept_only(keeper: Keeper, thread: Thread, stays: Callable[[Put], bool]) -> Asking[bool]:
    """Whether it was done."""
    yield from thread.follow()
    yield from thread.complete()
    live = thread.live()
    kept = [put for put in live if stays(put)]
    if live and len(kept) == len(live):
        return True
    needed = {put.seq for put in kept}
    records = yield from keeper.records(thread, kept)
    for put, record in records.items():
        needed |= {ref.seq for ref in record.refs.values() if ref.seq is not None}
        needed |= set(thread.writes.get((put.ns, put.id), ()))
    # A checkpoint that was put again has left its first one behind.
    of_checkpoints = {put.seq for put in live}
    of_writes = {seq for seqs in thread.writes.values() for seq in seqs}
    going = (of_checkpoints | of_writes | thread.values | thread.replaced) - needed - thread.gone
    if not going:
        return True
    done: int | None = yield keeper.streams.forget(thread.stream, thread.head, sorted(going))
    thread.refs.clear()
    yield from thread.follow()
    return done is not None
