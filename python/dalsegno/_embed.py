"""Embedders: what makes vectors out of texts, in a run recorded and never asked again."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any

from . import _dalsegno
from ._errors import BadUse
from ._memory_given import Vector, VectorLike, components, several, whole, words
from ._perform import Body
from ._raising import failure_of
from ._steps import Want

_Told = list[bytes | list[float]] | tuple[str, bool]


class StaticTable:
    """A table of word vectors from a folder: fast, and the same bits on every machine.

    The folder has ``tokenizer.json`` and one ``*.safetensors``. It takes well below a millisecond for a paragraph, and
    lets go of the interpreter meanwhile.

    >>> table = dalsegno.StaticTable("models/wordllama-256")
    >>> [vector] = table.embed(["how hot is the oven"])
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, dimensions: int | None = None, name: str | None = None
    ) -> None:
        cut = None if dimensions is None else whole(dimensions, "the dimensions")
        self._core = _dalsegno.Embedder.table(os.fspath(folder), cut, name)

    @property
    def id(self) -> str:
        """Its name, and a hash of all that decides its vectors."""
        return self._core.id

    @property
    def dimensions(self) -> int:
        """How many components each vector has."""
        return self._core.dimensions

    def embed(self, texts: Iterable[str]) -> list[Vector]:
        """The vectors of some texts, in their order. In a run use :func:`dalsegno.embed`."""
        return [Vector(made, self.id) for made in self._core.embed(_texts(texts))]

    def _in_run(self, body: Body, ctx: _dalsegno.Ctx) -> _dalsegno.Embedder:
        return self._core

    def __repr__(self) -> str:
        return f"<dalsegno table {self.id}: {self.dimensions} dimensions>"


class Embedder:
    """A function of yours as an embedder: it is given texts, and gives the numbers of each.

    >>> mine = dalsegno.Embedder(client.embed, name="mini", version="2026-03", dimensions=384)
    >>> [vector] = dalsegno.embed(mine, ["how hot is the oven"])

    ``version`` is whatever changes when its vectors do: vectors of another one cannot be compared. In a run it is
    called on a thread of its own.
    """

    def __init__(
        self,
        call: Callable[[list[str]], Iterable[VectorLike]],
        *,
        name: str,
        dimensions: int,
        version: str = "",
    ) -> None:
        if inspect.iscoroutinefunction(call):
            raise BadUse(f"the embedder {name!r} is async: give a plain function, it is called on a thread of its own")
        self._call = call
        self._name = words(name, "the name of an embedder")
        self._version = words(version, "the version of an embedder")
        self.dimensions = whole(dimensions, "the dimensions")
        self.id = self._made(lambda _: []).id

    def _made(self, call: Callable[[list[str]], _Told]) -> _dalsegno.Embedder:
        return _dalsegno.Embedder.own(call, self._name, self._version, self.dimensions)

    def embed(self, texts: Iterable[str]) -> list[Vector]:
        """The vectors of some texts, in their order. In a run use :func:`dalsegno.embed`."""
        return [Vector.of(made, self.id) for made in self._call(_texts(texts))]

    def _in_run(self, body: Body, ctx: _dalsegno.Ctx) -> _dalsegno.Embedder:
        def call(texts: list[str]) -> _Told:
            try:
                return [components(vector) for vector in self._call(texts)]
            except Exception as e:
                body.raised = e
                failure = failure_of(e)
                return failure.message, failure.certainty == "not-done"
            except BaseException as e:
                # No outcome of the step: the run is left as by a crash.
                ctx.interrupted(f"{type(e).__name__} in the embedder {self._name!r}: the run goes on from its record")
                return repr(e), False

        return self._made(call)

    def __repr__(self) -> str:
        return f"<dalsegno embedder {self.id}: {self.dimensions} dimensions>"


class EmbedWant(Want[list[Vector]]):
    """A step that embeds texts."""

    def __init__(self, embedder: StaticTable | Embedder, texts: Iterable[str]) -> None:
        if not isinstance(embedder, StaticTable | Embedder):
            raise BadUse(f"{embedder!r} is no embedder: give a dalsegno.StaticTable, or dalsegno.Embedder(function, …)")
        given, body = _texts(texts), Body("embed")
        self._body = body

        def then(made: Any) -> list[Vector]:
            return [Vector(bytes.fromhex(vector), embedder.id) for vector in made]

        super().__init__("embed", lambda ctx: ctx.embed(embedder._in_run(body, ctx), given), then)

    def body(self) -> Body:
        return self._body


def _texts(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        raise BadUse("one text is to be embedded: give a list with it")
    return several(texts, "a text")
