"""Keeps holdings alive and notices their end: batched renewals, deadlines, loss. It never re-creates a key.

No task runs here: one timer wheel hands over the holdings that are due, their renewals leave in a few commands, and the
answers come back as callbacks. A holding is renewed by its own token, never by the name of its resource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.validity import deadline_of, renew_at, retry_at, ttl_ms
from aioredlock_ng._engine.round import TIMEOUT_WIDTH
from aioredlock_ng._engine.wheel import Wheel
from aioredlock_ng._scripts import Command
from aioredlock_ng.events import LeaseLost

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator, Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.cleanup import Releases
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.holding import Holding
    from aioredlock_ng._engine.round import Round
    from aioredlock_ng._engine.waiting import Lines

__all__ = ["Extender", "Renewal"]

RENEW_WIDTH = 0.02
"""Seconds of renewals that leave together."""

BATCH = 64
"""Leases per command: a server is busy with it for less than 0.2 ms."""


class Renewal:
    """One batch of leases asked to live on; see `Sink`.

    Attributes:
        holdings: The batch; each with the ttl it is renewed to.
        ttls: Seconds, one per holding.
        replies: Per node: the number of keys when it renewed them all, else an answer per key, or a mark (`votes.py`).
        done: When set, resolved once the batch is decided.
    """

    __slots__ = (
        "_answered",
        "_context",
        "_extender",
        "_full",
        "_keys",
        "_settled",
        "_slot",
        "done",
        "holdings",
        "open",
        "replies",
        "started",
        "ttls",
    )

    def __init__(self, context: Context, extender: Extender, holdings: Sequence[Holding], ttls: Sequence[float]) -> None:
        self._context = context
        self._extender = extender
        self.holdings = holdings
        self.ttls = ttls
        self.open = True
        self.started = context.clock()
        self.replies: list[Reply] = [None] * len(context.fleet.nodes)
        self._keys = sum(len(holding.spec.keys) for holding in holdings)
        self._full = self._answered = 0
        self._settled: set[Holding] = set()
        self.done: asyncio.Future[None] | None = None

    def ask(self) -> None:
        """Queue the batch on all nodes."""
        context = self._context
        keys: list[bytes] = []
        args: list[bytes | int] = []
        for holding, ttl in zip(self.holdings, self.ttls, strict=True):
            for key in holding.spec.keys:
                keys.append(key)
                args += (holding.token, ttl_ms(ttl))
        command = Command(self.holdings[0].spec.kind.extend, tuple(keys), tuple(args))
        self._slot = context.timeouts.add(self, self.started + context.options.node_timeout + TIMEOUT_WIDTH)
        context.fleet.ask(command, self)

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`."""
        self.replies[index] = reply
        self._answered += 1
        if reply == self._keys:
            self._full += 1
        if not self.open:
            return
        if self._full >= self._context.quorum or self._answered == len(self.replies):
            self._close()
        elif self._answered - self._full and self._answered >= self._context.quorum:
            self._judge(final=False)

    def expire(self) -> None:
        """The node timeout has passed."""
        if self.open:
            self._close()

    def held(self, holding: object) -> int:
        """See `Ballot.held`."""
        for position, candidate in self._positions():
            if candidate is holding:
                return self._count(position, candidate)[0]
        return 0

    def _close(self) -> None:
        self.open = False
        self._slot.discard(self)
        self._judge(final=True)
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def _judge(self, *, final: bool) -> None:
        quorum, total = self._context.quorum, len(self.replies)
        certain = self._full >= quorum
        ttls = iter(self.ttls)
        for position, holding in self._positions():
            ttl = next(ttls)
            if holding in self._settled or holding.phase is not Phase.HELD:
                continue
            yes, no = (quorum, 0) if certain else self._count(position, holding)
            if yes >= quorum:
                self._settled.add(holding)
                self._extender.renewed(self, holding, ttl)
            elif total - no < quorum:
                self._settled.add(holding)
                self._extender.lose(holding, "a quorum of nodes no longer holds its key")
            elif final:
                self._extender.failed(holding)

    def _positions(self) -> Iterator[tuple[int, Holding]]:
        position = 0
        for holding in self.holdings:
            yield position, holding
            position += len(holding.spec.keys)

    def _count(self, position: int, holding: Holding) -> tuple[int, int]:
        """How many nodes renewed it, and how many certainly do not hold it."""
        yes = no = 0
        end = position + len(holding.spec.keys)
        for reply in self.replies:
            if reply == self._keys:
                yes += 1
            elif type(reply) is list and len(reply) == self._keys:
                if all(answer == 1 for answer in reply[position:end]):
                    yes += 1
                else:
                    no += 1
        return yes, no


