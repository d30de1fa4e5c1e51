"""Find the leader of an election on the nodes, and notice each change. No lock is taken.

A watcher tracks the key of the leader's label, not the lock's key. Each renewal changes the lock's
key, so tracking that would wake every watcher of the fleet several times per ttl.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._scripts.kinds import MUTEX
from aioredlock_ng.errors import QuorumUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng.records import LockInfo

__all__ = ["UNLABELLED", "Leaders", "Source", "Watch", "changed"]

UNLABELLED: Final = "?"
"""Leader without a label: another library's lock, or a manager with `owner=False`."""

_TOGETHER: Final = 0.01
"""Seconds. All nodes report a new label at about the same time, and one look serves all reports."""

_LABEL_LATE: Final = (0.15, 0.3, 0.6)
"""Seconds between looks while a leader has no label yet.

It is written a tenth of a second after the grant.
"""

_EXPIRY_MARGIN: Final = 0.05
"""Seconds. Clocks run at different rates, so a key may still exist when its time is over by the
local clock."""

_SLOW_LOOK: Final = 75.0
"""Seconds between looks without a report, in case a report was lost.

A watcher that is no candidate looks at the end of the leader's lease, too. Otherwise it would not
notice that a leader died and nobody follows.
"""

_CLOSED_AFTER: Final = 1.0
"""Seconds until a watcher notices that its manager is closed.

A closed manager reports no change.
"""

_NOT_A_TOKEN: Final = b"-"
"""The answer to the tracked read is ignored. A label never has this value."""


class Source(Protocol):
    """The part of a manager that an election uses."""

    def engine(self) -> Engine:
        """Return the open engine."""

    async def inspect(self, name: str | bytes) -> LockInfo:
        """Return who holds a lock."""


def changed(engine: Engine, key: bytes) -> None:
    """Wake the watchers of this manager.

    Servers do not report to a manager the changes that it made itself.
    """
    engine.invalidated(0, [owner_key(key)])


class Leaders:
    """Looks for the leader, and waits for a change between two looks.

    Args:
        source: The manager.
        name: The election's name.
        key: The key of its lock.
        ttl: Seconds that a leader's lease lives, as far as known here.
        own: Returns this candidate's label while it leads, else None.
        stands: True while this candidate waits in the queue.
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

    async def other_than(self, known: str | None) -> str | None:
        """Return the leader as soon as it differs from `known`; "" stands for no known leader.

        Raises:
            RedlockClosed: The manager is not open, or is closed meanwhile.

        Safety: a cancelled call changes nothing. Nothing is left behind between two calls.
        """
        engine = self._source.engine()
        changes = asyncio.Event()
        late = iter(_LABEL_LATE)
        # Reports of changes between two calls did not reach `note`, so the key may be untracked by
        # now.
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
                    late = iter(_LABEL_LATE)
                    await asyncio.sleep(_TOGETHER)

    async def _look(
        self, engine: Engine, known: str | None, late: Iterator[float]
    ) -> tuple[str | None, float]:
        """Return the leader and the seconds until the next look.

        An undecided look returns `known`.
        """
        if (own := self._own()) is not None:
            # The end of a term wakes the watcher. The loss of a lease does not, if the body
            # outlives it.
            return own, self._ttl
        try:
            info = await self._ask(engine)
        except QuorumUnreachable:
            return known, self._jittered(engine)
        if not info.held:
            # Between two leaders a node may keep the key for the next one, or the votes are split.
            undecided = info.offered or info.nodes > 0
            return (known if undecided else None), (
                _LABEL_LATE[0] if undecided else self._until_next_look(engine, self._ttl)
            )
        if info.over:
            # The lock is kept by the `min_hold` of a plain lock with the name of the election.
            return None, self._until_next_look(engine, info.remaining + _EXPIRY_MARGIN)
        if info.owner is None and (soon := next(late, None)) is not None:
            return known, soon
        leader = UNLABELLED if info.owner is None else info.owner.label
        return leader, self._until_next_look(engine, info.remaining + _EXPIRY_MARGIN)

    async def _ask(self, engine: Engine) -> LockInfo:
        if self._tracked:
            return await self._source.inspect(self._name)
        self._tracked = True
        watching = MUTEX.watching((self._label_key,), (_NOT_A_TOKEN,))
        try:
            # Both requests leave in one write, the tracked read first. So the nodes report every
            # change that follows the read.
            _, info = await asyncio.gather(engine.poll(watching), self._source.inspect(self._name))
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
    """Iterates over the leaders: see `Election.watch`.

    Args:
        leaders: Finds the next leader.
        learn: Called with each leader.
    """

    def __init__(self, leaders: Leaders, learn: Callable[[str | None], None]) -> None:
        self._leaders = leaders
        self._learn = learn
        # The empty text means that no leader is known yet, because no label is empty.
        self._known: str | None = ""

    def __aiter__(self) -> Watch:
        """Return itself."""
        return self

    async def __anext__(self) -> str | None:
        """Return the next leader."""
        leader = self._known = await self._leaders.other_than(self._known)
        self._learn(leader)
        return leader


async def _comes(changes: asyncio.Event, within: float, engine: Engine) -> bool:
    """Wait for a change; False if there is none within this number of seconds.

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
