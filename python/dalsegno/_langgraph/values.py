"""The value of a channel as bytes.

The store cuts bytes where their content says so, and keeps equal parts once. So a list that has grown by one element
costs that element, if the bytes of the others are as they were and stand where they stood, counted from the
beginning. Two things are in the way of that, and are taken out of it here:

| what | how |
|---|---|
| msgpack has the length of a list in front | it is moved to the end |
| encryption gives other bytes each time | each element is encrypted alone, and keeps its bytes while it is the same |

Invariant: what is read is, bit for bit, what the serializer gave.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections import OrderedDict
from typing import Any, NamedTuple

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

_ELEMENTS = -1
_LISTS_KEPT = 256


class Value(NamedTuple):
    """A value as it is stored."""

    type: str
    """As the serializer has it."""
    how: int
    """0: as the serializer gave it; 1 to 5: so many bytes of it are at the end instead of in front; -1: elements."""
    data: bytes


class Sealed:
    """Of lists that are encrypted, what each element is as bytes, by what it was before."""

    def __init__(self) -> None:
        self._lists: OrderedDict[object, dict[bytes, bytes]] = OrderedDict()
        # Kept in memory only, and of no use to who sees it.
        self._key = os.urandom(32)

    def get(self, of: object) -> dict[bytes, bytes]:
        return self._lists.get(of, {})

    def put(self, of: object, elements: dict[bytes, bytes]) -> None:
        self._lists[of] = elements
        self._lists.move_to_end(of)
        while len(self._lists) > _LISTS_KEPT:
            self._lists.popitem(last=False)

    def digest(self, type: str, data: bytes) -> bytes:
        return hashlib.blake2b(type.encode() + b"\0" + data, key=self._key, digest_size=16).digest()


def dump(serde: SerializerProtocol, value: Any, of: object, sealed: Sealed) -> Value:
    """A value as bytes. `of` is whose value it is: the same for each version of it."""
    if type(value) is list and isinstance(serde, EncryptedSerializer):
        return Value("list", _ELEMENTS, _dump_elements(serde, value, of, sealed))
    kind, data = serde.dumps_typed(value)
    header = _list_header(data) if kind == "msgpack" and type(value) is list else 0
    return Value(kind, header, data[header:] + data[:header] if header else data)


def load(serde: SerializerProtocol, value: Value, of: object, sealed: Sealed) -> Any:
    """A value back from its bytes."""
    kind, how, data = value
    if how == _ELEMENTS:
        return _load_elements(serde, data, of, sealed)
    return serde.loads_typed((kind, data[-how:] + data[:-how] if how else data))


def _list_header(data: bytes) -> int:
    first = data[0]
    if 0x90 <= first <= 0x9F:
        return 1
    return {0xDC: 3, 0xDD: 5}.get(first, 0)


def _dump_elements(serde: EncryptedSerializer, elements: list[Any], of: object, sealed: Sealed) -> bytes:
    known = sealed.get(of)
    now: dict[bytes, bytes] = {}
    frames = []
    for element in elements:
        kind, plain = serde.serde.dumps_typed(element)
        digest = sealed.digest(kind, plain)
        frame = known.get(digest) or now.get(digest)
        if frame is None:
            cipher, data = serde.cipher.encrypt(plain)
            frame = _frame(f"{kind}+{cipher}", data)
        now[digest] = frame
        frames.append(frame)
    sealed.put(of, now)
    return b"".join(frames)


def _load_elements(serde: SerializerProtocol, data: bytes, of: object, sealed: Sealed) -> list[Any]:
    elements, now = [], {}
    at = 0
    while at < len(data):
        length, kind_length = struct.unpack_from("<IB", data, at)
        begin = at + 5 + kind_length
        kind, sealed_data = data[at + 5 : begin].decode(), data[begin : begin + length]
        if isinstance(serde, EncryptedSerializer) and "+" in kind:
            plain_kind, cipher = kind.split("+", 1)
            plain = serde.cipher.decrypt(cipher, sealed_data)
            elements.append(serde.serde.loads_typed((plain_kind, plain)))
            now[sealed.digest(plain_kind, plain)] = data[at : begin + length]
        else:
            elements.append(serde.loads_typed((kind, sealed_data)))
        at = begin + length
    if now:
        sealed.put(of, now)
    return elements


def _frame(kind: str, data: bytes) -> bytes:
    name = kind.encode()
    return struct.pack("<IB", len(data), len(name)) + name + data
