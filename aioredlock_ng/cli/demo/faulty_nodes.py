"""Provide the nodes of the demo and their faults. At most a minority of the nodes fails."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.exceptions import RedisError

from aioredlock_ng import QuorumUnreachable, Redlock

from .board import NodeState, NodeView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng.testing import LocalNodes

__all__ = ["GivenNodes", "NodesFailed", "OwnNodes", "StagedNodes", "address_of", "force_release"]

_ANSWER_SECONDS = 2.0


class NodesFailed(RuntimeError):
    """The demo cannot use the nodes."""


class StagedNodes(Protocol):
    """The nodes of the demo.

    Attributes:
        urls: URLs for the lock managers.
        views: The state of each node, which `hang`, `kill` and `bring_back` update.
        where: The number and the origin of the nodes, in words.
        left_out: The faults that the demo does not cause on these nodes, in words.
        kill_words: The effect of `kill`, in words.
        hang_words: The effect of `hang`, in words.
    """

    urls: Sequence[str]
    views: Sequence[NodeView]
    where: str
    left_out: Sequence[str]
    hang_words: str
    kill_words: str

    @property
    def expendable(self) -> Sequence[int]:
        """Return the indexes of nodes that may fail at the same time.

        The remaining nodes still form a quorum.
        """

    async def hang(self, index: int, seconds: float) -> None:
        """Make a node stop answering, for about `seconds` or until `bring_back` is called."""

    async def kill(self, index: int, seconds: float) -> None:
        """Make a node disappear, for about `seconds` or until `bring_back` is called."""

    async def bring_back(self, index: int, not_before: float) -> None:
        """End every fault of a node.

        A node that lost its keys does not come back before `not_before`, an instant of
        `time.monotonic`.
        """


class OwnNodes:
    """Servers that the demo has started. `hang` suspends a server, and `kill` kills it.

    Args:
        servers: The running servers. The caller must close them.
    """

    left_out: Sequence[str] = ()
    hang_words = "SIGSTOP: it keeps its connections and answers nothing"
    kill_words = "SIGKILL: it is gone, and its keys with it"

    def __init__(self, servers: LocalNodes) -> None:
        self._servers = servers
        self.urls: Sequence[str] = servers.urls
        self.views: Sequence[NodeView] = [NodeView(address_of(url)) for url in self.urls]
        self.where = f"{len(self.urls)} servers started by the demo"

    @property
    def expendable(self) -> Sequence[int]:
        """Return the indexes of a minority of the nodes, for example two of five."""
        return range((len(self.urls) - 1) // 2)

    async def hang(self, index: int, seconds: float) -> None:
        """Suspend the server's process by SIGSTOP."""
        await asyncio.to_thread(self._servers.pause, index)
        self.views[index].state = NodeState.HUNG

    async def kill(self, index: int, seconds: float) -> None:
        """Kill the server's process. Its memory is lost."""
        await asyncio.to_thread(self._servers.crash, index)
        self.views[index].state = NodeState.KILLED

    async def bring_back(self, index: int, not_before: float) -> None:
        """Resume the process, or start it again on its port without data."""
        if self.views[index].state is NodeState.KILLED:
            self.views[index].state = NodeState.STARTING
            await asyncio.sleep(not_before - time.monotonic())
            await asyncio.to_thread(self._servers.restart, index)
        else:
            await asyncio.to_thread(self._servers.resume, index)
        self.views[index].state = NodeState.UP


