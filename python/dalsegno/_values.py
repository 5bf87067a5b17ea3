"""Values as JSON, and back by the hints of who wants them. No pickle.

| type | written as |
|---|---|
| `None`, `bool`, `int`, `float`, `str`, `list`, `dict` with texts as keys | itself |
| `tuple`, `set`, `frozenset`, `bytes`, other dicts, `nan` and `inf` | an object with one key that begins with `$` |
| `datetime`, `date`, `time`, `timedelta`, `Decimal`, `UUID`, `Path`, `complex`, numpy arrays and scalars | the same |
| dataclasses, named tuples, TypedDicts, enums, Pydantic models | plain JSON; read back by the hint |

Invariant: what the code is given is always what was read back, so that it is the same at every replay. What
cannot be read back is refused when it is written, and not found after a crash.
"""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import functools
import inspect
import json
import math
import pathlib
import sys
import types
import typing
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any

Json = Any
Coder = tuple[Callable[[Any], Json], Callable[[Json], Any]]


class Unwritable(TypeError):
    """A value that cannot be written; who catches it says of which step."""


dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_quoted = json.encoder.encode_basestring
_INTACT = frozenset([str, int, bool, type(None)])
"""Types of which a value is read back as it was."""


def loads(text: str) -> Json:
    """Reads JSON, of the core's own: there is nothing around it."""
    try:
        return _scan(text, 0)[0]
    except StopIteration:
        return json.loads(text)


def write(value: Any, hint: Any = Any) -> str:
    """A value as JSON."""
    return write_with(coder(hint), value)


def read(text: str, hint: Any = Any) -> Any:
    """A value from JSON."""
    return read_with(coder(hint), text)


def write_with(coder: Coder, value: Any) -> str:
    """A value as JSON, by a coder that is known."""
    if coder is _PLAIN:
        kind = type(value)
        if kind is str and value.isascii():
            return _quoted(value)
        if kind is int:
            return repr(value)
    return _sound(coder[0](value))


def _sound(found: Json) -> str:
    """JSON that is Unicode, whatever texts are in it: half a character, say, or the name of a file that is none."""
    text = dumps(found)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return dumps(_escaped(found))
    return text


def _escaped(found: Json) -> Json:
    kind = type(found)
    if kind is str:
        try:
            found.encode()
        except UnicodeEncodeError:
            return {"$text": base64.b64encode(found.encode(errors="surrogatepass")).decode()}
    elif kind is list:
        return [_escaped(item) for item in found]
    elif kind is dict:
        items = [[_escaped(key), _escaped(item)] for key, item in found.items()]
        return dict(items) if all(type(key) is str for key, _ in items) else {"$dict": items}
    return found


def read_with(coder: Coder, text: str) -> Any:
    """A value from JSON, by a coder that is known."""
    found = _scan(text, 0)[0]
    if coder is _PLAIN and (type(found) in _INTACT or '"$' not in text):
        # Nothing in it is tagged.
        return found
    return coder[1](found)


def write_and_read_with(coder: Coder, value: Any) -> tuple[str, Any]:
    """A value as JSON, and as it will be read."""
    text = write_with(coder, value)
    if coder is _PLAIN and type(value) in _INTACT:
        return text, value
    return text, read_with(coder, text)


def write_and_read(value: Any, hint: Any = Any) -> tuple[str, Any]:
    """A value as JSON, and as it will be read."""
    return write_and_read_with(coder(hint), value)


# --- Values without a hint ---------------------------------------------------------------------------


def _plain(value: Any) -> Json:
    kind = type(value)
    if kind in _INTACT:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is list:
        return [_plain(item) for item in value]
    if kind is dict:
        if all(map(_is_key, value)):
            return {key: _plain(item) for key, item in value.items()}
        return {"$dict": [[_plain(key), _plain(item)] for key, item in value.items()]}
    tagged = _TAGS.get(kind)
    if tagged is not None:
        return {tagged[0]: tagged[1](value)}
    return _other(value)


