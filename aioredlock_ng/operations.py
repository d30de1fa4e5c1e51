"""The operations of tools, such as the command line, on the nodes of a manager.

`Redlock` itself has `inspect`, `force_release`, `diagnose` and `stats`.

```python
from aioredlock_ng.operations import Operator, Scan

async with redlock:
    scan = Scan(redlock, "order:*")
    for lock in await scan.inspect(await scan.keys()):
        print(lock.resource, lock.owner, lock.remaining)
```
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from aioredlock_ng._core.keys import slot_key
from aioredlock_ng._manager.scan import Scan, checked_manager
from aioredlock_ng._scripts.exclusive_kinds import MUTEX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng._scripts import Command
    from aioredlock_ng.options import Options
    from aioredlock_ng.redlock import Redlock

__all__ = ["Operator", "Scan", "Subscription"]

_PROBE: Final = b"round-trip:aioredlock_ng"
"""A key that does not exist. A read of this key measures the round trip to a node."""


class Operator:
    """The access of a tool to the nodes of an open manager.

    An `Operator` sends commands and receives the nodes' reports, but has no method to acquire a
    lock.

    Raises:
        ConfigurationError: `redlock` is not an `aioredlock_ng.Redlock`.
        RedlockClosed: The manager is not open.
    """

    def __init__(self, redlock: Redlock) -> None:
        self._redlock = checked_manager("Operator", redlock)
        self._engine = redlock.engine()

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes, in the order given.

        Internal: for `compat`.
        """
        return self._engine.context.fleet.nodes

    @property
    def quorum(self) -> int:
        """The smallest number of nodes that is more than half of all nodes."""
        return self._engine.context.quorum

    @property
    def options(self) -> Options:
        """The settings of the manager, including the defaults."""
        return self._engine.context.options

    def now(self) -> float:
        """Return the time of the manager's clock, in seconds.

        Internal: for `compat`.
        """
        return self._engine.context.clock()

    async def poll(self, command: Command) -> list[Reply]:
        """Send a command to all nodes, and wait for their answers.

        Internal: for `compat`.

        Returns:
            The answer of each node; None for a node that has not answered within `node_timeout`.

        Raises:
            RedlockClosed: The manager is closed, or belongs to another loop or process.

        Safety: a cancellation ends only the wait.
        """
        return await self._engine.poll(command)

    async def round_trips(self, within: float = 1.0) -> list[float | None]:
        """Measure the round trip to each node with one read of a key that does not exist.

        Args:
            within: Seconds after which a node counts as silent.

        Returns:
            Seconds for each node; None for a node that is not connected or does not answer.

        Raises:
            RedlockClosed: The manager is closed, or belongs to another loop or process.

        Safety: a cancellation ends only the wait.
        """
        self._engine.usable()
        return await asyncio.gather(
            *(self._round_trip(index, node, within) for index, node in enumerate(self.nodes))
        )

    async def _round_trip(self, index: int, node: Node, within: float) -> float | None:
        if not node.ready:
            return None
        sent = self.now()
        reply = await self._engine.ask_node(index, MUTEX.inspecting((_PROBE,)), within)
        return None if reply is None else self.now() - sent

    @contextmanager
    def subscribe(self, name: str | bytes, slots: int | None = None) -> Iterator[Subscription]:
        """Receive the nodes' reports of changes of a lock, until the `with` block ends.

        Args:
            name: The lock, or a semaphore if `slots` is given.
            slots: Watch this many slots of the semaphore, from slot 1 on.

        Raises:
            ConfigurationError: The name is invalid.
        """
        key = self._redlock.key_format().key(name)
        keys = (key,) if slots is None else tuple(slot_key(key, n + 1) for n in range(slots))
        changed = asyncio.Event()
        with ExitStack() as stack:
            for key in keys:
                stack.enter_context(self._engine.onlooker(key, changed.set))
            yield Subscription(self._engine, keys, changed)

    def give_each_lease_its_own_token(self) -> None:
        """Stop passing grants from one task to the next.

        Each later lease then has a token of its own.

        Internal: for `compat`.
        """
        self._engine.lines.passing = False


class Subscription:
    """The nodes' reports of changes of one lock. Made by `Operator.subscribe`.

    A node reports only the first change after `track`, and a lost connection counts as a change.
    A report may get lost, so a caller of `wait` needs a time limit of its own. A report may also
    be late, and then `wait` returns for a change before `track`.

    ```python
    with Operator(redlock).subscribe("order:42") as changes:
        _, lock = await asyncio.gather(changes.track(), redlock.inspect("order:42"))
        async with asyncio.timeout(2):
            await changes.wait()
    ```
    """

    def __init__(self, engine: Engine, keys: tuple[bytes, ...], changed: asyncio.Event) -> None:
        self._engine = engine
        self._tracking = MUTEX.tracking(keys)
        self._changed = changed

    async def track(self) -> None:
        """Forget earlier reports, and ask every node to report the next change.

        Begin an inspection together with this call, as in the example. Both requests are then sent
        in one write, the tracking first. So no change after the inspection is missed.

        Raises:
            RedlockClosed: The manager is closed, or belongs to another loop or process.

        Safety: a cancellation ends only the wait.
        """
        self._changed.clear()
        await self._engine.poll(self._tracking)

    async def wait(self) -> None:
        """Return when a node has reported a change since the last `track`.

        The close of the manager counts as a change, like a lost connection.

        Safety: a cancelled call changes nothing.
        """
        await self._changed.wait()
