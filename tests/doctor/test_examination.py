"""How the doctor behaves: every kind of node, an open manager, hung nodes, cancellation; it leaves
nothing behind.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis, Sentinel

from aioredlock_ng import ConfigurationError, Redlock
from aioredlock_ng._doctor.interview import Interview, NoAnswer
from aioredlock_ng._scripts.catalogue import SCRIPTS
from tests.doctor.rewriting import Rewriting, RewritingProxy
from tests.doctor.test_findings_on_servers import PATIENT, examine, of, the
from tests.support import server_versions, tiers
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aioredlock_ng import Diagnosis
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._scripts import Request
    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet
    from tests.support.sentinel import SentinelSet

    StartServer = Callable[..., LocalServer]

VERSIONS = tiers.ends(
    [pytest.param(version.binary, id=version.id) for version in server_versions.at_hand()]
)
SECRET = "s3cr3t-p4ss"
PROMPT = ["--repl-diskless-sync-delay", "0"]
"""Settings of a primary that begins a replica's first copy without a delay of seconds."""


async def synchronised(replica: LocalServer) -> None:
    """Wait for the first copy of the primary's data. The replica answers LOADING while it loads."""
    await eventually(lambda: replica.info().get("master_link_status") == "up")


async def test_an_open_manager_is_examined_over_other_connections(three_nodes: NodeSet) -> None:
    async with Redlock(three_nodes.urls, **PATIENT) as redlock:
        async with redlock.lock("order") as lease:
            diagnosis = await redlock.diagnose(watch=0.1)
            assert lease.valid
            assert await redlock.locked("order")
        assert [facts.granted for facts in diagnosis.nodes] == [True] * 3
        assert [facts.address for facts in diagnosis.nodes] == [
            node.address for node in redlock.nodes
        ]
        assert {node.connections for node in redlock.nodes} == {1}
    assert three_nodes.keys() == [set()] * 3


async def test_a_manager_that_is_not_open_is_examined_too(three_nodes: NodeSet) -> None:
    diagnosis = await Redlock(three_nodes.urls, **PATIENT).diagnose(watch=0.1)
    assert [facts.granted for facts in diagnosis.nodes] == [True] * 3


async def test_a_server_that_is_given_three_times_grants_each_of_its_locks(
    one_node: NodeSet,
) -> None:
    diagnosis = await examine(one_node.urls * 3)
    assert [facts.granted for facts in diagnosis.nodes] == [True] * 3
    assert len(the(diagnosis, "same-server").nodes) == 3
    assert not of(diagnosis, "same-host")


async def test_every_server_version_is_examined_to_the_end(nodes_of_each_version: NodeSet) -> None:
    diagnosis = await examine(nodes_of_each_version.urls)
    for node, facts in zip(nodes_of_each_version, diagnosis.nodes, strict=True):
        info = node.info()
        assert facts.problem == ""
        assert facts.refusals == ()
        assert facts.granted
        assert facts.server == (
            f"valkey {info['valkey_version']}"
            if "valkey_version" in info
            else f"redis {info['redis_version']}"
        )
    assert nodes_of_each_version.keys() == [set()] * 3


@pytest.mark.parametrize("binary", VERSIONS)
async def test_a_cluster_member_of_every_version_is_a_finding(
    binary: Path, start_server: StartServer
) -> None:
    settings = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"]
    server = start_server(settings, binary=binary)
    diagnosis = await examine([server.url])
    assert {finding.code for finding in diagnosis.findings} == {
        "cluster",
        "no-quorum",
        "single-node",
    }
    assert diagnosis.nodes[0].granted is None


async def test_a_replica_is_a_finding_and_no_lock_is_tried_there(
    start_server: StartServer,
) -> None:
    primary, server = start_server(PROMPT), start_server()
    server.command("REPLICAOF", "127.0.0.1", str(primary.port))
    await synchronised(server)
    diagnosis = await examine([server.url])
    assert {finding.code for finding in diagnosis.findings} == {
        "replica",
        "no-quorum",
        "single-node",
    }
    assert diagnosis.nodes[0].granted is None


async def test_a_replica_that_hides_its_info_is_reported_as_a_replica_only(
    start_server: StartServer,
) -> None:
    primary, server = start_server(PROMPT), start_server()
    server.command("REPLICAOF", "127.0.0.1", str(primary.port))
    await synchronised(server)
    server.command("ACL", "SETUSER", "locks", "on", ">word", "~*", "&*", "+@all", "-info")
    diagnosis = await examine([f"redis://locks:word@{server.address}"])
    assert {finding.code for finding in diagnosis.findings} == {
        "replica",
        "no-quorum",
        "single-node",
    }
    assert the(diagnosis, "replica").what.startswith("it is a replica: READONLY ")
    assert diagnosis.nodes[0].role == "slave"


