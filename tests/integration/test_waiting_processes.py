"""Several processes that want one lock on real servers: never two at once, nobody starved, and a
broken lock would show.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock
from tests.integration.helpers import no_keys_left, program
from tests.support.eventually import eventually
from tests.support.register import Register

if TYPE_CHECKING:
    from pathlib import Path

    from aioredlock_ng import Lease
    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once

WORKER = """
import asyncio, json, os, sys
from pathlib import Path
from aioredlock_ng import Redlock
from tests.support.register import Register

register, kind, *urls = Path(sys.argv[1]), sys.argv[2], *sys.argv[5:]
waiters, turns = map(int, sys.argv[3:5])

async def main():
    async with Redlock(urls) as redlock:
        with Register(register) as seen:
            got = [0] * waiters

            async def work(index):
                # A broken lock: each process has one of its own.
                lock = redlock.lock(f"order:{os.getpid()}" if kind == "broken" else "order")
                who = os.getpid() * 1000 + index + 1
                for _ in range(turns):
                    async with lock:
                        seen.enter(who)
                        await asyncio.sleep(0.0005)
                        seen.leave(who)
                    got[index] += 1

            print("ready", flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            await asyncio.gather(*map(work, range(waiters)))
            print(json.dumps({"got": got, "overlaps": seen.overlaps}), flush=True)

asyncio.run(main())
"""

SLOT_HOLDER = """
import asyncio, sys
from aioredlock_ng import Redlock

async def main():
    async with Redlock(sys.argv[1:], ttl=6.0) as redlock:
        async with redlock.semaphore("gpu", 2) as lease:
            print(lease.slot, flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""


async def run_processes(
    nodes: NodeSet, register: Path, kind: str, processes: int, waiters: int, turns: int
) -> list[dict[str, object]]:
    async with contextlib.AsyncExitStack() as stack:
        arguments = (str(register), kind, str(waiters), str(turns), *nodes.urls)
        workers = [
            await stack.enter_async_context(program(WORKER, *arguments)) for _ in range(processes)
        ]
        for worker in workers:
            assert worker.stdout is not None
            assert await asyncio.wait_for(worker.stdout.readline(), 50) == b"ready\n"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(b"\n")
        found = []
        for worker in workers:
            assert worker.stdout is not None
            found.append(json.loads(await asyncio.wait_for(worker.stdout.readline(), 100)))
        return found


@pytest.mark.slow
@pytest.mark.parametrize("waiters", [pytest.param(1, marks=pytest.mark.full), 5])
async def test_four_processes_never_overlap_and_every_waiter_gets_its_turns(
    waiters: int, five_nodes: NodeSet, tmp_path: Path
) -> None:
    turns = 20
    found = await run_processes(five_nodes, tmp_path / "register", "sound", 4, waiters, turns)
    assert [process["overlaps"] for process in found] == [0] * 4
    assert [process["got"] for process in found] == [[turns] * waiters] * 4
    # A node that answered late may offer the key to a process that has just ended, for its
    # `node_timeout`.
    await eventually(lambda: not any(five_nodes.keys()), 5)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("hung", [0, pytest.param(4, marks=pytest.mark.full)])
async def test_four_processes_beside_a_hung_node_never_overlap_and_no_waiter_starves(
    hung: int, five_nodes: NodeSet, tmp_path: Path
) -> None:
    five_nodes.pause(hung)
    found = await run_processes(five_nodes, tmp_path / "register", "sound", 4, 3, 20)
    assert [process["overlaps"] for process in found] == [0] * 4
    assert [process["got"] for process in found] == [[20] * 3] * 4


async def test_a_waiter_gets_the_slot_of_a_killed_process_after_its_ttl_and_no_slot_is_lost(
    three_nodes: NodeSet,
) -> None:
    async with (
        Redlock(three_nodes.urls, ttl=60.0, node_timeout=5.0) as one,
        Redlock(three_nodes.urls, ttl=60.0, node_timeout=5.0) as other,
        program(SLOT_HOLDER, *three_nodes.urls) as victim,
    ):
        assert victim.stdout is not None
        slot = int(await asyncio.wait_for(victim.stdout.readline(), 50))
        held = await one.semaphore("gpu", 2).acquire()
        assert {slot, held.slot} == {1, 2}

        async def wait() -> tuple[Lease, float]:
            lease = await other.semaphore("gpu", 2).acquire()
            return lease, time.monotonic()

        waiting = asyncio.create_task(wait())
        await eventually(lambda: other.stats().queued)
        victim.send_signal(signal.SIGKILL)
        await victim.wait()
        # Nobody renews the slot any more. A quorum is free once the key has expired on the second
        # node.
        asked = time.monotonic()
        left = sorted(int(node.command("PTTL", f"gpu#{slot}")) / 1000 for node in three_nodes)
        lease, got = await asyncio.wait_for(waiting, 30)
        assert lease.slot == slot
        assert got - asked > left[1] - 0.05
        assert held.valid
        for own in (held, lease):
            await own.release()
        await no_keys_left(three_nodes, one, other)
        again = [await manager.semaphore("gpu", 2).try_acquire() for manager in (one, other)]
        assert {own.slot for own in again if own is not None} == {1, 2}
        assert await one.semaphore("gpu", 2).try_acquire() is None
        for own in again:
            assert own is not None
            await own.release()
        await no_keys_left(three_nodes, one, other)


@pytest.mark.slow
async def test_the_register_catches_a_broken_lock(three_nodes: NodeSet, tmp_path: Path) -> None:
    found = await run_processes(three_nodes, tmp_path / "register", "broken", 4, 2, 50)
    assert sum(int(str(process["overlaps"])) for process in found) > 0


def test_the_register_sees_both_ends_of_an_overlap(tmp_path: Path) -> None:
    with Register(tmp_path / "register") as one, Register(tmp_path / "register") as other:
        one.enter(1)
        one.leave(1)
        other.enter(2)
        other.leave(2)
        assert one.overlaps == other.overlaps == 0
        one.enter(1)
        other.enter(2)
        assert other.overlaps == 1
        one.leave(1)
        assert one.overlaps == 1
