"""What the tests share."""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dalsegno

Open = Callable[..., dalsegno.App]

if sys.version_info < (3, 11):
    # Pydantic AI needs a newer Python.
    collect_ignore = ["test_pydantic_ai.py", "test_docs_integrations.py"]


@pytest.fixture(autouse=True)
def _no_test_hangs() -> Iterator[None]:
    # Shows where every thread is, and ends: a deadlock is a failure, not a wait.
    faulthandler.dump_traceback_later(450, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a store can be."""
    return tmp_path / "store"


@pytest.fixture
def opened(place: Path) -> Iterator[Open]:
    """Opens a store with agents, again and again; only the last one stays open."""
    last: list[dalsegno.App] = []

    def open_it(*agents: dalsegno.Agent[..., Any], **settings: Any) -> dalsegno.App:
        while last:
            last.pop().close()
        last.append(dalsegno.open(place, agents=agents, **settings))
        return last[0]

    yield open_it
    while last:
        last.pop().close()
