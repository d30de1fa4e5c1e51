"""Accounts in an SQL database. Each row remembers the newest fence.

So a holder that lost its lock without noticing cannot change a row. Run the program
with as many processes as you like. Afterwards the balance is the sum of what all of
them report:

    export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
    python examples/fenced_sql.py bank.sqlite &
    python examples/fenced_sql.py bank.sqlite
"""

import asyncio
import sqlite3
import sys
from pathlib import Path

from aioredlock_ng import LockLost, Redlock
from aioredlock_ng.fencing import StaleFence

SCHEMA = """
CREATE TABLE IF NOT EXISTS account (
    id      TEXT PRIMARY KEY,
    balance INTEGER NOT NULL,
    -- The newest fence that any holder has shown for this row.
    fence   INTEGER NOT NULL DEFAULT 0
)
"""
READ_FOR_UPDATE = """
UPDATE account SET fence = :fence WHERE id = :id AND fence <= :fence
"""
READ = "SELECT balance FROM account WHERE id = ?"
WRITE = """
UPDATE account SET balance = :balance, fence = :fence
WHERE id = :id AND fence <= :fence
"""


def connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=30)
    with db:
        db.execute(SCHEMA)
        db.execute("INSERT OR IGNORE INTO account (id, balance) VALUES ('ann', 0)")
    return db


def read_for_update(db: sqlite3.Connection, account: str, fence: int) -> int:
    """Read the balance. From now on no older fence can change it."""
    # One transaction.
    with db:
        guarded(db, READ_FOR_UPDATE, {"id": account, "fence": fence})
        (balance,) = db.execute(READ, (account,)).fetchone()
    return int(balance)


def write(db: sqlite3.Connection, account: str, balance: int, fence: int) -> None:
    with db:
        guarded(db, WRITE, {"id": account, "fence": fence, "balance": balance})


def guarded(
    db: sqlite3.Connection, statement: str, values: dict[str, str | int]
) -> None:
    """Change the one row, or raise the reason why it was not changed."""
    if not db.execute(statement, values).rowcount:
        row = db.execute("SELECT fence FROM account WHERE id = :id", values).fetchone()
        if row is None:
            raise KeyError(values["id"])
        raise StaleFence(str(values["id"]), int(values["fence"]), row[0])


async def deposit(
    redlock: Redlock, db: sqlite3.Connection, account: str, amount: int
) -> None:
    """Add the amount once. After an error, nothing is added.

    Raises:
        LockNotAcquired: Too few nodes answered.
        LockLost: The lock was lost before the write.
        StaleFence: Another holder has read or written the row meanwhile.
    """
    written = False
    try:
        async with redlock.lock(f"account:{account}") as lease:
            balance = read_for_update(db, account, lease.fence)
            # The bookkeeping.
            await asyncio.sleep(0.002)
            write(db, account, balance + amount, lease.fence)
            written = True
    except LockLost:
        # The database accepted the fence, so the deposit counts. If it were made once
        # more, the amount would be added twice.
        if not written:
            raise


async def main(path: Path, times: int = 20) -> None:
    db = connect(path)
    done = 0
    async with Redlock.from_env() as redlock:
        while done < times:
            try:
                await deposit(redlock, db, "ann", 1)
                done += 1
            except (LockLost, StaleFence) as error:
                print(f"once more: {error}")
    print(f"{done} deposited")
    db.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: fenced_sql.py DATABASE")
    asyncio.run(main(Path(sys.argv[1])))
