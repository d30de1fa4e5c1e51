"""One full-duplex connection to one server: commands out in batches, answers back first in, first out.

It never times a request out, never closes because somebody stopped waiting, and never reconnects (see `node.py`).
Because the server sees our commands in the order in which they were queued, a release queued after an acquire is
executed after it, however late both are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections import deque
from typing import TYPE_CHECKING, Any

import hiredis

from aioredlock_ng._core.replies import Released
from aioredlock_ng._core.votes import Dropped, Garbled, Refusal, Unsent
from aioredlock_ng._nodes.joint import Joint
from aioredlock_ng._nodes.tracking import CACHING, Caching
from aioredlock_ng._scripts import Request
from aioredlock_ng._scripts.replies import garbled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.outbox import Outbox
    from aioredlock_ng._nodes.port import Sink

__all__ = ["Belated", "Channel", "Subscription"]

MAX_PENDING = 65_536
"""Requests in flight on one connection, about 10 MB: a server that far behind counts as silent."""

_RECEIVE_BUFFER = 65_536

_MORE = object()

_READONLY = re.compile(r"(ERR Error running script .*|@user_script: ?\d+: )?-?READONLY ")
"""A replica's refusal, as it is and as Redis 6.2 words it for scripts."""

_Push = hiredis.PushNotification

_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command

_PROBE = hiredis.pack_command(("TIME",))
"""What is asked of a suspect server: something that locks need the right for anyway."""


