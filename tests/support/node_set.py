"""The nodes that a test gets, whatever they run on; never creates one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["OWN", "Node", "NodeSet", "keys_on", "locks_on", "trust"]

OWN = "aioredlock_ng:"
"""How the library's own keys begin: a node's marker and its fence counters, which stay when every
lock is gone.
"""


class Node(Protocol):
    """One real server.

    Every method blocks for some milliseconds, which a node that is paused does too.
    """

    @property
    def url(self) -> str:
        """The URL for a client."""

    @property
    def running(self) -> bool:
        """Whether the server exists, paused or not."""

    def start(self) -> object:
        """Start it when it is down."""

    def pause(self) -> None:
        """Hang it: connections stay, nothing is answered."""

    def resume(self) -> None:
        """Let it run on; nothing happens when it is not paused."""

    def crash(self) -> None:
        """Kill it."""

    def restart(self) -> object:
        """Bring it back on its address, empty."""

    def wipe(self) -> None:
        """Delete every key."""

    def info(self) -> dict[str, str]:
        """Return the server's INFO."""

    def command(self, *args: str) -> bytes:
        """Send one command over a connection of its own; return a plain reply's payload."""


class NodeSet:
    """Independent nodes in a fixed order, empty and running when a test gets them."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = list(nodes)

    @property
    def urls(self) -> list[str]:
        """The URL of each node, in order."""
        return [node.url for node in self._nodes]

    def pause(self, index: int) -> None:
        """Hang one node (SIGSTOP): connections stay, nothing is answered."""
        self._nodes[index].pause()

    def resume(self, index: int) -> None:
        """Let a hung node run on; it answers what was sent meanwhile."""
        self._nodes[index].resume()

    def crash(self, index: int) -> None:
        """Kill one node (SIGKILL)."""
        self._nodes[index].crash()

    def restart(self, index: int) -> None:
        """Bring one node back on its address, empty."""
        self._nodes[index].restart()

    def wipe(self, index: int | None = None) -> None:
        """Delete every key of one node, or of all."""
        for node in self._nodes if index is None else [self._nodes[index]]:
            node.wipe()

    def found(self) -> None:
        """Mark every node as trusted, as if the set had been founded long ago with all its nodes
        up.
        """
        for node in self._nodes:
            trust(node)

    def restore(self) -> None:
        """Make every node run and answer again."""
        for node in self._nodes:
            if node.running:
                node.resume()
            else:
                node.start()

    def keys(self) -> list[set[str]]:
        """Return the names of each node's locks in database 0: what a test leaves behind, or must
        not.
        """
        return [locks_on(node) for node in self._nodes]

    def left(self) -> list[set[str]]:
        """Return the names of each node's keys in database 0 that do not stay for ever: of locks,
        queues and labels.
        """
        return [keys_on(node) - {f"{OWN}marker", f"{OWN}fences"} for node in self._nodes]

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    def __getitem__(self, index: int) -> Node:
        return self._nodes[index]


def trust(node: Node) -> None:
    """Mark a node as trusted, as if its set had been founded long ago with all its nodes up."""
    node.command("SET", f"{OWN}marker", f"{node.info()['run_id']}:1")


def locks_on(node: Node) -> set[str]:
    """Return the names of a node's keys in database 0, but for the library's own."""
    return {name for name in keys_on(node) if not name.startswith(OWN)}


def keys_on(node: Node) -> set[str]:
    """Return the names of a node's keys in database 0."""
    # cjson encodes an empty table as an object.
    return set(
        json.loads(node.command("EVAL", 'return cjson.encode(redis.call("KEYS", "*"))', "0"))
    )
