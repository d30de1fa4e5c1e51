"""A bare client on an event loop in another thread, the floor for an engine in a thread.

A call costs what each design with an event loop in a thread must pay. The caller wakes the loop,
the loop asks the nodes, and the loop wakes the caller.
"""

from __future__ import annotations

import asyncio
import threading
from importlib.metadata import version
from typing import TYPE_CHECKING

from benchmarks.floor import Bare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.floor import Grant

__all__ = ["BareThread"]


class BareThread:
    """The connections of a bare client, and the thread of their loop."""

    def __init__(self, urls: Sequence[str], ttl: float) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self._bare = asyncio.run_coroutine_threadsafe(Bare.connect(urls), self.loop).result()
        self._ttl_ms = int(ttl * 1000)
        self.versions = {"hiredis": version("hiredis")}

    def start_acquire(self, key: str, answered: Callable[[Grant], object]) -> None:
        """Ask for a key, and call `answered` on the loop when a quorum has granted it."""

        def ask() -> None:
            self._when_done(self._bare.acquire(key, self._ttl_ms), answered)

        self.loop.call_soon_threadsafe(ask)

    def start_release(self, grant: Grant, answered: Callable[[Grant], object]) -> None:
        """Delete a key, and call `answered` on the loop when a quorum has deleted it."""

        def ask() -> None:
            self._when_done(self._bare.release(grant), answered)

        self.loop.call_soon_threadsafe(ask)

    def _when_done(
        self, future: asyncio.Future[Grant], answered: Callable[[Grant], object]
    ) -> None:
        future.add_done_callback(lambda done: answered(done.result()))
