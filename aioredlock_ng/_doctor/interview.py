"""Send single requests to a node, each with a time limit, and receive the node's messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.refusals import harmless, is_of_replica
from aioredlock_ng._core.votes import Dropped, Garbled, Refusal, Unsent
from aioredlock_ng._nodes.channel import Channel, Outbox, Subscription
from aioredlock_ng._nodes.question import Question
from aioredlock_ng._scripts import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.wire import Wire

__all__ = ["AtReplica", "Interview", "NoAnswer"]

_GOODBYE = 1.0
"""Longest time in seconds to wait for the end of a connection that is being closed."""


class NoAnswer(Exception):
    """No answer came in time, or the connection was lost.

    The text of the exception names the request and the reason.
    """


class AtReplica(Exception):
    """The server refused a request because it is a replica. The text is the server's refusal."""


class Interview:
    """The conversation with one server over an open connection, until the connection ends.

    Args:
        wire: The connection, which this object takes over.
        within: Longest wait for each answer, in seconds.
        clock: Returns the time of a steady clock in seconds.

    Attributes:
        endpoint: The server's end of the connection: `address:port` with the name resolved, or the
            path of a socket.
        redact: Removes passwords from texts; see `Wire`.
        messages: Messages that arrived from subscribed channels.
    """

    def __init__(self, wire: Wire, within: float, clock: Callable[[], float]) -> None:
        self.endpoint = _endpoint_of(wire)
        self.redact = wire.redact
        self._within = within
        self._clock = clock
        self.messages: list[bytes] = []
        outbox = Outbox(asyncio.get_running_loop(), clock)
        self._channel = Channel(
            0,
            outbox,
            within,
            on_push=_ignore,
            on_message=self.messages.append,
            on_close=_ignore,
            on_silent=_ignore,
            on_release_refused=_ignore,
            on_garbled=_ignore,
            on_tracking_refused=_ignore,
        )
        self._channel.attach(wire.transport, wire.received, keep=wire, redact=wire.redact)

    async def ask(self, *words: Any) -> Reply:
        """Send a command, given as words, and return the answer."""
        return await self.call(str(words[0]), Request.of(*words))

    async def subscribe(self, channel: bytes) -> Reply:
        """Subscribe to a channel over RESP3, and return the reply.

        The reply to a confirmed subscription is `OK`.

        Raises:
            AtReplica, NoAnswer: As in `call`.
        """
        question = Question(Request(b""), self._clock())
        self._channel.ask(Subscription(channel, question))
        return await self._answer("SUBSCRIBE", question)

    async def call(self, step: str, command: Request) -> Reply:
        """Send a request, and return the answer. `step` names the request in errors.

        Raises:
            AtReplica: The server refused the request because it is a replica. The channel closes
                the connection.
            NoAnswer: No answer came in time, or the connection was lost.

        Safety: after a cancellation, the server may have executed the request.
        """
        question = Question(command, self._clock())
        self._channel.ask(question)
        return await self._answer(step, question)

    async def _answer(self, step: str, question: Question) -> Reply:
        try:
            async with asyncio.timeout(self._within):
                reply = await question.reply
        except TimeoutError:
            raise NoAnswer(
                f"connected, but no answer to {step} within {self._within:g} s"
            ) from None
        if isinstance(reply, (Dropped, Unsent)) and not isinstance(reply, Garbled):
            raise NoAnswer(f"the connection ended at {step}: {reply}")
        if isinstance(reply, Refusal) and is_of_replica(str(reply)):
            raise AtReplica(harmless(str(reply)))
        return reply

    def close(self, *last: Request) -> None:
        """Send the last requests without waiting for answers, and then close the connection."""
        for request in last:
            self._channel.ask(Question(request, self._clock()))
        self._channel.close("examined")

    async def gone(self) -> None:
        await self._channel.gone(_GOODBYE)


def _ignore(*_: object) -> None:
    """Ignore a notification of the channel, because only replies and messages are needed."""


def _endpoint_of(wire: Wire) -> str:
    peer = wire.transport.get_extra_info("peername")
    if isinstance(peer, tuple):
        host = str(peer[0])
        return f"[{host}]:{peer[1]}" if ":" in host else f"{host}:{peer[1]}"
    return str(peer)
