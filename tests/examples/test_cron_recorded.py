"""The example of recorded runs: a host that is killed in the middle, and one that was overtaken
without knowing.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock
from aioredlock_ng.fencing import StaleFence
from examples import cron_recorded
from tests.support.coverage import untraced
from tests.support.rig import Rig

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.node_set import NodeSet

SLOTS = 40
"""Due when a test begins: enough to kill a host in the middle of them."""


@pytest.fixture
def first() -> datetime:
    """Return the first slot. The last of all slots is due now, and the next slot in a minute."""
    return datetime.now(UTC) - SLOTS * cron_recorded.PERIOD


@pytest.mark.slow
@pytest.mark.once
async def test_runs_of_a_killed_host_are_made_up_and_none_is_done_twice(
    nodes: NodeSet, tmp_path: Path, first: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The dead host's key outlives the start of another, however long that takes.
    monkeypatch.setenv("AIOREDLOCK_NG_TTL", "60")
    reports = tmp_path / "reports.sqlite"
    with closing(cron_recorded.connect(reports, first)) as db:

        async def start() -> asyncio.subprocess.Process:
            command = (sys.executable, EXAMPLES / "cron_recorded.py", reports)
            return await asyncio.create_subprocess_exec(
                *command, env=untraced(), stdout=asyncio.subprocess.PIPE
            )

        killed = await start()
        assert killed.stdout is not None
        assert await killed.stdout.readline()
        killed.kill()
        await killed.wait()
        (done,) = db.execute("SELECT count(*) FROM report").fetchone()
        assert 1 <= done < SLOTS

        # A run that cron starts during the life of the dead host's key changes nothing.
        refused = await start()
        assert (await refused.communicate())[0] == b""
        async with Redlock.from_env() as redlock:
            await redlock.force_release("cron:report")  # instead of waiting for the ttl
        hosts = [await start() for _ in range(2)]
        told = b"".join([(await host.communicate())[0] for host in hosts])
        slots = [
            datetime.fromisoformat(slot)
            for (slot,) in db.execute("SELECT slot FROM report ORDER BY slot")
        ]
    # On a machine that needs more than a minute, more runs are due.
    assert len(slots) >= SLOTS
    assert told.count(b"done") == len(slots) - done
    assert slots == [first + number * cron_recorded.PERIOD for number in range(len(slots))]


@pytest.mark.virtual_time
async def test_a_host_does_the_runs_though_the_votes_were_split_when_it_started(
    tmp_path: Path, first: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def quick(slot: datetime) -> str:
        return f"quickly at {slot:%H:%M}"

    monkeypatch.setattr(cron_recorded, "write_report", quick)
    async with Rig() as rig:
        process = await rig.process()
        with closing(cron_recorded.connect(tmp_path / "reports.sqlite", first)) as db:
            # Two other hosts have a vote each, and no majority.
            rig.occupy(b"cron:report", 0.3, on=[0], value=b"one")
            rig.occupy(b"cron:report", 0.3, on=[1], value=b"other")
            assert await cron_recorded.catch_up(process.redlock, db) == SLOTS


async def test_a_host_that_was_overtaken_changes_nothing(
    nodes: NodeSet, tmp_path: Path, first: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(slot: datetime) -> str:
        monkeypatch.setattr(cron_recorded, "write_report", quick)
        begun.set()
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                # As if this host had stood still: it does not hear that its lock is lost.
                continue
        # Without another await, at which it would hear.
        return f"slowly at {slot:%H:%M}"

    async def quick(slot: datetime) -> str:
        return f"quickly at {slot:%H:%M}"

    monkeypatch.setattr(cron_recorded, "write_report", slow)
    reports = tmp_path / "reports.sqlite"
    async with Redlock.from_env() as one, Redlock.from_env() as other:
        with (
            closing(cron_recorded.connect(reports, first)) as db,
            closing(cron_recorded.connect(reports, first)) as too,
        ):
            late = asyncio.create_task(cron_recorded.catch_up(one, db))
            await begun.wait()
            await other.force_release("cron:report")
            assert await cron_recorded.catch_up(other, too) == SLOTS
            go_on.set()
            with pytest.raises(StaleFence):
                await late
            assert {words[:7] for (words,) in db.execute("SELECT words FROM report")} == {"quickly"}
