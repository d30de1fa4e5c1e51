"""The receiving half of a channel: parsing, and matching each reply to the oldest waiting request.

A server answers in the order of the requests. Pushes may come in between. Only the push that
confirms a subscription answers a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hiredis

from aioredlock_ng._core.refusals import is_busy, is_of_replica
from aioredlock_ng._core.votes import Garbled, Refusal, Unsent
from aioredlock_ng._nodes.channel.joint import Joint
from aioredlock_ng._nodes.channel.sending import Sender
from aioredlock_ng._nodes.channel.sinks import Belated, InFull, Subscription, asking
from aioredlock_ng._nodes.channel.tracking import CACHING, Caching
from aioredlock_ng._scripts.decoding import garbled

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Raw
    from aioredlock_ng._nodes.channel.outbox import Outbox
    from aioredlock_ng._nodes.port import Sink
    from aioredlock_ng._scripts import Request

__all__ = ["Channel"]

_RECEIVE_BUFFER = 65_536
"""Largest number of bytes that one read from the socket returns."""

_MORE = object()
"""Returned by the parser when the rest of a reply is still to come."""

_Push = hiredis.PushNotification


class Channel(Sender):
    """One full-duplex connection to one server, taken over from redis-py after the login.

    Args:
        index: The node's index, passed to the sinks.
        outbox: The outbox that all channels of a manager share.
        patience: Seconds after which a missing reply is overdue. If the reply is still missing
            `patience` seconds after the next write, the server counts as silent.
        on_push: Called with the keys of an invalidation message; None means all keys.
        on_message: Called with each message published on the channel of a confirmed `Subscription`.
        on_close: Called once when the connection is gone, with the reason and the unanswered
            releases.
        on_silent: Called with True when the server stops answering, with False when it resumes.
        on_release_refused: Called with a release that must be sent again, and with the reply. The
            server refused the release (BUSY, MISCONF…), or the reply did not fit the request.
        on_garbled: Called with a description of a reply that does not fit its request.
        on_tracking_refused: Called with the reason when the server refuses to track keys for as
            long as the connection lasts.
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
        on_release_refused: Callable[[Request, Refusal | Garbled], None],
        on_garbled: Callable[[str], None],
        on_tracking_refused: Callable[[str], None],
    ) -> None:
        super().__init__(index, outbox, patience, on_close, on_silent)
        self._on_push = on_push
        self._on_message = on_message
        self._on_release_refused = on_release_refused
        self._on_garbled = on_garbled
        self._on_tracking_refused = on_tracking_refused
        self._subscribed = b""
        self._redact: Callable[[str], str] = str
        self._reader: Any = hiredis.Reader(
            protocolError=_ProtocolError,
            # Every error reply passes through this function. Some servers quote the arguments of
            # AUTH in an error. Without `redact`, the error would show the password.
            replyError=lambda words: Refusal(self._redact(words)),
            notEnoughData=_MORE,
        )
        self._view = memoryview(bytearray(_RECEIVE_BUFFER))

    def attach(
        self,
        transport: asyncio.Transport,
        received: bytes,
        keep: object,
        redact: Callable[[str], str] = str,
    ) -> None:
        """Take over an open transport and the bytes that were already read from it.

        The channel keeps the object `keep` alive. `redact` removes the node's credentials from
        every refusal.
        """
        self._redact = redact
        self._open(transport, keep)
        if received:
            self._reader.feed(received)
            self._dispatch()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return a memoryview, because asyncio's TLS loses bytes that it reads into a bytearray."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.feed(self._view, 0, nbytes)
        self._dispatch()
        if self.silent:
            self._probe()

    def _dispatch(self) -> None:
        gets, waiting, index = self._reader.gets, self._waiting, self._index
        try:
            while True:
                try:
                    reply = gets()
                except TypeError:
                    # The parser cannot use a list as the key of a dict.
                    raise _ProtocolError("a map whose key is not a plain value") from None
                except MemoryError:
                    # The parser allocates as many items as the server announces.
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
                    sink.deliver(
                        index, self._garbled(sink, said) if type(said) is Garbled else said
                    )
                elif not self._refused(waiting.popleft(), reply):
                    break
        except _ProtocolError as error:
            self.close(f"not the Redis protocol: {error}")
        if self._drained is not None and not waiting and not self._drained.done():
            self._drained.set_result(None)

    def _one_by_one(self, joint: Joint, reply: list[Raw] | Refusal) -> None:
        """Process the reply to a merged request whose calls did not all succeed.

        A list contains the replies to the calls before the first error. Each call without a reply
        is sent again alone. Otherwise it would stay unknown which calls the server refuses.
        """
        replies = reply if type(reply) is list else []
        said = [sink.command.read(own) for sink, own in zip(joint.sinks, replies, strict=False)]
        if len(replies) > len(said) or any(type(own) is Garbled for own in said):
            # After a garbled item of the list, it is unknown which of the following calls were
            # executed.
            joint.deliver(self._index, self._garbled(joint, garbled(joint.command, reply)))
            return
        for sink, own in zip(joint.sinks, said, strict=False):
            sink.deliver(self._index, own)
        flushed = type(reply) is Refusal and str(reply).startswith("NOSCRIPT")
        # The request that loads a script is a `Joint` without sinks. If the server answers this
        # request with NOSCRIPT, loading is not tried again, because the attempts would never end.
        if joint.sinks and flushed:
            # The calls are now sent one by one, and load only their own scripts. So an additional
            # request loads the merging script. Otherwise each later merged request would fail, too.
            self.ask_raw(joint.script.loading(), Joint((), joint.script, b"", joint.started))
        in_full: list[object] = []
        for sink in joint.sinks[len(replies) :]:
            command = sink.command
            if flushed and command.form not in in_full:
                # A server that forgot the merging script has forgotten the scripts of the calls,
                # too. The first call of a form is sent with the source of its script. This loads
                # the script for the later calls.
                asked = self._ask_again(sink, command.packed_in_full(), InFull)
                in_full += [command.form] * asked
            else:
                asked = self._ask_again(sink, command.packed)
            if not asked:
                sink.deliver(self._index, Unsent("given up before the request could be sent alone"))

    def _garbled(self, sink: Sink, words: Garbled) -> Garbled:
        """Report a reply that does not fit its request, and return the `Garbled`.

        It is unknown whether the server has executed the command, so releases are sent again.
        """
        for own in asking(sink):
            if own.command.owed_until is not None:
                self._on_release_refused(own.command, words)
        self._on_garbled(str(words))
        return words

    def _refused(self, sink: Sink, refusal: Refusal) -> bool:
        """Process an error reply of the server. Return False if the error closes the connection."""
        words = str(refusal)
        if type(sink) is InFull:
            sink = sink.sink
        elif words.startswith("NOSCRIPT") and self._ask_again(
            sink, sink.command.packed_in_full(), InFull
        ):
            return True
        if sink.command.owed_until is not None:
            self._on_release_refused(sink.command, refusal)
        sink.deliver(self._index, refusal)
        # A busy or loading server usually refuses the tracked command as well, and its sender
        # learns of that. Every other refusal lasts, for example if the user has lost the right.
        if type(sink) is Caching and not is_busy(words):
            self._on_tracking_refused(words)
        if is_of_replica(words):
            # The server was demoted to a replica. A new connection asks DNS or the Sentinels for
            # the address of the new primary.
            self.close(words)
            return False
        return True

    def _ask_again(
        self, sink: Sink, packed: bytes, marked: Callable[[Sink], Sink] | None = None
    ) -> bool:
        """Send a request again, because the server has not executed it.

        An acquire whose round has ended is not sent again. Its release is already queued, and the
        acquire would set a key after that release. A release is always sent again, unless the
        connection is closed. Return True if the request was sent again.
        """
        if self._transport is None:
            return False
        if sink.command.owed_until is not None:
            if type(sink) is not Belated:
                sink = Belated(sink.command, sink.started, self._on_push, sink)
        elif not sink.stands():
            return False
        if sink.command.tracked:
            # The earlier CLIENT CACHING applied to the command that the server did not execute. So
            # another CLIENT CACHING must come before the repeated command.
            self.ask_raw(CACHING.packed, Caching(sink.started))
        self.ask_raw(packed, sink if marked is None else marked(sink))
        return True

    def _push(self, message: list[Raw]) -> None:
        match message:
            case [b"invalidate", *rest]:
                keys = rest[0] if len(rest) == 1 else None
                # If the keys cannot be read, any key may have changed.
                self._on_push(
                    keys if type(keys) is list and all(type(key) is bytes for key in keys) else None
                )
            case [b"message", channel, bytes(payload)] if (
                self._subscribed and channel == self._subscribed
            ):
                self._on_message(payload)
            case [b"subscribe", *rest]:
                self._confirm(rest)

    def _confirm(self, confirmed: list[Raw]) -> None:
        """Process the confirmation of a subscription, which comes as a push instead of a reply."""
        sink = self._waiting[0] if self._waiting else None
        # If another sink were removed here, each later reply would reach the wrong sink.
        if not isinstance(sink, Subscription) or confirmed != [sink.channel, 1]:
            raise _ProtocolError("a subscription that nobody asked for")
        self._waiting.popleft()
        self._subscribed = sink.channel
        sink.confirmed = True
        sink.deliver(self._index, b"OK")


class _ProtocolError(Exception):
    """The received bytes are not the replies of a Redis server to our requests."""
