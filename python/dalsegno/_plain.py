"""Values as JSON without a hint: what is not JSON itself is an object with one key that begins with `$`.

Invariant: a value is read back as what it was, of the same type, or is refused when it is written.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import sys
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any

Json = Any
Coder = tuple[Callable[[Any], Json], Callable[[Json], Any]]
"""How values are written, and read."""


class Unwritable(TypeError):
    """A value that cannot be written; who catches it says of which step."""


dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
INTACT = frozenset([str, int, bool, type(None)])
"""Types of which a value is read back as it was."""


def plain_of(value: Any) -> Json:
    kind = type(value)
    if kind in INTACT:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is list:
        return [plain_of(item) for item in value]
    if kind is dict:
        if all(map(is_key, value)):
            return {key: plain_of(item) for key, item in value.items()}
        return {"$dict": [[plain_of(key), plain_of(item)] for key, item in value.items()]}
    tagged = _TAGS.get(kind)
    if tagged is not None:
        return {tagged[0]: tagged[1](value)}
    return _other(value)


def _other(value: Any) -> Json:
    """What is of no type that is known by itself."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return _numpy(value)
    if isinstance(value, type(pathlib.PurePath())):
        return {"$path": str(value)}
    for of, tag, how in _WRITTEN:
        if isinstance(value, of):
            return {tag: how(value)}
    named = type_words(type(value))
    if dataclasses.is_dataclass(value) or isinstance(value, enum.Enum) or hasattr(value, "model_dump"):
        raise Unwritable(f"a {named} can be written, but not be read back without a type hint: add one that names it")
    for base in (bool, int, str, float, list, dict):
        if isinstance(value, base):
            plain = base.__name__
            raise Unwritable(f"a {named} would come back as a {plain}: give {plain}(…) or use a dataclass")
    raise Unwritable(f"a {named} cannot be written as JSON: use plain values, dataclasses or Pydantic models")


def read_plain(found: Json) -> Any:
    kind = type(found)
    if kind is list:
        return [read_plain(item) for item in found]
    if kind is dict:
        if len(found) == 1:
            [(tag, content)] = found.items()
            if tag.startswith("$"):
                reader = _READERS.get(tag)
                if reader is None:
                    raise Unwritable(f"{tag} is of a newer version")
                return reader(content)
        return {key: read_plain(item) for key, item in found.items()}
    return found


def _sorted(items: Any) -> list[Json]:
    """The items of a set, always in the same order."""
    return sorted((plain_of(item) for item in items), key=dumps)


def _written_time(value: Any) -> Json:
    """As ISO has it; which zone it is in, and which of two same times, are not in that."""
    zone = value.tzinfo.key if isinstance(value.tzinfo, zoneinfo.ZoneInfo) else None
    if zone is None and value.tzinfo is not None and value.utcoffset() is None:
        raise Unwritable(f"a time in a {type_words(type(value.tzinfo))} cannot be written: use a zoneinfo.ZoneInfo")
    return value.isoformat() if zone is None and not value.fold else [value.isoformat(), zone, value.fold]


def _read_time(of: Any, found: Json) -> Any:
    if type(found) is str:
        return of.fromisoformat(found)
    text, zone, fold = found
    read = of.fromisoformat(text)
    return read.replace(tzinfo=read.tzinfo if zone is None else zoneinfo.ZoneInfo(zone), fold=fold)


def _numpy(value: Any) -> Json:
    import numpy

    if value.dtype.hasobject:
        raise Unwritable("a numpy array of Python objects cannot be written: give it a plain dtype")
    if isinstance(value, numpy.ndarray) and type(value) not in (numpy.ndarray, numpy.memmap):
        raise Unwritable(f"a {type_words(type(value))} would come back as a plain array: give numpy.array(…)")
    array = numpy.ascontiguousarray(value)
    if array.dtype.names:
        # What is between fields is anything, and must be the same every time.
        array = numpy.zeros(array.shape, array.dtype)
        array[...] = value
    tag = "$ndarray" if isinstance(value, numpy.ndarray) else "$scalar"
    content = base64.b64encode(array.tobytes()).decode()
    return {tag: [array.dtype.descr if array.dtype.names else array.dtype.str, list(value.shape), content]}