class Channel(asyncio.BufferedProtocol):
    """The connection, once it is made and authenticated.

    Args:
        index: Of its node, for the sinks.
        outbox: Shared by the channels of a manager.
        patience: Seconds without an answer after which the server is doubted, and after as many more counts as silent.
        on_push: Called with the keys of an invalidation message (None: all).
        on_message: Called with each message published on the channel of a confirmed `Subscription`.
        on_close: Called once when the connection is gone, with the reason and the releases whose outcome is unknown.
        on_silent: Called when the server stops (True) and starts again (False) answering.
        on_release_refused: Called with a release that the server refused (BUSY, MISCONF…) and its words: it is still owed.
        on_garbled: Called with the words about an answer that does not fit what was asked.
    """

    def __init__(
        self,
        index: int,
        outbox: Outbox,
        patience: float,
        on_push: Callable[[list[bytes] | None], None],
        on_message: Callable[[bytes], None],
        on_close: Callable[[str, list[Request]], None],
        on_silent: Callable[[bool], None],
        on_release_refused: Callable[[Request, str], None],
        on_garbled: Callable[[str], None],
    ) -> None:
        self._index = index
        self._outbox = outbox
        self._patience = patience
        self._on_push = on_push
        self._on_message = on_message
        self._subscribed = b""
        self._on_close = on_close
        self._on_silent = on_silent
        self._on_release_refused = on_release_refused
        self._on_garbled = on_garbled
        self._redact: Callable[[str], str] = str
        self._reader: Any = hiredis.Reader(
            protocolError=_ProtocolError,
            # All errors of a server come in here. A server that quotes AUTH would show the password.
            replyError=lambda words: Refusal(self._redact(words)),
            notEnoughData=_MORE,
        )
        self._view = memoryview(bytearray(_RECEIVE_BUFFER))
        self._waiting: deque[Sink] = deque()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._doubted = self._probing = False
        self._drained: asyncio.Future[None] | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.silent = False
        # Until the server has told its own, what stands for it is sent as it is.
        self.run_id = outbox.run_id

    def attach(self, transport: asyncio.Transport, received: bytes, keep: object, redact: Callable[[str], str] = str) -> None:
        """Take over an open transport and what was already read from it; `keep` lives as long as this does.

        `redact` takes the node's credentials out of every refusal.
        """
        self._redact = redact
        self._transport = self._opened = transport
        self._keep = keep
        transport.set_protocol(self)
        if received:
            self._reader.feed(received)
            self._dispatch()

    @property
    def pending(self) -> int:
        """Requests sent and not yet answered."""
        return len(self._waiting)

    @property
    def oldest(self) -> Sink | None:
        """Who has waited for an answer for longest; while the server does not answer, that stays the same."""
        return self._waiting[0] if self._waiting else None

    async def drain(self, within: float) -> None:
        """Wait until everything asked is answered, `within` seconds at most, and not at all for a silent server."""
        self._outbox.spill()
        if self._waiting and not self.silent and self._transport is not None:
            self._drained = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._drained

    async def gone(self, within: float) -> None:
        """After `close` with a goodbye: wait for the server's, `within` seconds at most; the loop may end after this."""
        try:
            if not self.silent:
                await asyncio.wait([self._lost], timeout=within)
        finally:
            if not self._lost.done():
                self._opened.abort()
        # Some ticks later.
        await asyncio.wait([self._lost], timeout=1.0)

    def disown(self) -> None:
        """In a forked child: put a socket that is at its end in the place of the parent's.

        Closing it would not do: a loop that goes on in the child has it registered, and would read the parent's answers.
        """
        sock = self._opened.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            end, other = socket.socketpair()
            with end, other:
                os.dup2(end.fileno(), sock.fileno(), inheritable=False)

    def ask(self, sink: Sink) -> None:
        """Queue what `sink` asks; the answer, or the loss of the connection, goes there."""
        if sink.command.tracked:
            self.ask_raw(CACHING.packed, Caching(sink.started))
        self.ask_raw(sink.command.packed, sink)

    def ask_raw(self, packed: bytes, sink: Sink) -> None:
        """Queue bytes that are one request."""
        if self._transport is None:
            sink.deliver(self._index, Unsent("connection closed"))
            return
        if not self._out:
            self._outbox.has_own(self)
        self._out.append(packed)
        self._waiting.append(sink)

    def take(self, packed: list[bytes], sinks: list[Sink]) -> bool:
        """Queue several commands; True when they are the first in this tick."""
        first = not self._out
        self._out += packed
        self._waiting += sinks
        return first

    def flush(self, now: float) -> None:
        """Write what was queued for this channel alone."""
        out, self._out = self._out, []
        if out:
            self.write(self._outbox.pieces(out), (), now)

    def write(self, pieces: list[bytes], sinks: Iterable[Sink], now: float) -> None:
        """Write commands, and begin to doubt a server whose oldest answer is overdue."""
        if self._transport is None:
            return
        self._waiting += sinks
        if not self._waiting:
            # An answer too many took the place of the one to this.
            self.close("not the Redis protocol: an answer that nobody asked for")
            return
        # The same bytes go to all nodes, but each votes only as the process that this connection was made to.
        self._transport.write(pieces[0] if len(pieces) == 1 else self.run_id.join(pieces))
        oldest = self._waiting[0]
        overdue = now - oldest.started > self._patience or len(self._waiting) > MAX_PENDING
        if overdue and not self._doubted and not self.silent:
            self._doubted = True
            self._outbox.loop.call_later(self._patience, self._look_again, oldest)

    def _look_again(self, oldest: Sink) -> None:
        """Only an answer that does not come while this process is reading is a server's fault, and not our own stall.

        But a backlog that stays is too much, whoever's fault it is.
        """
        self._doubted = False
        waiting = self._waiting
        if self._transport is not None and waiting and (waiting[0] is oldest or len(waiting) > MAX_PENDING):
            self.silent = True
            self._on_silent(True)

    def get_buffer(self, sizehint: int) -> memoryview:
        """For the transport: where to put received bytes (a memoryview: stdlib TLS corrupts a bytearray)."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """For the transport: bytes have come."""
        self._reader.feed(self._view, 0, nbytes)
        self._dispatch()
        if self.silent and not self._probing and self._transport is not None:
            # One answer is no recovery: the backlog must be gone, and what is asked now answered in time.
            self._probing = True
            self.ask_raw(_PROBE, _Probe(self._outbox.clock(), self._probed))

    def _probed(self, asked_at: float) -> None:
        self._probing = False
        if self._transport is not None and self._outbox.clock() - asked_at <= self._patience:
            self.silent = False
            self._on_silent(False)

    def _dispatch(self) -> None:
        gets, waiting, index = self._reader.gets, self._waiting, self._index
        try:
            while True:
                try:
                    reply = gets()
                except TypeError:
                    # The parser cannot put a list into a dict as a key.
                    raise _ProtocolError("a map whose key is no plain value") from None
                except MemoryError:
                    # It makes a list as long as the server says that it is to be.
                    raise _ProtocolError("an answer too large for this machine") from None
                if reply is _MORE:
                    break
                kind = reply.__class__
                if kind is _Push:
                    self._push(reply)
                elif not waiting:
                    raise _ProtocolError("an answer that nobody asked for")
                elif (kind is list or kind is Refusal) and isinstance(joint := waiting[0], Joint):
                    waiting.popleft()
                    self._one_by_one(joint, reply)
                elif kind is not Refusal:
                    sink = waiting.popleft()
                    said = sink.command.read(reply)
                    sink.deliver(index, self._garbled(sink, said) if type(said) is Garbled else said)
                elif not self._refused(waiting.popleft(), reply):
                    break
        except _ProtocolError as error:
            self.close(f"not the Redis protocol: {error}")
        if self._drained is not None and not waiting and not self._drained.done():
            self._drained.set_result(None)

    def _one_by_one(self, joint: Joint, reply: list[Any] | Refusal) -> None:
        """What was asked as one was answered one by one, or not: what a refusal is about is learned by asking alone."""
        replies = reply if type(reply) is list else []
        said = [sink.command.read(own) for sink, own in zip(joint.sinks, replies, strict=False)]
        if len(replies) > len(said) or any(type(own) is Garbled for own in said):
            # A garbled part leaves unknown which of the calls behind it were executed.
            joint.deliver(self._index, self._garbled(joint, garbled(joint.command, reply)))
            return
        for sink, own in zip(joint.sinks, said, strict=False):
            sink.deliver(self._index, own)
        # A joint without sinks is the load itself. A server that answers NOSCRIPT to that never learns the script.
        if joint.sinks and type(reply) is Refusal and str(reply).startswith("NOSCRIPT"):
            # None of them would ever go as one again: asked alone, they teach the server their own scripts.
            self.ask_raw(joint.script.loading(), Joint((), joint.script, b"", joint.started))
        for sink in joint.sinks[len(replies) :]:
            if not self._ask_again(sink, sink.command.packed):
                sink.deliver(self._index, Unsent("given up before it could be asked alone"))

    def _garbled(self, sink: Sink, words: Garbled) -> Garbled:
        """Report an answer that does not fit, and return its mark. Whether the server has executed the command is unknown."""
        for own in _asking(sink):
            if own.command.owed_until is not None:
                self._on_release_refused(own.command, str(words))
        self._on_garbled(str(words))
        return words

    def _refused(self, sink: Sink, refusal: Refusal) -> bool:
        """The server answered with an error; False when that ends the connection."""
        words = str(refusal)
        if type(sink) is _InFull:
            sink = sink.sink
        elif words.startswith("NOSCRIPT") and self._ask_again(sink, sink.command.packed_in_full(), _InFull):
            return True
        if sink.command.owed_until is not None:
            self._on_release_refused(sink.command, words)
        sink.deliver(self._index, refusal)
        if _READONLY.match(words):
            # A primary was demoted: connecting anew asks DNS or the Sentinels where it is now.
            self.close(words)
            return False
        return True

    def _ask_again(self, sink: Sink, packed: bytes, marked: Callable[[Sink], Sink] | None = None) -> bool:
        """Send what the server has not executed once more, unless nobody would own what it sets.

        An acquire that was given up has its release queued behind it already; sent again it would set a key after
        that release. A release is always worth sending again.
        """
        if self._transport is None:
            return False
        if sink.command.owed_until is not None:
            if type(sink) is not Belated:
                sink = Belated(sink.command, sink.started, self._on_push, sink)
        elif not sink.stands():
            return False
        if sink.command.tracked:
            # The server has spent the first one on the command that it did not execute.
            self.ask_raw(CACHING.packed, Caching(sink.started))
        self.ask_raw(packed, sink if marked is None else marked(sink))
        return True

    def _push(self, message: list[Any]) -> None:
        match message:
            case [b"invalidate", *rest]:
                keys = rest[0] if len(rest) == 1 else None
                # Where the keys cannot be read, any may have changed.
                self._on_push(keys if type(keys) is list and all(type(key) is bytes for key in keys) else None)
            case [b"message", channel, bytes(payload)] if self._subscribed and channel == self._subscribed:
                self._on_message(payload)
            case [b"subscribe", *rest]:
                self._confirm(rest)

    def _confirm(self, confirmed: list[Any]) -> None:
        """The server confirms a subscription by a push, in the place of the reply."""
        sink = self._waiting[0] if self._waiting else None
        # Any other sink would get the reply to the next request.
        if not isinstance(sink, Subscription) or confirmed != [sink.channel, 1]:
            raise _ProtocolError("a subscription that nobody asked for")
        self._waiting.popleft()
        self._subscribed = sink.channel
        sink.confirmed = True
        sink.deliver(self._index, b"OK")

    def eof_received(self) -> bool:
        """For the transport: the server closed its side."""
        self.close("closed by the server")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """For the transport: the connection is gone."""
        if not self._lost.done():
            self._lost.set_result(None)
        self.close(f"connection lost: {exc}" if exc else "connection lost")

    def close(self, reason: str, *, goodbye: bool = False) -> None:
        """Close, and tell everybody who still waits that the outcome is unknown. Idempotent.

        The transport is gone one tick later, unless it is to say goodbye, which takes TLS a round trip: await `gone` then.
        """
        if self._transport is None:
            return
        self._outbox.leave(self)
        transport, self._transport = self._transport, None
        if self._out:
            transport.write(self.run_id.join(self._outbox.pieces(self._out)))
            self._out.clear()
        # A goodbye behind bytes that a hung server does not take would never be said.
        if goodbye and not transport.get_write_buffer_size():
            transport.close()
        else:
            transport.abort()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        waiting, self._waiting = self._waiting, deque()
        dropped = Dropped(reason)
        asked = [own for sink in waiting for own in _asking(sink)]
        self._on_close(reason, [sink.command for sink in asked if sink.command.owed_until is not None])
        for sink in waiting:
            sink.deliver(self._index, dropped)


def _asking(sink: Sink) -> Sequence[Sink]:
    """Return the sinks whose calls were sent as one."""
    return sink.sinks if isinstance(sink, Joint) else (sink,)


class Subscription:
    """A request for the messages of one channel; a `Sink`. RESP3 only.

    A refusal is a reply like any other. The server confirms by a push and by no reply.

    Args:
        channel: The channel's name.
        sink: Gets `OK`, the refusal, or the reply that does not fit.

    Attributes:
        confirmed: True once the server has confirmed.
    """

    def __init__(self, channel: bytes, sink: Sink) -> None:
        self.channel = channel
        self.confirmed = False
        self.command = Request(_pack(("SUBSCRIBE", channel)))
        self.started = sink.started
        self._sink = sink

    def stands(self) -> bool:
        """See `Sink.stands`."""
        return self._sink.stands()

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`."""
        self._sink.deliver(index, reply)


