"""The engine of one manager, with the methods that the public classes call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import anyio

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.replies import GRANTED
from aioredlock_ng._core.votes import AcquireError, acquire_vote
from aioredlock_ng._engine.attempt.acquisition import Acquisition
from aioredlock_ng._engine.attempt.round import Round
from aioredlock_ng._engine.caller import calling_task_name
from aioredlock_ng._engine.keeping.endings import works_on
from aioredlock_ng._engine.keeping.extender import CLOSED
from aioredlock_ng._engine.loops import running_loop
from aioredlock_ng._engine.parts import Parts
from aioredlock_ng._outlasting import outlast_cancellation
from aioredlock_ng.errors import LockNotAcquired, RedlockClosed
from aioredlock_ng.events import AcquireCancelled, AcquireFailed, LockAcquired

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.keeping.batch import Batch
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._engine.spec import LockSpec
    from aioredlock_ng._scripts import Command

__all__ = ["Engine"]


class Engine(Parts):
    """The engine of one manager. See `Parts` for its arguments."""

    async def open(self) -> None:
        """Start connecting to all nodes, and wait for the end of each node's first try.

        Once a quorum is connected, the wait also ends if no other try ends within a node timeout.
        The method then waits for the search for duplicate nodes, and after that for the first
        reading of the markers. Each of these two waits lasts at most three node timeouts.

        Safety: after a cancellation, the nodes go on connecting until `aclose`.
        """
        context = self.context
        # The first `CancelScope` imports the backend of anyio. Without this line, the first
        # cancelled release would have to wait for the import.
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
        # `aclose` has stopped the guard for good if it was called meanwhile.
        if self.guard is not None and not self._closed:
            await self.guard.settle(3 * context.options.node_timeout)

    def usable(self) -> None:
        """Raise an error if the caller cannot use the manager.

        Raises:
            RedlockClosed: Raised if the manager is closed, was opened before a fork, or belongs to
                another event loop than the caller.
        """
        # This method runs at each acquisition, so one fast condition covers the usual case. In a
        # forked child, `_closed` is True, too.
        try:
            if not self._closed and asyncio.get_running_loop() is self._loop:
                return
        except RuntimeError:
            pass
        if self._forked:
            raise RedlockClosed(
                "this Redlock was opened before a fork: its connections belong to the parent"
                " process; open a new one in the child"
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

        `blocking_timeout` is the longest wait in seconds. With None, the call waits for ever. With
        0, the call does not wait for another holder.

        Raises:
            LockHeld: Raised if the calling task holds the lock through an enclosing `async with`,
                and would wait for itself for ever.
            UpgradeRefused: Raised if the calling task has a read lease, and asks for a write lease.
            RedlockClosed: Raised if the caller cannot use the manager; see `usable`.
        """
        self.usable()
        # While no quorum can grant, a call with `fail_fast` must ask the nodes itself, without a
        # line. If a quorum answers that the lock is held, the call joins a line as usual.
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
        """Undo the acquisition of a cancelled caller. The release is queued without an await."""
        self.context.counters.cancelled += 1
        acquisition.give_up(None)
        if (report := self.context.report) is not None:
            waited, shared = acquisition.waited, acquisition.spec.kind.shared
            report(AcquireCancelled(acquisition.resource, waited, acquisition.attempts, shared))

    def taken(self, acquisition: Acquisition, lease: LeaseRecord) -> None:
        """Report that the caller has its lease. The caller of `acquire` must call this method."""
        labels = self.context.labels
        if labels is not None and labels.by_task:
            lease.taken_by = calling_task_name()
        was_over = lease.phase is not Phase.HELD
        lease.taken = True
        if (report := self.context.report) is not None:
            votes = tuple(
                granted
                if reply is GRANTED
                else silent
                if reply is None
                else acquire_vote(granted.node, reply)
                for (granted, silent), reply in zip(self._votes, lease.granted, strict=True)
            )
            resource, prefix, fence = acquisition.resource, lease.token_prefix, lease.fence
            waited, attempts = acquisition.waited, acquisition.attempts
            number, shared = lease.spec.number, lease.spec.kind.shared
            report(LockAcquired(resource, prefix, fence, waited, attempts, votes, number, shared))
        if was_over:
            self.extender.report_end(lease)

    def report_failed(
        self, acquisition: Acquisition, error: LockNotAcquired | RedlockClosed
    ) -> None:
        """Report the error that ends an acquisition, just before the caller gets it."""
        if (report := self.context.report) is not None:
            waited, attempts = acquisition.waited, acquisition.attempts
            votes = error.votes if isinstance(error, LockNotAcquired) else ()
            resource, shared = acquisition.resource, acquisition.spec.kind.shared
            name, reason = cast("AcquireError", type(error).__name__), str(error)
            report(AcquireFailed(resource, name, reason, waited, attempts, votes, shared))

    async def extend(self, lease: LeaseRecord, ttl: float) -> list[Reply] | None:
        """Renew one lease now.

        `ttl` is the new ttl of the lease in seconds.

        Returns:
            None if a quorum renewed the lease, or if the lease has ended. Otherwise the replies of
            the nodes.

        Safety: after a cancellation, the renewal goes on by itself.
        """
        renewal = self.extender.renew([lease], ttl)
        await self._outcome(renewal, lease)
        return None if renewal.has(lease) or lease.phase is not Phase.HELD else renewal.replies

    async def downgrade(self, lease: LeaseRecord) -> None:
        """Turn a writer's lease into a read lease, and wait for the answers of a quorum.

        Safety: after a cancellation, the downgrade goes on by itself.
        """
        await self._outcome(self.extender.downgrade(lease), lease)

    async def _outcome(self, renewal: Batch, lease: LeaseRecord) -> None:
        if renewal.open:
            renewal.done = self.context.loop.create_future()
            await lease.wait_over(renewal.done)
        else:
            # No node could be asked. A caller that repeats the call in a loop must still give the
            # event loop time to connect to the nodes.
            await asyncio.sleep(0)

    async def poll(self, command: Command) -> list[Reply]:
        """Send a command to all nodes, and wait for their answers.

        Returns:
            The answer of each node; None for a node without an answer at the node timeout.

        Raises:
            RedlockClosed: Raised if the caller cannot use the manager; see `usable`.

        Safety: a cancellation ends only the wait.
        """
        self.usable()
        round_ = Round(self.context, command, None, 1, self.context.clock())
        round_.ask()
        # As in `_outcome`, a call that asked no node must still yield to the event loop.
        await (round_.decided() if round_.open else asyncio.sleep(0))
        return round_.replies

    async def aclose(self) -> None:
        """End all leases and acquisitions, and disconnect.

        Leases are released. The keys of a lease are left to expire instead if its body may work on.

        Safety: the releases are queued before the first await. A cancellation is raised only after
        the connections are closed, which takes at most `close_timeout`.
        """
        if self._closed:
            return
        self._closed = True
        self.reports.close()
        for contender in [*self.lines.contenders(), *self._past_the_lines]:
            contender.give_up(RedlockClosed("the Redlock was closed while this acquisition waited"))
        for lease in list(self.extender.leases):
            # A body that cannot be ended immediately may work on. A release would let the next
            # holder work at the same time, so the lease is left to expire.
            if lease.still_used is not None and lease.still_used(lambda: None):
                self.extender.abandon(lease)
            elif lease.has_body():
                end = self.extender.forsake if works_on(lease, self.closer) else self.extender.lose
                end(lease, CLOSED)
            else:
                self.extender.release(lease)
                # A thread or another loop may have begun its body meanwhile. The body must fail.
                if lease.has_body() and lease.phase is Phase.RELEASED:
                    self.extender.found_lost(lease, CLOSED)
                    lease.notify_body()
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

    def doubt(self, key: bytes) -> None:
        """Prepare for a forced release of the key by this manager.

        The grants of the key are no longer passed on, and its leases are watched. This is necessary
        because a node does not report a deletion to the connection that made it (NOLOOP).
        """
        self.lines.doubt(key)
        for acquisition in self._past_the_lines:
            if key in acquisition.target.keys:
                acquisition.doubt()
        for lease in self.lines.holders((key,)):
            self.extender.watch(lease)
