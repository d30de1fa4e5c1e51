"""One Redis server as a lock node: the connection that is kept alive, and its requests.

`health.py` has the node's state. `owed.py` has the releases that the server has not executed.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from aioredlock_ng._core.backoff import reconnect_delay
from aioredlock_ng._core.marker import process_name
from aioredlock_ng._core.refusals import harmless
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._nodes.background import supervised
from aioredlock_ng._nodes.channel import Belated, Channel, Outbox
from aioredlock_ng._nodes.handshake import duplicate, greet
from aioredlock_ng._nodes.health import Health
from aioredlock_ng._nodes.owed import NotedRelease, OwedReleases, other_than_lock
from aioredlock_ng._nodes.silence import SUSPECT_AFTER, DeadConnectionProbe
from aioredlock_ng._nodes.wire import ConnectFailed
from aioredlock_ng._scripts.catalogue import CALLED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioredlock_ng._core.votes import Garbled
    from aioredlock_ng._nodes.connect import Connector
    from aioredlock_ng._nodes.port import NodeListener, NodeState, Sink
    from aioredlock_ng._nodes.wire import Wire
    from aioredlock_ng._scripts import Request

__all__ = ["RedisNode"]

STEADY = 1.0
"""Seconds for which a connection must last to reset the delay before the next reconnect."""


class RedisNode:
    """A server reached through one connection that is kept alive in the background.

    Args:
        outbox: The outbox that all nodes of the manager share.
        connect_timeout: Seconds for connecting and the handshake together.
        needed: Commands without which the server is refused; see `catalogue.needed`.
    """

    def __init__(
        self,
        connector: Connector,
        outbox: Outbox,
        connect_timeout: float,
        needed: Sequence[str] = CALLED,
    ) -> None:
        self._needed = needed
        self.address = connector.address
        self._connector = connector
        self._outbox = outbox
        self._connect_timeout = connect_timeout
        self._channel: Channel | None = None
        self._usable: Channel | None = None
        self._refused = ""
        self._health = Health(self.address)
        self._owed = OwedReleases(outbox, lambda: self._channel, self._pay)
        self._task: asyncio.Task[None] | None = None
        self._probe = DeadConnectionProbe(self.address, lambda: self._channel, self._make_wire)

    @property
    def ready(self) -> bool:
        return self._usable is not None

    @property
    def tracking(self) -> bool:
        return self._usable is not None and self._health.greeting.tracking

    @property
    def messages(self) -> bool:
        return self._usable is not None and self._health.greeting.messages

    def ask(self, sink: Sink, index: int) -> None:
        """Send the command of `sink`. If this is impossible, deliver an `Unsent` immediately.

        A silent server gets only releases.
        """
        if self._usable is not None:
            if self._owed.refusing and sink.command.owed_until is not None:
                sink = NotedRelease(sink.command, sink.started, self._released, sink)
            self._usable.ask(sink)
        elif sink.command.owed_until is None:
            sink.deliver(index, self._health.unsent)
        elif self._channel is not None:
            self._channel.ask(sink)
        else:
            self._owed.add(sink.command)
            sink.deliver(index, self._health.unsent)

    async def open(
        self, index: int, listener: NodeListener, clock: Callable[[], float], node_timeout: float
    ) -> None:
        self._index, self._listener, self._clock = index, listener, clock
        self._health.emit = listener.emit
        self._patience = node_timeout * SUSPECT_AFTER
        self._settled = asyncio.get_running_loop().create_future()
        name = f"node {self.address}"
        self._task = supervised(self._keep_connected, name, listener.emit, self._broken)
        # A task that is cancelled before it begins never calls `_settle`, so this callback does.
        self._task.add_done_callback(lambda _: self._settle())
        await asyncio.shield(self._settled)

    async def aclose(self, within: float) -> None:
        self._health.down("closed", refused=False, reported=False)
        tasks = [task for task in (self._task, self._probe.task) if task is not None]
        channel, self._channel, self._task = self._channel, None, None
        for task in tasks:
            task.cancel()
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        try:
            if channel is not None:
                self._use(None)
                await channel.drain(within)
            if tasks:
                # `asyncio.wait` does not raise the `CancelledError` of a task, and has a timeout.
                await asyncio.wait(tasks, timeout=until - loop.time())
            if channel is not None:
                channel.close("closed by this process", goodbye=True)
                await channel.gone(until - loop.time())
        finally:
            if channel is not None:
                channel.close("closed by this process")

    def refuse(self, reason: str) -> None:
        self._refused = reason
        if self._channel is not None:
            self._channel.close(reason)
        self._down(reason, refused=True)

    def disown(self) -> None:
        if self._channel is not None:
            self._channel.disown()
        for task in filter(None, (self._task, self._probe.task)):
            task.cancel()

    def state(self) -> NodeState:
        pending = self._channel.pending if self._channel is not None else 0
        return self._health.described(self.tracking, self.messages, pending, len(self._owed))

    def _make_wire(self) -> Awaitable[Wire]:
        return self._connector.connect(self._connect_timeout)

    async def _keep_connected(self) -> None:
        failures = 0
        while True:
            try:
                gone = await self._connect()
            except ConnectFailed as error:
                self._down(str(error), refused=error.permanent)
            else:
                self._settle()
                connected_at = self._clock()
                await gone
                # Each connection to a replica that hides its role ends at the first write. So a
                # short connection does not reset the growing pauses between reconnects.
                if self._clock() - connected_at > STEADY:
                    failures = 0
            self._settle()
            # The jitter needs no seed, because a simulation does not use this class.
            await asyncio.sleep(reconnect_delay(failures, random.random()))  # noqa: S311
            failures += 1

    def _broken(self, reason: str) -> None:
        """Disconnect after an unexpected exception. The supervised task connects anew."""
        if self._channel is not None:
            self._channel.close(reason)
        self._down(reason)
        self._settle()

    def _settle(self) -> None:
        """Let `open` return, because the first attempt to connect has ended."""
        if not self._settled.done():
            self._settled.set_result(None)

    async def _connect(self) -> asyncio.Future[str]:
        """Connect, and return a future that gets the reason when the connection is gone."""
        started = self._clock()
        wire = await self._make_wire()
        gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_close(reason: str, releases: list[Request]) -> None:
            self._owed.add(*releases)
            if self._channel is channel:
                self._channel = None
                self._use(None)
                self._down(reason)
                self._listener.invalidated(self._index, None)
            if not gone.done():
                gone.set_result(reason)

        channel = Channel(
            self._index,
            self._outbox,
            self._patience,
            on_push=self._pushed,
            on_message=lambda message: self._listener.notified(self._index, message),
            on_close=on_close,
            on_silent=self._silence_changed,
            on_release_refused=self._release_refused,
            on_garbled=self._health.warn,
            on_tracking_refused=self._tracking_refused,
        )
        channel.attach(wire.transport, wire.received, keep=wire, redact=wire.redact)
        left = max(0.001, self._connect_timeout - (self._clock() - started))
        try:
            by_sentinel, manager_id = self._connector.by_sentinel, self._listener.manager_id
            # If connecting took long, requests that began with it would be overdue at once.
            greeting = await greet(
                channel, wire, self._clock(), left, by_sentinel, self._needed, manager_id
            )
            # The node may have been refused during the handshake.
            if self._refused:
                raise ConnectFailed(self._refused, permanent=True)
            other = self._listener.identify(self._index, greeting.run_id)
            if other:
                raise duplicate(self.address, other, greeting.run_id)
            if gone.done():
                # The connection was closed right after the last reply of the handshake, before this
                # task ran again.
                raise ConnectFailed(gone.result())
        except BaseException:
            channel.close("handshake failed")
            raise
        if self._outbox.run_id:
            channel.run_id = process_name(greeting.run_id)
        self._channel = channel
        self._health.up(greeting)
        self._owed.connected(channel)
        self._use(channel)
        self._listener.invalidated(self._index, None)
        return gone

    def _use(self, channel: Channel | None) -> None:
        """Send requests through `channel`. If `channel` is None, accept only releases."""
        if self._usable is not None:
            self._outbox.leave(self._usable)
        self._usable = channel
        # While releases are refused, the node stays out of the outbox. The outbox would bypass
        # `ask`, and the first release that succeeds would go unnoticed.
        together = channel is not None and not self._owed.refusing
        if channel is not None and together:
            self._outbox.join(channel)
        self._listener.present(self._index, together)

    def _release_refused(self, release: Request, reply: Refusal | Garbled) -> None:
        """Warn, and keep the release. At the first refusal for a lock, leave the shared outbox."""
        words = harmless(str(reply))
        if self._owed.refused(release, reply):
            self._health.refuses_releases(words)
            self._use(self._usable)
        # The channel itself reports a reply that does not fit, which is no refusal.
        elif isinstance(reply, Refusal) and (other := other_than_lock(release)):
            self._health.warn(f"it refuses to {other}: {words}")

    def _released(self, release: Request) -> None:
        """Record that the server has deleted a key. The next refusal then causes a new warning."""
        if self._owed.executed(release):
            self._use(self._usable)

    def _pay(self, channel: Channel, owed: dict[bytes, Request]) -> None:
        """Send outstanding releases, and notify the listener of the keys that become free."""
        now = self._clock()
        for release in owed.values():
            noted = NotedRelease(release, now, self._released)
            channel.ask(Belated(release, now, self._pushed, noted))

    def _pushed(self, keys: list[bytes] | None) -> None:
        self._listener.invalidated(self._index, keys)

    def _tracking_refused(self, words: str) -> None:
        """Let the listener ask again, because changes since the refusal were not reported."""
        if self._health.tracks_no_more(harmless(words)):
            self._pushed(None)

    def _down(self, reason: str, *, refused: bool = False) -> None:
        self._listener.identify(self._index, "")
        # Late in a failover, DNS may still name the old primary. So a retry may help.
        final = refused and (bool(self._refused) or not self._health.connections)
        self._health.down(reason, refused=refused, final=final, reported=self._task is not None)

    def _silence_changed(self, silent: bool) -> None:
        if self._channel is None:
            return
        if silent:
            self._use(None)
            self._health.suspect(self._patience)
            self._probe.start(self._patience, self._listener.emit)
        else:
            self._use(self._channel)
            self._health.answers()
        self._listener.invalidated(self._index, None)
