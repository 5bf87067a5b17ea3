"""LangGraph's threads in a store of Dalsegno: :class:`DalsegnoSaver`.

>>> from dalsegno.langgraph import DalsegnoSaver
>>>
>>> with DalsegnoSaver("./agents.dalsegno") as saver:
...     graph = builder.compile(checkpointer=saver)
...     graph.invoke({"messages": [("user", "hi")]}, {"configurable": {"thread_id": "1"}})
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from ._app import App
from ._errors import BadUse
from ._frames import PLACE, Frame, frame
from ._langgraph import letting_go
from ._langgraph.keeping import SEEN, Keeper, Superseded
from ._streams import Asking, Place, awaited, wait
from ._tools import Tool
from .aio import AsyncApp

__all__ = ["DalsegnoSaver", "Superseded"]


class DalsegnoSaver(BaseCheckpointSaver[Any]):
    """Keeps the checkpoints of LangGraph in a store: a folder, a database (``postgres://…``), or one that is open.

    Each method is there for plain code and for async code; one saver serves both, and any number of threads. What
    a call has put survives a crash when it returns. A list that grows is not stored again with each checkpoint, so a
    thread takes as much space as what was said in it. What is deleted is gone from the disk.

    Who puts a checkpoint behind one that was the newest when it was read, and is not any more, is refused with
    :class:`Superseded`, so that two who work on a thread at once do not tear it in two; ``allow_forks=True`` lets them.
    With a ``checkpoint_id`` a thread is forked on purpose, which is always possible.

    In the code of an agent of ours, which checkpoint a graph begins with is a step of the run. So the graph takes the
    same way when the run is taken up again, and the tools that its nodes call are not called twice.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | App | AsyncApp,
        *,
        serde: SerializerProtocol | None = None,
        allow_forks: bool = False,
    ) -> None:
        super().__init__(serde=serde)
        self._place = Place(place)
        self._keeper = Keeper(self._place.streams)
        self._allow_forks = allow_forks

    def close(self) -> None:
        """Closes the store, if this has opened it."""
        self._place.close()

    def __enter__(self) -> DalsegnoSaver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> DalsegnoSaver:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    # Putting

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Puts a checkpoint behind the one that the config names."""
        wait(_unless_replayed(self._put(config, checkpoint, metadata, new_versions)))
        return _config(config, checkpoint["id"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As :meth:`put`."""
        await awaited(_unless_replayed(self._put(config, checkpoint, metadata, new_versions)))
        return _config(config, checkpoint["id"])

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Asking[None]:
        thread_id, ns = _thread(config)
        is_next = not self._allow_forks and config["configurable"].get(SEEN) == "newest"
        with_config = get_serializable_checkpoint_metadata(config, metadata)
        parent = get_checkpoint_id(config)
        return self._keeper.put(self.serde, thread_id, ns, parent, checkpoint, with_config, new_versions, is_next)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Puts what a task has written, for the checkpoint that the config names."""
        wait(_unless_replayed(self._put_writes(config, writes, task_id, task_path)))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """As :meth:`put_writes`."""
        await awaited(_unless_replayed(self._put_writes(config, writes, task_id, task_path)))

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Asking[None]:
        thread_id, ns = _thread(config)
        id = str(config["configurable"]["checkpoint_id"])
        return self._keeper.put_writes(self.serde, thread_id, ns, id, writes, task_id, task_path)

    # Getting

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or the newest of the thread, with the writes for it."""
        thread_id, ns = _thread(config)
        id = get_checkpoint_id(config)
        if id is None and frame() is not None:
            found = self._step(self._find_here)(thread_id, ns)
            return _as_found("in a run", wait(self._recorded(thread_id, ns, found)))
        return _as_found("by id" if id else "newest", wait(self._keeper.get(self.serde, thread_id, ns, id)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As :meth:`get_tuple`."""
        thread_id, ns = _thread(config)
        id = get_checkpoint_id(config)
        if id is None and frame() is not None:
            found = await self._step(self._find_there)(thread_id, ns)
            return _as_found("in a run", await awaited(self._recorded(thread_id, ns, found)))
        return _as_found("by id" if id else "newest", await awaited(self._keeper.get(self.serde, thread_id, ns, id)))

    def _step(self, find: Any) -> Any:
        return Tool(
            find,
            is_model=False,
            effect="read_only",
            name="langgraph.get_tuple",
            retries=1,
            timeout=None,
            probe=None,
            approval=False,
            not_done=(),
            ignore=(),
        )

    def _find_here(self, thread: str, ns: str) -> list[Any]:
        found = wait(self._keeper.find(thread, ns, None))
        return [] if found is None else [found.put.id, found.head]

    async def _find_there(self, thread: str, ns: str) -> list[Any]:
        found = await awaited(self._keeper.find(thread, ns, None))
        return [] if found is None else [found.put.id, found.head]

    def _recorded(self, thread_id: str, ns: str, found: list[Any]) -> Asking[CheckpointTuple | None]:
        if found:
            # What an execution of the run that was cut short has written since does not count: it is written again.
            return (yield from self._keeper.get(self.serde, thread_id, ns, found[0], found[1]))
        return None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, the newest first: of a thread, or of all; with these metadata; before another one."""
        _not_in_a_run()
        for thread, put in wait(self._listed(config, before)):
            if limit is not None and limit <= 0:
                return
            found = wait(self._keeper.tuple_of(self.serde, thread, put, filter))
            if found is not None:
                yield found
                limit = None if limit is None else limit - 1

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As :meth:`list`."""
        _not_in_a_run()
        for thread, put in await awaited(self._listed(config, before)):
            if limit is not None and limit <= 0:
                return
            found = await awaited(self._keeper.tuple_of(self.serde, thread, put, filter))
            if found is not None:
                yield found
                limit = None if limit is None else limit - 1

    def _listed(self, config: RunnableConfig | None, before: RunnableConfig | None) -> Asking[Any]:
        wanted = {} if config is None else config["configurable"]
        thread_id = wanted.get("thread_id")
        return self._keeper.listed(
            None if thread_id is None else str(thread_id),
            wanted.get("checkpoint_ns"),
            wanted.get("checkpoint_id"),
            None if before is None else get_checkpoint_id(before),
        )

    # Deleting, pruning, copying

    def delete_thread(self, thread_id: str) -> None:
        """Deletes a thread. It is gone from the disk when this returns."""
        wait(_unless_replayed(letting_go.delete_thread(self._keeper, str(thread_id))))

    async def adelete_thread(self, thread_id: str) -> None:
        """As :meth:`delete_thread`."""
        await awaited(_unless_replayed(letting_go.delete_thread(self._keeper, str(thread_id))))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes what runs of LangGraph have put, in all threads."""
        wait(_unless_replayed(letting_go.delete_for_runs(self._keeper, run_ids)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As :meth:`delete_for_runs`."""
        await awaited(_unless_replayed(letting_go.delete_for_runs(self._keeper, run_ids)))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Deletes the past of threads: all but the newest checkpoint of each namespace, and what that is made from."""
        wait(_unless_replayed(letting_go.prune(self._keeper, self.serde, thread_ids, strategy)))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As :meth:`prune`."""
        await awaited(_unless_replayed(letting_go.prune(self._keeper, self.serde, thread_ids, strategy)))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies a thread. What is the same is stored once."""
        wait(_unless_replayed(self._keeper.copy(str(source_thread_id), str(target_thread_id))))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As :meth:`copy_thread`."""
        await awaited(_unless_replayed(self._keeper.copy(str(source_thread_id), str(target_thread_id))))

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The version after this one: the next number; of a thread that comes from another saver, as that has them."""
        if isinstance(current, str):
            number, _, _ = current.partition(".")
            return f"{int(number) + 1:032}.{0:016}"
        return 1 if current is None else current + 1


def _unless_replayed(asking: Asking[None]) -> Asking[None]:
    """Does something, but not when a run is only tried against its record: that changes nothing."""
    place = PLACE.get()
    if not (isinstance(place, Frame) and place.ctx.is_replay):
        yield from asking


def _not_in_a_run() -> None:
    """What there is of a thread is another thing each time a run is taken up, which puts its checkpoints again."""
    place = PLACE.get()
    if isinstance(place, Frame):
        raise BadUse(
            f"run {place.ctx.run!r} lists checkpoints (get_state_history): what there is differs at every replay; "
            "do that in a tool, or outside of the run"
        )


def _thread(config: RunnableConfig) -> tuple[str, str]:
    configurable = config["configurable"]
    return str(configurable["thread_id"]), configurable.get("checkpoint_ns") or ""


def _config(config: RunnableConfig, id: str) -> RunnableConfig:
    thread_id, ns = _thread(config)
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": id}}


def _as_found(how: str, found: CheckpointTuple | None) -> CheckpointTuple | None:
    """With how it was found, which stays in the config of who goes on from there."""
    if found is not None:
        found.config["configurable"][SEEN] = how
    return found
