"""Every run of a schedule is done, and has its effect once, though hosts die in the middle: a record says what is due.

* * * * *  AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 python cron_recorded.py reports.sqlite

On every host. Whoever comes first does what is due by the record, not by its own clock alone, and so makes up what another
left. The lock keeps them from doing the work twice; the transaction, with the fence, keeps the effect from counting twice.
"""

import asyncio
import sqlite3
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aioredlock_ng import LockHeld, Redlock
from aioredlock_ng.fencing import StaleFence

PERIOD = timedelta(minutes=1)
SCHEMA = """
CREATE TABLE IF NOT EXISTS report (slot TEXT PRIMARY KEY, words TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS record (
    job   TEXT PRIMARY KEY,
    next  TEXT NOT NULL,                    -- the first slot that has not been done
    fence INTEGER NOT NULL DEFAULT 0        -- of whoever did the last one
);
"""
ADVANCE = "UPDATE record SET next = :next, fence = :fence WHERE job = 'report' AND next = :slot AND fence <= :fence"


def connect(path: Path, first: datetime) -> sqlite3.Connection:
    """Open what stands for your database; the schedule begins with the slot `first` when it is new."""
    db = sqlite3.connect(path, timeout=30)
    with db:
        db.executescript(SCHEMA)
        db.execute("INSERT OR IGNORE INTO record (job, next) VALUES ('report', ?)", (first.isoformat(),))
    return db


def due(db: sqlite3.Connection) -> datetime | None:
    """Return the first slot that is over and not done."""
    (text,) = db.execute("SELECT next FROM record WHERE job = 'report'").fetchone()
    slot = datetime.fromisoformat(text)
    return slot if slot + PERIOD <= datetime.now(UTC) else None


def finish(db: sqlite3.Connection, slot: datetime, words: str, fence: int) -> None:
    """Store the effect of a run and that it was done: both or, when another did it or a newer holder was here, neither."""
    values = {"slot": slot.isoformat(), "next": (slot + PERIOD).isoformat(), "fence": fence}
    with db:
        if not db.execute(ADVANCE, values).rowcount:
            (seen,) = db.execute("SELECT fence FROM record WHERE job = 'report'").fetchone()
            raise StaleFence("cron:report", fence, seen)
        db.execute("INSERT INTO report (slot, words) VALUES (?, ?)", (slot.isoformat(), words))


async def write_report(slot: datetime) -> str:
    await asyncio.sleep(0.1)  # the work
    return f"all is well at {slot:%H:%M}"


async def catch_up(redlock: Redlock, db: sqlite3.Connection) -> int:
    """Do the runs that are due, the oldest first, unless another host is at it; return how many."""
    runs = 0
    try:
        async with redlock.lock("cron:report", blocking_timeout=0) as lease:
            while (slot := due(db)) is not None:
                finish(db, slot, await write_report(slot), lease.fence)
                runs += 1
                print(f"{slot:%H:%M} done", flush=True)
    except LockHeld:
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
    begin = datetime.fromisoformat(sys.argv[2]) if len(sys.argv) > 2 else datetime.now(UTC)
    asyncio.run(main(Path(sys.argv[1]), begin.replace(second=0, microsecond=0)))
