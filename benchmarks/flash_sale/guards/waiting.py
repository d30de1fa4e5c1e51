"""Retry at once, after a fixed sleep, or after a random sleep."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Waiting"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The pause between two tries, and the number of tries.

    Attributes:
        delay: Seconds between two tries. 0 for no pause.
        random_pause: True for random sleeps between delay / 2 and delay.
        tries: Number of tries. None for no limit.
    """

    delay: float = 0.0
    random_pause: bool = False
    tries: int | None = None

    async def until(self, attempt: Callable[[], Awaitable[bool]]) -> None:
        """Try until `attempt` returns True.

        Raises:
            Refused: `attempt` returned False in all `tries`.
        """
        tried = 0
        while not await attempt():
            tried += 1
            if tried == self.tries:
                raise Refused(f"held by others at each of {tried} tries")
            await asyncio.sleep(
                random.uniform(self.delay / 2, self.delay) if self.random_pause else self.delay
            )
