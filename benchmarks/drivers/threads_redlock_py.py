"""Drive redlock-py, which asks the nodes one after the other and does not renew locks."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import redlock
import threads


class Client:
    """Acquire and release locks of one manager, which all threads share."""

    def __init__(self, manager: Any, ttl: float) -> None:
        self._manager = manager
        self._ttl_ms = int(ttl * 1000)
        self.versions = {name: version(name) for name in ("redlock-py", "redis", "hiredis")}

    def acquire(self, key: str) -> Any:
        if not (lock := self._manager.lock(key, self._ttl_ms)):
            raise RuntimeError("not acquired")
        return lock

    def release(self, lock: Any) -> None:
        self._manager.unlock(lock)


def connect(task: dict[str, Any]) -> Client:
    return Client(redlock.Redlock(task["urls"]), task["ttl"])


if __name__ == "__main__":
    threads.main(connect)
