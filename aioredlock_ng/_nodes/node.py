"""One Redis server as a lock node: connecting and reconnecting, identity, health, releases owed; it never judges a vote."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from aioredlock_ng._core.backoff import reconnect_delay
from aioredlock_ng._core.guard import vouching
from aioredlock_ng._core.keys import message_channel
from aioredlock_ng._core.refusals import harmless
from aioredlock_ng._core.replies import Released
from aioredlock_ng._core.votes import Unsent
from aioredlock_ng._nodes.background import supervised
from aioredlock_ng._nodes.channel import Belated, Channel
from aioredlock_ng._nodes.connect import ConnectFailed, Connector
from aioredlock_ng._nodes.handshake import Greeting, greet
from aioredlock_ng._nodes.port import NodeState
from aioredlock_ng._scripts.kinds import CALLED
from aioredlock_ng.events import NodeAnswers, NodeDegraded, NodeDown, NodeSuspect, NodeUp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.outbox import Outbox
    from aioredlock_ng._nodes.port import NodeListener, Sink
    from aioredlock_ng._scripts import Request

__all__ = ["RedisNode"]

STEADY = 1.0
"""Seconds that a connection must have lasted for the next reconnect to be tried at once."""

RETRY_RELEASES = 0.5
"""Seconds before a release that the server refused is sent again: a busy script is over by then, or the next time."""

PAY_TWICE = 2.0
"""Seconds after a reconnect at which what was owed is released once more: a server that hung executes what it was sent on the
old connection when it wakes, and may still be at it when the new one is made."""

PROBE_EVERY = 10.0
"""Seconds between tries to reach a silent server on another connection."""

SUSPECT_AFTER = 2
"""Node timeouts without an answer after which a node is doubted, and after as many more suspect. A hung node costs no
round anything (the others decide it); this only bounds the backlog, so it need not be hasty."""

_BY_US = "closed by this process"


class RedisNode:
    """A server reached through one connection that is kept alive in the background.

    Args:
        connector: How to reach it.
        outbox: Shared by all nodes of a manager.
        connect_timeout: Seconds for connecting and the handshake together.
        needed: Commands without which the server is refused; see `kinds.needed`.

    Attributes:
        address: Where it is, without credentials.
    """

    def __init__(self, connector: Connector, outbox: Outbox, connect_timeout: float, needed: Sequence[str] = CALLED) -> None:
        self._needed = needed
        self.address = connector.address
        self._connector = connector
        self._outbox = outbox
        self._connect_timeout = connect_timeout
        self._channel: Channel | None = None
        self._usable: Channel | None = None
        self._unsent: Unsent = Unsent("not connected yet")
        self._refused = ""
        self._state = "connecting"
        self._greeting = Greeting("", "", False, False, ())
        self._connections = 0
        self._owed: dict[bytes, Request] = {}
        self._refuses_releases = False
        self._said: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._probe: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        """See `Node.ready`."""
        return self._usable is not None

    @property
    def tracking(self) -> bool:
        """See `Node.tracking`."""
        return self._usable is not None and self._greeting.tracking

    @property
    def messages(self) -> bool:
        """See `Node.messages`."""
        return self._usable is not None and self._greeting.messages

    def ask(self, sink: Sink, index: int) -> None:
        """See `Node.ask`. A silent server is sent nothing but releases: what it has not answered yet is the probe."""
        if self._usable is not None:
            if self._refuses_releases and sink.command.owed_until is not None:
                sink = _Release(sink.command, sink.started, self._released, sink)
            self._usable.ask(sink)
        elif sink.command.owed_until is None:
            sink.deliver(index, self._unsent)
        elif self._channel is not None:
            self._channel.ask(sink)
        else:
            self._owed[sink.command.packed] = sink.command
            sink.deliver(index, self._unsent)

    async def open(self, index: int, listener: NodeListener, clock: Callable[[], float], node_timeout: float) -> None:
        """See `Node.open`."""
        self._index, self._listener, self._clock = index, listener, clock
        self._patience = node_timeout * SUSPECT_AFTER
        self._settled = asyncio.get_running_loop().create_future()
        name = f"node {self.address}"
        self._task = supervised(self._keep_connected, name, listener.emit, self._broken)
        # Also where it is cancelled before it begins.
        self._task.add_done_callback(lambda _: self._settle())
        await asyncio.shield(self._settled)

    async def aclose(self, within: float) -> None:
        """See `Node.aclose`."""
        self._state, self._unsent = "down", Unsent("closed")
        task, self._task = self._task, None
        channel, self._channel = self._channel, None
        tasks = [task for task in (task, self._probe) if task is not None]
        for task in tasks:
            task.cancel()
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        try:
            if channel is not None:
                self._use(None)
                await channel.drain(within)
            if tasks:
                # wait, not await: that would take a cancellation of this call for the task's own. One that connects by a
                # user's own class may take its time; it ends there.
                await asyncio.wait(tasks, timeout=until - loop.time())
            if channel is not None:
                channel.close(_BY_US, goodbye=True)
                await channel.gone(until - loop.time())
        finally:
            if channel is not None:
                channel.close(_BY_US)

    def refuse(self, reason: str) -> None:
        """See `Node.refuse`."""
        self._refused = reason
        if self._channel is not None:
            self._channel.close(reason)
        self._down(reason, refused=True)

    def disown(self) -> None:
        """See `Node.disown`."""
        if self._channel is not None:
            self._channel.disown()
        for task in (self._task, self._probe):
            if task is not None:
                task.cancel()

    def state(self) -> NodeState:
        """See `Node.state`."""
        channel = self._channel
        return NodeState(
            address=self.address,
            state=self._state,
            reason="" if self._state == "up" else str(self._unsent),
            server=self._greeting.server,
            run_id=self._greeting.run_id,
            tracking=self.tracking,
            messages=self.messages,
            pending=channel.pending if channel is not None else 0,
            owed=len(self._owed),
            connections=self._connections,
        )

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
                # One that is closed again and again (a replica that hides what it is) is not hammered.
                if self._clock() - connected_at > STEADY:
                    failures = 0
            self._settle()
            # Jitter needs no seed here: the simulated network has nodes of its own.
            await asyncio.sleep(reconnect_delay(failures, random.random()))  # noqa: S311
            failures += 1

    def _broken(self, reason: str) -> None:
        """Disconnect after an unexpected exception; the supervised task connects anew."""
        if self._channel is not None:
            self._channel.close(reason)
        self._down(reason)
        self._settle()

    def _settle(self) -> None:
        """Let `open` return: the first attempt to connect has ended."""
        if not self._settled.done():
            self._settled.set_result(None)

    async def _connect(self) -> asyncio.Future[str]:
        """Connect and greet; returns a future that tells why when the connection is gone."""
        started = self._clock()
        wire = await self._connector.connect(self._connect_timeout)
        gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_close(reason: str, releases: list[Request]) -> None:
            for command in releases:
                self._owed[command.packed] = command
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
            self._pushed,
            self._notified,
            on_close,
            self._heard,
            self._owe,
            self._warn,
        )
        channel.attach(wire.transport, wire.received, keep=wire, redact=wire.redact)
        left = max(0.001, self._connect_timeout - (self._clock() - started))
        try:
            if self._refused:
                raise ConnectFailed(self._refused, permanent=True)
            messages_on = message_channel(self._listener.manager_id)
            by_sentinel = self._connector.by_sentinel
            greeting = await greet(channel, wire, started, left, by_sentinel, self._needed, messages_on)
            twin = self._listener.identify(self._index, greeting.run_id)
            if twin:
                raise ConnectFailed(
                    f"{self.address} and {twin} are the same server (run_id {greeting.run_id[:8]}…)", permanent=True
                )
            if gone.done():
                # Closed with its last answer, before this task came to run.
                raise ConnectFailed(gone.result())
        except BaseException:
            channel.close("handshake failed")
            raise
        if self._outbox.run_id:
            channel.run_id = vouching(greeting.run_id)
        self._up(channel, greeting)
        return gone

    def _up(self, channel: Channel, greeting: Greeting) -> None:
        self._greeting = greeting
        self._connections += 1
        self._channel = channel
        self._state = "up"
        self._said.discard("down")
        self._listener.emit(NodeUp(self.address, greeting.server))
        for lack in greeting.lacks:
            self._warn(lack)
        owed, self._owed = self._owed, {}
        if owed:
            # Whatever their ttl was: what they undo may have been executed just now.
            self._pay(channel, owed)
            asyncio.get_running_loop().call_later(PAY_TWICE, self._pay_once_more, owed)
        self._use(channel)
        self._listener.invalidated(self._index, None)

    def _warn(self, words: str) -> None:
        """Report what the node lacks or gets wrong, once."""
        if words not in self._said:
            self._said.add(words)
            self._listener.emit(NodeDegraded(self.address, words))

    def _use(self, channel: Channel | None) -> None:
        """From now on acquires go through `channel`; None: through none."""
        if self._usable is not None:
            self._outbox.leave(self._usable)
        self._usable = channel
        # A node that refuses releases is asked by itself, so that the first one that it takes is noticed.
        together = channel is not None and not self._refuses_releases
        if channel is not None and together:
            self._outbox.join(channel)
        self._listener.present(self._index, together)

    def _owe(self, command: Request, words: str) -> None:
        """The server refused a release for now: it gets it again, until the keys are gone anyway."""
        if not self._refuses_releases:
            self._refuses_releases = True
            reason = f"it refuses to release locks, whose keys stay until their ttl has passed: {harmless(words)}"
            self._listener.emit(NodeDegraded(self.address, reason))
            self._use(self._usable)
        if not self._owed and self._channel is not None:
            asyncio.get_running_loop().call_later(RETRY_RELEASES, self._pay_again, self._channel)
        self._owed[command.packed] = command

    def _released(self) -> None:
        """The server has released a key: its next refusal is worth a warning again."""
        if self._refuses_releases:
            self._refuses_releases = False
            self._use(self._usable)

    def _pay_again(self, channel: Channel) -> None:
        if channel is self._channel:
            owed, self._owed = self._owed, {}
            now = self._clock()
            self._pay(channel, {packed: command for packed, command in owed.items() if (command.owed_until or now) > now})

    def _pay_once_more(self, owed: dict[bytes, Request]) -> None:
        if self._channel is not None:
            self._pay(self._channel, owed)
        else:
            self._owed.update(owed)

    def _pay(self, channel: Channel, owed: dict[bytes, Request]) -> None:
        now = self._clock()
        for command in owed.values():
            channel.ask(Belated(command, now, self._pushed, _Release(command, now, self._released)))

    def _down(self, reason: str, *, refused: bool = False) -> None:
        self._listener.identify(self._index, "")
        self._state = "refused" if refused else "down"
        self._unsent = Unsent(reason, permanent=refused)
        if "down" not in self._said and self._task is not None:
            self._said.add("down")
            self._listener.emit(NodeDown(self.address, reason))

    def _heard(self, silent: bool) -> None:
        channel = self._channel
        if channel is None:
            return
        if silent:
            self._use(None)
            self._state = "suspect"
            self._unsent = Unsent(f"suspect, no answer for {self._patience:g} s or more")
            self._listener.emit(NodeSuspect(self.address, self._patience))
            if self._probe is None or self._probe.done():
                name = f"probe of {self.address}"
                self._probe = supervised(self._replace_dead, name, self._listener.emit)
            self._listener.invalidated(self._index, None)
        else:
            self._use(self._channel)
            self._state = "up"
            self._listener.emit(NodeAnswers(self.address))
            self._listener.invalidated(self._index, None)

    async def _replace_dead(self) -> None:
        """Give up a silent connection once the server answers on another: then it is dead, and not the server hung.

        A hung server keeps its connection, for what was queued there must be executed in its order.
        """
        while True:
            await asyncio.sleep(PROBE_EVERY)
            channel = self._channel
            if channel is None or not channel.silent:
                return
            oldest = channel.oldest
            try:
                wire = await self._connector.connect(self._connect_timeout)
            except ConnectFailed:
                continue
            wire.transport.abort()
            # It may have come back while it was asked: then it is at the old connection, too.
            await asyncio.sleep(self._patience)
            if channel is self._channel and channel.oldest is oldest:
                channel.close("silent, though the server answers on a new connection")
                return

    def _pushed(self, keys: list[bytes] | None) -> None:
        self._listener.invalidated(self._index, keys)

    def _notified(self, message: bytes) -> None:
        self._listener.notified(self._index, message)


class _Release:
    """Notice that the server has released a key; a `Sink`.

    Args:
        command: The release.
        started: See `Sink`.
        released: Called where it deleted something. Deleting nothing takes less, and proves nothing.
        sink: The asker, if there is one.
    """

    def __init__(self, command: Request, started: float, released: Callable[[], None], sink: Sink | None = None) -> None:
        self.command = command
        self.started = started
        self._released = released
        self._sink = sink

    def stands(self) -> bool:
        """See `Sink.stands`."""
        return False

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`."""
        if type(reply) is Released and reply.deleted > 0:
            self._released()
        if self._sink is not None:
            self._sink.deliver(index, reply)