class Extender:
    """Owns every holding of a manager from grant to end."""

    def __init__(self, context: Context, releases: Releases, lines: Lines) -> None:
        self._context = context
        self._releases = releases
        self._lines = lines
        self._wheel: Wheel[Holding] = Wheel(context.loop, context.clock, RENEW_WIDTH, self._due)
        self.holdings: set[Holding] = set()

    def adopt(self, holding: Holding) -> None:
        """Take over a holding that was just granted."""
        self.holdings.add(holding)
        self._schedule(holding)

    def release(self, holding: Holding) -> Round | None:
        """Give it up: the release is queued when this returns, and so is the next local waiter's attempt.

        Returns:
            The round, or None when it was over already.
        """
        if holding.phase is not Phase.HELD:
            return None
        now = self._context.clock()
        if holding.deadline <= now:
            self.lose(holding, _UNRENEWED)
            return None
        self._context.counters.released += 1
        holding.end(Phase.RELEASED)
        return self._end(holding, now)

    def abandon(self, holding: Holding) -> None:
        """Stop renewing; it expires by itself, and is not released."""
        if holding.phase is Phase.HELD:
            holding.end(Phase.ABANDONED)
            self._forget(holding)
            self._lines.freed(holding)

    def lose(self, holding: Holding, reason: str) -> None:
        """Declare it lost, once: tell the holder, release what may be left, let the next one try."""
        if holding.phase is not Phase.HELD:
            return
        context = self._context
        context.counters.lost += 1
        holding.end(Phase.LOST, reason)
        self._end(holding, context.clock())
        on_lost, holding.on_lost = holding.on_lost, None
        if on_lost is not None:
            on_lost()
        prefix = holding.token[:6].decode()
        context.emit(LeaseLost(holding.spec.resource, prefix, reason, context.clock() - holding.since))

    def check(self, holding: Holding) -> None:
        """Declare the loss of a holding whose deadline has passed though its timer has not come round yet."""
        if holding.phase is Phase.HELD and holding.remaining(self._context.clock()) <= 0.0:
            self.lose(holding, _UNRENEWED)

    def renew(self, holdings: Sequence[Holding], ttls: Sequence[float]) -> Renewal:
        """Send one batch now; the outcome comes through `renewed`, `failed` and `lose`."""
        renewal = Renewal(self._context, self, holdings, ttls)
        for holding, ttl in zip(holdings, ttls, strict=True):
            if ttl < holding.ttl:
                holding.shorten(deadline_of(renewal.started, ttl, self._context.options.drift(ttl)))
            # Whatever becomes of the batch, the deadline is watched meanwhile.
            self._put(holding, holding.deadline)
        renewal.ask()
        return renewal

    def renewed(self, renewal: Renewal, holding: Holding, ttl: float) -> None:
        """A quorum renewed it."""
        self._context.counters.renewals += 1
        drift = self._context.options.drift(ttl)
        if holding.renew(renewal.started, ttl, deadline_of(renewal.started, ttl, drift)):
            holding.ballot = renewal
            self._schedule(holding)

    def failed(self, holding: Holding) -> None:
        """No quorum renewed it in time: again, faster, until the deadline."""
        self._context.counters.renewals_failed += 1
        if holding.spec.auto_extend:
            self._put(holding, retry_at(self._context.clock(), holding.ttl, holding.deadline))

    def close(self) -> None:
        """Stop all timers."""
        self._wheel.stop()

    def _schedule(self, holding: Holding) -> None:
        if holding.spec.auto_extend:
            at = renew_at(holding.started, holding.ttl, self._context.draw())
            self._put(holding, min(at, holding.deadline))
        else:
            self._put(holding, holding.deadline)

    def _put(self, holding: Holding, at: float) -> None:
        holding.unschedule()
        holding.slot = self._wheel.add(holding, at)

    def _due(self, holdings: set[Holding]) -> None:
        now = self._context.clock()
        batch = []
        for holding in list(holdings):
            holding.slot = None
            if holding.deadline <= now:
                self.lose(holding, _UNRENEWED)
            elif holding.deadline - now <= RENEW_WIDTH or holding.deadline == holding.ends_at or not holding.spec.auto_extend:
                self._watch_deadline(holding)
            else:
                batch.append(holding)
        for start in range(0, len(batch), BATCH):
            part = batch[start : start + BATCH]
            self.renew(part, [holding.ttl for holding in part])

    def _watch_deadline(self, holding: Holding) -> None:
        """An exact timer: the wheel may be a slot early, and a loss must not be."""
        holding.unschedule()
        delay = max(0.0, holding.deadline - self._context.clock())
        holding.timer = self._context.loop.call_later(delay, self._at_deadline, holding)

    def _at_deadline(self, holding: Holding) -> None:
        holding.timer = None
        if holding.phase is not Phase.HELD:
            return
        if holding.deadline <= self._context.clock():
            reason = _MAX_HOLD if holding.deadline == holding.ends_at else _UNRENEWED
            self.lose(holding, reason)
        else:
            self._watch_deadline(holding)

    def _end(self, holding: Holding, now: float) -> Round:
        self._forget(holding)
        life = max(holding.ttl, holding.spec.ttl)
        release = self._releases.send(holding.spec, holding.token, holding.granted, life, now)
        self._lines.freed(holding)
        return release

    def _forget(self, holding: Holding) -> None:
        holding.unschedule()
        self.holdings.discard(holding)
        holding.wake_waiters()


_UNRENEWED = "its deadline passed before a quorum renewed it"
_MAX_HOLD = "held longer than max_hold"