def _read_numpy(found: Json) -> Any:
    import numpy

    described, shape, content = found
    of = numpy.lib.format.descr_to_dtype(_fields_of_dtype(described))
    array: Any = numpy.frombuffer(base64.b64decode(content), dtype=of)
    return array.reshape(shape).copy()


def _fields_of_dtype(described: Json) -> Any:
    """A dtype as numpy describes it: fields are tuples of a name (with a title, perhaps), a type, and a shape."""
    if isinstance(described, str):
        return described
    return [(_tupled(name), _fields_of_dtype(of), *map(tuple, shape)) for name, of, *shape in described]


def _tupled(name: Json) -> Any:
    return tuple(name) if isinstance(name, list) else name


_TAGS: dict[type, tuple[str, Callable[[Any], Json]]] = {
    tuple: ("$tuple", lambda value: [plain_of(item) for item in value]),
    set: ("$set", _sorted),
    frozenset: ("$frozenset", _sorted),
    bytes: ("$bytes", lambda value: base64.b64encode(value).decode()),
    bytearray: ("$bytearray", lambda value: base64.b64encode(value).decode()),
    datetime.datetime: ("$datetime", _written_time),
    datetime.date: ("$date", lambda value: value.isoformat()),
    datetime.time: ("$time", _written_time),
    datetime.timedelta: ("$timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    decimal.Decimal: ("$decimal", str),
    uuid.UUID: ("$uuid", str),
    complex: ("$complex", lambda value: [plain_of(value.real), plain_of(value.imag)]),
}

_READERS: dict[str, Callable[[Json], Any]] = {
    "$float": float,
    "$text": lambda content: base64.b64decode(content).decode(errors="surrogatepass"),
    "$plain": read_plain,
    "$dict": lambda pairs: {read_plain(key): read_plain(item) for key, item in pairs},
    "$tuple": lambda items: tuple(read_plain(item) for item in items),
    "$set": lambda items: {read_plain(item) for item in items},
    "$frozenset": lambda items: frozenset(read_plain(item) for item in items),
    "$bytes": base64.b64decode,
    "$bytearray": lambda content: bytearray(base64.b64decode(content)),
    "$datetime": lambda found: _read_time(datetime.datetime, found),
    "$date": datetime.date.fromisoformat,
    "$time": lambda found: _read_time(datetime.time, found),
    "$timedelta": lambda parts: datetime.timedelta(*parts),
    "$decimal": decimal.Decimal,
    "$uuid": uuid.UUID,
    "$complex": lambda parts: complex(read_plain(parts[0]), read_plain(parts[1])),
    "$path": lambda found: pathlib.Path(read_plain(found)),
    "$ndarray": _read_numpy,
    "$scalar": lambda found: _read_numpy(found)[()],
}

_WRITTEN: list[tuple[type, str, Callable[[Any], Json]]] = []


def register_written(of: type, tag: str, how: Callable[[Any], Json]) -> None:
    """Values of a type, and of those below it, can be given to steps; no step can give one."""

    def refuse(_: Json) -> Any:
        raise Unwritable(f"a {of.__name__} can be given to a step, and not be its result")

    _WRITTEN.append((of, tag, how))
    _READERS[tag] = refuse


PLAIN: Coder = (plain_of, read_plain)


def is_tagged(found: Json) -> bool:
    return type(found) is dict and len(found) == 1 and next(iter(found)).startswith("$")


def is_key(value: Any) -> bool:
    """Whether it can be the key of an object."""
    return type(value) is str and not value.startswith("$")


def has_tag(found: Json, tag: str) -> bool:
    return type(found) is dict and len(found) == 1 and tag in found


def type_words(of: type) -> str:
    """A type, as people are told of it."""
    return of.__qualname__ if of.__module__ == "builtins" else f"{of.__module__}.{of.__qualname__}"
