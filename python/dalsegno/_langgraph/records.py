"""Checkpoints and writes as bytes, and what their events say of them.

A record is a JSON text that says what follows, and then that. Of a checkpoint:

| part | |
|---|---|
| `c` | for each channel its version, the type and the form of its value, and where that is: |
| | the sequence of an event before; so many events before this one, as a negative number; or in here |
| bytes | the checkpoint without values, its metadata, then the values that are in here |

What an event says of itself (`Said`) stays when the record is deleted: no more than ids.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from .values import Value

Version = str | int | float


class Ref(NamedTuple):
    """The value of a channel at a version, and where it is: in an event, or at hand."""

    version: Version | None
    seq: int | None
    value: Value


class CheckpointRecord(NamedTuple):
    """A checkpoint without the values that are stored elsewhere."""

    checkpoint: tuple[str, bytes]
    metadata: tuple[str, bytes]
    refs: dict[str, Ref]


class Write(NamedTuple):
    """Something that a task wrote."""

    idx: int
    channel: str
    type: str
    data: bytes


class WritesRecord(NamedTuple):
    """What a task wrote."""

    task_id: str
    task_path: str
    writes: list[Write]


def pack_checkpoint(record: CheckpointRecord) -> bytes:
    """Values without a sequence go in here; negative sequences count back from the event of this."""
    blobs = [record.checkpoint[1], record.metadata[1]]
    channels = {}
    for channel, (version, seq, value) in record.refs.items():
        channels[channel] = [version, value.type, value.how, seq]
        if seq is None:
            channels[channel].append(len(blobs))
            blobs.append(value.data)
    return _pack({"t": [record.checkpoint[0], record.metadata[0]], "c": channels}, blobs)


def unpack_checkpoint(data: bytes, seq: int) -> CheckpointRecord:
    """The record of the event with this sequence."""
    said, blobs = _unpack(data)
    refs = {}
    for channel, (version, kind, how, at, *inside) in said["c"].items():
        if at is None:
            refs[channel] = Ref(version, None, Value(kind, how, blobs[inside[0]]))
        else:
            refs[channel] = Ref(version, at if at > 0 else seq + at, Value(kind, how, b""))
    types = said["t"]
    return CheckpointRecord((types[0], blobs[0]), (types[1], blobs[1]), refs)


def pack_writes(record: WritesRecord) -> bytes:
    listed = [[write.idx, write.channel, write.type] for write in record.writes]
    said = {"i": record.task_id, "p": record.task_path, "w": listed}
    return _pack(said, [write.data for write in record.writes])


def unpack_writes(data: bytes) -> WritesRecord:
    said, blobs = _unpack(data)
    writes = [Write(idx, channel, kind, blob) for (idx, channel, kind), blob in zip(said["w"], blobs, strict=True)]
    return WritesRecord(said["i"], said["p"], writes)


def _pack(said: dict[str, Any], blobs: Sequence[bytes]) -> bytes:
    said["n"] = [len(blob) for blob in blobs]
    text = json.dumps(said, separators=(",", ":")).encode()
    return b"".join((struct.pack("<I", len(text)), text, *blobs))


def _unpack(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    (length,) = struct.unpack_from("<I", data)
    said = json.loads(data[4 : 4 + length])
    blobs, at = [], 4 + length
    for size in said["n"]:
        blobs.append(data[at : at + size])
        at += size
    return said, blobs
