"""Every run of a schedule is done, with one effect each. Hosts may die in the middle.

AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
* * * * *  python cron_recorded.py reports.sqlite

All hosts have this crontab. A record names the runs that are due, and the first host
does them all, those included that another host left. The lock prevents that two hosts
do the same work. The transaction and the fence prevent that an effect counts twice.
"""

import asyncio
import sqlite3
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aioredlock_ng import AcquireTimeout, Redlock
from aioredlock_ng.fencing import StaleFence

PERIOD = timedelta(minutes=1)
SCHEMA = """
CREATE TABLE IF NOT EXISTS report (slot TEXT PRIMARY KEY, words TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS record (
    job   TEXT PRIMARY KEY,
    -- The first slot that has not been done.
    next  TEXT NOT NULL,
    -- The fence of the host that did the last slot.
    fence INTEGER NOT NULL DEFAULT 0
);
"""
START = "INSERT OR IGNORE INTO record (job, next) VALUES ('report', ?)"
ADVANCE = """
UPDATE record SET next = :next, fence = :fence
WHERE job = 'report' AND next = :slot AND fence <= :fence
"""
SEEN = "SELECT fence FROM record WHERE job = 'report'"


def connect(path: Path, first: datetime) -> sqlite3.Connection:
    """Open a stand-in for your database. A new schedule begins with `first`."""
    db = sqlite3.connect(path, timeout=30)
    with db:
        db.executescript(SCHEMA)
        db.execute(START, (first.isoformat(),))
    return db


def due(db: sqlite3.Connection) -> datetime | None:
    """Return the first slot that is over and not done."""
    (text,) = db.execute("SELECT next FROM record WHERE job = 'report'").fetchone()
    slot = datetime.fromisoformat(text)
    return slot if slot + PERIOD <= datetime.now(UTC) else None


def finish(db: sqlite3.Connection, slot: datetime, words: str, fence: int) -> None:
    """Store the effect of a run, and record the run as done, in one transaction.

    Raises:
        StaleFence: Another host did the run, or a newer holder wrote. Nothing is
        stored.
    """
    following = slot + PERIOD
    values = {"slot": slot.isoformat(), "next": following.isoformat(), "fence": fence}
    with db:
        if not db.execute(ADVANCE, values).rowcount:
            (seen,) = db.execute(SEEN).fetchone()
            raise StaleFence("cron:report", fence, seen)
        report = (slot.isoformat(), words)
        db.execute("INSERT INTO report (slot, words) VALUES (?, ?)", report)


async def write_report(slot: datetime) -> str:
    # The work.
    await asyncio.sleep(0.1)
    return f"all is well at {slot:%H:%M}"


async def catch_up(redlock: Redlock, db: sqlite3.Connection) -> int:
    """Do the runs that are due, the oldest first, unless another host does them.

    Returns:
        The number of runs that this host did.
    """
    runs = 0
    # Hosts that start in the same instant may split the votes of the nodes. Without a
    # wait, no host would then do the runs.
    try:
        async with redlock.lock("cron:report", blocking_timeout=1) as lease:
            while (slot := due(db)) is not None:
                finish(db, slot, await write_report(slot), lease.fence)
                runs += 1
                print(f"{slot:%H:%M} done", flush=True)
    except AcquireTimeout:
        pass
    return runs


async def main(path: Path, first: datetime) -> None:
    db = connect(path, first)
    async with Redlock.from_env() as redlock:
        await catch_up(redlock, db)
    db.close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: cron_recorded.py DATABASE [FIRST]")
    now = datetime.now(UTC)
    begin = datetime.fromisoformat(sys.argv[2]) if len(sys.argv) > 2 else now
    asyncio.run(main(Path(sys.argv[1]), begin.replace(second=0, microsecond=0)))