class GivenNodes:
    """Nodes that a user gave.

    The demo disturbs these nodes only if the user has consented. In this case, `hang` and `kill`
    both send `CLIENT PAUSE`, which makes a server keep every command waiting. The pause ends after
    the given time, even if the demo is killed meanwhile.

    Args:
        urls: URLs of the nodes.
        throw_away: True if the user has consented, by `--pause-nodes`.
    """

    hang_words = "CLIENT PAUSE: it keeps its connections and answers nothing"
    kill_words = "CLIENT PAUSE as well: a given server is not killed"

    def __init__(self, urls: Sequence[str], *, throw_away: bool) -> None:
        self.urls: Sequence[str] = list(urls)
        self.views: Sequence[NodeView] = [NodeView(address_of(url)) for url in self.urls]
        self.where = f"{len(self.urls)} given nodes"
        self._throw_away = throw_away
        self._back_at: dict[int, float] = {}
        self.left_out: Sequence[str] = (
            ("killing servers: given nodes are only paused",)
            if throw_away
            else ("hanging and killing servers: see --pause-nodes",)
        )

    async def look(self) -> None:
        """Ping every node once, and record the nodes that do not answer.

        Raises:
            NodesFailed: Too few nodes answer for a quorum.
        """
        words = await asyncio.gather(*(self._ping(url) for url in self.urls))
        for view, error in zip(self.views, words, strict=True):
            view.state = NodeState.UP if error is None else NodeState.DOWN
        quorum = len(self.urls) // 2 + 1
        if words.count(None) < quorum:
            troubles = "; ".join(
                f"{view.address}: {error}"
                for view, error in zip(self.views, words, strict=True)
                if error is not None
            )
            raise NodesFailed(
                f"{words.count(None)} of {len(self.urls)} given nodes answer, {quorum} are needed"
                f" ({troubles})"
            )

    @property
    def expendable(self) -> Sequence[int]:
        """Return the indexes of at most two answering nodes that the quorum does not need.

        The result is empty if the user did not consent to pauses.
        """
        answering = [
            index for index, view in enumerate(self.views) if view.state is not NodeState.DOWN
        ]
        spare = len(answering) - (len(self.urls) // 2 + 1)
        return answering[: min(spare, 2)] if self._throw_away else ()

    async def hang(self, index: int, seconds: float) -> None:
        """Pause every client of the server for the given time."""
        async with self._client(self.urls[index]) as client:
            await client.client_pause(round(seconds * 1000), all=True)
        self._back_at[index] = time.monotonic() + seconds
        self.views[index].state = NodeState.HUNG

    async def kill(self, index: int, seconds: float) -> None:
        """Pause the server like `hang`, because the demo cannot start a given server again."""
        await self.hang(index, seconds)

    async def bring_back(self, index: int, not_before: float) -> None:
        """Wait for the end of the pause. A paused server would delay `CLIENT UNPAUSE` too."""
        await asyncio.sleep(self._back_at.get(index, 0.0) - time.monotonic())
        self.views[index].state = NodeState.UP

    async def _ping(self, url: str) -> str | None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                async with self._client(url) as client:
                    await client.ping()
        except TimeoutError:
            return f"no answer in {_ANSWER_SECONDS:g} s"
        except (RedisError, OSError) as error:
            return str(error)
        return None

    @staticmethod
    def _client(url: str) -> Redis:
        return Redis.from_url(url)


async def force_release(nodes: StagedNodes, key: str) -> tuple[int, float]:
    """Delete the key of a lock on all nodes, even while a client holds the lock.

    Returns:
        The number of nodes that deleted the key, and the value of `time.monotonic` after the
        deletion.

    Raises:
        NodesFailed: Too few nodes answered.
    """
    # This manager acquires no lock, so it needs no recovery guard.
    async with Redlock(nodes.urls, node_timeout=_ANSWER_SECONDS, recovery_guard=None) as operator:
        try:
            erased = await operator.force_release(key)
        except QuorumUnreachable as error:
            raise NodesFailed(f"the lock {key!r} could not be released: {error}") from error
        return erased, time.monotonic()


def address_of(url: str) -> str:
    """Return the host and port of a URL, or the path of a Unix socket.

    Raises:
        NodesFailed: The port is invalid.
    """
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    try:
        port = parts.port or 6379
    except ValueError:
        raise NodesFailed("a given URL has no valid port") from None
    host = parts.hostname or "localhost"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
