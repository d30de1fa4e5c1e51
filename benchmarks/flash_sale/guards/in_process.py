"""Guard with an `asyncio.Lock`, for one worker process only.

This guard shows the highest rate at which the shop can sell items one by one.
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
    """Yield a guard for one process. `urls` is not used."""
    yield defaultdict[str, asyncio.Lock](asyncio.Lock).__getitem__
