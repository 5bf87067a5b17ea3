"""What memories say: found documents, versions, changes. Read from what the core answers."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Kind = Literal["fact", "constraint", "decision", "plan", "document"]
"""What a document is."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


@dataclass(frozen=True)
class Version:
    """A version of a memory: a sequence, and a hash over everything up to it."""

    sequence: int
    hash: str


@dataclass(frozen=True)
class Ended:
    """That a document is not what the memory says any more."""

    how: Literal["corrected", "retracted", "forgotten"]
    corrected_by: int | None
    """The document that is there instead."""
    sequence: int | None
    """The event that says so. This and what follows is not known in a run that reads a document with ``get``."""
    at: datetime.datetime | None
    by: str | None
    reason: str | None


class Term(NamedTuple):
    """What a word adds to a score."""

    word: str
    """As the analyser made it."""
    asked: int
    """How often the query has it."""
    tf: int
    """How often the document has it."""
    df: int
    """How many documents have it."""
    idf: int
    """How rare it is, in units of 2⁻²⁴."""
    score: int
    """What it adds, in units of 2⁻³²."""


@dataclass(frozen=True)
class ByWords:
    """How well the words of a document fit."""

    score: int
    """The sum of all parts, in units of 2⁻³²."""
    rank: int
    fused: int
    """What that adds to the fused score, if words and vectors were asked for."""
    documents: int
    total_words: int
    length: int
    norm: int
    """How much its length holds it back: per mille, in units of 2⁻⁸."""
    terms: tuple[Term, ...]


class ByVector(NamedTuple):
    """How well the vector of a document fits."""

    dot: int
    rank: int
    fused: int


@dataclass(frozen=True)
class Explanation:
    """How a score came to be."""

    words: ByWords | None
    vector: ByVector | None


@dataclass(frozen=True)
class _Content:
    """What a document says. It is empty if that is forgotten."""

    text: str
    title: str | None
    sources: tuple[str, ...]
    tags: tuple[str, ...]
    confidence: float
    scope: str
    """``shared``, ``agent/NAME`` or ``run/NAME``."""
    valid_from: datetime.datetime | None
    valid_until: datetime.datetime | None
    vector: bytes | None = field(repr=False)
    """A signed byte for each dimension."""


@dataclass(frozen=True)
class Hit(_Content):
    """A document that was found."""

    rank: int
    """From 1."""
    id: int
    score: int
    """Exact. By words in units of 2⁻³², by vectors their dot product, by both the sum of fused ranks."""
    kind: Kind
    recorded: datetime.datetime
    forgotten: Ended | None
    """In a run: it was forgotten since it was found, by whom, when and why. Then it has no text."""
    explanation: Explanation | None = None
    """If it was asked for."""


@dataclass(frozen=True)
class LeftOut:
    """A hit that did not fit into the context."""

    id: int
    rank: int
    bytes: int


@dataclass(frozen=True)
class Found:
    """What a search came to."""

    version: Version
    """What was searched."""
    ranking: str
    """A hash of all that decides the order."""
    hits: tuple[Hit, ...]
    """The best first."""
    left_out: tuple[LeftOut, ...]
    forgotten_since: int
    """How many documents of that version were forgotten."""
    words: tuple[str, ...]
    """What was looked for, as the analyser made it. None of them: there was nothing to look for."""
    words_left_out: int
    digest: str | None
    """Outside of runs: a hash over version, ranking, ids and scores. The same bits have the same one."""


@dataclass(frozen=True)
class Document(_Content):
    """A document."""

    version: Version | None
    """Of the memory, when it was read; not in lists."""
    id: int
    kind: Kind
    by: str | None
    """Who recorded it."""
    recorded: datetime.datetime
    corrects: int | None
    ended: Ended | None
    """What became of it."""


@dataclass(frozen=True)
class Revision(_Content):
    """One of several documents of which each corrects the one before."""

    id: int
    kind: Kind
    recorded: datetime.datetime
    ended: Ended | None


