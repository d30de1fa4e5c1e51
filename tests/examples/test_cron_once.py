"""The cron example: hosts that start one run together or apart, and a run that fails."""

from __future__ import annotations

import asyncio
import random
import re
import sys
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock
from examples import cron_once
from tests.support.coverage import untraced
from tests.support.rig import Rig

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

APART = 29.0
"""Seconds by which the starts of one run may differ, as the example says."""

# A busy machine may need long to start a Python, so the hosts start their runs together.
HOST = """
import asyncio, sys
from examples import cron_once
print("ready", flush=True)
sys.stdin.read()
asyncio.run(cron_once.main())
"""


@pytest.mark.slow
async def test_one_of_several_hosts_does_a_run(nodes: NodeSet) -> None:
    pipe = asyncio.subprocess.PIPE
    hosts = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", HOST, cwd=EXAMPLES.parent, env=untraced(), stdin=pipe, stdout=pipe
        )
        for _ in range(3)
    ]
    for host in hosts:
        assert host.stdout is not None
        assert await host.stdout.readline() == b"ready\n"
    told = await asyncio.gather(*(host.communicate(b"") for host in hosts))
    assert sorted(out.decode().strip() for out, _ in told) == ["left to another host"] * 2 + [
        "the report is written"
    ]
    async with Redlock.from_env() as redlock:
        await redlock.force_release("cron:report")


async def test_a_run_that_failed_is_not_repeated_by_a_later_host(
    nodes: NodeSet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def failing() -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(cron_once, "report", failing)
        with pytest.raises(OSError, match="disk full"):
            await cron_once.main()
    await cron_once.main()
    assert capsys.readouterr().out == "left to another host\n"
    async with Redlock.from_env() as redlock:
        await redlock.force_release("cron:report")


def test_the_example_says_by_how_much_starts_may_differ() -> None:
    assert cron_once.__doc__ is not None
    (said,) = re.findall(r"up to (\d+) s", cron_once.__doc__)
    assert float(said) == APART == cron_once.PERIOD / 2 - 1.0


@pytest.mark.virtual_time
@pytest.mark.parametrize("spread", [0.0, 5.0, APART])
async def test_each_run_is_done_once_while_starts_differ_by_no_more_than_promised(
    monkeypatch: pytest.MonkeyPatch, spread: float
) -> None:
    time, draw, runs = asyncio.get_running_loop().time, random.Random(11), 30
    done: list[int] = []

    async def report() -> None:
        done.append(int((time() - began) // cron_once.PERIOD))
        await asyncio.sleep(draw.uniform(0, 20))

    async def host(redlock: Redlock, ahead: float) -> None:
        """Start each run when its minute begins by this host's clock."""
        for number in range(runs):
            await asyncio.sleep(began + number * cron_once.PERIOD + ahead - time())
            await redlock.once("cron:report", within=cron_once.PERIOD / 2)(report)()

    async with Rig() as rig:
        hosts = [(await rig.process(near=index % 3)).redlock for index in range(5)]
        began = time() + cron_once.PERIOD
        aheads = (0.0, spread, *(draw.uniform(0, spread) for _ in range(3)))
        async with asyncio.TaskGroup() as tasks:
            for redlock, ahead in zip(hosts, aheads, strict=True):
                tasks.create_task(host(redlock, ahead))
    assert done == list(range(runs))
