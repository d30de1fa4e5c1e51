"""The support of the tests works: the virtual clock, the proxy and the lent nodes."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis, Sentinel
from redis.exceptions import RedisError

from tests.support import spread, tiers, workers
from tests.support.backends import NODES_ENV
from tests.support.eventually import eventually
from tests.support.proxy import Proxy
from tests.support.virtual_loop import Deadlock, VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.testing import LocalServer, TLSFiles
    from tests.support.node_set import NodeSet
    from tests.support.sentinel import SentinelSet


@pytest.mark.virtual_time
async def test_an_hour_on_the_virtual_loop_takes_no_time() -> None:
    loop, began = asyncio.get_running_loop(), time.monotonic()
    before = loop.time()
    await asyncio.gather(asyncio.sleep(3600), asyncio.sleep(1800))
    assert loop.time() - before == pytest.approx(3600)
    assert time.monotonic() - began < 5


def test_the_virtual_loop_names_the_waiting_tasks_when_nothing_can_happen() -> None:
    async def waits_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    with (
        pytest.raises(Deadlock, match="waits_for_ever"),
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
    ):
        runner.run(waits_for_ever())


@pytest.mark.virtual_time
async def test_the_virtual_loop_waits_for_threads() -> None:
    assert await asyncio.to_thread(lambda: 7) == 7


async def test_lent_nodes_are_empty_and_independent(five_nodes: NodeSet) -> None:
    assert len(set(five_nodes.urls)) == 5
    assert five_nodes.keys() == [set()] * 5
    five_nodes[0].command("SET", "a", "1")
    assert five_nodes.keys() == [{"a"}, *[set()] * 4]
    five_nodes.wipe(0)
    assert five_nodes.keys() == [set()] * 5
    assert len({node.info()["run_id"] for node in five_nodes}) == 5


@pytest.mark.faults
async def test_a_paused_node_answers_nothing_and_then_everything(three_nodes: NodeSet) -> None:
    async with Redis.from_url(three_nodes.urls[1]) as client:
        await client.ping()
        three_nodes.pause(1)
        late = asyncio.ensure_future(client.set("a", "1"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(late), 0.1)
        three_nodes.resume(1)
        assert await late


@pytest.mark.faults
async def test_a_crashed_node_comes_back_empty_on_its_port(three_nodes: NodeSet) -> None:
    url = three_nodes.urls[2]
    three_nodes[2].command("SET", "a", "1")
    three_nodes.crash(2)
    async with Redis.from_url(url) as client:
        with pytest.raises(RedisError):
            await client.ping()
    three_nodes.restart(2)
    assert three_nodes.urls[2] == url
    assert three_nodes.keys() == [set()] * 3


@pytest.mark.faults
@pytest.mark.parametrize("fault", ["pause", "crash"])
async def test_faults_of_one_test_are_mended_for_the_next(fault: str, one_node: NodeSet) -> None:
    assert one_node[0].command("PING") == b"PONG"
    getattr(one_node, fault)(0)


async def test_every_server_version_answers(node_of_each_version: NodeSet) -> None:
    async with Redis.from_url(node_of_each_version.urls[0]) as client:
        assert await client.set("a", "1")


async def test_the_proxy_delays_both_ways(one_node: NodeSet) -> None:
    async with Proxy(one_node.urls[0]) as proxy, Redis.from_url(proxy.url) as client:
        await client.ping()
        proxy.delay(0.05)
        began = time.monotonic()
        await client.ping()
        assert time.monotonic() - began >= 0.05


async def test_the_proxy_stalls_and_flows_in_order(one_node: NodeSet) -> None:
    async with Proxy(one_node.urls[0]) as proxy, Redis.from_url(proxy.url) as client:
        await client.set("a", "1")
        proxy.to_client.stall()
        late = asyncio.ensure_future(client.get("a"))
        await eventually(lambda: proxy.to_client.held)
        assert not late.done()
        proxy.flow()
        assert await late == b"1"


async def test_the_proxy_cuts_and_refuses_and_accepts_again(one_node: NodeSet) -> None:
    async with Proxy(one_node.urls[0]) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        await eventually(lambda: proxy.connections == 1)
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(_read_or_raise(reader), 5)
        writer.close()
        await proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", proxy.port)
        await proxy.accept()
        async with Redis.from_url(proxy.url) as client:
            assert await client.ping()


async def _read_or_raise(reader: asyncio.StreamReader) -> None:
    if not await reader.read(1):
        raise ConnectionResetError


async def test_a_server_with_tls_is_verified_by_its_authority(
    tls_server: LocalServer, other_tls_files: TLSFiles
) -> None:
    async with Redis.from_url(tls_server.url) as client:
        assert await client.ping()
    wrong = tls_server.url.partition("?")[0] + f"?ssl_ca_certs={other_tls_files.ca}"
    async with Redis.from_url(wrong) as client:
        with pytest.raises(RedisError, match="CERTIFICATE_VERIFY_FAILED"):
            await client.ping()


async def test_a_server_of_the_tests_own_takes_settings(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server(["--maxmemory", "5mb"], password="p:w/d")
    async with Redis.from_url(server.url) as client:
        assert (await client.config_get("maxmemory"))["maxmemory"] == "5242880"


async def test_a_sentinel_names_the_replica_after_a_failover(sentinel_set: SentinelSet) -> None:
    sentinel = Sentinel([sentinel_set.address])  # type: ignore[no-untyped-call]
    try:
        assert (await sentinel.discover_master(sentinel_set.name))[1] == sentinel_set.primary.port
        sentinel_set.failover()
        assert (await sentinel.discover_master(sentinel_set.name))[1] == sentinel_set.replica.port
        async with sentinel.master_for(sentinel_set.name) as client:
            assert await client.set("a", "1")
    finally:
        for client in sentinel.sentinels:
            await client.aclose()


def test_tests_taken_out_by_the_processes_of_a_run_are_counted_once() -> None:
    worker, reporter = SimpleNamespace(workeroutput={}), SimpleNamespace(stats={})
    item: Any = SimpleNamespace(config=worker)
    workers.pytest_deselected([item] * 2)
    workers.pytest_deselected([item])
    plugins = SimpleNamespace(get_plugin={"terminalreporter": reporter}.get)
    node = SimpleNamespace(
        config=SimpleNamespace(pluginmanager=plugins), workeroutput=worker.workeroutput
    )
    for ended in (SimpleNamespace(config=node.config), node, node):
        workers.pytest_testnodedown(ended, None)
    assert len(reporter.stats["deselected"]) == 3
    # A run of one process counts by itself.
    alone: Any = SimpleNamespace(config=SimpleNamespace())
    workers.pytest_deselected([alone])


def test_nodes_given_by_url_are_never_shared_by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NODES_ENV, "redis://127.0.0.1:1,redis://127.0.0.1:2")
    for nodes in (None, "urls"):
        assert workers.pytest_xdist_auto_num_workers(_Options({"--nodes": nodes})) == 0
        workers.check(_Options({"--nodes": nodes}))
        with pytest.raises(pytest.UsageError, match="given by URL"):
            workers.check(_Options({"--nodes": nodes, "numprocesses": 1}))
    assert workers.pytest_xdist_auto_num_workers(_Options({"--nodes": "local"})) > 1
    workers.check(_Options({"--nodes": "local", "numprocesses": 2}))


def test_make_test_runs_its_folders_without_the_tests_marked_full_or_slow() -> None:
    tests = Path(__file__).parents[1]
    assert all((tests / folder).is_dir() for folder in tiers.QUICK_FOLDERS)
    assert tiers.is_quick(tests / "unit" / "test_clock.py", ["virtual_time"])
    assert not tiers.is_quick(tests / "unit" / "test_clock.py", ["virtual_time", "full"])
    assert not tiers.is_quick(tests / "unit" / "test_clock.py", ["slow"])
    assert not tiers.is_quick(tests / "chaos" / "test_runs.py", [])
    for name in tiers.SPARSE:
        path, _, test = name.partition("::")
        assert f"def {test}(" in (tests / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("tier", "folder", "ignored"),
    [("quick", "chaos", True), ("quick", "unit", None), (None, "chaos", None)],
)
def test_make_test_imports_no_tests_of_other_folders(
    tier: str | None, folder: str, ignored: bool | None
) -> None:
    config: Any = _Options({"--tier": tier})
    assert tiers.pytest_ignore_collect(Path(__file__).parents[1] / folder, config) is ignored


def test_a_garbage_collection_does_not_visit_the_collected_tests() -> None:
    assert gc.get_freeze_count() > 0


def test_make_test_runs_the_first_and_the_last_of_cases_in_a_row() -> None:
    marks = [getattr(case, "marks", ()) for case in tiers.ends(["oldest", "between", "newest"])]
    assert [len(marked) for marked in marks] == [0, 1, 0]
    assert tiers.ends(["only"]) == ["only"]


@pytest.mark.parametrize("count", [1, 2, 4, 6, 20])
def test_cases_that_are_spread_meet_all_versions_and_none_is_left_out(count: int) -> None:
    for first in range(4):
        rows = spread.rows(range(count), "abcd", first)
        assert {version for _, version in rows} == set("abcd")
        assert {case for case, _ in rows} == set(range(count))
        assert len(rows) == max(count, 4)
    # Two crossed lists of four cases: each case of either list meets each version.
    crossed = spread.rows([(one, other) for one in range(4) for other in range(4)], "abcd", 0)
    for place in range(2):
        assert len({(case[place], version) for case, version in crossed}) == 16


class _Options:
    def __init__(self, options: dict[str, object]) -> None:
        self.options = options

    def getoption(self, name: str, default: object = None) -> object:
        return self.options.get(name, default)
