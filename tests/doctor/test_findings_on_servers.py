"""Every finding on a real server that is configured wrongly on purpose, or reached in a way that is
wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import ConnectionPool, Redis

from aioredlock_ng import Options, QuorumUnreachable, Redlock, Severity
from aioredlock_ng._doctor.finding_kinds import KINDS
from aioredlock_ng._nodes.memory import MemoryNode
from aioredlock_ng.doctor import diagnose
from tests.doctor.rewriting import Rewriting, RewritingProxy, clock_of, version_of
from tests.integration.test_bad_servers import busy, fail_to_save, fill
from tests.integration.test_fakeredis import NoTransport
from tests.support.eventually import eventually
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioredlock_ng import Diagnosis, Finding
    from aioredlock_ng.records import ClockReading
    from aioredlock_ng.testing import LocalServer

    StartServer = Callable[..., LocalServer]

ERROR, WARNING, INFO = Severity

SAFE = ["--appendfsync", "always"]

PATIENT: dict[str, Any] = {"node_timeout": 5.0, "connect_timeout": 30.0, "close_timeout": 30.0}
"""Options of a manager whose only node may pause."""


async def examine(
    urls: Iterable[Any], *, watch: float = 0.1, probe: str = "lock:doctor", **options: Any
) -> Diagnosis:
    return await diagnose(
        urls,
        Options(**{"connect_timeout": 30.0, "node_timeout": 0.5, **options}),
        watch=watch,
        probe=probe,
    )


def of(diagnosis: Diagnosis, code: str) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.code == code]


def the(diagnosis: Diagnosis, code: str) -> Finding:
    (finding,) = of(diagnosis, code)
    return finding


class Ward:
    """Makes servers that are ill, and lays down what to call when the test is over."""

    def __init__(self, start_server: StartServer, stack: contextlib.AsyncExitStack) -> None:
        self.start = start_server
        self.stack = stack

    async def proxy(self, proxy: Proxy) -> str:
        return (await self.stack.enter_async_context(proxy)).url

    async def clock(self, told: Callable[[float], float]) -> str:
        return await self.proxy(RewritingProxy(self.start().url, clock_of(told)))

    async def slow(self, seconds: float) -> str:
        proxy = Proxy(self.start().url)
        proxy.delay(seconds)
        return await self.proxy(proxy)

    def user(self, *rights: str, keys: str = "~*", server: LocalServer | None = None) -> str:
        server = server or self.start()
        server.command("ACL", "SETUSER", "locks", "on", ">word", keys, "&*", *rights)
        return f"redis://locks:word@{server.address}"


def an_hour(slow: ClockReading | None, fast: ClockReading) -> str:
    """Assert that the clocks are an hour apart within their errors. Return the shown offset."""
    apart = fast.offset - (slow.offset if slow else 0.0)
    error = fast.offset_error + (slow.offset_error if slow else 0.0)
    assert apart == pytest.approx(3600, abs=error + 0.1)
    return re.escape(f"{apart:.6g}")


async def ill(code: str, ward: Ward) -> tuple[Diagnosis, Severity, str]:
    """Examine what shows the finding; returns also how bad it must be, and what it must say."""
    match code:
        case "unreachable":
            server = ward.start()
            server.stop()
            return await examine([server.url]), ERROR, "connection refused"
        case "authentication":
            return (
                await examine([f"redis://:wrong@{ward.start(password='right').address}"]),
                ERROR,
                "authentication failed",
            )
        case "unusable-client":
            pool = ConnectionPool.from_url(ward.start().url, connection_class=NoTransport)
            diagnosis = await examine([Redis(connection_pool=pool)])
            assert not of(diagnosis, "authentication")
            return diagnosis, ERROR, "its NoTransport offers no transport"
        case "silent":
            proxy = RewritingProxy(ward.start().url, lambda data: data)
            url = await ward.proxy(proxy)

            def stall(data: bytes) -> bytes:
                if b"run_id:" in data:
                    proxy.to_client.stall()
                return data

            proxy.to_client._rewrite = stall
            return (
                await examine([url], connect_timeout=4.0),
                ERROR,
                "no answer to EVAL within 4 s",
            )
        case "not-ready":
            server = ward.start(["--lua-time-limit", "50"])
            await ward.stack.enter_async_context(busy(server))
            return await examine([server.url]), ERROR, "BUSY"
        case "not-examined":
            async with Redlock([MemoryNode()]) as redlock:
                return await redlock.diagnose(watch=0.1), INFO, "node object"
        case "replica":
            primary, server = ward.start(), ward.start()
            server.command("REPLICAOF", "127.0.0.1", str(primary.port))
            return await examine([server.url]), ERROR, f"replica of 127.0.0.1:{primary.port}"
        case "cluster":
            server = ward.start(["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"])
            return await examine([server.url]), ERROR, "cluster mode"
        case "eviction-policy":
            server = ward.start(["--maxmemory", "8mb", "--maxmemory-policy", "volatile-lru"])
            return await examine([server.url]), ERROR, "volatile-lru, at 8 MiB"
        case "evicted-keys":
            server = ward.start(["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-random"])
            server.command(
                "EVAL", "for i = 1, 1000 do redis.call('SET', i, string.rep('x', 10000)) end", "0"
            )
            return await examine([server.url]), ERROR, r"has evicted \d+ keys"
        case "no-persistence":
            return (
                await examine([ward.start().url], recovery_guard=None),
                WARNING,
                "no append-only file",
            )
        case "fsync":
            server = ward.start(["--appendfsync", "no"], appendonly=True)
            return await examine([server.url], recovery_guard=None), WARNING, "appendfsync is no"
        case "fsync-unknown":
            server = ward.start(["--rename-command", "CONFIG", ""], appendonly=True)
            return await examine([server.url]), INFO, "unknown command"
        case "persistence-failing":
            settings = [
                "--dbfilename",
                "taken",
                "--save",
                "3600 1000000",
                "--stop-writes-on-bgsave-error",
                "no",
            ]
            server = ward.start(settings)
            ward.stack.callback(server.crash)
            await asyncio.to_thread(fail_to_save, server)
            return await examine([server.url]), WARNING, "rdb_last_bgsave_status"
        case "replicas":
            server = ward.start(["--repl-diskless-sync-delay", "0"])
            ward.start().command("REPLICAOF", "127.0.0.1", str(server.port))
            await eventually(lambda: server.info()["connected_slaves"] == "1")
            return (
                await examine([server.url], recovery_guard=None),
                WARNING,
                "a replica is attached",
            )
        case "restarted":
            words = r"started \d+ s ago, and leases may last 60 s"
            return await examine([ward.start().url], recovery_guard=None), WARNING, words
        case "quarantined":
            server = ward.start(appendonly=True)
            async with Redlock([server.url], **PATIENT) as redlock:
                await trusted(redlock)
            await asyncio.to_thread(server.restart)
            return await examine([server.url]), WARNING, "its marker names another server process"
        case "all-forgot":
            server = ward.start()
            async with Redlock([server.url], **PATIENT) as redlock:
                await trusted(redlock)
                await asyncio.to_thread(server.restart)
                await waits(redlock, 0, server)
                return await redlock.diagnose(watch=0.1), ERROR, "all nodes lost their memory"
        case "guard-time":
            server = ward.start()
            server.command("SET", "aioredlock_ng:marker", f"{server.info()['run_id']}:86401001")
            return await examine([server.url]), WARNING, "a guard time above 86,401 s"
        case "unmarked":
            return await examine([ward.start().url]), INFO, "it has no marker"
        case "other-keys":
            server = ward.start()
            for command in (
                "HSET cart:1 item 2",
                "SET order:42 paid",
                "SET order:43 token PX 60000",
                "RPUSH log a",
            ):
                server.command(*command.split())
            words = (
                "^the server has other keys: 3 of 4 sampled keys are not locks "
                r"\(hash, list, string without expiry\)$"
            )
            return await examine([server.url]), WARNING, words
        case "old-version":
            url = await ward.proxy(RewritingProxy(ward.start().url, version_of("5.0.9")))
            return await examine([url]), ERROR, r"it is redis 5\.0\.0*9"
        case "unknown-command":
            server = ward.start(["--rename-command", "MGET", "", "--rename-command", "PEXPIRE", ""])
            return await examine([server.url]), ERROR, "it does not know MGET, PEXPIRE"
        case "noloop-defect":
            url = await ward.proxy(RewritingProxy(ward.start().url, version_of("7.0.4")))
            return await examine([url]), INFO, r"it is redis 7\.0\.0*4"
        case "no-resp3":
            return (
                await examine([ward.start(["--rename-command", "HELLO", ""]).url]),
                WARNING,
                "RESP3",
            )
        case "no-tracking":
            server = ward.start(["--rename-command", "CLIENT", ""])
            return (
                await examine([server.url]),
                WARNING,
                "CLIENT TRACKING is refused: .*unknown command",
            )
        case "no-messages":
            server = ward.start(["--rename-command", "PUBLISH", ""])
            return await examine([server.url]), WARNING, "PUBLISH is refused: .*unknown command"
        case "no-queue":
            server = ward.start(["--rename-command", "ZRANK", ""])
            return await examine([server.url]), WARNING, "queue ZRANK is refused: .*unknown command"
        case "no-readers":
            server = ward.start(["--rename-command", "PEXPIREAT", ""])
            return (
                await examine([server.url]),
                WARNING,
                "readers PEXPIREAT is refused: .*unknown command",
            )
        case "no-labels":
            proxy = RewritingProxy(ward.start().url, lambda data: data)
            proxy.to_server = Rewriting(
                lambda data: re.sub(rb"SET(\r\n\$\d+\r\naioredlock_ng:owner:)", rb"SAT\1", data)
            )
            return (
                await examine([await ward.proxy(proxy)]),
                WARNING,
                "labels SET is refused: .*unknown command",
            )
        case "no-identity":
            return (
                await examine([ward.start(["--rename-command", "INFO", ""]).url]),
                WARNING,
                "INFO is refused",
            )
        case "no-script-load":
            return (
                await examine([ward.start(["--rename-command", "SCRIPT", ""]).url]),
                INFO,
                "SCRIPT LOAD is refused",
            )
        case "missing-right":
            return await examine([ward.user("+@all", "-evalsha")]), ERROR, "no right to evalsha"
        case "refused":
            server = ward.start(["--maxmemory", "1mb", "--maxmemory-policy", "noeviction"])
            await asyncio.to_thread(fill, server)
            return await examine([server.url]), ERROR, "script acquire.*: -?OOM"
        case "clock-rate":
            began: list[float] = []

            def fast(now: float) -> float:
                began.append(now)
                return now + (now - began[0]) * 10_000

            # A pause makes the measured rate inexact, but a rate of 10,000 is still too fast.
            return (
                await examine([await ward.clock(fast)], watch=0.5),
                ERROR,
                r"advanced \d{3,}",
            )
        case "clock-rate-unknown":
            url = await ward.slow(0.05)
            return await examine([url], drift_factor=0.001), INFO, "drift_factor allows for"
        case "clock-unknown":
            server = ward.start(["--rename-command", "TIME", ""])
            return await examine([server.url], recovery_guard=None), INFO, "TIME is refused"
        case "round-trip":
            return (
                await examine([await ward.slow(0.05)], node_timeout=0.05),
                ERROR,
                r"half of \d+ round trips took 0\.(0[5-9]|[1-9])",
            )
        case "no-quorum":
            servers = [ward.start() for _ in range(3)]
            for server in servers[1:]:
                server.stop()
            return (
                await examine([server.url for server in servers]),
                ERROR,
                "1 of 3 nodes can vote, 2 are needed",
            )
        case "same-server":
            server = ward.start()
            twin = f"redis://localhost:{server.port}/3"
            return (
                await examine([server.url, twin, ward.start().url]),
                ERROR,
                rf"{server.address} and localhost:{server.port}/3",
            )
        case "single-node":
            return await examine([ward.start().url]), WARNING, "there is one node"
        case "even-number":
            return (
                await examine([ward.start().url for _ in range(4)]),
                WARNING,
                "there are 4 nodes; they tolerate the loss of 1",
            )
        case "same-host":
            urls = [ward.start().url, ward.start(unix_socket=True).url, ward.start().url]
            return await examine(urls), WARNING, "3 of 3 nodes are on this machine"
        case "clock-offset":
            urls = [ward.start().url, await ward.clock(lambda now: now - 3600), ward.start().url]
            diagnosis = await examine(urls)
            clocks = [node.clock for node in diagnosis.nodes if node.clock]
            clocks.sort(key=lambda clock: clock.offset)
            return diagnosis, WARNING, f"are {an_hour(clocks[0], clocks[-1])} s apart"
        case "client-clock":
            diagnosis = await examine([await ward.clock(lambda now: now + 3600)])
            clock = diagnosis.nodes[0].clock
            assert clock
            return diagnosis, WARNING, f"{an_hour(None, clock)} s behind"
        case "slow-quorum":
            return await examine([await ward.slow(0.05)], ttl=0.8), WARNING, "of the ttl"
        case "short-ttl":
            return (
                await examine([ward.start().url], ttl=2.0),
                INFO,
                "ttl is 2 s, 4 times node_timeout",
            )
        case _:
            raise AssertionError(f"no server here shows the finding {code!r}")


@pytest.mark.parametrize("code", KINDS)
async def test_the_doctor_finds_each_problem_of_a_server(
    code: str, start_server: StartServer
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        diagnosis, severity, words = await ill(code, Ward(start_server, stack))
        finding = the(diagnosis, code)
        assert finding.severity is severity
        assert re.search(words, finding.what)


async def codes_of(urls: Iterable[Any], **options: Any) -> dict[str, Severity]:
    return {finding.code: finding.severity for finding in (await examine(urls, **options)).findings}


async def test_a_sound_set_has_nothing_worse_than_being_on_one_machine(
    start_server: StartServer,
) -> None:
    servers = [start_server(SAFE, appendonly=True) for _ in range(3)]
    # The machine may pause for a second or two.
    diagnosis = await examine([server.url for server in servers], ttl=60.0, node_timeout=5.0)
    wrong = {finding.code for finding in diagnosis.findings if finding.severity is not INFO}
    assert wrong == {"same-host"}
    known = {"same-host", "unmarked", "clock-rate-unknown"}
    assert {finding.code for finding in diagnosis.findings} <= known
    for server, facts in zip(servers, diagnosis.nodes, strict=True):
        info = server.info()
        assert (facts.address, facts.endpoint, facts.run_id) == (
            server.address,
            server.address,
            info["run_id"],
        )
        assert facts.server.split()[1] in (info.get("valkey_version"), info["redis_version"])
        assert (facts.resp3, facts.tracking, facts.granted, facts.refusals) == (
            True,
            True,
            True,
            (),
        )
        assert facts.messages
        assert (facts.aof, facts.fsync, facts.maxmemory_policy, facts.replicas) == (
            True,
            "always",
            "noeviction",
            0,
        )
        assert facts.round_trips is not None
        assert facts.clock is not None
        assert abs(facts.clock.offset) <= facts.clock.offset_error + 0.001
        assert server.command("DBSIZE") == b"0"
        # The doctor's connection is gone as soon as the server has seen its end.
        await eventually(lambda server=server: server.info()["connected_clients"] == "1")


@pytest.mark.parametrize(
    ("settings", "appendonly", "code", "severity"),
    [
        (
            ["--maxmemory", "8mb", "--maxmemory-policy", "allkeys-lru"],
            False,
            "eviction-policy",
            ERROR,
        ),
        (["--maxmemory-policy", "volatile-ttl"], False, "eviction-policy", WARNING),
        (
            ["--maxmemory", "8mb", "--maxmemory-policy", "noeviction"],
            False,
            "eviction-policy",
            None,
        ),
        (["--appendfsync", "everysec"], True, "fsync", INFO),
        (["--appendfsync", "always"], True, "fsync", None),
        ([], True, "restarted", INFO),
        ([], True, "no-persistence", None),
    ],
)
async def test_each_setting_of_a_server_has_its_severity(
    settings: list[str],
    appendonly: bool,
    code: str,
    severity: Severity | None,
    start_server: StartServer,
) -> None:
    codes = await codes_of([start_server(settings, appendonly=appendonly).url], recovery_guard=None)
    assert codes.get(code) == severity


async def test_other_data_is_no_finding_beside_locks_that_have_keys_of_their_own(
    start_server: StartServer,
) -> None:
    server = start_server()
    server.command("SET", "order:42", "paid")
    diagnosis = await examine([server.url], key_format="lock:{name}")
    assert not of(diagnosis, "other-keys")
    assert diagnosis.nodes[0].sampled_keys is None


async def test_locks_and_keys_of_doctors_and_of_the_library_are_no_other_data(
    start_server: StartServer,
) -> None:
    server = start_server()
    async with Redlock([server.url], **PATIENT) as redlock:
        await trusted(redlock)
        async with redlock.lock("order"), redlock.rwlock("catalog").read():
            both = await asyncio.gather(*(examine([server.url]) for _ in range(2)))
    for diagnosis in both:
        assert not of(diagnosis, "other-keys")
        assert diagnosis.nodes[0].sampled_keys == 2


@pytest.mark.parametrize("missing", ["-scan", "-type", "-pttl"])
async def test_other_data_is_no_finding_without_the_rights_to_scan(
    start_server: StartServer, missing: str
) -> None:
    server = start_server()
    server.command("SET", "order:42", "paid")
    server.command("ACL", "SETUSER", "locks", "on", ">word", "~*", "&*", "+@all", missing)
    diagnosis = await examine([f"redis://locks:word@{server.address}"])
    assert not of(diagnosis, "other-keys")
    steps = {refused.step for refused in diagnosis.nodes[0].refusals}
    assert not steps & {"SCAN", "TYPE", "PTTL"}


async def trusted(redlock: Redlock) -> None:
    await eventually(lambda: {node.state for node in redlock.nodes} == {"up"})
    async with redlock.lock("order"):
        pass


async def waits(redlock: Redlock, index: int, server: LocalServer) -> None:
    """Wait until a node is in quarantine, and its marker says for how long."""
    await eventually(lambda: redlock.nodes[index].state == "quarantined")
    await eventually(lambda: server.command("GET", "aioredlock_ng:marker").count(b":") > 1)


async def test_a_node_that_forgot_everything_is_quarantined_beside_trusted_nodes(
    start_server: StartServer,
) -> None:
    servers = [start_server(["--appendfsync", "always"], appendonly=True) for _ in range(2)] + [
        start_server()
    ]
    urls = [server.url for server in servers]
    async with Redlock(urls, **PATIENT) as redlock:
        await trusted(redlock)
        assert [facts.trust for facts in (await redlock.diagnose(watch=0.1)).nodes] == [
            "trusted"
        ] * 3
    servers[2].restart()
    diagnosis = await examine(urls)
    assert the(diagnosis, "quarantined").nodes == (servers[2].address,)
    assert not of(diagnosis, "no-quorum")
    # From here on it waits for the guard time.
    async with Redlock(urls, **PATIENT) as redlock:
        await waits(redlock, 2, servers[2])
        diagnosis = await redlock.diagnose(watch=0.1)
    assert diagnosis.nodes[2].trust in ("waiting", "founding")
    assert 50 < (diagnosis.nodes[2].ready_in or 0) <= 61
    assert re.search(
        r"it is (waiting|founding), and may vote in [56]\d\.\d s",
        the(diagnosis, "quarantined").what,
    )
    servers[1].restart()
    diagnosis = await examine(urls)
    assert {finding.nodes[0] for finding in of(diagnosis, "quarantined")} == {
        servers[1].address,
        servers[2].address,
    }
    the(diagnosis, "no-quorum")


async def test_the_doctor_gives_the_time_of_a_quarantine_that_a_longer_max_ttl_begins_anew(
    start_server: StartServer,
) -> None:
    server = start_server(appendonly=True)
    async with Redlock([server.url], max_ttl=3600.0, **PATIENT) as redlock:
        await trusted(redlock)
    await asyncio.to_thread(server.restart)
    async with Redlock([server.url], max_ttl=3600.0, **PATIENT) as redlock:
        await waits(redlock, 0, server)
    same = await examine([server.url], max_ttl=3600.0)
    assert same.nodes[0].marked_max_ttl == 3600.0
    assert re.fullmatch(
        r"it is waiting, and may vote in 3[56]\d\d\.\d s", the(same, "quarantined").what
    )
    raised = the(await examine([server.url], max_ttl=7200.0), "quarantined").what
    assert raised.endswith("a manager with a max_ttl of 7200 s lets it wait anew, for 7201 s")
    # A manager behaves as the doctor says.
    async with Redlock([server.url], max_ttl=7200.0, **PATIENT) as redlock:
        await eventually(lambda: b":7200000:" in server.command("GET", "aioredlock_ng:marker"))
        _, _, ready_ms = server.command("GET", "aioredlock_ng:marker").split(b":")
        seconds = server.command("EVAL", "return redis.call('TIME')[1]", "0")
    assert 7100 < int(ready_ms) / 1000 - int(seconds) <= 7202


async def test_the_finding_of_a_new_node_says_that_a_strict_guard_waits_in_any_case(
    start_server: StartServer,
) -> None:
    server = start_server()
    async with Redlock([server.url], recovery_guard="strict", **PATIENT) as redlock:
        # All nodes answer, and yet the node does not vote.
        await eventually(lambda: redlock.nodes[0].state == "quarantined")
    server.command("FLUSHALL")
    finding = the(await examine([server.url], recovery_guard="strict"), "unmarked")
    assert "With recovery_guard='strict' it votes after max_ttl only." in finding.meaning


async def test_the_recovery_guard_makes_missing_persistence_a_remark(
    start_server: StartServer,
) -> None:
    server = start_server()
    guarded, unguarded = (
        await codes_of([server.url]),
        await codes_of([server.url], recovery_guard=None),
    )
    assert guarded["no-persistence"] is INFO
    assert unguarded["no-persistence"] is WARNING
    assert "restarted" not in guarded
    assert "unmarked" not in unguarded


async def test_keys_evicted_before_the_policy_was_corrected_are_a_warning(
    start_server: StartServer,
) -> None:
    server = start_server(["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-random"])
    server.command(
        "EVAL", "for i = 1, 1000 do redis.call('SET', i, string.rep('x', 10000)) end", "0"
    )
    server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    codes = await codes_of([server.url])
    assert codes["evicted-keys"] is WARNING
    assert "eviction-policy" not in codes


async def test_a_full_server_that_was_in_use_is_one_finding_with_its_error(
    start_server: StartServer,
) -> None:
    server = start_server()
    async with Redlock([server.url], **PATIENT) as redlock, redlock.lock("order"):
        pass
    server.command("CONFIG", "SET", "maxmemory", "1")
    assert re.search(
        "^script acquire, .*script repair.*: -?OOM ",
        the(await examine([server.url]), "refused").what,
    )


@pytest.mark.parametrize(
    ("error", "setting", "keeps"),
    [("OOM", ("maxmemory", "1"), True), ("NOREPLICAS", ("min-replicas-to-write", "1"), False)],
)
async def test_the_finding_says_whether_a_server_that_grants_nothing_renews_and_releases(
    error: str, setting: tuple[str, str], keeps: bool, start_server: StartServer
) -> None:
    server = start_server()
    async with Redlock([server.url], **PATIENT) as redlock:
        lease = await redlock.lock("order").acquire()
        server.command("CONFIG", "SET", *setting)
        finding = the(await redlock.diagnose(watch=0.1), "refused")
        assert error in finding.what
        assert "With OOM it still renews and releases locks." in finding.meaning
        with contextlib.nullcontext() if keeps else pytest.raises(QuorumUnreachable):
            await lease.extend()
        await lease.release()
        assert server.command("EXISTS", "order") == (b"0" if keeps else b"1")


async def test_a_clock_that_is_too_slow_is_a_warning(start_server: StartServer) -> None:
    async with contextlib.AsyncExitStack() as stack:
        began: list[float] = []

        def slow(now: float) -> float:
            began.append(now)
            # The clock stands still, because a pause makes a rate near 1 very uncertain.
            return began[0]

        url = await Ward(start_server, stack).clock(slow)
        assert (await codes_of([url], watch=0.5))["clock-rate"] is WARNING


async def test_a_server_that_reads_its_data_is_not_ready(start_server: StartServer) -> None:
    server = start_server(["--key-load-delay", "1000"], appendonly=True)
    server.command("EVAL", "for i = 1, 8000 do redis.call('SET', 'k' .. i, i) end return 1", "0")
    server.stop()
    starting = asyncio.create_task(asyncio.to_thread(server.start))

    async def told() -> list[Finding]:
        diagnosis = await examine([server.url])
        return of(diagnosis, "not-ready")

    try:
        (finding,) = await eventually(told)
    finally:
        # The server reads the rest without delay.
        with contextlib.suppress(OSError):
            server.command("CONFIG", "SET", "key-load-delay", "0")
        await starting
    assert "LOADING" in finding.what
    assert "when it is done" in finding.remedy
