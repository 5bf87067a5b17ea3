"""Memories: what agents know. The same methods in runs and outside, plain and awaited.

Each method gives an order to the core. Who inherits says how that is asked, and what comes of it: a value, or something
to await.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from . import _memory_said as said
from ._app import App
from ._ask import Asked
from ._dalsegno import Order
from ._errors import BadUse, MemoryFailure
from ._memory_given import Asked as Looked
from ._memory_given import AsOf, Given, Ranked, Ranking, VectorLike, Wanted, ids, then, whole, words
from ._memory_said import Change, Document, Found, Kind, Revision, Version
from ._perform import Body
from ._steps import Want
from ._values import read

NumberT = TypeVar("NumberT")
FoundT = TypeVar("FoundT")
DocumentT = TypeVar("DocumentT")
VersionT = TypeVar("VersionT")
RevisionsT = TypeVar("RevisionsT")
ChangesT = TypeVar("ChangesT")
DocumentsT = TypeVar("DocumentsT")


class MemoryMethods(Generic[NumberT, FoundT, DocumentT, VersionT]):
    """What can be asked of a memory everywhere."""

    def __init__(self, name: str, by: str | None = None) -> None:
        self.name = words(name, "the name of a memory")
        self._by = None if by is None else words(by, "who writes")

    def __repr__(self) -> str:
        return f"<dalsegno memory {self.name}>"

    def _ask(self, what: str, order: Order, then: Callable[[Any], Any]) -> Any:
        raise NotImplementedError

    def add(
        self,
        text: str,
        kind: Kind = "fact",
        *,
        title: str | None = None,
        sources: Iterable[str] = (),
        tags: Iterable[str] = (),
        confidence: float = 1.0,
        scope: str = "shared",
        valid_from: datetime.datetime | None = None,
        valid_until: datetime.datetime | None = None,
        key: str | None = None,
        vector: VectorLike | None = None,
        model: str | None = None,
    ) -> NumberT:
        """Adds a document, and gives its id. It is on disk then. In a run that happens once, whatever crashes.

        >>> oven = kitchen.add("The oven heats up in 12 minutes.", title="Oven", sources=["manual.pdf"])
        >>> kitchen.add("No nuts: a guest is allergic.", kind="constraint", valid_until=tomorrow)

        ``scope`` is for whom it is: ``"shared"``, ``"agent/NAME"``, ``"run/NAME"``. Of documents with one ``key`` only
        the first is added; the others are told its id. ``vector`` is what the text means (see :func:`dalsegno.embed`),
        ``model`` what made it.
        """
        given = Given(text, kind, title, sources, tags, confidence, scope, valid_from, valid_until, key, vector, model)
        added: NumberT = self._ask("add", Order.add(given), said.number)
        return added

    def correct(
        self,
        id: int,
        text: str,
        kind: Kind = "fact",
        *,
        title: str | None = None,
        sources: Iterable[str] = (),
        tags: Iterable[str] = (),
        confidence: float = 1.0,
        scope: str = "shared",
        valid_from: datetime.datetime | None = None,
        valid_until: datetime.datetime | None = None,
        key: str | None = None,
        vector: VectorLike | None = None,
        model: str | None = None,
    ) -> NumberT:
        """Puts another document in the place of one, which stays in the history; gives the id of the new one.

        >>> kitchen.correct(oven, "The new oven heats up in 7 minutes.", sources=["mail/17"])

        :class:`DocumentEnded` says that somebody was faster.
        """
        given = Given(text, kind, title, sources, tags, confidence, scope, valid_from, valid_until, key, vector, model)
        corrected: NumberT = self._ask("correct", Order.correct(_id(id), given), said.number)
        return corrected

    def retract(self, id: int, reason: str = "") -> NumberT:
        """Says that a document is not so any more; it stays in the history. Gives the sequence that says so.

        >>> kitchen.retract(oven, "the oven was sold")
        """
        order = Order.retract(_id(id), words(reason, "the reason"))
        retracted: NumberT = self._ask("retract", order, said.number)
        return retracted

    def forget(self, documents: int | Iterable[int], reason: str = "") -> NumberT:
        """Removes what documents say, for good: from disk, and from every version. Gives the sequence that says so.

        >>> kitchen.forget([oven, 7], "the owner of the manual asked for it")
        """
        order = Order.forget(ids(documents), words(reason, "the reason"))
        forgotten: NumberT = self._ask("forget", order, said.number)
        return forgotten

    def search(
        self,
        words: str | None = None,
        *,
        vector: VectorLike | None = None,
        limit: int = 10,
        as_of: AsOf = None,
        kinds: str | Iterable[str] = (),
        tags: str | Iterable[str] = (),
        any_tags: str | Iterable[str] = (),
        scope: str | Iterable[str] = (),
        confidence_from: float = 0.0,
        recorded_from: datetime.datetime | None = None,
        recorded_until: datetime.datetime | None = None,
        valid_at: datetime.datetime | None = None,
        context_bytes: int | None = None,
        ranking: Ranking | None = None,
    ) -> FoundT:
        """Finds documents: by words, by a vector, or by both. The same version, query and ranking find the same, bit
        for bit. In a run what is found is recorded, and handed back the same ever after.

        >>> found = kitchen.search("how long does the oven take", kinds="fact", limit=3, context_bytes=4000)
        >>> for hit in found.hits:
        ...     print(hit.rank, hit.score, hit.text, hit.sources)

        There is no syntax: everything but words separates words. ``tags`` are all wanted, of ``any_tags``, ``kinds``
        and ``scope`` one. Documents are taken whole up to ``context_bytes``; ``left_out`` has the others.
        """
        wanted = Wanted(kinds, tags, any_tags, scope, confidence_from, recorded_from, recorded_until, valid_at)
        looked = Looked(words, vector, wanted, limit, context_bytes, False)
        order = Order.search(looked, Ranked(ranking or Ranking(), vector), then(as_of))
        found: FoundT = self._ask("search", order, said.found)
        return found

    def get(self, id: int) -> DocumentT:
        """A document, as it is now. :class:`DocumentEnded` says that it is forgotten.

        >>> kitchen.get(oven).sources
        ('manual.pdf',)
        """
        document: DocumentT = self._ask("get", Order.get(_id(id)), said.document)
        return document

    def version(self) -> VersionT:
        """The newest version: a sequence, and a hash over everything up to it.

        >>> then = kitchen.version()
        >>> kitchen.search("oven", as_of=then)
        """
        version: VersionT = self._ask("version", Order.version(None), said.version)
        return version


class OutsideMethods(
    MemoryMethods[NumberT, FoundT, DocumentT, VersionT],
    Generic[NumberT, FoundT, DocumentT, VersionT, RevisionsT, ChangesT, DocumentsT],
):
    """What can be asked of a memory outside of runs."""

    def search(
        self,
        words: str | None = None,
        *,
        vector: VectorLike | None = None,
        limit: int = 10,
        as_of: AsOf = None,
        kinds: str | Iterable[str] = (),
        tags: str | Iterable[str] = (),
        any_tags: str | Iterable[str] = (),
        scope: str | Iterable[str] = (),
        confidence_from: float = 0.0,
        recorded_from: datetime.datetime | None = None,
        recorded_until: datetime.datetime | None = None,
        valid_at: datetime.datetime | None = None,
        context_bytes: int | None = None,
        ranking: Ranking | None = None,
        explain: bool = False,
    ) -> FoundT:
        """As in a run; and with ``explain`` each hit says how its score came to be. ``as_of`` may be a time.

        >>> found = kitchen.search("heating the oven", as_of=yesterday, explain=True)
        >>> found.hits[0].explanation.words.terms
        """
        wanted = Wanted(kinds, tags, any_tags, scope, confidence_from, recorded_from, recorded_until, valid_at)
        looked = Looked(words, vector, wanted, limit, context_bytes, explain)
        order = Order.search(looked, Ranked(ranking or Ranking(), vector), then(as_of))
        found: FoundT = self._ask("search", order, said.found)
        return found

    def version(self, as_of: AsOf = None) -> VersionT:
        """The newest version, or the one that is meant: of a sequence, at a time."""
        version: VersionT = self._ask("version", Order.version(then(as_of)), said.version)
        return version

    def history(self, id: int) -> RevisionsT:
        """All documents of which each corrects the one before, the oldest first."""
        revisions: RevisionsT = self._ask("history", Order.history(_id(id)), said.revisions)
        return revisions

    def changes(self, after: AsOf = 0, until: AsOf = None) -> ChangesT:
        """What happened after a version, up to another one.

        >>> for change in kitchen.changes(after=then):
        ...     print(change.at, change.by, change.what, change.documents)
        """
        order = Order.changes(then(after), then(until))
        changes: ChangesT = self._ask("changes", order, said.changes)
        return changes

    def list(
        self,
        *,
        as_of: AsOf = None,
        after: int | None = None,
        limit: int = 1000,
        kinds: str | Iterable[str] = (),
        tags: str | Iterable[str] = (),
        any_tags: str | Iterable[str] = (),
        scope: str | Iterable[str] = (),
        confidence_from: float = 0.0,
        recorded_from: datetime.datetime | None = None,
        recorded_until: datetime.datetime | None = None,
        valid_at: datetime.datetime | None = None,
    ) -> DocumentsT:
        """The documents of a version, in the order in which they were added: after one, at most so many.

        >>> kitchen.list(kinds="constraint", valid_at=now)
        """
        wanted = Wanted(kinds, tags, any_tags, scope, confidence_from, recorded_from, recorded_until, valid_at)
        order = Order.list(wanted, then(as_of), None if after is None else _id(after), whole(limit, "the limit"))
        documents: DocumentsT = self._ask("list", order, said.documents)
        return documents


class RunMemory(MemoryMethods[int, Found, Document, Version]):
    """A memory, in the code of a plain agent; :func:`dalsegno.memory` makes it. Everything it does is a step."""

    def _ask(self, what: str, order: Order, then: Callable[[Any], Any]) -> Any:
        return MemoryWant(self.name, self._by, what, order, then).here()


class Memory(OutsideMethods[int, Found, Document, Version, list[Revision], list[Change], list[Document]]):
    """A memory, outside of runs; ``app.memory("kitchen")`` makes it. Nothing is recorded of what it is asked."""

    def __init__(self, app: App, name: str, by: str | None) -> None:
        super().__init__(name, by)
        self._app = app

    def _ask(self, what: str, order: Order, then: Callable[[Any], Any]) -> Any:
        asks = self._app._asks
        pending = asks.core.memory(self.name, self._by, order)
        return self._app._wait(Asked(asks, pending, lambda text: then(read(text or "null"))))


class MemoryWant(Want[Any]):
    """A step that asks a memory, or tells it something."""

    def __init__(self, name: str, by: str | None, what: str, order: Order, then: Callable[[Any], Any]) -> None:
        super().__init__(f"memory({name!r}).{what}", lambda ctx: ctx.memory(name, by, order), then)

    def body(self) -> Body:
        return _MemoryBody(self.what)


class _MemoryBody(Body):
    def failure(self, parts: tuple[str, str, str, str | None]) -> Exception:
        error = super().failure(parts)
        if type(error) is BadUse:
            refused = MemoryFailure(str(error))
            refused.failure = error.failure
            return refused
        return error


def _id(id: Any) -> int:
    return whole(id, "the document")