def _other(value: Any) -> Json:
    """What is of no type that is known by itself."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return _numpy(value)
    if isinstance(value, pathlib.PurePath):
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


def _read_plain(found: Json) -> Any:
    kind = type(found)
    if kind is list:
        return [_read_plain(item) for item in found]
    if kind is dict:
        if len(found) == 1:
            [(tag, content)] = found.items()
            if tag.startswith("$"):
                reader = _READERS.get(tag)
                if reader is None:
                    raise Unwritable(f"{tag} is of a newer version")
                return reader(content)
        return {key: _read_plain(item) for key, item in found.items()}
    return found


def _sorted(items: Any) -> list[Json]:
    """The items of a set, always in the same order."""
    return sorted((_plain(item) for item in items), key=dumps)


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
    tuple: ("$tuple", lambda value: [_plain(item) for item in value]),
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
    complex: ("$complex", lambda value: [_plain(value.real), _plain(value.imag)]),
}

_READERS: dict[str, Callable[[Json], Any]] = {
    "$float": float,
    "$text": lambda content: base64.b64decode(content).decode(errors="surrogatepass"),
    "$plain": _read_plain,
    "$dict": lambda pairs: {_read_plain(key): _read_plain(item) for key, item in pairs},
    "$tuple": lambda items: tuple(_read_plain(item) for item in items),
    "$set": lambda items: {_read_plain(item) for item in items},
    "$frozenset": lambda items: frozenset(_read_plain(item) for item in items),
    "$bytes": base64.b64decode,
    "$bytearray": lambda content: bytearray(base64.b64decode(content)),
    "$datetime": lambda found: _read_time(datetime.datetime, found),
    "$date": datetime.date.fromisoformat,
    "$time": lambda found: _read_time(datetime.time, found),
    "$timedelta": lambda parts: datetime.timedelta(*parts),
    "$decimal": decimal.Decimal,
    "$uuid": uuid.UUID,
    "$complex": lambda parts: complex(_read_plain(parts[0]), _read_plain(parts[1])),
    "$path": pathlib.Path,
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


_PLAIN: Coder = (_plain, _read_plain)


# --- Values with a hint ------------------------------------------------------------------------------


def coder(hint: Any) -> Coder:
    """How values that are said to be of a type are written and read."""
    try:
        return _coder(hint)
    except TypeError:  # It cannot be hashed, as `Annotated[int, []]`.
        return _make(hint)


@functools.lru_cache(maxsize=1024)
def _coder(hint: Any) -> Coder:
    return _make(hint)


def _make(hint: Any) -> Coder:
    if isinstance(hint, typing.NewType):
        return coder(hint.__supertype__)
    if type(hint).__name__ == "TypeAliasType":  # Of `type Name = …`, which is in Python since 3.12.
        return coder(hint.__value__)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return coder(args[0])
    if origin is typing.Union or origin is types.UnionType:
        return _union(args)
    if isinstance(hint, type) and origin is None:
        return _class(hint)
    if isinstance(origin, type):
        return _generic(origin, args) if args else _PLAIN
    return _PLAIN


def _class(of: type, args: tuple[Any, ...] = ()) -> Coder:
    if issubclass(of, enum.Enum):
        return _enum(of)
    if typing.is_typeddict(of):
        return _fields(of, _hints(of, args), dict)
    if dataclasses.is_dataclass(of):
        return _dataclass(of, _hints(of, args))
    if issubclass(of, tuple) and hasattr(of, "_fields"):
        hints = _hints(of, args)
        fields = {name: hints.get(name, Any) for name in of._fields}
        return _fields(of, fields, lambda items: of(**items))
    if hasattr(of, "model_validate_json") and hasattr(of, "model_dump"):
        return _model(of)
    return _PLAIN


def _enum(of: Any) -> Coder:
    """By its name: that is what the code branches on. Flags that are none of its own by their number."""
    members = of.__members__

    def write_member(value: Any) -> Json:
        return value.name if value.name in members else _plain(value.value)

    def read_member(found: Json) -> Any:
        if type(found) is str:
            return of[found]
        return of(found) if type(found) is int and issubclass(of, enum.Flag) else _read_plain(found)

    return (lambda value: write_member(value) if isinstance(value, of) else _plain(value)), read_member


def _dataclass(of: Any, hints: dict[str, Any]) -> Coder:
    every = dataclasses.fields(of)
    later = {field.name for field in every if not field.init}
    """What is not given to its constructor, but was made by that or since."""

    def make(items: dict[str, Any]) -> Any:
        made = of(**{name: item for name, item in items.items() if name not in later})
        for name in later & items.keys():
            object.__setattr__(made, name, items[name])
        return made

    return _fields(of, {field.name: hints.get(field.name, Any) for field in every}, make, frozenset(later))


def _model(of: Any) -> Coder:
    """Pydantic's, which knows best how its fields are written and read: by their names, if it can, not by an alias."""
    by_name = "by_name" in inspect.signature(of.model_validate_json).parameters
    names = {"by_alias": True, "by_name": True} if by_name else {}

    def write_model(value: Any) -> Json:
        if type(value) is not of:
            return _plain(value)
        written = _plain(value.model_dump(mode="json", round_trip=True, by_alias=not by_name))
        written = written if type(written) is dict and not _is_tagged(written) else {"$root": written}
        if _SECRET in dumps(written) and read_model(written) != value:
            raise Unwritable(f"a {type_words(of)} has a secret, which Pydantic does not write: give it to no step")
        return written

    def read_model(found: Json) -> Any:
        if _has(found, "$root"):
            found = found["$root"]
        elif type(found) is not dict or _is_tagged(found):
            return _read_plain(found)
        return of.model_validate_json(json.dumps(_read_plain(found)), **names)

    return write_model, read_model


