"""A node that cannot be reached is named with the system's words, without numbers or a second
address.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import QuorumUnreachable, Redlock
from aioredlock_ng.testing.ports import free_port
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aioredlock_ng.testing import LocalServer


async def test_a_first_start_with_a_closed_port_says_that_the_connection_was_refused(
    start_server: Callable[..., LocalServer], caplog: pytest.LogCaptureFixture
) -> None:
    urls = [start_server().url for _ in range(2)]
    closed = f"127.0.0.1:{free_port()}"
    # 69 s are left at first. The first digit stays the same for nine seconds.
    async with Redlock([*urls, f"redis://{closed}"], max_ttl=68.0) as redlock:
        with pytest.raises(QuorumUnreachable) as caught:
            await redlock.lock("order", blocking_timeout=0).acquire()
        assert redlock.nodes[2].reason == "connection refused"
        waiting = f"new set: the nodes vote when {closed} is up too (connection refused), or in 6"
        assert redlock.nodes[0].reason.startswith(waiting)
        assert waiting in str(caught.value)
    assert f"node {closed} is down: connection refused" in caplog.messages


@pytest.mark.parametrize("refusals", [["127.0.0.1", "127.0.0.1"], ["127.0.0.1", "127.0.0.2"]])
async def test_a_host_whose_addresses_all_refuse_the_connection_has_one_reason(
    refusals: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The errors of all addresses reach the client in one error of asyncio.

    That error starts with "Multiple exceptions: [Errno 111] Connect call failed".
    """
    port = free_port()

    async def addresses(*_: object, **__: object) -> list[Any]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (host, port)) for host in refusals]

    async with Redlock([f"redis://two.test:{port}"]) as redlock:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", addresses)
        await eventually(lambda: redlock.nodes[0].reason == "connection refused")


async def test_the_reason_of_a_node_names_a_missing_unix_socket(tmp_path: Path) -> None:
    async with Redlock([f"unix://{tmp_path}/none.sock"]) as redlock:
        assert redlock.nodes[0].reason == "no such file or directory"
