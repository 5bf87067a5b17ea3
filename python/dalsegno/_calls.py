"""Arguments of a function, as they are recorded and given."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping
from typing import Any

from ._errors import NotSerialisable
from ._values import Unwritable, coder, read, type_words


class Signature:
    """What goes into a function and comes out, by its hints."""

    def __init__(self, code: Callable[..., Any], without: frozenset[str] = frozenset()) -> None:
        self.code = code
        self.without = without
        """Arguments that are not recorded."""
        self.signature = inspect.signature(code)
        unknown = without - set(self.signature.parameters)
        if unknown:
            raise TypeError(f"{code.__qualname__} has no argument {', '.join(sorted(unknown))}")
        self._hints: dict[str, Any] | None = None

    def hint(self, name: str) -> Any:
        """The type of an argument, or of the result as `return`."""
        if self._hints is None:
            # Not before it is needed: it may name types that are defined further down.
            try:
                self._hints = typing.get_type_hints(self.code, include_extras=False)
            except Exception as e:
                raise NotSerialisable(f"the type hints of {self.code.__qualname__} cannot be read: {e}") from e
        found = self._hints.get(name, Any)
        return Any if found is type(None) else found

    def write(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str) -> str:
        """The arguments as JSON, by their names."""
        bound = self.signature.bind_partial(*args, **kwargs)
        written: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            if name in self.without:
                continue
            try:
                hint = self.hint(name)
                kind = self.signature.parameters[name].kind
                if kind is inspect.Parameter.VAR_POSITIONAL:
                    written[name] = [coder(hint)[0](item) for item in value]
                elif kind is inspect.Parameter.VAR_KEYWORD:
                    written[name] = {key: coder(hint)[0](item) for key, item in value.items()}
                else:
                    written[name] = coder(hint)[0](value)
            except Unwritable as e:
                raise NotSerialisable(
                    f"{what}: its argument {name!r}, a {type_words(type(value))}, cannot be recorded: {e} "
                    f"(or leave it out of the record: ignore={name!r})"
                ) from e
        return json.dumps(written, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    def read(self, text: str) -> tuple[list[Any], dict[str, Any]]:
        """Arguments from JSON."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        found = json.loads(text)
        parameters = self.signature.parameters
        unknown = set(found) - set(parameters)
        if unknown:
            raise TypeError(f"{self.code.__qualname__} has no argument {', '.join(sorted(unknown))} any more")
        for name, parameter in parameters.items():
            if name not in found:
                continue
            reads = coder(self.hint(name))[1]
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                args.extend(reads(item) for item in found[name])
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                kwargs.update({key: reads(item) for key, item in found[name].items()})
            elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                kwargs[name] = reads(found[name])
            elif len(args) == list(parameters).index(name):
                args.append(reads(found[name]))
            else:
                kwargs[name] = reads(found[name])
        return args, kwargs

    def result(self, text: str) -> Any:
        """The result from JSON."""
        return read(text, self.hint("return"))