async def test_a_replica_that_lost_its_primary_is_reported_as_a_replica_only(
    start_server: StartServer,
) -> None:
    server = start_server(["--replica-serve-stale-data", "no"])
    # No server listens on the port 1.
    server.command("REPLICAOF", "127.0.0.1", "1")
    diagnosis = await examine([server.url])
    assert {finding.code for finding in diagnosis.findings} == {
        "replica",
        "no-quorum",
        "single-node",
    }
    assert the(diagnosis, "replica").what == "it is a replica of 127.0.0.1:1"


async def test_every_script_of_the_library_is_tried(start_server: StartServer) -> None:
    sent = []

    def note(data: bytes) -> bytes:
        sent.append(data)
        return data

    proxy = RewritingProxy(start_server().url, lambda data: data)
    proxy.to_server = Rewriting(note)
    async with proxy:
        assert (await examine([proxy.url])).nodes[0].granted
    asked = b"".join(sent)
    for script in SCRIPTS:
        assert asked.count(script.source) >= 1, f"{script.name} is not loaded"
        # Notes of waiters are for people: no lock is weaker without them.
        assert asked.count(script.sha) >= 1, f"{script.name} is not called"


async def test_nodes_with_a_socket_a_password_a_database_or_a_client_are_examined(
    start_server: StartServer,
) -> None:
    local, secured = start_server(unix_socket=True), start_server(password=SECRET)
    async with Redis.from_url(
        start_server().url, decode_responses=True, protocol=2, socket_timeout=0.001
    ) as client:
        diagnosis = await examine([local.url, f"{secured.url}/7", client])
    assert [facts.granted for facts in diagnosis.nodes] == [True] * 3
    assert [facts.problem for facts in diagnosis.nodes] == [""] * 3
    assert diagnosis.nodes[0].endpoint == str(local.socket_path)
    assert diagnosis.nodes[1].endpoint == secured.address
    assert SECRET not in repr(diagnosis)


async def test_a_tls_server_is_examined(tls_server: LocalServer) -> None:
    (facts,) = (await examine([tls_server.url])).nodes
    assert (facts.granted, facts.problem) == (True, "")
    plain = await examine([f"redis://{tls_server.address}"], connect_timeout=0.3)
    assert the(plain, "unreachable").nodes == (tls_server.address,)


async def test_the_primary_and_the_replica_of_a_sentinel_are_examined(
    sentinel_set: SentinelSet,
) -> None:
    sentinel = Sentinel([sentinel_set.address])
    primary, replica = sentinel.master_for(sentinel_set.name), sentinel.slave_for(sentinel_set.name)
    try:
        diagnosis = await examine([primary, replica])
    finally:
        for client in (primary, replica, *sentinel.sentinels):
            await client.aclose()
    assert diagnosis.nodes[0].endpoint == sentinel_set.primary.address
    assert the(diagnosis, "replicas").nodes == ("main@sentinel",)
    assert f"127.0.0.1:{sentinel_set.primary.port}" in the(diagnosis, "replica").what


@pytest.mark.faults
async def test_hung_nodes_do_not_hang_the_doctor(five_nodes: NodeSet) -> None:
    five_nodes.pause(1)
    five_nodes.pause(3)
    began = time.monotonic()
    diagnosis = await examine(five_nodes.urls, connect_timeout=4.0)
    # Once for connecting; the others are done meanwhile.
    assert time.monotonic() - began < 20
    assert [facts.problem for facts in diagnosis.nodes] == [
        "",
        "unreachable",
        "",
        "unreachable",
        "",
    ]
    assert len(of(diagnosis, "unreachable")) == 2
    assert not of(diagnosis, "no-quorum")


