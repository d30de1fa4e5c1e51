"""Drive the bare client on an event loop in another thread, with blocking calls."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import threads
from bare_thread import BareThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.floor import Grant


class Client:
    """Acquire and release keys of the bare client from threads."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._bare = BareThread(task["urls"], task["ttl"])
        self.versions = self._bare.versions

    def acquire(self, key: str) -> Grant:
        return _waited(lambda answered: self._bare.start_acquire(key, answered))

    def release(self, grant: Grant) -> Grant:
        return _waited(lambda answered: self._bare.start_release(grant, answered))


def _waited(start: Callable[[Callable[[Grant], object]], None]) -> Grant:
    lock = threading.Lock()
    lock.acquire()
    grants: list[Grant] = []

    def answered(grant: Grant) -> None:
        grants.append(grant)
        lock.release()

    start(answered)
    lock.acquire()
    return grants[0]


if __name__ == "__main__":
    threads.main(Client)
