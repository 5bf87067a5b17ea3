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
import json
from collections.abc import Callable
from typing import Any

from ._hints import coder
from ._models import check_back
from ._plain import INTACT, PLAIN, Coder, Json, Unwritable, dumps, register_written, type_words

__all__ = [
    "Coder",
    "Unwritable",
    "check_back",
    "coder",
    "dumps",
    "loads",
    "read",
    "read_with",
    "register_written",
    "sound",
    "type_words",
    "write",
    "write_and_read",
    "write_and_read_with",
    "write_with",
]

_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_quoted = json.encoder.encode_basestring


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
    if coder is PLAIN:
        kind = type(value)
        if kind is str and value.isascii():
            return _quoted(value)
        if kind is int:
            return repr(value)
    return sound(coder[0](value))


def sound(found: Json) -> str:
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
    if coder is PLAIN and (type(found) in INTACT or '"$' not in text):
        # Nothing in it is tagged.
        return found
    return coder[1](found)


def write_and_read_with(coder: Coder, value: Any) -> tuple[str, Any]:
    """A value as JSON, and as it will be read."""
    if coder is PLAIN and type(value) is str and value.isascii():
        return _quoted(value), value
    text = write_with(coder, value)
    if coder is PLAIN and type(value) in INTACT:
        return text, value
    found = read_with(coder, text)
    if coder is not PLAIN:
        check_back(value, found)
    return text, found


def write_and_read(value: Any, hint: Any = Any) -> tuple[str, Any]:
    """A value as JSON, and as it will be read."""
    return write_and_read_with(coder(hint), value)
