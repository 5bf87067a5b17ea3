"""Kills your agent everywhere, and checks that nothing happened twice.

A fixture of pytest, which comes with the package:

>>> def test_orders_survive(crash_everywhere):
...     crash_everywhere(order, 42)

The agent runs undisturbed, and every moment is counted at which a process could die: before and after each append,
after each sync, before and after each execution of a tool. Then it runs again once per moment: there it dies,
everything that was not synced is lost, a new process takes over. At the end the result must be the same, each ``once``
tool must have been executed at most once under its key, and every tool with an effect under the same keys as
undisturbed. Time does not pass: an approval of two days takes a millisecond.

``crash_everywhere(…, processes=True)`` does it with real processes, a real disk and SIGKILL.

What the tools do is seen by itself. Give a ``world`` if they use one of yours, as a fake bank: an object with
``reset()``, which is called before each case, and if it likes with ``seen()``, which must give the same in each case.
"""

from __future__ import annotations

from ._crash.cases import Broken, CrashEverywhere, Report
from ._crash.life import Ask, Killed, Reply, honest
from ._crash.world import Ledger, World

__all__ = ["Ask", "Broken", "CrashEverywhere", "Killed", "Ledger", "Reply", "Report", "World", "honest"]
