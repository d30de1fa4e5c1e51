"""A node that refuses what it is asked while others decide is warned of, once until it works again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock
from aioredlock_ng.events import NodeDegraded
from tests.support.eventually import eventually
from tests.support.node_set import trust

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.events import Event
    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet


class Warned:
    """A sink that keeps what was said of degraded nodes; `asked` counts renewals."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, NodeDegraded):
            self.reasons.append(event.reason)


def restricted(server: LocalServer) -> str:
    trust(server)
    server.command("ACL", "SETUSER", "locks", "on", ">word", "~*", "+@all")
    return f"redis://locks:word@{server.address}"


async def test_the_first_refused_renewal_of_a_node_is_a_warning_until_it_renews_again(
    two_nodes_and: Callable[[str], list[str]], start_server: Callable[..., LocalServer], caplog: pytest.LogCaptureFixture
) -> None:
    server, warned = start_server(), Warned()
    url = restricted(server)
    nodes = two_nodes_and(url)
    async with Redlock(nodes, node_timeout=1.0, ttl=2.0, sinks=[warned]) as redlock, redlock.lock("order") as lease:
        await eventually(lambda: lease.nodes == (3, 3))
        for turn in (1, 2):
            server.command("ACL", "SETUSER", "locks", "-pexpire")
            # Several renewals are refused, and one warning is given.
            for _ in range(3):
                await lease.extend()
            await eventually(lambda turn=turn: len(warned.reasons) == turn)
            server.command("ACL", "SETUSER", "locks", "+pexpire")
            await lease.extend()
            await eventually(lambda: not redlock.nodes[2].pending)
    assert all(reason.startswith("it refuses to renew leases: ") for reason in warned.reasons)
    assert len(warned.reasons) == 2
    said = [record for record in caplog.records if "refuses to renew" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.WARNING] * 2
    assert server.address in said[0].getMessage()


async def test_the_first_refused_release_of_a_node_is_a_warning_until_it_releases_again(
    two_nodes_and: Callable[[str], list[str]],
    start_server: Callable[..., LocalServer],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # That a node works again is asked by a release whose keys are gone: at once here.
    monkeypatch.setattr("aioredlock_ng._nodes.node.RETRY_LAST", 0.05)
    monkeypatch.setattr("aioredlock_ng._nodes.node.RETRY_RELEASES", 0.05)
    server, warned = start_server(), Warned()
    url = restricted(server)
    nodes = two_nodes_and(url)
    async with Redlock(nodes, node_timeout=1.0, ttl=2.0, sinks=[warned]) as redlock:
        for turn in (1, 2):
            server.command("ACL", "SETUSER", "locks", "-del")
            names = [f"{name}{turn}" for name in ("a", "b", "c")]
            for name in names:
                async with redlock.lock(name) as lease:
                    await eventually(lambda lease=lease: lease.nodes == (3, 3))
            await eventually(lambda turn=turn: len(warned.reasons) == turn)
            # Longer than the keys live: the node goes on refusing, and is not warned of again.
            await eventually(lambda names=names: server.command("EXISTS", *names) == b"0")
            server.command("ACL", "SETUSER", "locks", "+del")
            await eventually(lambda: redlock.nodes[2].owed == 0)
    assert len(warned.reasons) == 2
    assert all(reason.startswith("it refuses to release locks, whose keys stay until") for reason in warned.reasons)
    said = [record for record in caplog.records if "refuses to release" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.WARNING] * 2


@pytest.fixture
def two_nodes_and(three_nodes: NodeSet) -> Callable[[str], list[str]]:
    """The URLs of two good nodes and of another."""
    return lambda url: [*three_nodes.urls[:2], url]
