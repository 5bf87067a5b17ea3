"""Spans of time: seconds, or a `timedelta`."""

from __future__ import annotations

import datetime
from typing import overload

Time = float | datetime.timedelta


@overload
def seconds(time: Time) -> float: ...
@overload
def seconds(time: Time | None) -> float | None: ...
def seconds(time: Time | None) -> float | None:
    """As the core has them."""
    if time is None:
        return None
    return time.total_seconds() if isinstance(time, datetime.timedelta) else float(time)
