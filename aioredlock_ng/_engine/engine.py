"""The calls that `Redlock`, `Lock` and `Lease` make to the engine of their manager."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.replies import GRANTED
from aioredlock_ng._core.votes import acquire_vote
from aioredlock_ng._engine.acting import acting_name
from aioredlock_ng._engine.attempt.acquisition import Acquisition
from aioredlock_ng._engine.attempt.releases import outlast_cancellation
from aioredlock_ng._engine.attempt.round import Round
from aioredlock_ng._engine.keeping.extender import CLOSED
from aioredlock_ng._engine.loops import running_loop
from aioredlock_ng._engine.parts import Parts
from aioredlock_ng.errors import LockNotAcquired, RedlockClosed
from aioredlock_ng.events import AcquireCancelled, AcquireFailed, LockAcquired

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._engine.spec import LockSpec
    from aioredlock_ng._scripts import Command

__all__ = ["Engine"]


class Engine(Parts):
    """The engine of one manager. See `Parts` for its arguments."""

    async def open(self) -> None:
        """Start connecting to all nodes.

        This returns when each node has been tried once. If a quorum is up, it waits no longer than
        the node timeout for another node. Then it waits until duplicate nodes and markers are
        known, for three node timeouts each at most.

        Safety: after a cancellation connecting tasks go on. `aclose` ends them.
        """
        context = self.context
        # The first scope imports the backend of anyio. The import would otherwise delay the first
        # release that is cancelled.
        anyio.CancelScope()
        first_tries = [
            asyncio.ensure_future(
                node.open(index, self.reports, context.clock, context.options.node_timeout)
            )
            for index, node in enumerate(context.fleet.nodes)
        ]
        try:
            pending = set(first_tries)
            while pending:
                ready = sum(node.state().state == "up" for node in context.fleet.nodes)
                patience = context.options.node_timeout if ready >= context.quorum else None
                done, pending = await asyncio.wait(
                    pending, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
                for first_try in done:
                    first_try.result()
                if patience is not None and not done:
                    break
        finally:
            for first_try in first_tries:
                first_try.cancel()
        if probes := self._duplicates.probes():
            await asyncio.wait(probes, timeout=3 * context.options.node_timeout)
        if self.guard is not None:
            await self.guard.settle(3 * context.options.node_timeout)

    def usable(self) -> None:
        """Raise unless the manager can be used here.

        Raises:
            RedlockClosed: The manager is closed or was opened before a fork, or the call does not
                come from the manager's event loop.
        """
        # One condition decides the usual case, for speed. A forked child has set `_closed`, too.
        try:
            if not self._closed and asyncio.get_running_loop() is self._loop:
                return
        except RuntimeError:
            pass
        if self._forked:
            raise RedlockClosed(
                "this Redlock was opened before a fork: its connections belong to the parent"
                " process; open one here"
            )
        if running_loop() is not self._loop:
            raise RedlockClosed(
                "this Redlock belongs to another event loop; open one in each loop that uses locks"
            )
        if self._closed:
            raise RedlockClosed("this Redlock is closed; open a new one")

    def on_loop(self) -> bool:
        """True on the event loop of the manager. False in other threads and in a forked child."""
        try:
            return asyncio.get_running_loop() is self._loop and not self._forked
        except RuntimeError:
            return False

    def acquire(self, spec: LockSpec, blocking_timeout: float | None) -> Acquisition:
        """Begin an acquisition.

        The caller awaits the `future` of the acquisition. If the wait is cancelled, the caller must
        call `cancelled`.

        Args:
            spec: The lock.
            blocking_timeout: Longest wait in seconds. None waits for ever; 0 makes one attempt.

        Raises:
            LockHeld: The calling task holds the lock through an enclosing `async with`, and would
                wait for itself for ever.
            RedlockClosed: The manager cannot be used here; see `usable`.
        """
        self.usable()
        # A call with `fail_fast` must not wait in a line behind calls without it. It still waits
        # for the holder of the lock once a quorum answers.
        alone = blocking_timeout == 0 or (spec.fail_fast and self.availability.lost)
        acquisition = Acquisition(
            self.context,
            self.lines,
            self._releases,
            self.extender,
            spec,
            blocking_timeout,
            alone=alone,
        )
        try:
            acquisition.start()
        except LockNotAcquired as error:
            self.report_failed(acquisition, error)
            raise
        if alone:
            self._past_the_lines.add(acquisition)
            acquisition.future.add_done_callback(
                lambda _: self._past_the_lines.discard(acquisition)
            )
        return acquisition

    def cancelled(self, acquisition: Acquisition) -> None:
        """Undo an acquisition whose caller was cancelled, before this returns."""
        self.context.counters.cancelled += 1
        acquisition.give_up(None)
        if (report := self.context.report) is not None:
            report(AcquireCancelled(acquisition.resource, acquisition.waited, acquisition.attempts))

    def taken(self, acquisition: Acquisition, holding: Holding) -> None:
        """Report that the caller has its lease. The caller of `acquire` must call this itself."""
        labels = self.context.labels
        if labels is not None and labels.by_task:
            holding.taken_by = acting_name()
        was_over = holding.phase is not Phase.HELD
        holding.taken = True
        if (report := self.context.report) is not None:
            votes = tuple(
                granted
                if reply is GRANTED
                else silent
                if reply is None
                else acquire_vote(granted.node, reply)
                for (granted, silent), reply in zip(self._votes, holding.granted, strict=True)
            )
            report(
                LockAcquired(
                    acquisition.resource,
                    holding.token_prefix,
                    holding.fence,
                    acquisition.waited,
                    acquisition.attempts,
                    votes,
                    holding.spec.number,
                )
            )
        if was_over:
            self.extender.report_end(holding)

    def report_failed(
        self, acquisition: Acquisition, error: LockNotAcquired | RedlockClosed
    ) -> None:
        """Report the error that ends an acquisition, just before the caller gets it."""
        if (report := self.context.report) is not None:
            waited, attempts = acquisition.waited, acquisition.attempts
            votes = error.votes if isinstance(error, LockNotAcquired) else ()
            report(
                AcquireFailed(
                    acquisition.resource, type(error).__name__, str(error), waited, attempts, votes
                )
            )

    async def extend(self, holding: Holding, ttl: float) -> list[Reply] | None:
        """Renew one lease now.

        Args:
            holding: The lease.
            ttl: Its new ttl in seconds.

        Returns:
            None if a quorum renewed the lease, or if the lease is over; its phase says which.
            Otherwise the replies of the nodes.

        Safety: after a cancellation the renewal goes on by itself.
        """
        renewal = self.extender.renew([holding], ttl)
        if renewal.open:
            renewal.done = self.context.loop.create_future()
            await holding.wait_over(renewal.done)
        return None if renewal.has(holding) or holding.phase is not Phase.HELD else renewal.replies

    async def poll(self, command: Command) -> list[Reply]:
        """Send a command to all nodes, and wait for their answers.

        Returns:
            The answer of each node; None for a node without an answer at the node timeout.

        Raises:
            RedlockClosed: The manager cannot be used here; see `usable`.

        Safety: a cancellation ends the wait only.
        """
        self.usable()
        round_ = Round(self.context, command, None, 1, self.context.clock())
        round_.ask()
        if round_.open:
            await round_.decided()
        return round_.replies

    async def aclose(self) -> None:
        """Release all leases, end all acquisitions, and disconnect.

        Safety: the releases are queued before the first await. A cancellation is raised only after
        the connections are closed, which takes `close_timeout` at most.
        """
        if self._closed:
            return
        self._closed = True
        self.reports.stop()
        for contender in [*self.lines.contenders(), *self._past_the_lines]:
            contender.give_up(RedlockClosed("the Redlock was closed while this acquisition waited"))
        for holding in list(self.extender.holdings):
            if holding.still_used is not None and holding.still_used(lambda: None):
                # A thread still works under the lease. A release would let the next holder work
                # beside it, so the lease is left to expire.
                self.extender.abandon(holding)
            elif holding.task is not None:
                self.extender.lose(holding, CLOSED)
            else:
                self.extender.release(holding)
        self.extender.close()
        self.lines.close()
        self.availability.stop()
        within = self.context.options.close_timeout
        self._duplicates.stop()
        if self.guard is not None:
            self.guard.stop()
        closing = [
            self.context.loop.create_task(node.aclose(within)) for node in self.context.fleet.nodes
        ]
        try:
            await asyncio.wait(closing)
        except asyncio.CancelledError:
            await outlast_cancellation(
                lambda: not all(task.done() for task in closing), lambda: asyncio.wait(closing)
            )
            raise
        finally:
            self.context.timeouts.stop()

    @property
    def ready(self) -> bool:
        """True while a quorum of nodes is connected and may grant."""
        return self.availability.ready and not self._closed

    def onlooker(self, key: bytes, changed: Callable[[], object]) -> AbstractContextManager[None]:
        """Call `changed` at each change of this tracked key; see `Reports.onlooker`."""
        return self.reports.onlooker(key, changed)

    def invalidated(self, index: int, keys: list[bytes]) -> None:
        """Act as if node `index` had reported that `keys` changed.

        A node does not report a change to the connection that made it (NOLOOP).
        """
        self.reports.invalidated(index, keys)

    def doubt(self, key: bytes) -> None:
        """Prepare for a deletion of the key by force: pass on no grant of it, and watch its leases.

        The nodes do not report the deletion to the connection that made it (NOLOOP).
        """
        self.lines.doubt(key)
        for holding in self.lines.holders((key,)):
            self.extender.watch(holding)
