"""Arguments of a function, as they are recorded and given."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from ._errors import NotSerialisable
from ._values import Coder, coder, loads, read_with, sound, type_words, write_with


def name_of(code: Callable[..., Any]) -> str:
    """What a function is called; a `functools.partial` as what is behind it, an object as its class."""
    inner = code.func if isinstance(code, functools.partial) else code
    return getattr(inner, "__name__", None) or type(inner).__name__


def is_async(code: Callable[..., Any]) -> bool:
    """Whether what it gives is to be awaited; it may be an object that can be called."""
    return inspect.iscoroutinefunction(code) or inspect.iscoroutinefunction(type(code).__call__)


def check_function(code: Any, what: str) -> None:
    """Whether it can be made a tool, an agent or a plan step."""
    if isinstance(code, staticmethod):
        raise TypeError("a staticmethod is no function: write @staticmethod above, not below")
    if not callable(code):
        named = f"{type(code).__name__} {code!r}" if isinstance(code, (int, str)) else type(code).__name__
        raise TypeError(f"a {named} is no function: only functions can be made {what}")
    made = getattr(code, "__dalsegno_made__", None)
    if made is not None:
        raise TypeError(f"{name_of(code)} is {made} already: decorate the function itself, once")
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise TypeError(f"{name_of(code)} is a generator, and what is recorded is one result: return a list")


def wrap(made: Any, code: Callable[..., Any]) -> None:
    """Lets what is made of a function look like it, and have what others have put on it; but not instead of its own."""
    functools.update_wrapper(made, code, updated=())
    for name, value in getattr(code, "__dict__", {}).items():
        made.__dict__.setdefault(name, value)


def _signature(code: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        # Hints are read when they are needed: they may name types that are defined further down.
        import annotationlib

        return inspect.signature(code, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(code)


def wants_key(code: Callable[..., Any]) -> bool:
    """Whether it has a keyword-only argument `key`."""
    found = _signature(code).parameters.get("key")
    return found is not None and found.kind is inspect.Parameter.KEYWORD_ONLY


def _hinted(code: Callable[..., Any]) -> Callable[..., Any]:
    """Where the hints of something are that can be called."""
    if isinstance(code, functools.partial):
        return _hinted(code.func)
    is_itself = inspect.isroutine(code) or inspect.isclass(code) or hasattr(code, "__wrapped__")
    return code if is_itself else type(code).__call__


def written(value: Any, what: str) -> str:
    """A value as JSON, by its own type."""
    try:
        return write_with(coder(type(value)), value)
    except Exception as e:
        raise NotSerialisable(f"{what}: a {type_words(type(value))} cannot be recorded: {e}") from e


class Signature:
    """What goes into a function and comes out, by its hints."""

    def __init__(
        self, code: Callable[..., Any], without: frozenset[str] = frozenset(), given: frozenset[str] = frozenset()
    ) -> None:
        self.code = code
        self.without = without | given
        """Arguments that are not recorded."""
        self.given = given
        """Arguments that the caller does not give."""
        self.name = name_of(code)
        self.signature = _signature(code)
        unknown = self.without - set(self.signature.parameters)
        if unknown:
            raise TypeError(f"{self.name} has no argument {', '.join(sorted(unknown))}")
        self._hints: Mapping[str, Any] | None = None
        self._coders: dict[str, Coder] = {}
        self.of_result: Coder | None = None
        """How the result is written and read, once that was needed."""
        kinds = {parameter.kind for parameter in self.signature.parameters.values()}
        self._is_simple = kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
        """Arguments can be told by their places and names."""
        places = (p for p in self.signature.parameters.values() if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._places = [parameter.name for parameter in places]
        every = self.signature.parameters.values()
        self._needed = frozenset(p.name for p in every if p.default is inspect.Parameter.empty) - given
        self._known = dict.fromkeys(self.signature.parameters)
        is_plain = self._is_simple and self._needed.issubset(self._places) and not self.without & set(self._places)
        self._plain_count = len(self._places) if is_plain and self._places else -1
        """With so many arguments and nothing else, all that is recorded is given by its place."""
        self._ready: list[tuple[str, Coder]] | None = None

    def hint(self, name: str) -> Any:
        """The type of an argument, or of the result as `return`."""
        if self._hints is None:
            # Not before it is needed: it may name types that are defined further down.
            try:
                self._hints = self._read_hints()
            except Exception as e:
                raise NotSerialisable(f"the type hints of {self.name} cannot be read: {e}") from e
        found = self._hints.get(name, Any)
        return Any if found is type(None) else found

    def _read_hints(self) -> Mapping[str, Any]:
        hinted = _hinted(self.code)
        try:
            return typing.get_type_hints(hinted)
        except Exception:
            # What is not recorded, as a client, may be of a type that is imported for type checkers only.
            said = dict(getattr(hinted, "__annotations__", {}))
            only = types.SimpleNamespace(__annotations__={n: of for n, of in said.items() if n not in self.without})
            return typing.get_type_hints(only, getattr(inspect.unwrap(hinted), "__globals__", {}))

    def coder(self, name: str) -> Coder:
        """How an argument is written and read, or the result as `return`."""
        found = self._coders.get(name)
        if found is None:
            found = self._coders[name] = coder(self.hint(name))
            if name == "return":
                self.of_result = found
        return found

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Arguments by their names, without those that are not recorded."""
        bound: Mapping[str, Any] | None = None
        if self._is_simple and len(args) <= len(self._places):
            bound = dict(zip(self._places, args, strict=False))
            if kwargs:
                count = len(bound)
                bound.update(kwargs)
                if len(bound) != count + len(kwargs) or not self._known.keys() >= kwargs.keys():
                    bound = None
                else:
                    # Always in the same order, so that the same call is always written the same.
                    bound = {name: bound[name] for name in self._known if name in bound}
            if bound is not None and not self._needed.issubset(bound):
                bound = None
        if bound is None:
            # It says what is wrong, if something is.
            bound = self.signature.bind(*args, **kwargs, **dict.fromkeys(self.given)).arguments
        if self.without:
            bound = {name: value for name, value in bound.items() if name not in self.without}
        return bound

    def write(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str) -> str:
        """The arguments as JSON, by their names."""
        if not kwargs and len(args) == self._plain_count:
            # As most calls are: nothing has to be found out about them again.
            try:
                text = ""
                for at, (begin, how) in enumerate(self._ready or self._make_ready()):
                    text += begin + write_with(how, args[at])
                return text + "}"
            except Exception:
                pass  # It is said below of which argument.
        written = []
        for name, value in self.bind(args, kwargs).items():
            try:
                how = self.coder(name)
                text = write_with(how, value) if self._is_simple else self._write_several(how, name, value)
            except NotSerialisable:
                raise
            except Exception as e:
                way_out = f" (or leave it out of the record: ignore={name!r})" if what.startswith("step ") else ""
                raise NotSerialisable(
                    f"{what}: its argument {name!r}, a {type_words(type(value))}, cannot be recorded: {e}{way_out}"
                ) from e
            written.append(f'"{name}":{text}')
        return "{" + ",".join(written) + "}"

    def _make_ready(self) -> list[tuple[str, Coder]]:
        before = ["{"] + [","] * len(self._places)
        ready = [(f'{sign}"{name}":', self.coder(name)) for sign, name in zip(before, self._places, strict=False)]
        self._ready = ready
        return ready

    def _write_several(self, how: Coder, name: str, value: Any) -> str:
        kind = self.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            return sound([how[0](item) for item in value])
        if kind is inspect.Parameter.VAR_KEYWORD:
            return sound({key: how[0](item) for key, item in value.items()})
        return write_with(how, value)

    def read(self, text: str) -> tuple[list[Any], dict[str, Any]]:
        """Arguments from JSON."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        found = loads(text)
        parameters = self.signature.parameters
        unknown = set(found) - set(parameters)
        if unknown:
            raise TypeError(f"{self.name} has no argument {', '.join(sorted(unknown))} any more")
        for name, parameter in parameters.items():
            if name not in found:
                continue
            reads = self.coder(name)[1]
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
        return read_with(self.of_result or self.coder("return"), text)
