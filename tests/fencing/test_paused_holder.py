"""A holder process that is stopped past its ttl and then writes: refused by a resource that checks,
an update lost without.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock
from tests.fencing.stores import open_store
from tests.integration.helpers import program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet

HOLDER = """
import asyncio, sys
from aioredlock_ng import Redlock
from aioredlock_ng.fencing import StaleFence
from tests.fencing.stores import open_store

kind, url, file, check, *nodes = sys.argv[1:]

async def main():
    async with (
        Redlock(nodes, ttl=5.0, node_timeout=2.0, recovery_guard=None) as redlock,
        open_store(kind, url, file) as store,
    ):
        lease = await redlock.lock("number").acquire()
        value = await (store.read(lease.fence) if check else store.peek())
        lease.check()
        print(lease.fence, flush=True)
        # The process is stopped here. No `await` separates the check from the write, so the
        # library cannot act in between.
        sys.stdin.readline()
        try:
            await (store.write(value + 1, lease.fence) if check else store.poke(value + 1))
            print("written", lease.lost, flush=True)
        except StaleFence as error:
            print("refused", error.fence, error.seen, flush=True)
        await lease.release()

asyncio.run(main())
"""


@pytest.mark.once
@pytest.mark.parametrize(
    ("kind", "check"),
    # Without the check, a write is lost. This case shows that the stopped holder is a danger.
    [("hash", True), ("sql", True), ("string", True), ("string", False)],
    ids=["hash", "sql", "string", "string-unchecked"],
)
async def test_a_fence_refuses_the_late_write_of_a_stopped_holder(
    kind: str,
    check: bool,
    three_nodes: NodeSet,
    start_server: Callable[..., LocalServer],
    tmp_path: Path,
) -> None:
    resource = (kind, start_server().url, str(tmp_path / "bank.sqlite"))
    async with (
        program(HOLDER, *resource, "yes" if check else "", *three_nodes.urls) as holder,
        Redlock(three_nodes.urls, ttl=60.0, node_timeout=2.0, recovery_guard=None) as redlock,
        open_store(*resource) as store,
    ):
        assert holder.stdout is not None
        assert holder.stdin is not None

        async def told() -> list[str]:
            assert holder.stdout is not None
            return (await asyncio.wait_for(holder.stdout.readline(), 60)).decode().split()

        (first_fence,) = map(int, await told())
        holder.send_signal(signal.SIGSTOP)
        holder.stdin.write(b"\n")  # from here on nothing but the signal keeps it from writing

        async with redlock.lock("number", blocking_timeout=60) as lease:
            assert lease.fence > first_fence
            value = await (store.read(lease.fence) if check else store.peek())
            holder.send_signal(signal.SIGCONT)
            late = await told()
            await (store.write(value + 10, lease.fence) if check else store.poke(value + 10))
            assert lease.valid, "the release of the late holder took nothing away"

        assert await store.peek() == 10
        if check:
            assert late == ["refused", str(first_fence), str(lease.fence)]
        else:
            assert late == ["written", "True"], "both wrote, and 1 of 11 is lost"
        assert await holder.wait() == 0
