"""The function that workers of Celery and RQ run in the tests: it holds a lock until the test lets
it end.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from aioredlock_ng.sync import Redlock

__all__ = ["FOLDER", "redlock", "stay"]

FOLDER = Path(os.environ.get("FOLDER", "."))
redlock = Redlock.from_env()


def stay(name: str) -> int:
    """Say that the lock is held, and return its fence once the file "end" is there."""
    lease = redlock.current_lease
    (FOLDER / f"{name}.begun").write_text(str(os.getpid()))
    while not (FOLDER / f"{name}.end").exists():
        lease.check()
        time.sleep(0.01)
    return int(lease.fence)
