"""An unexpected exception in a background task of the manager is reported, and the task goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import ConfigurationError, QuorumUnreachable, Redlock
from aioredlock_ng._engine.trust import guard_task
from aioredlock_ng._engine.trust.duplicates import DuplicateNodes
from aioredlock_ng._nodes import node, silence
from aioredlock_ng._nodes.connect import Connector
from aioredlock_ng.events import NodeSuspect, TaskFailed
from tests.integration.helpers import all_up
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.events import Event
    from aioredlock_ng.testing import LocalServer

    StartServer = Callable[..., LocalServer]


def fails_once(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, *, after: int = 0) -> None:
    """Let one call of `where.name` raise what nobody expects; the `after` calls before it pass."""
    original = getattr(where, name)
    calls = iter(range(1_000_000))

    def call(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == after:
            raise RuntimeError("s3cr3t")
        return original(*args, **kwargs)

    monkeypatch.setattr(where, name, call)


def failures(heard: list[Event]) -> list[TaskFailed]:
    return [event for event in heard if isinstance(event, TaskFailed)]


async def test_a_node_connects_though_its_first_attempt_ended_by_an_unexpected_exception(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails_once(monkeypatch, Connector, "connect")
    heard: list[Event] = []
    async with Redlock([start_server().url], sinks=[heard.append]) as redlock:
        assert "internal error: RuntimeError" in redlock.nodes[0].reason
        await all_up(redlock)
        async with redlock.lock("a"):
            pass
    (event,) = failures(heard)
    assert event.task == f"node {redlock.nodes[0].address}" if redlock.nodes else event.task
    assert "s3cr3t" not in caplog.text


async def test_a_node_connects_anew_though_an_exception_came_right_after_it_was_up(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Event] = []
    fails_once(monkeypatch, node.RedisNode, "_settle")
    async with Redlock([start_server().url], sinks=[heard.append]) as redlock:
        await all_up(redlock)
        await eventually(lambda: redlock.nodes[0].connections == 2)
        async with redlock.lock("a"):
            pass
    assert len(failures(heard)) == 1


async def test_the_recovery_guard_goes_on_after_an_unexpected_exception(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_once(monkeypatch, guard_task, "next_steps")
    heard: list[Event] = []
    async with (
        Redlock([start_server().url for _ in range(3)], sinks=[heard.append]) as redlock,
        redlock.lock("a", blocking_timeout=30),
    ):
        pass
    (event,) = failures(heard)
    assert event.task == "recovery guard"


async def test_the_search_for_duplicate_nodes_goes_on_after_an_unexpected_exception(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_once(monkeypatch, DuplicateNodes, "_probe")
    server = start_server()
    server.command("ACL", "SETUSER", "default", "-info")
    heard: list[Event] = []
    urls = [server.url, f"redis://localhost:{server.port}", start_server().url]
    with pytest.raises(ConfigurationError, match="are the same server"):
        await Redlock(urls, sinks=[heard.append], node_timeout=5.0, connect_timeout=10.0).open()
    (event,) = failures(heard)
    assert event.task.startswith("identity of ")


@pytest.mark.faults
async def test_the_probe_of_a_silent_node_goes_on_after_an_unexpected_exception(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "PROBE_EVERY", 0.05)
    server = start_server()
    heard: list[Event] = []
    async with Redlock([server.url], sinks=[heard.append], node_timeout=0.05) as redlock:
        fails_once(monkeypatch, Connector, "connect")
        server.pause()
        try:
            with pytest.raises(QuorumUnreachable):
                await redlock.lock("a", blocking_timeout=0.5).acquire()
            await eventually(lambda: any(isinstance(event, NodeSuspect) for event in heard))
            await eventually(lambda: failures(heard))
        finally:
            server.resume()
        await all_up(redlock)
        async with redlock.lock("a", blocking_timeout=30):
            pass
    (event,) = failures(heard)
    assert event.task.startswith("probe of ")
