"""The nodes that a test gets. Other modules make the nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["OWN", "Node", "NodeSet", "keys_on", "locks_on", "trust"]

OWN = "aioredlock_ng:"
"""Prefix of the library's own keys, which are no locks.

The marker and the fence counters of a node have this prefix. They stay when every lock is gone.
"""


class Node(Protocol):
    """One real server.

    Every method blocks the event loop for some milliseconds.
    """

    @property
    def url(self) -> str:
        """The URL for a client."""

    @property
    def running(self) -> bool:
        """True if the server process exists, paused or not."""

    def start(self) -> object:
        """Start the server if it is down."""

    def pause(self) -> None:
        """Stop the server process. Its connections stay open without answers."""

    def resume(self) -> None:
        """Let the server run on. Do nothing if it is not paused."""

    def crash(self) -> None:
        """Kill the server."""

    def restart(self) -> object:
        """Start the server again on its address, empty."""

    def wipe(self) -> None:
        """Delete every key."""

    def info(self) -> dict[str, str]:
        """Return the server's INFO."""

    def command(self, *args: str) -> bytes:
        """Send one command over a connection of its own, and return the payload of the reply."""


class NodeSet:
    """Independent nodes in a fixed order. A test gets them empty and running."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = list(nodes)

    @property
    def urls(self) -> list[str]:
        """The URL of each node, in order."""
        return [node.url for node in self._nodes]

    def pause(self, index: int) -> None:
        """Stop one node (SIGSTOP). Its connections stay open without answers."""
        self._nodes[index].pause()

    def resume(self, index: int) -> None:
        """Let a stopped node run on. The node then answers the requests of the meantime."""
        self._nodes[index].resume()

    def crash(self, index: int) -> None:
        """Kill one node (SIGKILL)."""
        self._nodes[index].crash()

    def restart(self, index: int) -> None:
        """Start one node again on its address, empty."""
        self._nodes[index].restart()

    def wipe(self, index: int | None = None) -> None:
        """Delete every key of one node, or of all nodes."""
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
        """Return for each node the names of the locks in database 0."""
        return [locks_on(node) for node in self._nodes]

    def left(self) -> list[set[str]]:
        """Return for each node the names of all keys in database 0, except the marker and the fence
        counters.

        The remaining keys belong to locks, queues and labels.
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
    """Return the names of a node's keys in database 0, except the library's own keys."""
    return {name for name in keys_on(node) if not name.startswith(OWN)}


def keys_on(node: Node) -> set[str]:
    """Return the names of a node's keys in database 0."""
    # cjson encodes an empty table as an object.
    return set(
        json.loads(node.command("EVAL", 'return cjson.encode(redis.call("KEYS", "*"))', "0"))
    )
