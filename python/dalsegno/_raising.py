"""Exceptions on their way into the record and back.

An exception is recorded as ``package.module.Name: text`` (builtins without a module), which people can
read and from which it is made again: on replay, after a crash, in another process. Only its type and its
text come back. The code sees that already the first time, so that it does the same ever after; the
original is its ``__cause__`` then.

Invariant: nothing is imported because a record says so. A type comes back only if its module is loaded.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator

from ._errors import BadUse, Failure, NotDone, NotSerialisable, RunFailed, StepFailed, Terminal, of_failure

_LEAVES_SHOWN = 8
"""Of a group of exceptions."""
_NAMED = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:: |$)")


def failure_of(error: BaseException, not_done: tuple[type[BaseException], ...] = ()) -> Failure:
    """What is recorded of an exception."""
    carried = getattr(error, "__dalsegno__", None)
    if isinstance(carried, Failure):
        return carried
    if isinstance(error, StepFailed) and error.failure is not None:
        return error.failure
    said = _text_of_group(error) if _is_group(type(error)) else text_of(error)
    text = f"{type_name(type(error))}: {said}" if said else type_name(type(error))
    if isinstance(error, NotSerialisable):
        return Failure("encoding", "terminal", said)
    if isinstance(error, BadUse):
        return Failure("misuse", "terminal", said)
    if isinstance(error, Terminal):
        return Failure("failed", "terminal", text)
    if isinstance(error, (NotDone, *not_done)):
        return Failure("failed", "not-done", text)
    return Failure("failed", "unknown", text)


def text_of(error: BaseException) -> str:
    """What an exception says, as Unicode."""
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except Exception as e:
        return f"(it does not say what: {type_name(type(e))} in its __str__)"


def _is_group(of: type) -> bool:
    """Whether it is of several exceptions, as a `TaskGroup` raises them; before Python 3.11 those are of a package."""
    return any(base.__name__ == "BaseExceptionGroup" for base in of.__mro__)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions that a group is of, and those of groups in it; of another one, itself."""
    if _is_group(type(error)):
        for inner in getattr(error, "exceptions", ()):
            yield from leaves(inner)
    else:
        yield error


def _text_of_group(error: BaseException) -> str:
    """What a group says, and what it is of: its own words say only how many there are."""
    # In one order: which task failed first may differ when the run is taken up.
    every = sorted(str(failure_of(leaf)) for leaf in leaves(error))
    more = [f"and {len(every) - _LEAVES_SHOWN} more"] if len(every) > _LEAVES_SHOWN else []
    return f"{text_of(error)}: {'; '.join(every[:_LEAVES_SHOWN] + more)}"


def is_carried(error: BaseException) -> bool:
    """Whether an exception is what a step came to, and not raised by the code itself."""
    return isinstance(getattr(error, "__dalsegno__", None), Failure)


def exception_of(failure: Failure) -> Exception:
    """The exception that is raised for a failure."""
    if failure.kind == "failed":
        found = _NAMED.match(failure.message)
        made = found and _make(found.group(1), failure.message[found.end() :])
        if made:
            made.__dalsegno__ = failure  # type: ignore[attr-defined]
            return made
    return of_failure(failure)


def run_failed(words: str, run: str | None, failure: Failure | None) -> RunFailed:
    """The exception for a run that failed."""
    error = RunFailed(words)
    error.run, error.failure = run, failure
    if failure is not None:
        error.__cause__ = exception_of(failure)
    return error


def type_name(of: type) -> str:
    """As it is recorded."""
    return of.__qualname__ if of.__module__ == "builtins" else f"{of.__module__}.{of.__qualname__}"


def _make(name: str, text: str) -> Exception | None:
    of = _find(name)
    if of is None:
        return None
    for given in (text, _literal(text)):
        try:
            made = of(given)
            if str(made) == text:
                return made
        except Exception:
            pass
    # It wants something else than a text: it is one of its type that says the same.
    says = {"__str__": lambda _: text, "__module__": of.__module__, "__qualname__": of.__qualname__}
    try:
        like: type[Exception] = type(of.__name__, (of,), says)
        # Of a group there must be something inside; what that was is in its text.
        made = like.__new__(like, text, [StepFailed(text)]) if _is_group(of) else like.__new__(like)
        made.args = (text,)
        return made
    except Exception:
        return None


def _literal(text: str) -> object:
    """What a `KeyError` was about, say."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _find(name: str) -> type[Exception] | None:
    *path, last = name.split(".")
    place: object = builtins
    if path:
        for cut in range(len(path), 0, -1):
            module = sys.modules.get(".".join(path[:cut]))
            if module is not None:
                place = module
                for part in path[cut:]:
                    place = getattr(place, part, None)
                break
        else:
            return None
    found = getattr(place, last, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None
