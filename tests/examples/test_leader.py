"""The leader example: processes of its own that are killed, stopped and told to go; the queue
judges by its fence.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from aioredlock_ng import Redlock
from aioredlock_ng.fencing import RedisFence
from examples import leader
from tests.support.coverage import untraced
from tests.support.eventually import eventually

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet

TTL = 10.0
"""A leader with a third of this ttl would lead no more after a pause of 1.5 s."""
LONG = 60.0
A_BIT = 10.0
"""Seconds on top of the ttl for a busy machine; an idle one needs a tenth of a second."""


class Candidates:
    """Processes of the example, and what they said in the order of its arrival."""

    def __init__(self) -> None:
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.said: list[str] = []
        self._listeners: list[asyncio.Task[None]] = []

    async def start(self, url: str, name: str, ttl: float) -> None:
        command, env = (
            (sys.executable, EXAMPLES / "leader.py", url, name),
            {**untraced(), "AIOREDLOCK_NG_TTL": str(ttl)},
        )
        process = await asyncio.create_subprocess_exec(
            *command, env=env, stdout=asyncio.subprocess.PIPE
        )
        self.processes[name] = process
        self._listeners.append(asyncio.create_task(self._listen(process)))

    async def next_leader(self, after: int = 0, within: float = 40.0) -> tuple[str, str]:
        """Wait until, beyond the first `after` lines, somebody says that it leads; return who, and
        the term.
        """
        line = await eventually(
            lambda: next((line for line in self.said[after:] if " leads, term " in line), None),
            within,
        )
        name, _, term = str(line).partition(" leads, term ")
        return name, term

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.said.append(line.decode().strip())

    async def close(self) -> None:
        for process in self.processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()
        await asyncio.gather(*self._listeners)


@pytest.fixture
async def candidates() -> AsyncIterator[Candidates]:
    candidates = Candidates()
    yield candidates
    await candidates.close()


@pytest.mark.slow
@pytest.mark.once
async def test_another_process_leads_within_the_ttl_and_never_two_at_once(
    nodes: NodeSet, candidates: Candidates, start_server: Callable[..., LocalServer]
) -> None:
    url = start_server().url
    for name in ("ann", "bob"):
        await candidates.start(url, name, TTL)

    async with Redis.from_url(url, decode_responses=True) as client:

        async def jobs() -> list[str]:
            return [str(job) for job in await client.lrange(leader.QUEUE, 0, -1)]

        async def has_work_of(term: str) -> bool:
            return any(job.startswith(f"{term}/") for job in await jobs())

        async def next_after(signum: int, name: str, within: float) -> str:
            """Send the signal to the leader; return the next leader after its first job."""
            said, began = len(candidates.said), time.monotonic()
            candidates.processes[name].send_signal(signum)
            other, term = await candidates.next_leader(said)
            assert time.monotonic() - began < within
            assert other != name
            await eventually(lambda: has_work_of(term))
            return other

        first, term = await candidates.next_leader()
        await eventually(lambda: has_work_of(term))
        # Killed: its key has at most the ttl to live.
        second = await next_after(signal.SIGKILL, first, TTL + A_BIT)
        # Stopped: the same; and when it goes on, it steps down and waits for its turn.
        await candidates.start(url, "cid", LONG)
        third = await next_after(signal.SIGSTOP, second, TTL + A_BIT)
        candidates.processes[second].send_signal(signal.SIGCONT)
        await eventually(
            lambda: any(line.startswith(f"{second} stepped down: ") for line in candidates.said), 20
        )
        # Told to go: nobody waits for the ttl, which would be for more than half a minute.
        assert await next_after(signal.SIGTERM, third, A_BIT) == second
        assert await candidates.processes[third].wait() == 0

        terms: list[int] = []
        leaders: list[str] = []
        for job in await jobs():
            number, _, name = job.partition(" by ")
            term, _, count = number.partition("/")
            if not terms or int(term) != terms[-1]:
                assert count == "1"
                terms.append(int(term))
                leaders.append(name)
            assert name == leaders[-1]
    # One term after the other: no job of an earlier one behind the first of a later one.
    assert terms == sorted(set(terms))
    assert leaders == [first, second, third, second]


async def test_a_leader_whose_lock_is_taken_away_steps_down_and_stands_again(
    nodes: NodeSet, start_server: Callable[..., LocalServer], capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def hear(count: int) -> list[str] | None:
        said.extend(capsys.readouterr().out.splitlines())
        return said if len(said) >= count else None

    async with (
        Redlock.from_env() as redlock,
        Redis.from_url(start_server().url, socket_timeout=None) as client,
        asyncio.TaskGroup() as tasks,
    ):
        candidate = tasks.create_task(leader.campaign(redlock, RedisFence(client), "ann"))
        await eventually(lambda: hear(1))
        assert await redlock.force_release("leader:scheduler") in (2, 3)
        await eventually(lambda: hear(3))
        candidate.cancel()
    assert said[1].startswith("ann stepped down: the lock 'leader:scheduler' was lost")
    terms = [int(said[index].removeprefix("ann leads, term ")) for index in (0, 2)]
    assert terms[0] < terms[1]
    assert nodes.keys() == [set()] * 3


async def test_a_leader_that_the_queue_has_seen_succeeded_steps_down(
    nodes: NodeSet, start_server: Callable[..., LocalServer], capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        Redlock.from_env() as redlock,
        Redis.from_url(start_server().url, socket_timeout=None) as client,
    ):
        queue = RedisFence(client)
        task = asyncio.create_task(leader.campaign(redlock, queue, "ann"))
        await eventually(lambda: client.llen(leader.QUEUE))
        (lease,) = redlock.leases
        assert lease.fence is not None
        # Somebody of a later term, though this lock is not lost.
        await queue.execute("RPUSH", leader.QUEUE, "by another", fence=lease.fence + 1)
        await eventually(lambda: "ann stepped down: the fence" in capsys.readouterr().out)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
