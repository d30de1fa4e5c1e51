"""Every way to name a node, each against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import pickle
import re
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import ConnectionPool, Redis, Sentinel
from redis.asyncio.connection import Connection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from aioredlock_ng import LockLost, LockNotAcquired, QuorumUnreachable, Redlock
from tests.integration.helpers import SHORT_GUARD, all_up
from tests.support import server_versions, tiers
from tests.support.eventually import eventually
from tests.support.node_set import OWN, locks_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.testing import LocalServer, TLSFiles
    from tests.support.node_set import NodeSet
    from tests.support.sentinel import SentinelSet

AT_HAND = server_versions.at_hand()
VERSIONS = tiers.ends([pytest.param(version.binary, id=version.id) for version in AT_HAND])
ACL_DOC = Path(__file__).parents[2] / "docs" / "acl.md"
OPERATIONS_DOC = ACL_DOC.with_name("operations.md")
SECRET = "s3cr3t-w0rd"


async def serves(redlock: Redlock, server: LocalServer, name: str = "order") -> None:
    """The basic promises on one node."""
    async with redlock.lock(name) as lease:
        assert await redlock.lock(name).try_acquire() is None
        await lease.extend()
        assert await redlock.locked(name)
    assert not await redlock.locked(name)
    assert server.command("EXISTS", name) == b"0"


async def test_a_node_with_a_plain_url_serves(one_node: NodeSet) -> None:
    async with Redlock(one_node.urls, node_timeout=5.0) as redlock:
        await serves(redlock, one_node[0])  # type: ignore[arg-type]
        assert redlock.nodes[0].address == one_node.urls[0].partition("//")[2]


async def test_a_tls_node_with_a_private_authority_serves_many_locks_at_once(
    tls_server: LocalServer,
) -> None:
    async with Redlock([tls_server.url], node_timeout=5.0) as redlock:
        assert tls_server.url.startswith("rediss://")
        await serves(redlock, tls_server)
        # Many at once: answers of all sizes pass through the TLS layer's buffers.
        leases = await asyncio.gather(
            *(redlock.lock(f"{number}:{'x' * 2000}").acquire() for number in range(500))
        )
        await asyncio.gather(*(lease.release() for lease in leases))
        await all_up(redlock)
        assert locks_on(tls_server) == set()


async def test_tls_with_a_wrong_authority_is_refused_with_the_reason(
    tls_server: LocalServer, other_tls_files: TLSFiles, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = f"rediss://{tls_server.address}?ssl_ca_certs={other_tls_files.ca}"
    async with Redlock([wrong]) as redlock:
        with pytest.raises(QuorumUnreachable, match=r"(?i)certificate.verify.failed") as caught:
            await redlock.lock("order").try_acquire()
        assert tls_server.address in str(caught.value)
    assert re.search("(?i)certificate.verify.failed", caplog.text)


async def test_the_error_names_a_missing_file_of_tls_authorities(tls_server: LocalServer) -> None:
    async with Redlock([f"rediss://{tls_server.address}?ssl_ca_certs=/no/such/ca.pem"]) as redlock:
        with pytest.raises(
            QuorumUnreachable, match=r"(?i)no such file|FileNotFoundError"
        ) as caught:
            await redlock.lock("order").try_acquire()
        assert tls_server.address in str(caught.value)


async def test_plain_text_to_a_tls_server_is_an_error_in_time(tls_server: LocalServer) -> None:
    async with Redlock([f"redis://{tls_server.address}"], connect_timeout=1) as redlock:
        with pytest.raises(QuorumUnreachable, match=re.escape(tls_server.address)):
            await redlock.lock("order").try_acquire()


async def test_a_node_with_a_unix_socket_serves(start_server: Callable[..., LocalServer]) -> None:
    server = start_server(unix_socket=True)
    async with Redlock([server.url], node_timeout=5.0) as redlock:
        await serves(redlock, server)
        assert redlock.nodes[0].address == str(server.socket_path)


async def test_a_node_with_a_unix_socket_and_a_password_serves(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server(unix_socket=True, password="p:w/d@?#")
    async with Redlock([server.url], node_timeout=5.0) as redlock:
        await serves(redlock, server)


async def test_a_wrong_password_on_a_unix_socket_ends_the_wait_of_callers(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server(unix_socket=True, password="another")
    async with Redlock([f"unix://:{SECRET}@{server.socket_path}"], node_timeout=5.0) as redlock:
        assert redlock.nodes[0].state == "refused"
        with pytest.raises(QuorumUnreachable, match="authentication failed") as caught:
            await asyncio.wait_for(redlock.lock("order").acquire(), 10)
        assert str(server.socket_path) in str(caught.value)
        assert_nowhere(SECRET, caught.value, redlock, "")
    # A transport that was left open would warn when it is collected.
    del caught
    gc.collect()


async def test_a_server_without_hello_on_a_unix_socket_serves(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server(["--rename-command", "HELLO", ""], unix_socket=True)
    async with Redlock([server.url], node_timeout=5.0) as redlock:
        await redlock.wait_ready(10)
        await serves(redlock, server)
        assert not redlock.nodes[0].tracking


async def test_a_node_with_a_password_serves(start_server: Callable[..., LocalServer]) -> None:
    server = start_server(password="p:w/d@?#")
    async with Redlock([server.url], node_timeout=5.0) as redlock:
        await serves(redlock, server)


async def test_a_node_with_a_database_number_keeps_its_keys_in_that_database(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server()
    async with Redlock([f"{server.url}/3"]) as redlock, Redis.from_url(f"{server.url}/3") as client:
        async with redlock.lock("order") as lease:
            assert await client.get("order") == lease.token.encode()
            assert server.command("EXISTS", "order") == b"0"
            assert redlock.nodes[0].address == f"{server.address}/3"
        assert not await client.exists("order")


@pytest.mark.parametrize("binary", VERSIONS)
async def test_the_rights_in_the_docs_suffice(
    binary: Path, start_server: Callable[..., LocalServer]
) -> None:
    server = start_server(binary=binary)
    lines = re.findall(r"^ACL SETUSER .*$", ACL_DOC.read_text(), re.MULTILINE)
    assert lines
    for line in lines:
        server.command(*line.split())
    url = f"redis://locks:password@{server.address}"
    async with (
        Redlock([url], node_timeout=5.0) as redlock,
        Redlock([url], node_timeout=5.0) as other,
    ):
        assert redlock.nodes[0].tracking
        assert redlock.nodes[0].run_id
        await serves(redlock, server, "lock:order")
        async with redlock.lock("lock:a", "lock:b"):
            waiting = asyncio.create_task(other.lock("lock:b").acquire())
            await eventually(lambda: other.stats().refused > 0)
        assert await (await asyncio.wait_for(waiting, 5)).release()
        server.command("SCRIPT", "FLUSH")
        await serves(redlock, server, "lock:order")
        assert await redlock.force_release("lock:order") == 0


NEEDED = [
    "+evalsha",
    "+eval",
    "+set",
    "+get",
    "+mget",
    "+pttl",
    "+pexpire",
    "+del",
    "+time",
    "+zadd",
    "+zscore",
]
KEYS = ["~lock:*", f"~{OWN}*"]


@pytest.mark.parametrize("binary", VERSIONS)
async def test_locks_work_without_the_optional_rights_and_the_log_names_their_effects(
    binary: Path, start_server: Callable[..., LocalServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server(binary=binary)
    server.command("ACL", "SETUSER", "locks", "on", ">password", *KEYS, *NEEDED)
    url = f"redis://locks:password@{server.address}"
    async with (
        Redlock([url], node_timeout=5.0) as redlock,
        Redlock([url], node_timeout=5.0) as other,
    ):
        assert not redlock.nodes[0].tracking
        assert not redlock.nodes[0].messages
        assert redlock.nodes[0].run_id == ""
        await serves(redlock, server, "lock:order")
        async with redlock.lock("lock:order", ttl=30):
            waiting = asyncio.create_task(other.lock("lock:order").acquire())
            await eventually(lambda: other.stats().refused > 0)
        assert await (await asyncio.wait_for(waiting, 5)).release()
    assert "INFO refused" in caplog.text
    assert "no client tracking" in caplog.text
    assert "no messages from other processes" in caplog.text


async def test_the_log_reports_only_those_missing_rights_that_the_docs_name(
    start_server: Callable[..., LocalServer], caplog: pytest.LogCaptureFixture
) -> None:
    page = " ".join(ACL_DOC.read_text(encoding="utf-8").split())
    silent = re.search(r"The log has no line about missing rights to the queue, ([^.]*)\.", page)
    assert silent
    rights = re.findall(r"`([a-z|]+)`", silent[1])
    server = start_server()
    reported = ["+info", "+client|tracking", "+client|caching", "+subscribe", "+publish"]
    user = ["ACL", "SETUSER", "locks", "on", ">password", *KEYS, "resetchannels", f"&{OWN}*"]
    server.command(*user, *NEEDED, *reported)
    url = f"redis://locks:password@{server.address}"
    async with Redlock([url], node_timeout=5.0) as redlock, Redlock([url]) as other:
        async with redlock.lock("lock:order", ttl=30):
            waiting = asyncio.create_task(other.lock("lock:order").acquire())
            await eventually(lambda: other.stats().refused > 0)
        assert await (await asyncio.wait_for(waiting, 5)).release()
    assert not [record for record in caplog.records if "refuse" in record.getMessage()]
    refusals = {
        refused.step.partition(" ")[0]
        for node in (await Redlock([url]).diagnose(watch=0.1, probe="lock:doctor")).nodes
        for refused in node.refusals
    }
    assert {"queue", "SCRIPT"} <= refusals
    assert set(rights) == {"script|load", "client|setinfo", "pubsub|numsub"}


@pytest.mark.parametrize("missing", ["zrange", "zrem", "zrank"])
async def test_the_docs_name_the_missing_rights_that_leave_a_waiter_its_place(
    missing: str, start_server: Callable[..., LocalServer]
) -> None:
    page = " ".join(ACL_DOC.read_text(encoding="utf-8").split())
    named = re.search(r"A user that lacks only ([^.]*) gets a place in the queue", page)
    assert named
    server = start_server()
    server.command("ACL", "SETUSER", "locks", "on", ">word", "~*", "&*", "+@all", f"-{missing}")
    url = f"redis://locks:word@{server.address}"
    async with Redlock([url]) as redlock, Redlock([url]) as other, redlock.lock("order"):
        waiting = asyncio.create_task(other.lock("order").acquire())
        await eventually(lambda: other.stats().standing)
        if f"`{missing}`" in named[1]:
            # The waiter knows its rank, so it relies on messages.
            await eventually(lambda: other.stats().queued[0].rank == 0)
        else:
            # The waiter polls.
            await eventually(lambda: other.stats().wakeups_fallback > 2)
            assert other.stats().queued[0].rank is None
        waiting.cancel()


async def test_a_waiter_without_the_right_to_exists_is_served_after_the_deletion_of_a_held_key(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server()
    server.command("ACL", "SETUSER", "locks", "on", ">word", "~*", "&*", "+@all", "-exists")
    url = f"redis://locks:word@{server.address}"
    async with Redlock([url], ttl=60) as holder, Redlock([url], ttl=60) as other:
        lease = await holder.lock("order").acquire()
        # The holder writes its label when it begins to watch its key.
        await eventually(lambda: server.command("PTTL", "aioredlock_ng:owner:order") != b"-2")
        waiting = asyncio.create_task(other.lock("order").acquire())
        await eventually(lambda: other.stats().queued and other.stats().queued[0].rank == 0)
        server.command("DEL", "order")
        await lease.wait_lost()
        # A waiter that is notified sends a refresh after 5 s at the earliest.
        await (await asyncio.wait_for(waiting, 5)).release()


async def test_every_waiter_without_the_right_to_publish_is_served_soon(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server()
    server.command("ACL", "SETUSER", "mute", "on", ">word", "~*", "&*", "+@all", "-publish")
    url = f"redis://mute:word@{server.address}"
    async with (
        Redlock([url], ttl=60) as holder,
        Redlock([url], ttl=60) as second,
        Redlock([url], ttl=60) as third,
    ):
        lease = await holder.lock("order").acquire()
        waiting = []
        for place, redlock in enumerate((second, third), 1):
            waiting.append(asyncio.create_task(redlock.lock("order").acquire()))

            async def stands(place: int = place) -> bool:
                return (await holder.inspect("order")).waiting == place

            await eventually(stands)
        for waiter in waiting:
            await lease.release()
            # A waiter that is notified sends a refresh after 7.5 s at the earliest.
            lease = await asyncio.wait_for(waiter, 5)
        await lease.release()


NEEDED_AT_ONCE = ("+evalsha", "+eval", "+set", "+get", "+pttl", "+time", "+zadd")


@pytest.mark.parametrize(
    ("binary", "missing"),
    [
        pytest.param(version.binary, missing, id=f"{version.id}-{missing}", marks=marks)
        for version, marks, rights in (
            *((version, (), NEEDED_AT_ONCE) for version in (AT_HAND[0], AT_HAND[-1])),
            # In the others, a right of the connection, of a script, and of the marker.
            *((version, pytest.mark.full, ("+eval", "+set", "+time")) for version in AT_HAND[1:-1]),
        )
        for missing in rights
    ],
)
async def test_a_missing_needed_right_is_an_error_at_once(
    binary: Path, missing: str, start_server: Callable[..., LocalServer]
) -> None:
    server = start_server(binary=binary)
    server.command("SET", "lock:order", "another's")
    if missing != "+pttl":
        server.command("DEL", "lock:order")
    rights = [right for right in NEEDED if right != missing]
    server.command("ACL", "SETUSER", "locks", "on", ">password", *KEYS, *rights)
    async with Redlock([f"redis://locks:password@{server.address}"]) as redlock:
        # No blocking_timeout: what waiting does not cure must not be waited for.
        with pytest.raises(QuorumUnreachable, match="does not cure") as caught:
            await asyncio.wait_for(redlock.lock("lock:order").acquire(), 10)
        assert server.address in str(caught.value)
        if missing != "+pttl":
            assert locks_on(server) == set()
        if missing == "+time":
            assert redlock.nodes[0].state == "quarantined"
        server.command("ACL", "SETUSER", "locks", missing)
        server.command("DEL", "lock:order")

        async def cured() -> bool:
            try:
                lease = await redlock.lock("lock:order").acquire()
            except QuorumUnreachable:
                return False
            return await lease.release()

        await eventually(cured)
        assert redlock.nodes[0].state == "up"


@pytest.mark.parametrize("binary", VERSIONS)
async def test_the_command_for_moving_a_node_ends_the_connections_of_every_client(
    binary: Path, start_server: Callable[..., LocalServer]
) -> None:
    page = " ".join(OPERATIONS_DOC.read_text(encoding="utf-8").split())
    command = re.search(r"End its present connections by `([^`]+)`", page)
    assert command
    server = start_server(binary=binary)
    async with Redlock([server.url]) as redlock, Redis.from_url(server.url) as client:
        await client.ping()
        # The connection of the library, and one that is subscribed to nothing.
        assert int(server.command(*command[1].split())) >= 2
        await eventually(lambda: redlock.nodes[0].connections == 2)


@pytest.mark.slow
@pytest.mark.parametrize("binary", VERSIONS)
async def test_a_server_ends_idle_connections_only_if_they_are_without_messages(
    binary: Path, start_server: Callable[..., LocalServer]
) -> None:
    server = start_server(["--timeout", "1"], binary=binary)
    server.command("ACL", "SETUSER", "deaf", "on", ">word", "~*", "&*", "+@all", "-subscribe")
    deaf_url = f"redis://deaf:word@{server.address}"
    async with Redlock([server.url]) as redlock, Redlock([deaf_url]) as deaf:
        assert redlock.nodes[0].messages
        assert not deaf.nodes[0].messages
        # The connection of `redlock` is the older one, and just as idle.
        await eventually(lambda: deaf.nodes[0].connections >= 2)
        assert redlock.nodes[0].connections == 1
    page = " ".join(OPERATIONS_DOC.read_text(encoding="utf-8").split())
    assert "the setting `timeout` does so too, but only if the node has `messages=False`" in page


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["+pexpire", "+mget"])
async def test_without_the_rights_to_renew_leases_end_at_their_deadline(
    missing: str, start_server: Callable[..., LocalServer]
) -> None:
    server = start_server()
    rights = [right for right in NEEDED if right != missing]
    server.command("ACL", "SETUSER", "locks", "on", ">password", *KEYS, *rights)
    async with Redlock([f"redis://locks:password@{server.address}"]) as redlock:
        lease = await redlock.lock("lock:order", ttl=0.5).acquire()
        await asyncio.wait_for(lease.wait_lost(), 30)
        assert lease.lost
        server.command("ACL", "SETUSER", "locks", missing)
        renewals = redlock.stats().renewals
        lease = await redlock.lock("lock:order", ttl=6.0).acquire()
        await eventually(lambda: redlock.stats().renewals > renewals)
        assert lease.valid
        assert await lease.release()


async def test_without_the_right_to_delete_keys_stay_until_their_ttl(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server()
    server.command(
        "ACL",
        "SETUSER",
        "locks",
        "on",
        ">password",
        *KEYS,
        *(right for right in NEEDED if right != "+del"),
    )
    async with Redlock([f"redis://locks:password@{server.address}"]) as redlock:
        async with redlock.lock("lock:order", ttl=5.0):
            pass
        assert locks_on(server) == {"lock:order"}
        await eventually(lambda: locks_on(server) == set())
        server.command("ACL", "SETUSER", "locks", "+del")
        async with redlock.lock("lock:order", ttl=30, blocking_timeout=5):
            pass
        assert locks_on(server) == set()


async def test_rights_for_messages_and_tracking_take_effect_at_the_next_connect(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server()

    def rights(*words: str) -> None:
        server.command("ACL", "SETUSER", "locks", *words)

    def found(redlock: Redlock) -> tuple[bool, bool]:
        (node,) = redlock.nodes
        return node.tracking, node.messages

    optional = ("client", "subscribe")
    rights("on", ">password", "~*", "resetchannels", "&aioredlock_ng:*", "+@all")
    rights(*(f"-{command}" for command in optional))
    url = f"redis://locks:password@{server.address}"
    async with Redlock([url], node_timeout=5.0, connect_timeout=30.0) as redlock:
        assert found(redlock) == (False, False)
        rights(*(f"+{command}" for command in optional))
        server.command("CLIENT", "KILL", "USER", "locks")
        await eventually(lambda: found(redlock) == (True, True))
        await serves(redlock, server)
        rights(*(f"-{command}" for command in optional))
        server.command("CLIENT", "KILL", "USER", "locks")
        await eventually(lambda: found(redlock) == (False, False) and redlock.ready)
        await serves(redlock, server)


async def test_a_key_outside_the_users_pattern_is_an_error_at_once(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server()
    server.command("ACL", "SETUSER", "locks", "on", ">password", *KEYS, "+@all")
    async with Redlock([f"redis://locks:password@{server.address}"], node_timeout=5.0) as redlock:
        with pytest.raises(QuorumUnreachable, match="NOPERM"):
            await asyncio.wait_for(redlock.lock("order").acquire(), 10)
        await serves(redlock, server, "lock:order")


async def test_a_holder_without_the_right_to_renew_is_notified_of_the_loss_by_the_deadline(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server()
    rights = [right for right in NEEDED if right != "+pexpire"]
    server.command("ACL", "SETUSER", "locks", "on", ">password", *KEYS, *rights)

    async def hold(redlock: Redlock) -> None:
        async with redlock.lock("lock:order", ttl=0.5):
            await asyncio.sleep(30)

    async with Redlock([f"redis://locks:password@{server.address}"]) as redlock:
        with pytest.raises(LockLost, match="deadline"):
            await asyncio.wait_for(hold(redlock), 10)


def assert_nowhere(secret: str, error: Exception, redlock: Redlock, log: str) -> None:
    assert secret not in str(error)
    assert secret not in repr(error)
    assert secret not in "".join(traceback.format_exception(error))
    assert secret.encode() not in pickle.dumps(error)
    assert secret not in repr(getattr(error, "votes", ()))
    assert secret not in repr(redlock.nodes)
    assert secret not in repr(redlock)
    assert secret not in log


@pytest.mark.parametrize("given", ["url", "user", "query", "client"])
async def test_the_error_for_a_wrong_password_names_the_address_and_never_the_password(
    given: str, start_server: Callable[..., LocalServer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = start_server(password="another")
    client = Redis(host="127.0.0.1", port=server.port, password=SECRET)
    node = {
        "url": f"redis://:{SECRET}@{server.address}",
        "user": f"redis://{SECRET}-user:{SECRET}@{server.address}",
        "query": f"redis://{server.address}?password={SECRET}",
        "client": client,
    }[given]
    async with client, Redlock([node]) as redlock:
        assert redlock.nodes[0].state == "refused"
        # Waiting does not cure it, so there is no waiting.
        with pytest.raises(QuorumUnreachable, match="authentication failed") as caught:
            await asyncio.wait_for(redlock.lock("order").acquire(), 10)
        assert server.address in str(caught.value)
        assert_nowhere(SECRET, caught.value, redlock, caplog.text)
    assert server.address in caplog.text


async def test_the_error_for_a_missing_password_names_the_address(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server(password="another")
    async with Redlock([f"redis://{server.address}"]) as redlock:
        with pytest.raises(QuorumUnreachable, match="authentication failed") as caught:
            await asyncio.wait_for(redlock.lock("order").acquire(), 10)
        assert server.address in str(caught.value)


async def test_a_password_that_is_corrected_on_the_server_is_tried_again(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server()
    server.command("ACL", "SETUSER", "locks", "on", ">other", "~*", "+@all")
    async with Redlock([f"redis://locks:{SECRET}@{server.address}"], node_timeout=5.0) as redlock:
        assert redlock.nodes[0].state == "refused"
        server.command("ACL", "SETUSER", "locks", f">{SECRET}")
        await eventually(lambda: redlock.nodes[0].state == "up")
        await serves(redlock, server)


async def test_the_settings_of_a_given_client_do_not_matter_and_the_client_is_left_alone(
    one_node: NodeSet,
) -> None:
    client = Redis.from_url(
        one_node.urls[0],
        decode_responses=True,
        protocol=2,
        # A busy server may be silent for seconds.
        retry=Retry(ExponentialBackoff(), 50),
        retry_on_timeout=True,
        socket_timeout=0.05,
        socket_connect_timeout=0.05,
        health_check_interval=1,
        client_name="mine",
        max_connections=1,
    )
    async with client:
        await client.set("mine", "ä")
        pool = client.connection_pool
        settings = {name: repr(value) for name, value in pool.connection_kwargs.items()}
        connection = pool._available_connections[0]  # type: ignore[attr-defined,unused-ignore]
        async with Redlock([client], node_timeout=5.0) as redlock, Redlock([client]) as other:
            async with redlock.lock("order", ttl=20) as lease:
                assert await client.get("order") == lease.token
                # Longer than its socket_timeout: waiting for another must break no connection.
                with pytest.raises(LockNotAcquired):
                    await other.lock("order", blocking_timeout=0.3).acquire()
            assert redlock.nodes[0].connections == other.nodes[0].connections == 1
            assert redlock.nodes[0].tracking, "RESP3 whatever the client speaks"
            assert await client.get("mine") == "ä"
        assert {name: repr(value) for name, value in pool.connection_kwargs.items()} == settings
        available = pool._available_connections  # type: ignore[attr-defined,unused-ignore]
        assert available == [connection]
        assert await client.get("mine") == "ä"
        assert await client.delete("mine") == 1


@pytest.mark.faults
async def test_a_clients_retries_and_timeouts_do_not_reach_a_hung_node(one_node: NodeSet) -> None:
    client = Redis.from_url(
        one_node.urls[0],
        socket_timeout=0.02,
        retry=Retry(ExponentialBackoff(), 5),
        retry_on_timeout=True,
    )
    async with client, Redlock([client], node_timeout=0.05) as redlock:
        one_node.pause(0)
        with pytest.raises(QuorumUnreachable):
            await redlock.lock("order", ttl=30, blocking_timeout=0.5).acquire()
        one_node.resume(0)
        await all_up(redlock)
        assert redlock.nodes[0].connections == 1
        assert one_node.keys() == [set()]


async def failed_over(sentinel: Sentinel, name: str, promoted: tuple[str, int]) -> bool:
    """Ask for a failover until there was one: on a busy machine a Sentinel gives up, or waits for
    half a minute (TILT).
    """
    if await sentinel_names(sentinel, name, promoted):
        return True
    ask = sentinel.sentinels[0].execute_command
    # It has to hear from the replica first, which it asks every ten seconds unless told otherwise
    # (Redis 7 and newer).
    with contextlib.suppress(ResponseError):
        await ask("SENTINEL", "DEBUG", "INFO-PERIOD", "100")
    try:
        await ask("SENTINEL", "FAILOVER", name)
    except ResponseError as error:
        if not str(error).startswith(("NOGOODSLAVE", "INPROG")):
            raise
    return False


async def can_write(client: Redis) -> bool:
    # On a busy machine a Sentinel may take the new primary for down once more.
    with contextlib.suppress(MasterNotFoundError):
        return bool(await client.set("mine", "1"))
    return False


async def sentinel_names(sentinel: Sentinel, name: str, address: tuple[str, int]) -> bool:
    try:
        return await sentinel.discover_master(name) == address
    except MasterNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("planned", [False, True], ids=["killed", "planned"])
async def test_locks_go_on_after_a_sentinels_failover(
    sentinel_set: SentinelSet, planned: bool
) -> None:
    sentinel = Sentinel([sentinel_set.address])
    client = sentinel.master_for(sentinel_set.name)
    try:
        async with Redlock([client], **SHORT_GUARD) as redlock:
            assert redlock.nodes[0].address == f"{sentinel_set.name}@sentinel"
            await serves(redlock, sentinel_set.primary)
            before = redlock.nodes[0].run_id
            if planned:
                promoted = ("127.0.0.1", sentinel_set.replica.port)
                await eventually(
                    lambda: failed_over(sentinel, sentinel_set.name, promoted), 45, every=0.1
                )
                # The Sentinel does the same to the old primary, but only eight seconds later.
                sentinel_set.primary.command("REPLICAOF", *map(str, promoted))
                sentinel_set.primary.command("CLIENT", "KILL", "TYPE", "pubsub")
            else:
                await asyncio.to_thread(sentinel_set.failover)
            lease = await asyncio.wait_for(redlock.lock("order").acquire(), 30)
            await eventually(lambda: redlock.nodes[0].run_id not in ("", before), 30)
            await lease.release()
            await eventually(lambda: redlock.nodes[0].state == "up", 30)
            assert redlock.nodes[0].run_id == sentinel_set.replica.info()["run_id"]
            await serves(redlock, sentinel_set.replica)
        # The client itself must still work, whenever the Sentinel sees the new primary answer.
        await eventually(lambda: can_write(client))
    finally:
        await client.aclose()
        for one in sentinel.sentinels:
            await one.aclose()


async def test_a_sentinel_that_is_late_to_notice_a_failover_is_waited_for(
    sentinel_set: SentinelSet,
) -> None:
    class Late(Sentinel):
        named = sentinel_set.replica.port

        async def discover_master(self, _name: str) -> tuple[str, int]:
            return "127.0.0.1", self.named

    sentinel = Late([sentinel_set.address])
    client = sentinel.master_for(sentinel_set.name)
    try:
        async with Redlock([client]) as redlock, asyncio.TaskGroup() as group:
            assert redlock.nodes[0].state == "down"
            assert "is a replica" in redlock.nodes[0].reason
            waiting = group.create_task(redlock.lock("order").acquire())
            await eventually(lambda: redlock.stats().attempts > 0)
            sentinel.named = sentinel_set.primary.port
            await (await asyncio.wait_for(waiting, 30)).release()
    finally:
        await client.aclose()
        for one in sentinel.sentinels:
            await one.aclose()


@pytest.mark.slow
async def test_a_waiter_is_served_after_a_sentinels_failover(sentinel_set: SentinelSet) -> None:
    sentinel = Sentinel([sentinel_set.address])
    clients = [sentinel.master_for(sentinel_set.name) for _ in range(2)]
    try:
        async with (
            Redlock(clients[:1], **SHORT_GUARD) as holder,
            Redlock(clients[1:], **SHORT_GUARD) as other,
            asyncio.TaskGroup() as group,
        ):
            lease = await asyncio.wait_for(holder.lock("order").acquire(), 30)
            waiting = group.create_task(other.lock("order").acquire())
            await eventually(lambda: other.stats().standing == 1)
            await asyncio.to_thread(sentinel_set.failover)
            await lease.release()
            await (await asyncio.wait_for(waiting, 30)).release()
            await serves(other, sentinel_set.replica)
    finally:
        for one in (*clients, *sentinel.sentinels):
            await one.aclose()


async def test_a_sentinels_replica_is_refused_as_a_node(sentinel_set: SentinelSet) -> None:
    sentinel = Sentinel([sentinel_set.address])
    client = sentinel.slave_for(sentinel_set.name)
    try:
        async with Redlock([client]) as redlock:
            with pytest.raises(QuorumUnreachable, match=r"is a replica of 127\.0\.0\.1"):
                await asyncio.wait_for(redlock.lock("order").acquire(), 10)
    finally:
        await client.aclose()
        for one in sentinel.sentinels:
            await one.aclose()


@pytest.mark.parametrize("then", ["connected", "failed", "hung"])
async def test_closing_ends_a_connection_being_made_that_swallows_its_cancellation(
    one_node: NodeSet, then: str
) -> None:
    """As redis-py's does on Python 3.11 where it asks a Sentinel: `aclose` waited for ever and the
    node was connected anew.
    """
    attempts: list[Connection] = []
    connecting, swallowed, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Deaf(Connection):
        async def connect(self) -> None:
            attempts.append(self)
            if len(attempts) == 2:
                connecting.set()
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    swallowed.set()
                if then == "hung":
                    await closed.wait()
                if then == "connected":
                    return await super().connect()
            raise RedisConnectionError("not now")

    client = Redis(connection_pool=ConnectionPool.from_url(one_node.urls[0], connection_class=Deaf))
    others = asyncio.all_tasks()
    async with Redlock([client], close_timeout=0.2 if then == "hung" else 30) as redlock:
        await asyncio.wait_for(connecting.wait(), 30)
        await asyncio.wait_for(redlock.aclose(), 20)
    assert swallowed.is_set()
    closed.set()
    await eventually(lambda: asyncio.all_tasks() == others)
    assert len(attempts) == 2
    await client.aclose()


async def test_nodes_of_all_kinds_form_one_set(
    one_node: NodeSet, start_server: Callable[..., LocalServer], tls_server: LocalServer
) -> None:
    local, secured = start_server(unix_socket=True), start_server(password=SECRET)
    # One node of an old set would let the others wait.
    one_node.wipe()
    nodes = [one_node.urls[0], local.url, f"{secured.url}/7", tls_server.url]
    async with Redlock(nodes) as redlock:
        began = time.monotonic()
        async with redlock.lock("order") as lease:
            await eventually(lambda: lease.nodes == (4, 4))
        assert time.monotonic() - began < 30, "the guard time is a minute"
        await all_up(redlock)
    assert one_node.keys() == [set()]
