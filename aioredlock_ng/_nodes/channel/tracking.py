"""The request CLIENT CACHING, after which the server tracks the keys of the next command.

In the tracking mode OPTIN, the keys of other commands are not tracked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioredlock_ng._scripts import Request

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Reply

__all__ = ["CACHING", "Caching"]

CACHING: Final = Request.of("CLIENT", "CACHING", "YES")
"""Asks the server to track the keys that the next command of the connection reads."""


class Caching:
    """A sink that ignores the reply to `CACHING`.

    A server without tracking refuses the request each time, but executes the next command. The
    channel reports the refusal to its node.
    """

    __slots__ = ("started",)

    command = CACHING

    def __init__(self, started: float) -> None:
        self.started = started

    def stands(self) -> bool:
        return False

    def deliver(self, index: int, reply: Reply) -> None:
        """Ignore the reply, which says nothing about the next command."""
