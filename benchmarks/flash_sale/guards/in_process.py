"""asyncio's own lock: what the shop can sell one by one, when taking turns costs nothing.

For one worker process only.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from . import Guard

__all__ = ["opened"]


@asynccontextmanager
async def opened(urls: Sequence[str]) -> AsyncIterator[Guard]:
    """Give a guard that keeps out who comes to the same process; `urls` is not looked at."""
    yield defaultdict[str, asyncio.Lock](asyncio.Lock).__getitem__
