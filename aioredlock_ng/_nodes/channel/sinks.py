"""Sinks of a channel: subscriptions, repeated releases, scripts sent in full, and probes.

All these sinks except `Probe` deliver the reply to another sink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hiredis import pack_command

from aioredlock_ng._core.replies import Released
from aioredlock_ng._nodes.channel.joint import Joint
from aioredlock_ng._scripts import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.port import Sink

__all__ = ["PROBE", "Belated", "InFull", "Probe", "Subscription", "asking"]

PROBE = pack_command(("TIME",))
"""The request that tests a silent server.

A refusal counts as an answer, so the Redis user needs no right to run the command."""


class Subscription:
    """A request for the messages of one pub/sub channel, on a connection with RESP3.

    A refusal of the subscription is an ordinary reply. A confirmation is a push, not a reply.

    Args:
        sink: Gets `OK` for a confirmation, and any other reply unchanged.
    """

    def __init__(self, channel: bytes, sink: Sink) -> None:
        self.channel = channel
        self.confirmed = False
        self.command = Request.of("SUBSCRIBE", channel)
        self.started = sink.started
        self._sink = sink

    def stands(self) -> bool:
        return self._sink.stands()

    def deliver(self, index: int, reply: Reply) -> None:
        self._sink.deliver(index, reply)


class Belated:
    """The sink of a release that is sent late or again, perhaps after later requests.

    A later request may have been refused because of the key that this release deletes. Tracking
    runs with NOLOOP: the server does not report a deletion to the connection that requested it. So
    this sink reports the deletion instead of the server.

    Args:
        freed: Called with the keys of the release once they are deleted.
        sink: Gets the reply; None if no caller wants it.
    """

    def __init__(
        self,
        command: Request,
        started: float,
        freed: Callable[[list[bytes] | None], None],
        sink: Sink | None = None,
    ) -> None:
        self.command = command
        self.started = started
        self._freed = freed
        self._sink = sink

    def stands(self) -> bool:
        """Return False. The channel sends a release again without calling this method."""
        return False

    def deliver(self, index: int, reply: Reply) -> None:
        if self._sink is not None:
            self._sink.deliver(index, reply)
        if type(reply) is Released and reply.deleted > 0:
            self._freed(list(self.command.keys))


class InFull:
    """The sink of a request that is sent with the script's source.

    A NOSCRIPT reply to this request counts as a refusal. Otherwise the request would be sent again
    for ever.
    """

    __slots__ = ("command", "sink", "started")

    def __init__(self, sink: Sink) -> None:
        self.command = sink.command
        self.started = sink.started
        self.sink = sink

    def stands(self) -> bool:
        return self.sink.stands()

    def deliver(self, index: int, reply: Reply) -> None:
        self.sink.deliver(index, reply)


class Probe:
    """The sink of a request that tests whether the server answers in time.

    Args:
        answered: Called with `started` when the reply comes or the connection is lost.
    """

    def __init__(self, started: float, answered: Callable[[float], None]) -> None:
        self.command = Request(PROBE)
        self.started = started
        self._answered = answered

    def stands(self) -> bool:
        return False

    def deliver(self, index: int, reply: Reply) -> None:
        self._answered(self.started)


def asking(sink: Sink) -> Sequence[Sink]:
    """Return the sinks of a merged request, or the sink of a single request."""
    return sink.sinks if isinstance(sink, Joint) else (sink,)
