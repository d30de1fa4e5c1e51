"""Any number of worker processes over one folder of jobs.

One process at a time does a job, and each job is done once.

A job is a file NAME.todo. The worker renames it to NAME.done.

    export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
    mkdir jobs; touch jobs/{a,b,c,d,e}.todo
    python examples/worker.py jobs & python examples/worker.py jobs
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from aioredlock_ng import LockHeld, LockLost, Redlock

Do = Callable[[Path], Awaitable[None]]


async def work(redlock: Redlock, folder: Path, do: Do) -> None:
    """Do jobs until none is left, those included that another worker began and lost."""
    while jobs := todo(folder):
        for job in jobs:
            try:
                # One attempt. If another worker does this job, there are other jobs.
                async with redlock.lock(f"job:{job.name}", blocking_timeout=0):
                    # The job may have been done before this worker had the lock.
                    if is_todo(job):
                        await do(job)
                        done(job)
            except LockHeld:
                continue
            except LockLost as error:
                # `do` was cancelled. The job is still there for the next holder of its
                # lock.
                print(f"{job.stem}: not finished, {error}")
        await asyncio.sleep(0.05)


def todo(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.todo"))


def is_todo(job: Path) -> bool:
    return job.exists()


def done(job: Path) -> None:
    job.rename(job.with_suffix(".done"))


async def write_a_line(job: Path) -> None:
    # The work.
    await asyncio.sleep(0.02)
    with job.open("a") as file:
        file.write("worked on\n")
    print(f"{job.stem}: done")


async def main(folder: Path) -> None:
    async with Redlock.from_env() as redlock:
        await work(redlock, folder, write_a_line)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: worker.py FOLDER")
    asyncio.run(main(Path(sys.argv[1])))