_SECRET = "**********"
"""What Pydantic writes for a `SecretStr`."""


def _is_tagged(found: Json) -> bool:
    return type(found) is dict and len(found) == 1 and next(iter(found)).startswith("$")


def _if(is_one: Callable[[Any], bool], write: Callable[[Any], Json], shape: type, read: Callable[[Json], Any]) -> Coder:
    """For values of a type; others, which the hint does not tell of, as if there were no hint."""

    def reads(found: Json) -> Any:
        return read(found) if type(found) is shape and not _is_tagged(found) else _read_plain(found)

    return (lambda value: write(value) if is_one(value) else _plain(value)), reads


_MISSING = object()


def _fields(
    of: type, hints: dict[str, Any], make: Callable[[dict[str, Any]], Any], later: frozenset[str] = frozenset()
) -> Coder:
    coders: dict[str, Coder] = {}

    def get(name: str) -> Coder:
        # Not before it is needed: a type may be inside of itself.
        if name not in coders:
            coders[name] = coder(hints[name]) if name in hints else _PLAIN
        return coders[name]

    if typing.is_typeddict(of):
        is_one: Callable[[Any], bool] = lambda value: type(value) is dict and all(map(_is_key, value))  # noqa: E731
        items: Callable[[Any], Any] = dict.items
    else:
        is_one = lambda value: type(value) is of  # noqa: E731
        items = lambda value: [(name, getattr(value, name, _MISSING)) for name in hints]  # noqa: E731

    def write_fields(value: Any) -> Json:
        written = {}
        for name, item in items(value):
            if item is _MISSING and name in later:
                continue
            try:
                written[name] = get(name)[0](item)
            except Unwritable:
                # What its constructor makes, as a lock, is made again.
                if name not in later:
                    raise
        return written

    return _if(
        is_one,
        write_fields,
        dict,
        lambda found: make({name: get(name)[1](item) for name, item in found.items()}),
    )


def _hints(of: type, args: tuple[Any, ...] = ()) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(of)
        given = dict(zip(getattr(of, "__parameters__", ()), args, strict=False))
        return {name: _given(hint, given) for name, hint in hints.items()} if given else hints
    except Exception as e:  # A name that exists for type checkers only, or not any more.
        raise Unwritable(f"the type hints of {type_words(of)} cannot be read: {e}") from e


def _given(hint: Any, given: dict[Any, Any]) -> Any:
    """A hint of a generic class, with the types that it was given."""
    if isinstance(hint, typing.TypeVar):
        return given.get(hint, hint)
    wanted = getattr(hint, "__parameters__", ())
    return hint[tuple(given.get(one, one) for one in wanted)] if wanted and typing.get_origin(hint) else hint