@pytest.mark.parametrize("answers", [0, 1, 2, 6, 12, 17, 19, 21, 23, 25, 27, 29, 31, 60])
async def test_the_examination_of_a_node_that_hangs_midway_ends_in_time_with_the_known_facts(
    answers: int, start_server: StartServer
) -> None:
    server = start_server(appendonly=True)
    left: int | None = None

    def stall(data: bytes) -> bytes:
        nonlocal left
        if b"run_id:" in data:
            left = answers
        elif left is not None:
            left -= 1
        if left == 0:
            proxy.to_client.stall()
        return data

    async with RewritingProxy(server.url, stall) as proxy:
        began = time.monotonic()
        diagnosis = await examine([proxy.url], connect_timeout=3.0)
        assert time.monotonic() - began < 15
        assert "within 3 s" in the(diagnosis, "silent").what
        the(diagnosis, "no-quorum")
        assert diagnosis.nodes[0].run_id == server.info()["run_id"]
        await eventually(lambda: server.command("DBSIZE") == b"0")
        proxy.flow()


async def test_a_doctor_cancelled_at_any_answer_leaves_no_key_and_no_connection(
    start_server: StartServer,
) -> None:
    server = start_server()
    task: asyncio.Task[Diagnosis]
    answers = 0

    def count(data: bytes) -> bytes:
        nonlocal answers
        answers += 1
        if answers == last:
            # The server has done it, and the doctor does not know yet.
            task.cancel()
        return data

    for last in range(1, 60):
        async with RewritingProxy(server.url, count) as proxy:
            answers = 0
            task = asyncio.create_task(examine([proxy.url], ttl=50.0))
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            await eventually(lambda proxy=proxy: not proxy.connections)
            assert server.command("DBSIZE") == b"0", f"cancelled at answer {last}"
            if not isinstance(outcome, asyncio.CancelledError):
                # Round trips are measured for a while, more or fewer of them.
                assert last > 30
                break


@pytest.mark.parametrize("request_", [b"\r\nSET\r\n", b"\r\nEVALSHA\r\n"])
async def test_a_doctor_cancelled_while_its_label_exists_deletes_the_label(
    request_: bytes, start_server: StartServer
) -> None:
    server = start_server()
    task: asyncio.Task[Diagnosis]
    cancelled = 0

    def cancel(data: bytes) -> bytes:
        nonlocal cancelled
        if request_ in data and b"aioredlock_ng:owner:" in data and b"script" not in data:
            cancelled += task.cancel()
        return data

    async with RewritingProxy(server.url, lambda data: data) as proxy:
        proxy.to_server = Rewriting(cancel)
        task = asyncio.create_task(examine([proxy.url], ttl=50.0))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cancelled
        await eventually(lambda: not proxy.connections)
        assert server.command("DBSIZE") == b"0"


@pytest.mark.slow
async def test_a_doctor_that_is_cut_off_at_any_request_leaves_no_key_for_ever(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, call = start_server(), Interview.call
    requests, last = 0, 1

    async def cut_off(interview: Interview, step: str, command: Request) -> Reply:
        nonlocal requests
        reply = await call(interview, step, command)
        requests += 1
        if requests == last:
            # The clean-up is not sent either.
            interview._channel.close("cut")
            raise NoAnswer(step)
        return reply

    monkeypatch.setattr(Interview, "call", cut_off)
    kept: set[bytes] = set()
    async with Redis.from_url(server.url) as client:
        while (await examine([server.url])).nodes[0].problem:
            keys = await client.keys()
            kept |= set(keys)
            assert [key for key in keys if await client.pttl(key) == -1] == [], (
                f"cut off at request {last}"
            )
            await client.flushall()
            requests, last = 0, last + 1
    assert any(key.endswith(b":fences") for key in kept)


async def test_a_password_that_a_server_quotes_is_not_shown(start_server: StartServer) -> None:
    server = start_server(["--rename-command", "AUTH", "", "--rename-command", "HELLO", ""])
    diagnosis = await examine([f"redis://:{SECRET}@{server.address}"])
    assert "unknown command" in the(diagnosis, "unreachable").what
    assert SECRET not in repr(diagnosis)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"watch": 0}, "watch"),
        ({"watch": float("nan")}, "watch"),
        ({"watch": "1"}, "watch"),
        ({"probe": ""}, "probe must not be empty"),
        ({"probe": "\ud800"}, "probe .*surrogate"),
        ({"probe": 7}, "probe must be str or bytes"),
        ({"probe": "x" * 65_536}, "probe has 65,553 bytes, more than 65,536"),
        ({"probe": "aioredlock_ng:x"}, "keeps for itself; choose another probe"),
    ],
)
async def test_a_bad_argument_is_refused(
    arguments: dict[str, Any], words: str, one_node: NodeSet
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        await Redlock(one_node.urls).diagnose(**arguments)
