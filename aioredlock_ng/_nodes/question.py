"""A request to one node whose reply can be awaited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng._scripts import Request

__all__ = ["Question", "answer_of"]


class Question:
    """A sink for one reply, which a task can await."""

    def __init__(self, command: Request, started: float) -> None:
        self.command = command
        self.started = started
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def stands(self) -> bool:
        """Return True, so that the request is sent again if the server does not know the script."""
        return True

    def deliver(self, index: int, reply: Reply) -> None:
        """Set the result of the future, unless the task that awaited it was cancelled."""
        if not self.reply.done():
            self.reply.set_result(reply)


async def answer_of(
    node: Node, index: int, request: Request, within: float, started: float
) -> Reply:
    """Send a request to a node, and return its answer; None if none came in `within` seconds.

    `started` is the present time of the engine's clock.
    """
    question = Question(request, started)
    node.ask(question, index)
    try:
        async with asyncio.timeout(within):
            return await question.reply
    except TimeoutError:
        return None
