"""Tries to acquire a held lock once the label of the holder is on the nodes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockHeld
from tests.integrations.serving import PATIENCE

if TYPE_CHECKING:
    import aioredlock_ng
    from aioredlock_ng import sync

__all__ = ["refusal", "sync_refusal"]


async def refusal(redlock: aioredlock_ng.Redlock, name: str) -> str:
    """Return the message of the `LockHeld`."""
    async with asyncio.timeout(PATIENCE):
        while (await redlock.inspect(name)).owner is None:
            await asyncio.sleep(0.01)
    with pytest.raises(LockHeld) as caught:
        await redlock.lock(name, blocking_timeout=0).acquire()
    return str(caught.value)


def sync_refusal(redlock: sync.Redlock, name: str) -> str:
    """Return the message of the `LockHeld`."""
    end = time.monotonic() + PATIENCE
    while redlock.inspect(name).owner is None:
        assert time.monotonic() < end, "the holder has written no label"
        time.sleep(0.01)
    with pytest.raises(LockHeld) as caught:
        redlock.lock(name, blocking_timeout=0).acquire()
    return str(caught.value)
