"""Find the leader of an election on the nodes, and notice each change. No lock is acquired.

In the names of this module, a look is a request to all nodes for the present leader.

A watcher tracks the key of the leader's label, not the lock's key. Each renewal changes the lock's
key, and would wake the watchers in all processes.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._engine.loops import running_loop
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from aioredlock_ng.errors import QuorumUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng.records import LockInfo

__all__ = ["UNLABELLED", "Leaders", "Source", "Watch", "changed"]

UNLABELLED: Final = "?"
"""Text for a missing label: the leader uses another library, or its manager has `owner=False`."""

_TOGETHER: Final = 0.01
"""Seconds from a node's report of a new label to the next request for the leader. The reports of
the other nodes usually arrive within this time, so one request suffices."""

_UNSETTLED: Final = (0.15, 0.3, 0.6)
"""Seconds between requests for the leader while the leader has no label yet, or while only a
minority of nodes has a key.

The label is written a tenth of a second after the grant. Split votes are usually settled sooner.
"""

_EXPIRY_MARGIN: Final = 0.05
"""Seconds from the expiry of a key, by the local clock, to the next request for the leader. Clocks
run at different rates, so a node may keep the key slightly longer."""

_SLOW_LOOK: Final = 75.0
"""Seconds between two requests for the leader while no node reports a change, with 10 % of jitter.

A report may have been lost. A watcher that is not a candidate also sends a request at the end of
the leader's lease. Otherwise the watcher would not notice a dead leader that no candidate replaces.
"""

_CLOSED_AFTER: Final = 1.0
"""Longest time in seconds until a watcher notices that its manager is closed.

A closed manager reports no change.
"""


class Source(Protocol):
    """The part of a manager that an election uses."""

    def engine(self) -> Engine: ...

    async def opened_engine(self) -> Engine: ...

    async def inspect(self, name: str | bytes) -> LockInfo: ...


def changed(engine: Engine, key: bytes) -> None:
    """Wake the watchers of the manager that made the change.

    The servers report the change only to the other managers.
    """
    engine.invalidated(0, [owner_key(key)])


class Leaders:
    """Asks the nodes for the leader, and waits for a change before the next request.

    Args:
        name: Name of the election and of its lock.
        key: Key of this lock.
        ttl: The ttl of this candidate's lease, in seconds.
        own: Returns this candidate's label while it leads, else None.
        stands: Returns True while this candidate waits in the queue or leads.
    """

    def __init__(
        self,
        source: Source,
        name: str | bytes,
        key: bytes,
        ttl: float,
        *,
        own: Callable[[], str | None],
        stands: Callable[[], bool],
    ) -> None:
        self._source = source
        self._name = name
        self._label_key = owner_key(key)
        self._ttl = ttl
        self._own = own
        self._stands = stands
        self._tracked = False
        self._split: Iterator[float] = iter(())

    async def other_than(self, known: str | None) -> str | None:
        """Return the leader as soon as it differs from `known`; None if nobody leads.

        With `known=""`, the call returns the first result that the answers of the nodes show.

        Raises:
            RedlockClosed: The manager is not open or is closed meanwhile, or no asyncio event loop
                runs.

        Safety: a cancelled call changes nothing. The call leaves no callback registered.
        """
        running_loop()
        engine = await self._source.opened_engine()
        changes = asyncio.Event()
        late, self._split = iter(_UNSETTLED), iter(_UNSETTLED)
        # A report that came between two calls did not reach `note`. After the report, the node does
        # not track the key any more, so the key must be read again.
        self._tracked = False

        def note() -> None:
            self._tracked = False
            changes.set()

        with engine.onlooker(self._label_key, note):
            while True:
                changes.clear()
                leader, patience = await self._look(engine, known, late)
                if leader != known:
                    return leader
                if await _comes(changes, patience, engine):
                    late, self._split = iter(_UNSETTLED), iter(_UNSETTLED)
                    await asyncio.sleep(_TOGETHER)

    async def _look(
        self, engine: Engine, known: str | None, late: Iterator[float]
    ) -> tuple[str | None, float]:
        """Return the leader, and the seconds until the next request for the leader.

        If the answers do not show who leads, the returned leader is `known`.
        """
        if (own := self._own()) is not None:
            # This candidate leads, and the end of its term wakes the watcher. But if the body
            # outlives the lease, the term goes on, and only a request shows that another candidate
            # leads. So the next request follows after one ttl.
            return own, self._ttl
        try:
            info = await self._ask(engine)
        except QuorumUnreachable:
            return known, self._jittered(engine)
        if (own := self._own()) is not None:
            # The term began during the request, and the answers may name the previous leader.
            return own, self._ttl
        if not info.held:
            # Between two leaders, a node may reserve the key for the next leader, or the votes may
            # be split. The known leader then stays until a quorum has decided.
            if info.offered:
                return known, _UNSETTLED[0]
            if info.nodes > 0 and (soon := next(self._split, None)) is not None:
                return known, soon
            # The key of another client may stay on a minority of nodes for a long time.
            silent = sum(answer.detail != "" and not answer.foreign for answer in info.answers)
            undecided = info.nodes > 0 and info.nodes + silent >= quorum_of(info.total)
            return known if undecided else None, self._until_next_look(engine, self._ttl)
        self._split = iter(_UNSETTLED)
        if info.over:
            # An ordinary lock with the election's name was held, and its `min_hold` keeps the key.
            # So nobody leads.
            return None, self._until_next_look(engine, info.remaining + _EXPIRY_MARGIN)
        if info.owner is None and (soon := next(late, None)) is not None:
            return known, soon
        leader = UNLABELLED if info.owner is None else info.owner.label
        return leader, self._until_next_look(engine, info.remaining + _EXPIRY_MARGIN)

    async def _ask(self, engine: Engine) -> LockInfo:
        if self._tracked:
            return await self._source.inspect(self._name)
        self._tracked = True
        try:
            # The tracked read is sent before the inspection. So the nodes report every change that
            # the inspection may have missed.
            tracking = engine.poll(MUTEX.tracking((self._label_key,)))
            _, info = await asyncio.gather(tracking, self._source.inspect(self._name))
        except BaseException:
            self._tracked = False
            raise
        return info

    def _until_next_look(self, engine: Engine, expiry: float) -> float:
        nodes = engine.states()
        if sum(node.tracking for node in nodes) < quorum_of(len(nodes)):
            return self._jittered(engine)
        return (
            _SLOW_LOOK * (0.9 + engine.context.draw() / 5)
            if self._stands()
            else min(expiry, _SLOW_LOOK)
        )

    def _jittered(self, engine: Engine) -> float:
        return self._ttl * (0.5 + engine.context.draw() / 2)


class Watch:
    """An iterator over the leaders. Calls `learn` with each leader; see `Election.watch`."""

    def __init__(self, leaders: Leaders, learn: Callable[[str | None], None]) -> None:
        self._leaders = leaders
        self._learn = learn
        # The empty text means that no leader is known yet, because no label is empty.
        self._known: str | None = ""

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> str | None:
        leader = self._known = await self._leaders.other_than(self._known)
        self._learn(leader)
        return leader


async def _comes(changes: asyncio.Event, within: float, engine: Engine) -> bool:
    """Wait for a change, and return True; False if no change comes within `within` seconds.

    Raises:
        RedlockClosed: The manager was closed meanwhile.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + within
    while (left := end - loop.time()) > 0 and not changes.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(min(left, _CLOSED_AFTER)):
                await changes.wait()
        engine.usable()
    return changes.is_set()
