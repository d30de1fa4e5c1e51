"""A node that refuses renewals or releases causes one warning until the node works again."""

from __future__ import annotations

import asyncio
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
    server.command("ACL", "SETUSER", "locks", "on", ">word", "~*", "&*", "+@all")
    return f"redis://locks:word@{server.address}"


@pytest.mark.slow
async def test_the_first_refused_renewal_of_a_node_is_a_warning_until_it_renews_again(
    two_nodes_and: Callable[[str], list[str]],
    start_server: Callable[..., LocalServer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, warned = start_server(), Warned()
    nodes = two_nodes_and(restricted(server))
    async with (
        Redlock(nodes, node_timeout=3.0, ttl=4.0, sinks=[warned]) as redlock,
        redlock.lock("order") as lease,
    ):
        await eventually(lambda: lease.nodes == (3, 3))
        for turn in (1, 2):
            server.command("ACL", "SETUSER", "locks", "-pexpire")
            await lease.extend()
            await eventually(lambda turn=turn: len(warned.reasons) == turn)
            # Without its key there is nothing to refuse; it is given back then, and the next
            # renewal is refused again.
            await eventually(lambda: server.command("EXISTS", "order") == b"0")
            await eventually(lambda: server.command("EXISTS", "order") == b"1")
            for _ in range(3):
                await lease.extend()
            server.command("ACL", "SETUSER", "locks", "+pexpire")
            await lease.extend()
            await eventually(lambda: lease.nodes == (3, 3))
    assert len(warned.reasons) == 2
    assert all(reason.startswith("it refuses to renew leases: ") for reason in warned.reasons)
    said = [record for record in caplog.records if "refuses to renew" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.WARNING] * 2
    assert server.address in said[0].getMessage()


async def test_a_node_that_forgot_the_scripts_and_answers_after_the_quorum_renews_all_the_same(
    two_nodes_and: Callable[[str], list[str]], start_server: Callable[..., LocalServer]
) -> None:
    server, warned = start_server(), Warned()
    nodes = two_nodes_and(restricted(server))
    async with (
        Redlock(nodes, node_timeout=8.0, ttl=10.0, sinks=[warned]) as redlock,
        redlock.lock("order") as lease,
    ):
        await eventually(lambda: lease.nodes == (3, 3))
        server.command("SCRIPT", "FLUSH")
        server.pause()
        # The other two nodes confirm it.
        await lease.extend(60.0)
        assert lease.nodes[0] == 2
        server.resume()
        await eventually(lambda: lease.nodes == (3, 3))
        assert int(server.command("PTTL", "order")) > 50_000
        server.command("SCRIPT", "FLUSH")
        server.pause()
        for ttl in (20.0, 40.0):
            await lease.extend(ttl)
        server.resume()
        # The server does not get the earlier of two renewals again, and this is no refusal.
        await eventually(lambda: lease.nodes == (3, 3))
        assert 30_000 < int(server.command("PTTL", "order")) <= 40_000
    assert warned.reasons == []


async def test_a_node_that_forgot_the_scripts_renews_no_lease_that_was_abandoned(
    two_nodes_and: Callable[[str], list[str]], start_server: Callable[..., LocalServer]
) -> None:
    server = start_server()
    nodes = two_nodes_and(restricted(server))
    async with Redlock(nodes, node_timeout=10.0, ttl=20.0) as redlock:
        lease = await redlock.lock("order", auto_extend=False).acquire()
        await eventually(lambda: lease.nodes == (3, 3))
        server.command("SCRIPT", "FLUSH")
        server.pause()
        await lease.extend(60.0)
        lease.abandon()
        server.resume()
        # The answer to this lock comes after the answer to the renewal.
        async with redlock.lock("other") as other:
            await eventually(lambda: other.nodes == (3, 3))
        assert int(server.command("PTTL", "order")) <= 20_000


async def test_a_node_that_forgot_the_scripts_renews_a_read_grant_whose_renewed_lease_ended(
    two_nodes_and: Callable[[str], list[str]], start_server: Callable[..., LocalServer]
) -> None:
    server = start_server()
    nodes = two_nodes_and(restricted(server))
    async with Redlock(nodes, node_timeout=10.0, ttl=20.0) as redlock:
        read = redlock.rwlock("order", auto_extend=False).read()
        first, second = await read.acquire(), await read.acquire()
        await eventually(lambda: second.nodes == (3, 3))
        server.command("SCRIPT", "FLUSH")
        server.pause()
        await first.extend(60.0)
        await first.release()
        server.resume()
        # The other task still reads under the grant, so this node must renew the grant as well.
        await eventually(lambda: int(server.command("PTTL", "order")) > 50_000)
        assert second.valid
        await second.release()


@pytest.mark.slow
async def test_the_first_refused_release_of_a_node_is_a_warning_until_it_releases_again(
    two_nodes_and: Callable[[str], list[str]],
    start_server: Callable[..., LocalServer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, warned = start_server(), Warned()
    nodes = two_nodes_and(restricted(server))

    async def hold(redlock: Redlock, name: str) -> None:
        async with redlock.lock(name) as lease:
            await eventually(lambda: lease.nodes == (3, 3))

    async with Redlock(nodes, node_timeout=3.0, ttl=4.0, sinks=[warned]) as redlock:
        for turn in (1, 2):
            server.command("ACL", "SETUSER", "locks", "-del")
            for name in ("a", "b", "c"):
                await hold(redlock, f"{name}{turn}")
            await eventually(lambda turn=turn: len(warned.reasons) == turn)
            # A server cannot refuse to release a key that is gone. Wait for the keys first: `owed`
            # is 0 for an instant whenever the releases are sent again.
            await eventually(
                lambda turn=turn: (
                    server.command("EXISTS", *(f"{name}{turn}" for name in "abc")) == b"0"
                )
            )
            await eventually(lambda: redlock.nodes[2].owed == 0)
            await hold(redlock, f"d{turn}")
            await eventually(lambda: redlock.nodes[2].owed == 1)
            server.command("ACL", "SETUSER", "locks", "+del")
            await eventually(lambda: redlock.nodes[2].owed == 0)
            await hold(redlock, f"e{turn}")
            await eventually(lambda turn=turn: server.command("EXISTS", f"e{turn}") == b"0")
            await eventually(lambda: not redlock.nodes[2].pending)
    assert len(warned.reasons) == 2
    assert all(
        reason.startswith("it refuses to release locks, whose keys stay until")
        for reason in warned.reasons
    )
    said = [record for record in caplog.records if "refuses to release" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.WARNING] * 2


async def test_a_node_that_refuses_only_to_release_read_leases_causes_one_warning(
    start_server: Callable[..., LocalServer],
) -> None:
    server, warned = start_server(), Warned()
    url = restricted(server)
    server.command("ACL", "SETUSER", "locks", "-zrem")
    async with Redlock([url], node_timeout=5.0, sinks=[warned]) as redlock:
        for _ in range(3):
            # The server answers in order, and executes the release of the lock.
            async with redlock.rwlock("catalog").read(), redlock.lock("order"):
                pass
            async with redlock.lock("order"):
                pass
            await eventually(lambda: not redlock.nodes[0].pending)
        assert redlock.nodes[0].owed
    (reason,) = warned.reasons
    assert reason.startswith("it refuses to release read leases, which keep writers out: ")


async def test_a_node_that_refuses_only_to_remove_waiters_from_queues_causes_one_warning(
    start_server: Callable[..., LocalServer],
) -> None:
    server, warned = start_server(), Warned()
    url = restricted(server)
    server.command("ACL", "SETUSER", "locks", "-zrem")
    async with (
        Redlock([url], node_timeout=5.0) as holder,
        Redlock([url], node_timeout=5.0, sinks=[warned]) as redlock,
        holder.lock("order"),
    ):
        for _ in range(3):
            waiting = asyncio.create_task(redlock.lock("order").acquire())
            await eventually(lambda: redlock.stats().queued)
            await eventually(lambda: not redlock.nodes[0].pending)
            waiting.cancel()
            await asyncio.wait([waiting])
            # The node answers in order. So it has refused the command to leave before it releases.
            async with redlock.lock("other"):
                pass
            await eventually(lambda: not redlock.nodes[0].pending)
        assert not redlock.nodes[0].owed, "the server would refuse each further try, too"
    (reason,) = warned.reasons
    assert reason.startswith("it refuses to remove waiters from queues")


@pytest.fixture
def two_nodes_and(three_nodes: NodeSet) -> Callable[[str], list[str]]:
    """The URLs of two good nodes and of another."""
    return lambda url: [*three_nodes.urls[:2], url]