class Belated:
    """A release that is executed behind what was asked after it: whoever asked found our own key, and is told that it is gone.

    By us, for a server does not tell a connection what it deleted itself (NOLOOP).

    Args:
        command: The release.
        started: Instant at which it was first asked.
        freed: Called with the keys once they are deleted.
        sink: Who wants the answer; None: nobody. A lost one is owed again by the channel's `on_close`.
    """

    def __init__(
        self, command: Request, started: float, freed: Callable[[list[bytes] | None], None], sink: Sink | None = None
    ) -> None:
        self.command = command
        self.started = started
        self._freed = freed
        self._sink = sink

    def stands(self) -> bool:
        """See `Sink.stands`."""
        return False

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`."""
        if self._sink is not None:
            self._sink.deliver(index, reply)
        if type(reply) is Released and reply.deleted > 0:
            self._freed(list(self.command.keys))


class _InFull:
    """Mark a request sent with the script's source. A second NOSCRIPT is then a refusal, not a reason to send it again."""

    __slots__ = ("command", "sink", "started")

    def __init__(self, sink: Sink) -> None:
        self.command = sink.command
        self.started = sink.started
        self.sink = sink

    def stands(self) -> bool:
        """See `Sink.stands`."""
        return self.sink.stands()

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`."""
        self.sink.deliver(index, reply)


class _Probe:
    """Whether the server answers in time; a `Sink`."""

    def __init__(self, started: float, answered: Callable[[float], None]) -> None:
        self.command = Request(_PROBE)
        self.started = started
        self._answered = answered

    def stands(self) -> bool:
        """See `Sink.stands`."""
        return False

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`."""
        self._answered(self.started)


class _ProtocolError(Exception):
    """The bytes received are not RESP."""
