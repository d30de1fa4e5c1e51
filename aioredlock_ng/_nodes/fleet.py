"""All nodes of a manager. A command that goes to all nodes is queued once for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._nodes.channel import Outbox
    from aioredlock_ng._nodes.port import Node, Sink

__all__ = ["Fleet"]


class Fleet:
    """The nodes, in the order given.

    One call of the outbox sends a command to all nodes that have joined the outbox. All other nodes
    are asked individually.

    Attributes:
        absent: Indexes of the nodes that must be asked individually now.
        ask_present: Asks all nodes that are not in `absent`. Replies come only after the call has
            returned.
        hurry: Sends the queued commands immediately; see `Outbox.hurry`.
    """

    __slots__ = ("_present", "absent", "ask_present", "hurry", "nodes")

    def __init__(self, nodes: Sequence[Node], outbox: Outbox | None = None) -> None:
        self.nodes = nodes
        self.ask_present: Callable[[Sink], None] = _nobody if outbox is None else outbox.ask_all
        self.hurry: Callable[[], None] = _nothing if outbox is None else outbox.hurry
        self.absent = list(range(len(nodes)))
        self._present: list[int] = []

    def ask(self, sink: Sink) -> None:
        """Send the command of `sink` to every node, as `Node.ask` does."""
        self.ask_present(sink)
        for index in self.absent:
            self.nodes[index].ask(sink, index)

    def ask_some(self, sink: Sink, indexes: Sequence[int]) -> None:
        """Send the command of `sink` to the nodes at these indexes, as `Node.ask` does.

        The indexes must be sorted.
        """
        # While a node is down, a release often goes to exactly the nodes that share the outbox.
        # Then one call of the outbox is enough.
        if indexes == self._present:
            self.ask_present(sink)
        else:
            for index in indexes:
                self.nodes[index].ask(sink, index)

    def present(self, index: int, is_present: bool) -> None:
        """Record that node `index` has joined or left the outbox."""
        if is_present != (index in self.absent):
            return
        if is_present:
            self.absent = [i for i in self.absent if i != index]
        else:
            self.absent = [*self.absent, index]
        self._present = [i for i in range(len(self.nodes)) if i not in self.absent]


def _nobody(_sink: Sink) -> None:
    """Do nothing, because without an outbox every node is in `absent`."""


def _nothing() -> None:
    """Do nothing, because without an outbox no command is queued."""