@dataclass(frozen=True)
class Change:
    """Something that happened to a memory."""

    sequence: int
    """The version after it."""
    at: datetime.datetime
    by: str | None
    reason: str | None
    what: Literal["added", "corrected", "retracted", "forgotten", "other"]
    documents: tuple[int, ...]
    new: int | None
    """What is there instead, of a correction."""


def number(answer: Any) -> int:
    return int(answer)


def version(answer: Any) -> Version:
    return Version(*answer)


def found(answer: Any) -> Found:
    return Found(
        version(answer["version"]),
        answer["ranking"],
        tuple(map(_hit, answer["hits"])),
        tuple(LeftOut(*left) for left in answer["left_out"]),
        answer["forgotten_since"],
        tuple(answer["words"]),
        answer["words_left_out"],
        answer["digest"],
    )


def _hit(answer: Any) -> Hit:
    content = _content(answer["content"])
    # They are recorded with the run, and stay.
    content["sources"] = tuple(answer["sources"])
    return Hit(
        **content,
        rank=answer["rank"],
        id=answer["id"],
        score=answer["score"],
        kind=answer["kind"],
        recorded=_time(answer["recorded_us"]),
        forgotten=_ended(answer["forgotten"]),
        explanation=_explanation(answer["explanation"]),
    )


def document(answer: Any) -> Document:
    return Document(
        **_content(answer["content"]),
        version=None if answer["version"] is None else version(answer["version"]),
        id=answer["id"],
        kind=answer["kind"],
        by=answer["by"],
        recorded=_time(answer["recorded_us"]),
        corrects=answer["corrects"],
        ended=_ended(answer["ended"]),
    )


def documents(answer: Any) -> list[Document]:
    return list(map(document, answer))


def revisions(answer: Any) -> list[Revision]:
    return [
        Revision(
            **_content(one["content"]),
            id=one["id"],
            kind=one["kind"],
            recorded=_time(one["recorded_us"]),
            ended=_ended(one["ended"]),
        )
        for one in answer
    ]


def changes(answer: Any) -> list[Change]:
    return [
        Change(sequence, _time(at), by, reason, what, tuple(of), new)
        for sequence, at, by, reason, what, of, new in answer
    ]


def _content(answer: Any) -> dict[str, Any]:
    if answer is None:
        nothing: dict[str, Any] = {"text": "", "title": None, "sources": (), "tags": (), "confidence": 0.0}
        return {**nothing, "scope": "shared", "valid_from": None, "valid_until": None, "vector": None}
    return {
        "text": answer["text"],
        "title": answer["title"],
        "sources": tuple(answer["sources"]),
        "tags": tuple(answer["tags"]),
        "confidence": answer["confidence"] / 1000,
        "scope": answer["scope"],
        "valid_from": _maybe_time(answer["valid_from_us"]),
        "valid_until": _maybe_time(answer["valid_until_us"]),
        "vector": None if answer["vector"] is None else bytes.fromhex(answer["vector"]),
    }


def _ended(answer: Any) -> Ended | None:
    if answer is None:
        return None
    how, corrected_by, sequence, at, by, reason = answer
    return Ended(how, corrected_by, sequence, _maybe_time(at), by, reason)


def _explanation(answer: Any) -> Explanation | None:
    if answer is None:
        return None
    words, vector = answer
    if words is not None:
        terms = tuple(Term(*term) for term in words.pop("terms"))
        words = ByWords(**words, terms=terms)
    return Explanation(words, None if vector is None else ByVector(*vector))


def _time(us: int) -> datetime.datetime:
    try:
        return _EPOCH + datetime.timedelta(microseconds=us)
    except OverflowError:  # Another language can say more than Python.
        end = datetime.datetime.max if us > 0 else datetime.datetime.min
        return end.replace(tzinfo=datetime.timezone.utc)


def _maybe_time(us: int | None) -> datetime.datetime | None:
    return None if us is None else _time(us)
