"""The worker example: in this process, where its lock can be taken away, and as processes of its
own.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock
from examples import worker
from tests.support.coverage import untraced

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.node_set import NodeSet

JOBS = [f"job{number}" for number in range(8)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in JOBS:
        (tmp_path / f"{name}.todo").touch()
    return tmp_path


async def test_workers_do_each_job_once(nodes: NodeSet, folder: Path) -> None:
    begun: Counter[str] = Counter()

    async def do(job: Path) -> None:
        begun[job.stem] += 1
        await asyncio.sleep(0.01)

    async def one_worker() -> None:
        async with Redlock.from_env() as redlock:
            await worker.work(redlock, folder, do)

    await asyncio.gather(*(one_worker() for _ in range(4)))
    assert begun == dict.fromkeys(JOBS, 1)
    assert sorted(path.name for path in folder.iterdir()) == [f"{name}.done" for name in JOBS]
    assert nodes.keys() == [set()] * 3


async def test_a_job_whose_lock_is_lost_is_broken_off_and_done_later(
    nodes: NodeSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "only.todo").touch()
    ends: list[str] = []

    async with Redlock.from_env() as redlock:

        async def do(job: Path) -> None:
            if not ends:
                await redlock.force_release("job:only.todo")
                try:
                    await asyncio.sleep(30)
                finally:
                    ends.append("broken off")
            ends.append("done")

        await worker.work(redlock, tmp_path, do)
    assert ends == ["broken off", "done"]
    assert "only: not finished, the lock 'job:only.todo' was lost" in capsys.readouterr().out


async def test_worker_processes_do_each_job_once(nodes: NodeSet, folder: Path) -> None:
    script = EXAMPLES / "worker.py"
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, script, folder, env=untraced())
        for _ in range(3)
    ]
    assert [await process.wait() for process in processes] == [0, 0, 0]
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        f"{name}.done": "worked on\n" for name in JOBS
    }
