"""A connection of the library's own kind that is asked one thing at a time, each in bounded time; it never judges an answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hiredis import pack_command

from aioredlock_ng._core.votes import Dropped, Garbled, Unsent
from aioredlock_ng._nodes.channel import Channel, Outbox, Subscription
from aioredlock_ng._nodes.question import Question
from aioredlock_ng._scripts import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.connect import Wire

__all__ = ["Interview", "NoAnswer"]

_GOODBYE = 1.0
"""Seconds that TLS may take to say goodbye."""


class NoAnswer(Exception):
    """None came in time, or the connection was lost; the text says at which step and why."""


class Interview:
    """One server, from an open connection to its end.

    Args:
        wire: The connection; it is ours from here on.
        within: Seconds that each answer may take.
        clock: Steady seconds.

    Attributes:
        endpoint: Where the connection leads: `address:port` with the name resolved, or the path of a socket.
        redact: See `Wire`.
        messages: What was published on a channel that was subscribed to.
    """

    def __init__(self, wire: Wire, within: float, clock: Callable[[], float]) -> None:
        self.endpoint = _endpoint_of(wire)
        self.redact = wire.redact
        self._within = within
        self._clock = clock
        self.messages: list[bytes] = []
        outbox = Outbox(asyncio.get_running_loop(), clock)
        self._channel = Channel(
            0, outbox, within, _ignore, self.messages.append, _ignore, _ignore, _ignore, _ignore
        )
        self._channel.attach(wire.transport, wire.received, keep=wire, redact=wire.redact)

    async def ask(self, *words: Any) -> Reply:
        """Ask a command by its words; see `call`."""
        return await self.call(str(words[0]), Request(pack_command(words)))

    async def subscribe(self, channel: bytes) -> Reply:
        """Ask for the messages of a channel, over RESP3; `OK` once the server has confirmed. See `call`."""
        question = Question(Request(b""), self._clock())
        self._channel.ask(Subscription(channel, question))
        return await self._answer("SUBSCRIBE", question)

    async def call(self, step: str, command: Request) -> Reply:
        """Ask, and wait for the answer.

        Raises:
            NoAnswer: None came.

        Safety: cancelled, the server may have executed it.
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
        return reply

    def close(self, last: Request | None = None) -> None:
        """Ask `last`, whose answer nobody waits for, and close the connection behind it."""
        if last is not None:
            self._channel.ask(Question(last, self._clock()))
        self._channel.close("examined")

    async def gone(self) -> None:
        """Wait until it is closed."""
        await self._channel.gone(_GOODBYE)


def _ignore(*_: object) -> None:
    """Of what a channel tells, only the answers matter here."""


def _endpoint_of(wire: Wire) -> str:
    peer = wire.transport.get_extra_info("peername")
    if isinstance(peer, tuple):
        host = str(peer[0])
        return f"[{host}]:{peer[1]}" if ":" in host else f"{host}:{peer[1]}"
    return str(peer)
