"""Drive python-redis-lock with threads that wait for one lock on the first node.

The driver reads and prints the same lines as the drivers of `load.py`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from importlib.metadata import version
from typing import Any

import redis
import redis_lock


def main() -> None:
    """Run the phases of the task."""
    task = json.loads(sys.argv[1])
    client = redis.Redis.from_url(task["urls"][0], max_connections=500)
    versions = {name: version(name) for name in ("python-redis-lock", "redis", "hiredis")}
    _say(
        {"ready": True, "pid": os.getpid(), "python": sys.version.split()[0], "versions": versions}
    )
    for phase in task["phases"]:
        if not sys.stdin.readline():
            return
        _say(_phase(client, task, phase))
    sys.stdout.flush()
    # Waiting threads would keep the process alive.
    os._exit(0)


def _phase(client: redis.Redis, task: dict[str, Any], phase: dict[str, Any]) -> dict[str, Any]:
    running, recording = threading.Event(), threading.Event()
    running.set()
    turns = [0] * task["coroutines"]
    # Only the holder of the lock changes these values, so one thread at a time.
    seen: dict[str, Any] = {"last": -1, "same": 0, "released": 0.0, "all": 0}
    delays: list[float] = []
    errors: list[str] = []

    def work(index: int) -> None:
        lock = redis_lock.Lock(client, phase["same"], expire=int(task["ttl"]))
        while running.is_set():
            try:
                cycle(index, lock)
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}"[:300])

    def cycle(index: int, lock: Any) -> None:
        lock.acquire()
        got = time.perf_counter()
        seen["all"] += 1
        if recording.is_set():
            turns[index] += 1
            if seen["last"] == index:
                seen["same"] += 1
            elif seen["released"]:
                delays.append(got - seen["released"])
        seen["last"] = index
        if phase["hold"]:
            time.sleep(phase["hold"])
        seen["released"] = time.perf_counter()
        lock.release()

    for index in range(len(turns)):
        threading.Thread(target=work, args=(index,), daemon=True).start()
    time.sleep(0.3)
    opened, cpu = time.perf_counter(), _cpu_seconds()
    recording.set()
    time.sleep(phase["seconds"])
    recording.clear()
    running.clear()
    seconds, cpu = time.perf_counter() - opened, _cpu_seconds() - cpu
    time.sleep(0.3)
    ordered, taken = sorted(delays), sum(turns)
    return {
        "phase": phase["name"],
        "seconds": seconds,
        "cpu_seconds": cpu,
        "acquired": taken,
        "handovers_per_second": (taken - seen["same"]) / seconds,
        "acquired_in_all": seen["all"],
        "turns_least": min(turns),
        "turns_most": max(turns),
        "delay": {"p50": ordered[len(ordered) // 2], "p99": ordered[int(len(ordered) * 0.99)]}
        if ordered
        else None,
        "errors": len(errors),
        "first_error": errors[0] if errors else "",
        "stuck": 0,
    }


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
