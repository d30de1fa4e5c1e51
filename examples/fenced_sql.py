"""Accounts in an SQL database, safe from a holder that lost its lock without knowing: each row remembers the newest fence.

Run it with as many processes as you like; afterwards the balance is the sum of what all of them say:

    export AIOREDLOCK_NG_NODES=redis://127.0.0.1:6381,redis://127.0.0.1:6382,redis://127.0.0.1:6383
    python examples/fenced_sql.py bank.sqlite & python examples/fenced_sql.py bank.sqlite
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
    fence   INTEGER NOT NULL DEFAULT 0      -- the newest fence that anybody has shown for this row
)
"""
READ_FOR_UPDATE = "UPDATE account SET fence = :fence WHERE id = :id AND fence <= :fence"
WRITE = "UPDATE account SET balance = :balance, fence = :fence WHERE id = :id AND fence <= :fence"


def connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=30)
    with db:
        db.execute(SCHEMA)
        db.execute("INSERT OR IGNORE INTO account (id, balance) VALUES ('ann', 0)")
    return db


def read_for_update(db: sqlite3.Connection, account: str, fence: int) -> int:
    """Read the balance; from now on no older fence can change it."""
    with db:  # one transaction
        guarded(db, READ_FOR_UPDATE, {"id": account, "fence": fence})
        (balance,) = db.execute("SELECT balance FROM account WHERE id = ?", (account,)).fetchone()
    return int(balance)


def write(db: sqlite3.Connection, account: str, balance: int, fence: int) -> None:
    with db:
        guarded(db, WRITE, {"id": account, "fence": fence, "balance": balance})


def guarded(db: sqlite3.Connection, statement: str, values: dict[str, str | int]) -> None:
    """Change the one row, or find out why it was not changed."""
    if not db.execute(statement, values).rowcount:
        row = db.execute("SELECT fence FROM account WHERE id = :id", values).fetchone()
        if row is None:
            raise KeyError(values["id"])
        raise StaleFence(str(values["id"]), int(values["fence"]), row[0])


async def deposit(redlock: Redlock, db: sqlite3.Connection, account: str, amount: int) -> None:
    async with redlock.lock(f"account:{account}") as lease:
        balance = read_for_update(db, account, lease.fence)
        await asyncio.sleep(0.002)  # the bookkeeping
        write(db, account, balance + amount, lease.fence)


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
