"""Values as JSON by the hint of who writes and wants them: dataclasses, Pydantic models, enums, containers and unions.

Invariant: what the hint does not tell of is written and read as if there were no hint, so that a hint may be wider or
narrower than what comes.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from ._models import model
from ._plain import PLAIN, Coder, Json, Unwritable, dumps, has_tag, is_key, is_tagged, plain_of, read_plain, type_words


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
    if origin is typing.Annotated or (not isinstance(origin, type) and getattr(origin, "_name", None) in _ASIDE):
        return coder(args[0])
    if origin is typing.Literal:
        # Of members of an enum, say.
        return _union(tuple(dict.fromkeys(type(arg) for arg in args)))
    if type(origin).__name__ == "TypeAliasType":
        return coder(_given(origin.__value__, dict(zip(origin.__type_params__, args, strict=False))))
    if origin is typing.Union or origin is types.UnionType:
        return _union(args)
    if isinstance(hint, type) and origin is None:
        return _class(hint)
    if isinstance(origin, type):
        return _generic(origin, args) if args else PLAIN
    return PLAIN


_ASIDE = frozenset(["Final", "Required", "NotRequired", "ReadOnly"])
"""What a hint says besides its type. Of `typing_extensions` they stay in the hints of a class in Python 3.10."""


def _class(of: type, args: tuple[Any, ...] = ()) -> Coder:
    if issubclass(of, enum.Enum):
        return _enum(of)
    if _is_typeddict(of):
        return _fields(of, _hints(of, args), dict)
    if dataclasses.is_dataclass(of):
        return _dataclass(of, _hints(of, args))
    if issubclass(of, tuple) and hasattr(of, "_fields"):
        hints = _hints(of, args)
        fields = {name: hints.get(name, Any) for name in of._fields}
        return _fields(of, fields, lambda items: of(**items))
    if hasattr(of, "model_validate_json") and hasattr(of, "model_dump"):
        return model(of)
    return PLAIN


def _enum(of: Any) -> Coder:
    """By its name: that is what the code branches on. Flags that are none of its own by their number."""
    members = of.__members__

    def write_member(value: Any) -> Json:
        return value.name if value.name in members else plain_of(value.value)

    def read_member(found: Json) -> Any:
        if type(found) is str:
            return of[found]
        return of(found) if type(found) is int and issubclass(of, enum.Flag) else read_plain(found)

    return (lambda value: write_member(value) if isinstance(value, of) else plain_of(value)), read_member


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


def _if(is_one: Callable[[Any], bool], write: Callable[[Any], Json], shape: type, read: Callable[[Json], Any]) -> Coder:
    """For values of a type; others, which the hint does not tell of, as if there were no hint."""

    def reads(found: Json) -> Any:
        return read(found) if type(found) is shape and not is_tagged(found) else read_plain(found)

    return (lambda value: write(value) if is_one(value) else plain_of(value)), reads


_MISSING = object()


def _fields(
    of: type, hints: dict[str, Any], make: Callable[[dict[str, Any]], Any], later: frozenset[str] = frozenset()
) -> Coder:
    coders: dict[str, Coder] = {}

    def get(name: str) -> Coder:
        # Not before it is needed: a type may be inside of itself.
        if name not in coders:
            coders[name] = coder(hints[name]) if name in hints else PLAIN
        return coders[name]

    if _is_typeddict(of):
        is_one: Callable[[Any], bool] = lambda value: type(value) is dict and all(map(is_key, value))  # noqa: E731
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
        is_old = sys.version_info < (3, 11) and dataclasses.is_dataclass(of)
        hints = _hints_of_fields(of) if is_old else typing.get_type_hints(of)
        given = _parameters(of, args)
        return {name: _given(hint, given) for name, hint in hints.items()} if given else hints
    except Exception as e:  # A name that exists for type checkers only, or not any more.
        raise Unwritable(f"the type hints of {type_words(of)} cannot be read: {e}") from e


def _hints_of_fields(of: Any) -> dict[str, Any]:
    """Those of a dataclass, without what is given to its constructor only: Python 3.10 cannot read `InitVar`."""
    names = {field.name for field in dataclasses.fields(of)}
    found: dict[str, Any] = {}
    for base in reversed(of.__mro__):
        said = {name: hint for name, hint in vars(base).get("__annotations__", {}).items() if name in names}
        without = type(base.__name__, (), {"__annotations__": said, "__module__": base.__module__})
        found |= typing.get_type_hints(without, localns=dict(vars(base)))
    return found


def _parameters(of: type, args: tuple[Any, ...]) -> dict[Any, Any]:
    """What the parameters of a generic class are, and those of the classes that it inherits from."""
    given = dict(zip(getattr(of, "__parameters__", ()), args, strict=False))
    for base in vars(of).get("__orig_bases__", of.__bases__):
        origin = typing.get_origin(base) or base
        if isinstance(origin, type) and origin is not object:
            below = _parameters(origin, tuple(_given(arg, given) for arg in typing.get_args(base)))
            given = {**below, **given}
    return given


def _given(hint: Any, given: dict[Any, Any]) -> Any:
    """A hint of a generic class, with the types that it was given."""
    if isinstance(hint, typing.TypeVar):
        return given.get(hint, hint)
    wanted = getattr(hint, "__parameters__", ())
    return hint[tuple(given.get(one, one) for one in wanted)] if wanted and typing.get_origin(hint) else hint


def _generic(origin: type, args: tuple[Any, ...]) -> Coder:
    if dataclasses.is_dataclass(origin) or _is_typeddict(origin) or hasattr(origin, "_fields"):
        return _class(origin, args)
    if origin is tuple:
        return _tuple(args)
    if origin in (set, frozenset):
        return _set(origin, coder(args[0]))
    if issubclass(origin, collections.abc.Mapping):
        return _mapping(coder(args[0]), coder(args[1]))
    if origin is list:
        return _list(coder(args[0]))
    if issubclass(origin, collections.abc.Iterable) and len(args) == 1:
        return _several(args[0])
    return _class(origin, args)


def _list(item: Coder) -> Coder:
    write_item, read_item = item
    return (
        lambda value: [write_item(item) for item in value] if type(value) is list else plain_of(value),
        lambda found: [read_item(item) for item in found] if type(found) is list else read_plain(found),
    )


def _set(of: Any, item: Coder) -> Coder:
    tag = f"${of.__name__}"
    write_item, read_item = item
    return (
        lambda value: {tag: sorted(map(write_item, value), key=dumps)} if type(value) is of else plain_of(value),
        lambda found: of(map(read_item, found[tag])) if has_tag(found, tag) else read_plain(found),
    )


def _several(of: Any) -> Coder:
    """A hint that does not say which container it is, as `Sequence[Part]`: by the one that comes."""
    item = coder(of)
    known: dict[type, Coder] = {
        list: _list(item),
        tuple: _tuple((of, ...)),
        set: _set(set, item),
        frozenset: _set(frozenset, item),
    }

    def read_one(found: Json) -> Any:
        of_tag = next((kind for kind in known if has_tag(found, f"${kind.__name__}")), list)
        return known[of_tag][1](found)

    return (lambda value: known.get(type(value), PLAIN)[0](value)), read_one


def _tuple(args: tuple[Any, ...]) -> Coder:
    same = len(args) == 2 and args[1] is Ellipsis
    coders = [coder(arg) for arg in args if arg is not Ellipsis]

    def each(items: Any, way: int) -> list[Any]:
        if same:
            return [coders[0][way](item) for item in items]
        plain = PLAIN[way]
        return [coders[at][way](item) if at < len(coders) else plain(item) for at, item in enumerate(items)]

    return (
        lambda value: {"$tuple": each(value, 0)} if type(value) is tuple else plain_of(value),
        lambda found: tuple(each(found["$tuple"], 1)) if has_tag(found, "$tuple") else read_plain(found),
    )


def _mapping(keys: Coder, items: Coder) -> Coder:
    def write_mapping(value: Any) -> Json:
        if type(value) is not dict:
            return plain_of(value)
        written = [[keys[0](key), items[0](item)] for key, item in value.items()]
        if all(is_key(key) for key, _ in written):
            return dict(written)
        return {"$dict": written}

    def read_mapping(found: Json) -> Any:
        if has_tag(found, "$dict"):
            return {keys[1](key): items[1](item) for key, item in found["$dict"]}
        if type(found) is dict and not is_tagged(found):
            return {keys[1](key): items[1](item) for key, item in found.items()}
        return read_plain(found)

    return write_mapping, read_mapping


def _union(args: tuple[Any, ...]) -> Coder:
    """One of several: by the first that takes it. Two of which one could be taken for the other are told apart."""
    several = [arg for arg in args if arg is not type(None)]
    if len(several) == 1:
        return coder(several[0])
    structured = [arg for arg in several if _is_structured(arg)]
    if not structured:
        return PLAIN
    if len(structured) == 1:
        return _or_plain(coder(structured[0]), structured[0])
    names = {type_words(_bare(arg)): arg for arg in structured}

    def write_one(value: Any) -> Json:
        # Rather its own type than one that it is below of.
        for name, arg in sorted(names.items(), key=lambda named: type(value) is not _bare(named[1])):
            if isinstance(value, _bare(arg)):
                return {"$one": [name, coder(arg)[0](value)]}
        return plain_of(value)

    def read_one(found: Json) -> Any:
        if has_tag(found, "$one"):
            name, content = found["$one"]
            if name not in names:
                raise Unwritable(f"a {name} is recorded, and the hint does not tell of it any more")
            return coder(names[name])[1](content)
        return read_plain(found)

    return write_one, read_one


def _or_plain(found: Coder, hint: Any) -> Coder:
    """A type beside plain ones: what is plain, and would be taken for one of that type, says that it is plain."""
    of = _bare(hint)

    def write_either(value: Any) -> Json:
        if value is None or isinstance(value, of):
            return found[0](value)
        written = plain_of(value)
        try:
            same = is_tagged(written) or found[1](written) == value
        except Exception:
            same = False
        return written if same else {"$plain": written}

    return write_either, found[1]


def _is_typeddict(of: Any) -> bool:
    """Also of `typing_extensions`, which `typing` does not know of."""
    return isinstance(of, type) and issubclass(of, dict) and hasattr(of, "__required_keys__")


def _bare(hint: Any) -> Any:
    """A type without what it is of."""
    return typing.get_origin(hint) or hint


def _is_structured(hint: Any) -> bool:
    of = _bare(hint)
    return isinstance(of, type) and not _is_typeddict(of) and coder(hint) is not PLAIN
