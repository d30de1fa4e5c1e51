"""Guard without a lock.

This guard shows the rate of the shop without waiting, and the number of items sold twice.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from . import Guard

__all__ = ["opened"]


@asynccontextmanager
async def opened(urls: Sequence[str]) -> AsyncIterator[Guard]:
    """Yield a guard that lets all buyers pass. `urls` is not used."""

    def guard(name: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    yield guard
