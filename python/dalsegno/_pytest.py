"""The pytest plugin: the fixture `crash_everywhere`."""

from __future__ import annotations

import pytest

from .testing import CrashEverywhere


@pytest.fixture
def crash_everywhere() -> CrashEverywhere:
    """Kills an agent at every moment, and checks that nothing happened twice: `crash_everywhere(agent, …)`."""
    return CrashEverywhere()
