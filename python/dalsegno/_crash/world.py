"""What the world outside has seen of an agent, over all its lives. It does not crash."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable


@runtime_checkable
class World(Protocol):
    """Something of yours that tools change. With a method ``seen`` what it gives must be the same in each case."""

    def reset(self) -> None:
        """Makes it as it was: a case begins."""


@dataclass
class Seen:
    """A tool under a key."""

    effect: str
    arrived: int = 0
    inputs: int = 0
    result: str | None = None
    """What it gave, as JSON."""


class Ledger:
    """Which tools were executed, under which keys, and how often.

    In a file if a process is really killed: each line is one write, so it is there or not.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._file = file
        self.seen: dict[tuple[str, str], Seen] = {}
        if file is not None and file.exists():
            for line in file.read_text().splitlines():
                self._take(*json.loads(line))

    def _note(self, *what: str) -> None:
        if self._file is not None:
            file = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(file, (json.dumps(what) + "\n").encode())
            finally:
                os.close(file)
        with self._lock:
            self._take(*what)

    def _take(self, what: str, name: str, effect: str, key: str, result: str = "") -> None:
        seen = self.seen.setdefault((name, key), Seen(effect))
        if what == "arrived":
            seen.arrived += 1
        else:
            seen.result = result

    def arrived(self, name: str, effect: str, key: str) -> None:
        """A tool is about to do something."""
        self._note("arrived", name, effect, key)

    def gave(self, name: str, effect: str, key: str, result: str) -> None:
        """A tool has done it."""
        self._note("gave", name, effect, key, result)

    def under(self, key: str) -> Seen | None:
        """What came under a key."""
        found = (seen for (_, known), seen in self.seen.items() if known == key and seen.arrived)
        return next(found, None)

    def count(self) -> int:
        """How often anything came that has an effect."""
        return sum(seen.arrived for seen in self.seen.values() if seen.effect != "read_only")

    def differs_from(self, undisturbed: Ledger) -> str | None:
        """What is wrong, if the undisturbed one is right."""
        for (name, key), seen in self.seen.items():
            if seen.effect == "read_only":
                continue
            if seen.effect == "once" and seen.arrived > 1:
                return f"{name!r} was done {seen.arrived} times under key {key}"
            if (name, key) not in undisturbed.seen:
                return f"{name!r} was done under key {key}, which it was not when nothing was disturbed"
        for (name, key), seen in undisturbed.seen.items():
            if seen.effect != "read_only" and (name, key) not in self.seen:
                return f"{name!r} was never done under key {key}"
        return None
