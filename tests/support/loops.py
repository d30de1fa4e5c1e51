"""The event loops that the option `--loop` can choose."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING

from tests.support.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KINDS", "factory"]

KINDS = ("plain", "debug", "eager", "uvloop")


def factory(kind: str, *, virtual: bool) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return a function that makes the event loop of one test.

    If `virtual` is True, the loop has a virtual clock. uvloop has no virtual clock, so another loop
    takes its place.
    """

    def make() -> asyncio.AbstractEventLoop:
        loop = VirtualLoop() if virtual else _real(kind)
        if kind == "debug":
            loop.set_debug(True)
        if kind == "eager":
            # Python 3.11 has no eager tasks.
            factory = asyncio.eager_task_factory  # type: ignore[attr-defined,unused-ignore]
            loop.set_task_factory(factory)
        return loop

    return make


def _real(kind: str) -> asyncio.AbstractEventLoop:
    if kind != "uvloop":
        return asyncio.new_event_loop()
    import uvloop

    class Loop(uvloop.Loop):
        def close(self) -> None:
            # uvloop warns of handles that are still open. If this warning is an error, uvloop
            # counts its handles wrongly, and `close` never returns.
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", ResourceWarning)
                super().close()
            for warning in caught:
                warnings.warn(warning.message, stacklevel=2)

    loop: asyncio.AbstractEventLoop = Loop()
    return loop
