"""Pydantic models as JSON; and whether what is read back is what was written, which of models only Pydantic knows."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Mapping
from typing import Any

from ._plain import INTACT, Coder, Json, Unwritable, dumps, has_tag, is_tagged, plain_of, read_plain, type_words


def model(of: Any) -> Coder:
    """Pydantic's, which knows best how its fields are written and read: by their names, if it can, not by an alias."""
    by_name = "by_name" in inspect.signature(of.model_validate_json).parameters
    names = {"by_alias": True, "by_name": True} if by_name else {}

    def write_model(value: Any) -> Json:
        if type(value) is not of:
            return plain_of(value)
        written = plain_of(value.model_dump(mode="json", round_trip=True, by_alias=not by_name))
        written = written if type(written) is dict and not is_tagged(written) else {"$root": written}
        if _SECRET in dumps(written) and read_model(written) != value:
            raise Unwritable(f"a {type_words(of)} has a secret, which Pydantic does not write: give it to no step")
        return written

    def read_model(found: Json) -> Any:
        if has_tag(found, "$root"):
            found = found["$root"]
        elif type(found) is not dict or is_tagged(found):
            return read_plain(found)
        return of.model_validate_json(json.dumps(read_plain(found)), **names)

    return write_model, read_model


_JSON = (str, int, float, bool, list, dict)


def check_back(value: Any, read: Any) -> None:
    """Refuses what was read back as what it is in JSON. Only Pydantic does that, of a field that may be anything.

    What is JSON itself and comes back as another type comes back as its field says, and that wins.
    """
    kind = type(read)
    if (kind in _JSON and type(value) not in _JSON) or (read is None and value is not None):
        raise _changed(type_words(type(value)), type_words(kind))
    if type(value) is not kind:
        return
    if kind in (list, tuple):
        for pair in zip(value, read, strict=False):
            check_back(*pair)
    elif kind in (set, frozenset):
        if value != read:
            raise _changed(f"{type_words(kind)} of {_kinds(value)}", f"{type_words(kind)} of {_kinds(read)}")
    elif kind is dict and value.keys() != read.keys():
        raise _changed(f"dict by {_kinds(value)}", f"dict by {_kinds(read)}")
    elif kind not in INTACT and kind is not float:
        before = _parts(value)
        for name, item in _parts(read).items():
            # What a class below that of its field has more is not recorded.
            if name in before:
                check_back(before[name], item)


def _kinds(items: Any) -> str:
    return ", ".join(sorted({type_words(type(item)) for item in items}))


def _changed(before: str, after: str) -> Unwritable:
    return Unwritable(
        f"a {before} in a Pydantic model would come back as a {after}: say its type in its field, and no other one"
    )


def _parts(value: Any) -> Mapping[Any, Any]:
    """What a value is made of and is recorded, by name."""
    if type(value) is dict:
        return value
    if dataclasses.is_dataclass(value):
        # What is not given to its constructor is made again.
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value) if field.init}
    if hasattr(type(value), "model_dump"):
        every = {**vars(value), **(getattr(value, "__pydantic_extra__", None) or {})}
        fields = getattr(type(value), "model_fields", {})
        # Defaults are as they were written in the class, of whatever type.
        given = getattr(value, "model_fields_set", every)
        is_left_out = {name for name in every if name not in given or getattr(fields.get(name), "exclude", False)}
        return {name: part for name, part in every.items() if name not in is_left_out}
    return {}


_SECRET = "**********"
"""What Pydantic writes for a `SecretStr`."""
