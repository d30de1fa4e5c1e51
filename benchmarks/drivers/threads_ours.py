"""Drive aioredlock_ng.sync by its public API, with every option at its default."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import threads

from aioredlock_ng import __version__
from aioredlock_ng.sync import Lease, Redlock

VERSIONS = {"aioredlock-ng": __version__, **{name: version(name) for name in ("redis", "hiredis")}}


class Client:
    """Acquire and release leases of one open manager, which all threads share.

    By default the leases are renewed.
    """

    def __init__(self, redlock: Redlock) -> None:
        self._redlock = redlock
        self.versions = VERSIONS

    def acquire(self, key: str) -> Lease:
        return self._redlock.lock(key).acquire()

    def release(self, lease: Lease) -> bool:
        return lease.release()


def connect(task: dict[str, Any]) -> Client:
    return Client(Redlock(task["urls"], ttl=task["ttl"]).open())


if __name__ == "__main__":
    threads.main(connect)
