"""What is given to memories: checked here as far as the core could not say what is wrong with it."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from . import _dalsegno
from ._errors import MemoryFailure
from ._memory_said import Version
from ._values import type_words

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICROSECOND = datetime.timedelta(microseconds=1)

AsOf = Version | int | datetime.datetime | None
"""Which version: one that was found, a sequence, the one at a time; `None` is the newest."""


class Array(Protocol):
    """An array of numpy, or one that is used like it."""

    @property
    def dtype(self) -> Any: ...
    @property
    def ndim(self) -> int: ...
    def tolist(self) -> Any: ...


@dataclass(frozen=True)
class Vector:
    """What a text means, as an embedder sees it: a signed byte for each dimension.

    >>> vector = dalsegno.Vector.of([0.25, -0.5, 1.0])
    """

    components: bytes = field(repr=False)
    model: str | None = None
    """What made it. A memory has one model, and refuses vectors of another."""

    @classmethod
    def of(cls, numbers: VectorLike, model: str | None = None) -> Vector:
        """From numbers, which are given the length one; or from bytes, as they are."""
        return cls(_dalsegno.quantised(components(numbers)), model)

    @property
    def dimensions(self) -> int:
        """How many components it has."""
        return len(self.components)

    def __repr__(self) -> str:
        return f"<{self.model or 'vector'}: {self.dimensions} dimensions>"


VectorLike = Vector | bytes | Iterable[float] | Array
"""Numbers (a list, a numpy array), which are given the length one; or int8 (bytes, a numpy array), as they are."""


def components(vector: VectorLike) -> bytes | list[float]:
    """A vector as the core takes it."""
    if isinstance(vector, Vector):
        return vector.components
    if isinstance(vector, bytes | bytearray | memoryview):
        return bytes(vector)
    given: Any = vector
    if hasattr(vector, "dtype") and hasattr(vector, "tolist"):
        if given.ndim != 1:
            raise MemoryFailure(f"an array of {given.ndim} axes is no vector: give one row of it")
        given = given.tolist()
        if str(vector.dtype) in ("int8", "torch.int8"):
            return bytes(component & 0xFF for component in given)
    try:
        if isinstance(given, str):
            raise TypeError
        return [float(number) for number in given]
    except (TypeError, ValueError):
        words = f"a {type_words(type(vector))} is no vector: give numbers, or bytes of int8"
        raise MemoryFailure(words) from None


@dataclass(frozen=True)
class Ranking:
    """How hits are ranked. What is not said is as the library has it; numbers are kept in thousandths.

    >>> kitchen.search("Ofen vorheizen", ranking=Ranking(language="german", words_weight=2.0))
    """

    language: str | None = None
    """Whose rules words are stemmed by: ``english`` if nothing is said, ``german``, …; ``none`` compares them whole."""
    stop_words: bool | None = None
    """Whether words that nearly every English text has are left out; in English they are."""
    k1: float | None = None
    """How much a word counts that comes often."""
    b: float | None = None
    """How much long documents are held back."""
    fusion_k: int | None = None
    """How little the first ranks stand out when words and vectors are fused."""
    depth: int | None = None
    """How many hits by words, and how many by vectors, are fused."""
    words_weight: float | None = None
    vectors_weight: float | None = None
    model: str | None = None
    """What made the vectors; a :class:`Vector` of an embedder says it by itself."""


class Ranked:
    """A ranking, as the core has it."""

    def __init__(self, ranking: Ranking, vector: VectorLike | None) -> None:
        self.language = maybe_text(ranking.language, "the language")
        self.stop_words = ranking.stop_words
        self.k1 = _thousandths(ranking.k1, "k1")
        self.b = _thousandths(ranking.b, "b")
        self.fusion_k = None if ranking.fusion_k is None else whole(ranking.fusion_k, "fusion_k", _U32)
        self.depth = None if ranking.depth is None else whole(ranking.depth, "depth", _U32)
        self.words_weight = _thousandths(ranking.words_weight, "words_weight")
        self.vectors_weight = _thousandths(ranking.vectors_weight, "vectors_weight")
        self.model = _model(maybe_text(ranking.model, "the model"), vector)


class Given:
    """A document, as the core has it."""

    def __init__(
        self,
        text: str,
        kind: str,
        title: str | None,
        sources: Iterable[str],
        tags: Iterable[str],
        confidence: float,
        scope: str,
        valid_from: datetime.datetime | None,
        valid_until: datetime.datetime | None,
        key: str | None,
        vector: VectorLike | None,
        model: str | None,
    ) -> None:
        self.text = words(text, "the text")
        self.kind = words(kind, "the kind")
        self.title = maybe_text(title, "the title")
        self.sources = several(sources, "a source")
        self.tags = several(tags, "a tag")
        self.confidence = sureness(confidence)
        self.scope = words(scope, "the scope")
        self.valid_from = maybe_us(valid_from, "valid_from")
        self.valid_until = maybe_us(valid_until, "valid_until")
        self.key = maybe_text(key, "the key")
        self.vector = None if vector is None else components(vector)
        self.model = _model(maybe_text(model, "the model"), vector)


class Wanted:
    """Which documents are wanted, as the core has it."""

    def __init__(
        self,
        kinds: Iterable[str],
        tags: Iterable[str],
        any_tags: Iterable[str],
        scope: str | Iterable[str],
        confidence_from: float,
        recorded_from: datetime.datetime | None,
        recorded_until: datetime.datetime | None,
        valid_at: datetime.datetime | None,
    ) -> None:
        self.kinds = several(kinds, "a kind")
        self.all_tags = several(tags, "a tag")
        self.any_tags = several(any_tags, "a tag")
        self.scopes = several(scope, "a scope")
        self.confidence_from = sureness(confidence_from)
        self.recorded_from = _not_before_1970(maybe_us(recorded_from, "recorded_from"))
        self.recorded_until = _not_before_1970(maybe_us(recorded_until, "recorded_until"))
        self.valid_at = maybe_us(valid_at, "valid_at")


class Asked:
    """What is looked for, as the core has it."""

    def __init__(
        self,
        looked_for: str | None,
        vector: VectorLike | None,
        filter: Wanted,
        limit: int,
        context_bytes: int | None,
        explain: bool,
    ) -> None:
        if looked_for is None and vector is None:
            raise MemoryFailure("there is nothing to search for: give words, a vector, or both")
        self.words = maybe_text(looked_for, "the query")
        self.vector = None if vector is None else components(vector)
        self.filter = filter
        self.limit = whole(limit, "the limit")
        self.context_bytes = None if context_bytes is None else whole(context_bytes, "context_bytes")
        self.explain = bool(explain)


_U32, _U64 = 2**32 - 1, 2**63 - 1


def then(as_of: AsOf) -> tuple[int, str] | tuple[int] | int | None:
    """A version, as the core takes it."""
    if as_of is None:
        return None
    if isinstance(as_of, Version):
        return as_of.sequence, as_of.hash
    if isinstance(as_of, datetime.datetime):
        return (max(us(as_of, "as_of"), 0),)
    return whole(as_of, "the version")


def whole(number: Any, what: str, limit: int = _U64) -> int:
    """A number that is whole and not negative."""
    if isinstance(number, int) and 0 <= number <= limit:
        return int(number)
    raise MemoryFailure(f"{what} is {number!r}: give a whole number from 0 to {limit}")


def words(text: Any, what: str) -> str:
    """A text that can be written."""
    if not isinstance(text, str):
        raise MemoryFailure(f"{what} is a {type_words(type(text))}: give a str")
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError as e:
        raise MemoryFailure(f"{what} is no text: {e}") from None
    return text


def maybe_text(text: Any, what: str) -> str | None:
    return None if text is None else words(text, what)


def several(texts: str | Iterable[str], what: str) -> list[str]:
    """Texts; one alone is one of them."""
    return [words(text, what) for text in ([texts] if isinstance(texts, str) else texts)]


def ids(documents: int | Iterable[int]) -> list[int]:
    """Which documents."""
    return [whole(id, "a document") for id in ([documents] if isinstance(documents, int) else documents)]


def sureness(confidence: float) -> int:
    """In thousandths."""
    if isinstance(confidence, int | float) and 0 <= confidence <= 1:
        return round(confidence * 1000)
    raise MemoryFailure(f"a confidence of {confidence!r}: give one from 0.0 to 1.0")


def us(time: Any, what: str) -> int:
    """A time, in microseconds since 1970."""
    if not isinstance(time, datetime.datetime):
        raise MemoryFailure(f"{what} is a {type_words(type(time))}: give a datetime")
    if time.tzinfo is None:
        raise MemoryFailure(f"{what} has no time zone: give one, as datetime.now(timezone.utc) has")
    return (time - _EPOCH) // _MICROSECOND


def maybe_us(time: Any, what: str) -> int | None:
    return None if time is None else us(time, what)


def _not_before_1970(us: int | None) -> int | None:
    return None if us is None else max(us, 0)


def _thousandths(number: float | None, what: str) -> int | None:
    if number is None:
        return None
    if isinstance(number, int | float) and 0 <= number <= _U32 / 1000:
        return round(number * 1000)
    raise MemoryFailure(f"{what} is {number!r}: give a number that is not negative")


def _model(model: str | None, vector: VectorLike | None) -> str | None:
    return vector.model if model is None and isinstance(vector, Vector) else model
