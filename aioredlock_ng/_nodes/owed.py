"""The releases that a server has not executed yet, and when they are sent again.

A command to leave the queues counts as a release here. If it were lost, the entry of an old waiter
would block the waiters behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioredlock_ng._core.replies import Released
from aioredlock_ng._core.votes import is_permanent
from aioredlock_ng._scripts import Command
from aioredlock_ng._scripts.catalogue import LEAVE, RELEASE_READ, RETIRE

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Garbled, Refusal, Reply
    from aioredlock_ng._nodes.channel import Channel, Outbox
    from aioredlock_ng._nodes.port import Sink
    from aioredlock_ng._scripts import Request

__all__ = ["RETRY_RELEASES", "NotedRelease", "OwedReleases", "other_than_lock"]

_OTHERS: Final[dict[object, str]] = {
    LEAVE: "remove waiters from queues, so others may wait longer",
    RELEASE_READ: "release read leases, which keep writers out",
    RETIRE: "shorten locks with min_hold, which stay taken until their ttl has passed",
}
"""The releases that do not free a lock, and what a refusal of each means. They need other rights
than the release of a lock."""

RETRY_RELEASES = 0.5
"""Delay in seconds until a refused release is sent again. Most scripts that keep a server busy have
ended by then."""

PAY_TWICE = 2.0
"""Seconds from a reconnect until the outstanding releases are sent once more. A server that wakes
after a hang executes the requests from the old connection, too. So an acquire may be executed after
its release, which came on the new connection."""


class OwedReleases:
    """The releases that must still be sent to one node.

    Args:
        current: Returns the node's connection, or None.
        pay: Sends releases on a connection.

    Attributes:
        refusing: True after the server has refused to release a lock, until it releases one.
    """

    def __init__(
        self,
        outbox: Outbox,
        current: Callable[[], Channel | None],
        pay: Callable[[Channel, dict[bytes, Request]], None],
    ) -> None:
        self._outbox = outbox
        self._current = current
        self._pay = pay
        self._releases: dict[bytes, Request] = {}
        self.refusing = False

    def __len__(self) -> int:
        return len(self._releases)

    def add(self, *releases: Request) -> None:
        """Keep releases for the next connection."""
        self._releases.update({release.packed: release for release in releases})

    def refused(self, release: Request, reply: Refusal | Garbled) -> bool:
        """Keep a refused release, and send it again at intervals until its keys have expired.

        Return True at the first refusal since the server last released a lock. Only releases of
        locks count, because the server may refuse the other ones alone. A command to leave the
        queues is not kept if a right is missing.
        """
        if _script_of(release) is LEAVE and is_permanent(reply):
            # The server would refuse each further try, too.
            return False
        channel = self._current()
        if not self._releases and channel is not None:
            self._outbox.loop.call_later(RETRY_RELEASES, self._retry, channel)
        self.add(release)
        if _script_of(release) in _OTHERS:
            return False
        changed, self.refusing = not self.refusing, True
        return changed

    def executed(self, release: Request) -> bool:
        """Record that a release has deleted a key. Return True if this ended `refusing`."""
        if _script_of(release) in _OTHERS:
            return False
        changed, self.refusing = self.refusing, False
        return changed

    def connected(self, channel: Channel) -> None:
        """Send the outstanding releases on a new connection, and again after `PAY_TWICE` seconds.

        The releases are sent even if the ttl of their locks has passed. A server that hung may have
        executed the acquires only a moment ago.
        """
        releases, self._releases = self._releases, {}
        if releases:
            self._pay(channel, releases)
            self._outbox.loop.call_later(PAY_TWICE, self._pay_once_more, releases)

    def _pay_once_more(self, releases: dict[bytes, Request]) -> None:
        channel = self._current()
        if channel is not None:
            self._pay(channel, releases)
        else:
            self._releases.update(releases)

    def _retry(self, channel: Channel) -> None:
        # A newer connection has received all releases at its start, so it needs no retry.
        if channel is self._current():
            releases, self._releases = self._releases, {}
            now = self._outbox.clock()
            self._pay(
                channel,
                {packed: own for packed, own in releases.items() if (own.owed_until or now) > now},
            )


def other_than_lock(release: Request) -> str:
    """Return what a release does, and what its refusal means; "" for the release of a lock."""
    return _OTHERS.get(_script_of(release), "")


def _script_of(release: Request) -> object:
    return release.script if isinstance(release, Command) else None


class NotedRelease:
    """The sink of a release. It calls `released` with the release if the server deletes a key.

    A release that deletes no key needs fewer rights. So its success does not show that the server
    accepts other releases.
    """

    def __init__(
        self,
        command: Request,
        started: float,
        released: Callable[[Request], None],
        sink: Sink | None = None,
    ) -> None:
        self.command = command
        self.started = started
        self._released = released
        self._sink = sink

    def stands(self) -> bool:
        """Return False. The channel sends a release again without calling this method."""
        return False

    def deliver(self, index: int, reply: Reply) -> None:
        if type(reply) is Released and reply.deleted > 0:
            self._released(self.command)
        if self._sink is not None:
            self._sink.deliver(index, reply)
