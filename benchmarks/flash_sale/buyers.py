"""Run the crowd in a process of its own, phase by phase, and print its figures.

The task in `argv[1]` is JSON with `port`, `workers`, `connections` and `phases`. The process prints
one JSON line when all buyers are connected. It waits for a line on stdin before each phase, and
prints one JSON line after the phase. The phases are those of `Crowd.phase`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from .crowd import Crowd

__all__ = ["main"]


def main() -> None:
    """Run the program."""
    work = _work(json.loads(sys.argv[1]))
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


async def _work(task: dict[str, Any]) -> None:
    crowd = Crowd(task["port"], task["connections"])
    await crowd.connect(task["workers"])
    _say({"connected": len(crowd.buyers)})
    loop = asyncio.get_running_loop()
    for phase in task["phases"]:
        if not await loop.run_in_executor(None, sys.stdin.readline):
            # The parent process is gone.
            return
        _say(await crowd.phase(phase))


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
