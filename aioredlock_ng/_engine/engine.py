"""Puts the parts of the engine together for one manager on one loop; what users call is in `lease.py` and `lock.py`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.replies import GRANTED
from aioredlock_ng._core.votes import acquire_vote
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
    """Everything that happens between a user's call and the nodes."""

    async def open(self) -> None:
        """Start connecting to all nodes; returns once each has been tried, or a quorum is up and the rest is slow.

        Safety: cancelled, it leaves connecting tasks behind that `aclose` ends.
        """
        context = self.context
        # The first one imports what anyio needs for this kind of loop: not amid the first release that is cancelled.
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
        """Refuse a call from the wrong place.

        Raises:
            RedlockClosed: Closed, another event loop or none, or a forked process.
        """
        # Each acquire and release runs this. A fork sets `_closed`, too.
        try:
            if not self._closed and asyncio.get_running_loop() is self._loop:
                return
        except RuntimeError:
            pass
        if self._forked:
            raise RedlockClosed(
                "this Redlock was opened before a fork: its connections belong to the parent process; open one here"
            )
        if running_loop() is not self._loop:
            raise RedlockClosed(
                "this Redlock belongs to another event loop; open one in each loop that uses locks"
            )
        if self._closed:
            raise RedlockClosed("this Redlock is closed; open a new one")

    def on_loop(self) -> bool:
        """True on the event loop that this belongs to, False in other threads and in a forked child."""
        try:
            return asyncio.get_running_loop() is self._loop and not self._forked
        except RuntimeError:
            return False

    def acquire(self, spec: LockSpec, blocking_timeout: float | None) -> Acquisition:
        """Begin to get a holding; whoever calls this awaits its `future`, and calls `cancelled` if that is cancelled.

        Raises:
            LockHeld: The task holds it itself through an enclosing `async with` and would wait for itself for ever.
            RedlockClosed: See `usable`.
        """
        self.usable()
        # Who fails fast must not wait behind who does not. But another holder is waited for all the same.
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
            self.tell_failed(acquisition, error)
            raise
        if alone:
            self._past_the_lines.add(acquisition)
            acquisition.future.add_done_callback(
                lambda _: self._past_the_lines.discard(acquisition)
            )
        return acquisition

    def cancelled(self, acquisition: Acquisition) -> None:
        """The caller of `acquire` was cancelled: everything is undone when this returns."""
        self.context.counters.cancelled += 1
        acquisition.give_up(None)
        if (tell := self.context.tell) is not None:
            tell(AcquireCancelled(acquisition.resource, acquisition.waited, acquisition.attempts))

    def taken(self, acquisition: Acquisition, holding: Holding) -> None:
        """In the caller's own task: it has its lease."""
        labels = self.context.labels
        if labels is not None and labels.by_task:
            task = asyncio.current_task(self.context.loop)
            holding.taken_by = "" if task is None else task.get_name()
        was_over = holding.phase is not Phase.HELD
        holding.told = True
        if (tell := self.context.tell) is not None:
            votes = tuple(
                granted
                if reply is GRANTED
                else silent
                if reply is None
                else acquire_vote(granted.node, reply)
                for (granted, silent), reply in zip(self._votes, holding.granted, strict=True)
            )
            waited, attempts = acquisition.waited, acquisition.attempts
            tell(
                LockAcquired(
                    acquisition.resource,
                    holding.token_prefix,
                    holding.fence,
                    waited,
                    attempts,
                    votes,
                )
            )
        if was_over:
            self.extender.tell_over(holding)

    def tell_failed(self, acquisition: Acquisition, error: LockNotAcquired | RedlockClosed) -> None:
        """In the caller's own task: it is about to get this error."""
        if (tell := self.context.tell) is not None:
            waited, attempts = acquisition.waited, acquisition.attempts
            votes = error.votes if isinstance(error, LockNotAcquired) else ()
            tell(
                AcquireFailed(
                    acquisition.resource, type(error).__name__, str(error), waited, attempts, votes
                )
            )

    async def extend(self, holding: Holding, ttl: float) -> list[Reply] | None:
        """Renew one holding now.

        Returns:
            None when a quorum renewed it or it turned out to be lost (see its phase), else the replies.

        Safety: cancelled, the renewal goes on by itself.
        """
        renewal = self.extender.renew([holding], ttl)
        if renewal.open:
            renewal.done = self.context.loop.create_future()
            await holding.wait_over(renewal.done)
        return None if renewal.has(holding) or holding.phase is not Phase.HELD else renewal.replies

    async def poll(self, command: Command) -> list[Reply]:
        """Ask all nodes and wait for every answer, the node timeout at most; None where there is none."""
        self.usable()
        round_ = Round(self.context, command, None, 1, self.context.clock())
        round_.ask()
        if round_.open:
            await round_.decided()
        return round_.replies

    async def aclose(self) -> None:
        """Release what is held, end what waits, disconnect.

        Safety: everything is released before the first await. Cancelled, in any way, it still waits for the nodes
        (`close_timeout` at most) and closes the connections, then raises the cancellation.
        """
        if self._closed:
            return
        self._closed = True
        self.reports.stop()
        for contender in [*self.lines.contenders(), *self._past_the_lines]:
            contender.give_up(RedlockClosed("the Redlock was closed while this acquisition waited"))
        for holding in list(self.extender.holdings):
            if holding.still_used is not None and holding.still_used(_nothing):
                # Its thread works on: released now, the lock would let the next holder in beside it.
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
        """Call `changed` whenever a node says that this tracked key, or any key, may have changed."""
        return self.reports.onlooker(key, changed)

    def invalidated(self, index: int, keys: list[bytes]) -> None:
        """Take `keys` for changed on node `index`, as if it had said so."""
        self.reports.invalidated(index, keys)

    def doubt(self, key: bytes) -> None:
        """Say that this process is about to delete the key by force: its servers notify everybody but us (NOLOOP)."""
        self.lines.doubt(key)
        for holding in self.lines.holders((key,)):
            self.extender.watch(holding)


def _nothing() -> None:
    """Nobody waits for the thread's end."""
