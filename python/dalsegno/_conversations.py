"""Conversations that grow: each turn costs its own message, not the whole.

A chat sends all that was said with every call of a model. As an argument of the model's step that would be stored and
compared whole each time: the square of its length. A conversation is recorded message by message; a step that is given
it records its length, and a hash that follows from the hash before and the new message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, overload

from ._errors import NotSerialisable
from ._values import register_written, type_words, write, write_and_read


class Said(Sequence[Any]):
    """What was said so far, in order: a sequence of messages, which may be anything that can be recorded."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._messages: list[Any] = []
        self._hash = b""

    def _take(self, text: str, message: Any) -> None:
        self._messages.append(message)
        self._hash = hashlib.blake2b(self._hash + text.encode(), digest_size=16).digest()

    def _take_all(self, messages: list[Any]) -> None:
        for message in messages:
            self._take(write(message), message)

    def written(self, message: Any) -> tuple[str, Any]:
        """A message as it is recorded, and as it is read."""
        try:
            return write_and_read(message)
        except Exception as e:
            what = type_words(type(message))
            raise NotSerialisable(f"conversation {self.name!r}: a {what} cannot be recorded: {e}") from e

    @property
    def messages(self) -> list[Any]:
        """All of it, as a list of its own."""
        return list(self._messages)

    def noted(self) -> list[Any]:
        """What a step records of it."""
        return [self.name, len(self._messages), self._hash.hex()]

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        return self._messages[at]

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._messages))

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self._messages)} messages>"


register_written(Said, "$conversation", Said.noted)
