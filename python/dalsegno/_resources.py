"""Things outside that a run depends on, which are looked at again before it is resumed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

IfChanged = Literal["attention", "fail", "go_on"]
AnyPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Resource:
    """Something outside that a run depends on; noted with :func:`dalsegno.checkpoint`.

    If it has changed when the run is resumed, the run waits for a person (``attention``), who accepts the new state
    with :meth:`App.clear_attention`; or it fails; or it goes on, and that is recorded.

    >>> dalsegno.checkpoint("written", holding=[Resource.file("book.md"), Resource.git(".", "main")])
    """

    kind: str
    name: str
    detail: str | None = None
    if_changed: IfChanged = "attention"

    @staticmethod
    def file(path: AnyPath, *, if_changed: IfChanged = "attention") -> Resource:
        """A file, by its length and content."""
        return Resource("file", os.path.abspath(path), None, if_changed)

    @staticmethod
    def folder(path: AnyPath, *, if_changed: IfChanged = "attention") -> Resource:
        """A folder, by the names and contents of all files in it; a ``.git`` folder is passed over."""
        return Resource("folder", os.path.abspath(path), None, if_changed)

    @staticmethod
    def git(repository: AnyPath, branch: str | None = None, *, if_changed: IfChanged = "attention") -> Resource:
        """A branch of a git repository by its commit, or what is checked out there."""
        return Resource("git", os.path.abspath(repository), branch, if_changed)

    @staticmethod
    def url(url: str, *, if_changed: IfChanged = "attention") -> Resource:
        """A page, by whatever the function makes of it that the store was opened with: ``resources={"url": …}``."""
        return Resource("url", url, None, if_changed)

    @staticmethod
    def custom(validator: str, name: str, *, if_changed: IfChanged = "attention") -> Resource:
        """Something that a function of yours looks up: ``dalsegno.open(…, resources={validator: function})``."""
        return Resource("custom", name, validator, if_changed)
