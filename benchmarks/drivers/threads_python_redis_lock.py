"""Drive python-redis-lock on one node, without its renewing thread.

Each lock object is made only once. Both choices make the library faster.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import redis
import redis_lock
import threads


class Client:
    """Acquire and release one lock object per name."""

    def __init__(self, client: Any, ttl: float) -> None:
        self._client = client
        self._ttl = int(ttl)
        self._locks: dict[str, Any] = {}
        self.versions = {name: version(name) for name in ("python-redis-lock", "redis", "hiredis")}

    def acquire(self, key: str) -> Any:
        if (lock := self._locks.get(key)) is None:
            lock = self._locks[key] = redis_lock.Lock(self._client, key, expire=self._ttl)
        lock.acquire()
        return lock

    def release(self, lock: Any) -> None:
        lock.release()


def connect(task: dict[str, Any]) -> Client:
    return Client(redis.Redis.from_url(task["urls"][0], max_connections=500), task["ttl"])


if __name__ == "__main__":
    threads.main(connect)
