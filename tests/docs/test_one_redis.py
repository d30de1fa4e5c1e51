"""The facts of docs/one-redis.md: a restart with and without a file, and more servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import Redlock
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.testing import LocalServer

pytestmark = pytest.mark.once

PATIENT: dict[str, Any] = {"ttl": 20.0, "max_ttl": 30.0, "node_timeout": 3.0}
"""Settings with which a lease outlasts the restart of its server on a busy machine."""


@pytest.mark.parametrize("appendonly", [False, True])
async def test_a_lease_survives_a_restart_if_the_server_has_its_file(
    start_server: Callable[..., LocalServer], appendonly: bool
) -> None:
    server = start_server(appendonly=appendonly)
    async with Redlock([server.url], **PATIENT) as redlock:
        lease = await redlock.lock("order:42").acquire()
        server.restart()
        await eventually(lambda: redlock.nodes[0].state == "quarantined")
        assert not redlock.ready
        if appendonly:
            await lease.verify()
            assert await lease.release()
        else:
            await eventually(lambda: lease.lost)


async def test_a_process_that_is_new_waits_too_if_the_restarted_server_has_its_file(
    start_server: Callable[..., LocalServer],
) -> None:
    for appendonly in (True, False):
        server = start_server(appendonly=appendonly)
        async with Redlock([server.url], **PATIENT) as before:
            assert before.ready
        server.restart()
        async with Redlock([server.url], **PATIENT) as after:
            assert after.ready is not appendonly


async def test_a_server_that_joins_two_others_makes_them_wait_unless_its_marker_is_deleted(
    start_server: Callable[..., LocalServer],
) -> None:
    for deleted in (False, True):
        servers = [start_server() for _ in range(3)]
        async with Redlock([servers[0].url], **PATIENT) as one:
            assert one.ready
        if deleted:
            servers[0].command("DEL", "aioredlock_ng:marker")
        async with Redlock([server.url for server in servers], **PATIENT) as three:
            assert three.ready is deleted
