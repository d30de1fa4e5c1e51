"""The causes that events name. `events.py` describes each value."""

from __future__ import annotations

from typing import Literal

__all__ = ["LossCause", "WakeCause"]

LossCause = Literal["gone", "unrenewed", "stalled", "expired", "max_hold", "closed"]
"""The reason why a lease was lost."""

WakeCause = Literal["notified", "expiry", "fallback"]
"""The reason why a waiter tries again."""
