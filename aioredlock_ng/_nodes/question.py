"""One thing asked of one node, for whoever waits for its answer; the engine's rounds ask many and never wait like that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._scripts import Request

__all__ = ["Question"]


class Question:
    """See `Sink`.

    Attributes:
        reply: The answer.
    """

    def __init__(self, command: Request, started: float) -> None:
        self.command = command
        self.started = started
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def stands(self) -> bool:
        """See `Sink.stands`: a script that the server does not know is sent in full."""
        return True

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`."""
        if not self.reply.done():
            self.reply.set_result(reply)
