"""The request that leaves the keys of the command behind it tracked. Connections track nothing else (OPTIN)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hiredis import pack_command

from aioredlock_ng._scripts import Request

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Reply

__all__ = ["CACHING", "Caching"]

_WORDS: tuple[Any, ...] = ("CLIENT", "CACHING", "YES")

CACHING: Final = Request(pack_command(_WORDS))
"""Ask the server to track the keys that the next command on the same connection reads."""


class Caching:
    """Take the reply to `CACHING`; a `Sink`.

    The reply says nothing about the command. A node without tracking refuses this request on every use, and executes
    the command all the same.
    """

    __slots__ = ("started",)

    command = CACHING

    def __init__(self, started: float) -> None:
        self.started = started

    def stands(self) -> bool:
        """See `Sink.stands`."""
        return False

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`."""