def _generic(origin: type, args: tuple[Any, ...]) -> Coder:
    if dataclasses.is_dataclass(origin):
        return _class(origin, args)
    if origin is tuple:
        return _tuple(args)
    if origin in (set, frozenset):
        tag = f"${origin.__name__}"
        write_item, read_item = coder(args[0])
        return (
            lambda value: {tag: sorted(map(write_item, value), key=dumps)} if type(value) is origin else _plain(value),
            lambda found: origin(map(read_item, found[tag])) if _has(found, tag) else _read_plain(found),
        )
    if issubclass(origin, collections.abc.Mapping):
        return _mapping(coder(args[0]), coder(args[1]))
    if issubclass(origin, (list, collections.abc.Sequence, collections.abc.Iterable)) and len(args) == 1:
        write_item, read_item = coder(args[0])
        return (
            lambda value: [write_item(item) for item in value] if type(value) is list else _plain(value),
            lambda found: [read_item(item) for item in found] if type(found) is list else _read_plain(found),
        )
    return _class(origin, args)


def _tuple(args: tuple[Any, ...]) -> Coder:
    same = len(args) == 2 and args[1] is Ellipsis
    coders = [coder(arg) for arg in args if arg is not Ellipsis]

    def each(items: Any, way: int) -> list[Any]:
        if same:
            return [coders[0][way](item) for item in items]
        plain = _PLAIN[way]
        return [coders[at][way](item) if at < len(coders) else plain(item) for at, item in enumerate(items)]

    return (
        lambda value: {"$tuple": each(value, 0)} if type(value) is tuple else _plain(value),
        lambda found: tuple(each(found["$tuple"], 1)) if _has(found, "$tuple") else _read_plain(found),
    )


def _mapping(keys: Coder, items: Coder) -> Coder:
    def write_mapping(value: Any) -> Json:
        if type(value) is not dict:
            return _plain(value)
        written = [[keys[0](key), items[0](item)] for key, item in value.items()]
        if all(_is_key(key) for key, _ in written):
            return dict(written)
        return {"$dict": written}

    def read_mapping(found: Json) -> Any:
        if _has(found, "$dict"):
            return {keys[1](key): items[1](item) for key, item in found["$dict"]}
        if type(found) is dict and not _is_tagged(found):
            return {keys[1](key): items[1](item) for key, item in found.items()}
        return _read_plain(found)

    return write_mapping, read_mapping


def _union(args: tuple[Any, ...]) -> Coder:
    """One of several: by the first that takes it. Two of which one could be taken for the other are told apart."""
    several = [arg for arg in args if arg is not type(None)]
    if len(several) == 1:
        return coder(several[0])
    structured = [arg for arg in several if _is_structured(arg)]
    if not structured:
        return _PLAIN
    if len(structured) == 1:
        return _or_plain(coder(structured[0]), structured[0])
    names = {type_words(_bare(arg)): arg for arg in structured}

    def write_one(value: Any) -> Json:
        # Rather its own type than one that it is below of.
        for name, arg in sorted(names.items(), key=lambda named: type(value) is not _bare(named[1])):
            if isinstance(value, _bare(arg)):
                return {"$one": [name, coder(arg)[0](value)]}
        return _plain(value)

    def read_one(found: Json) -> Any:
        if _has(found, "$one"):
            name, content = found["$one"]
            if name not in names:
                raise Unwritable(f"a {name} is recorded, and the hint does not tell of it any more")
            return coder(names[name])[1](content)
        return _read_plain(found)

    return write_one, read_one


def _or_plain(found: Coder, hint: Any) -> Coder:
    """A type beside plain ones: what is plain, and would be taken for one of that type, says that it is plain."""
    of = _bare(hint)

    def write_either(value: Any) -> Json:
        if value is None or isinstance(value, of):
            return found[0](value)
        written = _plain(value)
        try:
            same = _is_tagged(written) or found[1](written) == value
        except Exception:
            same = False
        return written if same else {"$plain": written}

    return write_either, found[1]


def _bare(hint: Any) -> Any:
    """A type without what it is of."""
    return typing.get_origin(hint) or hint


def _is_structured(hint: Any) -> bool:
    of = _bare(hint)
    return isinstance(of, type) and not typing.is_typeddict(of) and coder(hint) is not _PLAIN


def _is_key(value: Any) -> bool:
    """Whether it can be the key of an object."""
    return type(value) is str and not value.startswith("$")


def _has(found: Json, tag: str) -> bool:
    return type(found) is dict and len(found) == 1 and tag in found


def type_words(of: type) -> str:
    """A type, as people are told of it."""
    return of.__qualname__ if of.__module__ == "builtins" else f"{of.__module__}.{of.__qualname__}"
