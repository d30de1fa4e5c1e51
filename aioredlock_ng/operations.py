"""Give tools, such as the command line, access to the nodes of an open manager.

An `Operator` sends commands and receives the nodes' reports, but has no method to acquire a lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng._scripts import Command
    from aioredlock_ng.options import Options
    from aioredlock_ng.redlock import Redlock

__all__ = ["Operator"]


class Operator:
    """The access of a tool to the nodes of an open manager.

    Raises:
        RedlockClosed: The manager is not open.
    """

    def __init__(self, redlock: Redlock) -> None:
        self._engine = redlock.engine()

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes, in the order given."""
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
        """Return the time of the manager's clock, in seconds."""
        return self._engine.context.clock()

    async def poll(self, command: Command) -> list[Reply]:
        """Send a command to all nodes, and wait for their answers.

        Returns:
            The answer of each node; None for a node that has not answered within `node_timeout`.

        Raises:
            RedlockClosed: The manager is closed, or belongs to another loop or process.

        Safety: a cancellation ends only the wait.
        """
        return await self._engine.poll(command)

    def changes(self, key: bytes, changed: Callable[[], object]) -> AbstractContextManager[None]:
        """Call `changed` when a node reports a change of this key, until the context ends.

        The nodes report changes of tracked keys only. To track the key, send a tracked command that
        reads it. A lost connection counts as a change, too.
        """
        return self._engine.onlooker(key, changed)

    def give_each_lease_its_own_token(self) -> None:
        """Stop passing grants from one task to the next.

        Each later lease then has a token of its own.
        """
        self._engine.lines.passing = False
