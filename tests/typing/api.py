"""Uses the whole public API as users do; checked by mypy --strict, never run."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

from aioredlock_ng import (
    AcquireTimeout,
    ClockReading,
    ConfigurationError,
    Diagnosis,
    Finding,
    Lease,
    Lock,
    LockHeld,
    LockInfo,
    LockLost,
    LockNotAcquired,
    LockReleased,
    NodeAnswer,
    NodeFacts,
    NodeState,
    Outcome,
    Owner,
    QuorumUnreachable,
    Redlock,
    RedlockClosed,
    RedlockError,
    Refused,
    RoundTrips,
    Severity,
    Stats,
    Vote,
)
from aioredlock_ng.events import Event, LockAcquired
from aioredlock_ng.fencing import MAX_FENCE, FenceGuard, RedisFence, StaleFence
from aioredlock_ng.testing import LocalNodes, LocalServer, MemoryNodes, lose, lose_at, lose_lock

if TYPE_CHECKING:
    import redis.asyncio


async def manager(client: redis.asyncio.Redis) -> None:
    async with Redlock(["redis://10.0.0.1", client], ttl=10.0, node_timeout=0.1, drift_factor=0.01) as redlock:
        assert_type(redlock, Redlock)
    assert_type(await Redlock(["redis://10.0.0.1"], key_format="lock:{name}", max_ttl=60.0).open(), Redlock)
    assert_type(Redlock.from_env(), Redlock)
    assert_type(Redlock.from_env({"AIOREDLOCK_NG_NODES": "redis://10.0.0.1"}, ttl=5.0), Redlock)
    assert_type(await redlock.aclose(), None)


async def locks(redlock: Redlock) -> None:
    lock = redlock.lock("orders:42", b"bytes", ttl=30, blocking_timeout=2, auto_extend=False, max_hold=60, on_lost="flag")
    assert_type(lock, Lock)
    async with lock as lease:
        assert_type(lease, Lease)
    assert_type(await lock.acquire(), Lease)
    if (taken := await lock.try_acquire()) is not None:
        assert_type(taken, Lease)
    assert_type(await lock.try_acquire(), Lease | None)


async def leases(lease: Lease) -> None:
    assert_type(lease.resource, str)
    assert_type(lease.resources, tuple[str | bytes, ...])
    assert_type(lease.token, str)
    assert_type(lease.ttl, float)
    assert_type(lease.remaining(), float)
    assert_type(lease.valid, bool)
    assert_type(lease.lost, bool)
    assert_type(lease.nodes, tuple[int, int])
    assert_type(lease.check(), None)
    assert_type(await lease.verify(), None)
    assert_type(await lease.extend(), None)
    assert_type(await lease.extend(ttl=5), None)
    assert_type(await lease.release(), bool)
    assert_type(lease.abandon(), None)
    assert_type(await lease.wait_lost(), None)


async def operators(redlock: Redlock) -> None:
    assert_type(await redlock.locked("orders:42"), bool)
    info = await redlock.inspect("orders:42")
    assert_type(info, LockInfo)
    assert_type(info.answers, tuple[NodeAnswer, ...])
    assert_type(await redlock.force_release("orders:42"), int)
    assert_type(redlock.nodes, tuple[NodeState, ...])
    assert_type(redlock.leases, tuple[Lease, ...])
    assert_type(redlock.stats(), Stats)
    diagnosis = await redlock.diagnose(watch=10.0, probe="lock:doctor")
    assert_type(diagnosis, Diagnosis)
    assert_type(diagnosis.severity, Severity | None)
    assert_type(diagnosis.findings, tuple[Finding, ...])
    assert_type(diagnosis.findings[0].nodes, tuple[str, ...])
    assert_type(diagnosis.nodes, tuple[NodeFacts, ...])
    assert_type(diagnosis.nodes[0].round_trips, RoundTrips | None)
    assert_type(diagnosis.nodes[0].clock, ClockReading | None)
    assert_type(diagnosis.nodes[0].refusals, tuple[Refused, ...])


def errors(error: LockNotAcquired, lost: LockLost) -> None:
    family: list[type[RedlockError]] = [
        ConfigurationError, LockNotAcquired, LockHeld, AcquireTimeout, QuorumUnreachable, LockLost, LockReleased, RedlockClosed,
    ]  # fmt: skip
    also: tuple[type[ValueError], type[TimeoutError]] = (ConfigurationError, AcquireTimeout)
    assert family
    assert also
    assert_type(error.votes, tuple[Vote, ...])
    assert_type(error.votes[0].outcome, Outcome)
    assert_type(error.elapsed, float)
    assert_type(lost.resource, str)


async def fencing(lease: Lease, client: redis.asyncio.Redis, cluster: redis.asyncio.RedisCluster, stale: StaleFence) -> None:
    guarded = RedisFence(client, keep=60)
    assert_type(RedisFence(cluster), RedisFence)
    assert_type(await guarded.set("order:42", "paid", fence=lease.fence, ttl=30), None)
    assert_type(await guarded.hset(b"order:42", {"state": "paid", "cents": 5}, fence=1), None)
    assert_type(await guarded.delete("order:42", fence=1), bool)
    assert_type(RedisFence.fence_key("order:42"), bytes)
    assert_type(FenceGuard(max_resources=1000, floor=MAX_FENCE).check("order:42", lease.fence), None)
    error: RedlockError = stale
    assert error
    assert_type((stale.resource, stale.fence, stale.seen), tuple[str | bytes, int, int])


async def guarded_functions(redlock: Redlock) -> None:
    @redlock.guard("report:{user_id}", ttl=5, blocking_timeout=0, max_hold=60, on_lost="flag", auto_extend=False)
    async def report(user_id: int, *, urgent: bool = False) -> str:
        return "done"

    class Account:
        number = 1

        @redlock.guard("account:{self.number}")
        async def close(self, reason: str) -> int:
            return 1

    assert_type(await report(7, urgent=True), str)
    assert_type(await Account().close("gone"), int)
    redlock.guard("x", timeout=3)  # type: ignore[call-arg]
    await report("seven")  # type: ignore[arg-type]


async def owners_and_events(redlock: Redlock) -> None:
    info = await redlock.inspect("a")
    assert_type(info.owner, Owner | None)

    def sink(event: Event) -> None:
        if isinstance(event, LockAcquired):
            assert_type(event.fence, int | None)

    Redlock(["redis://127.0.0.1"], sinks=[sink], owner="billing")


async def testing_kit() -> None:
    with LocalNodes(5) as nodes:
        assert_type(nodes.urls, list[str])
        assert_type(nodes[0], LocalServer)
    async with LocalNodes(3) as nodes:
        assert_type(nodes.redlock(ttl=1.0), Redlock)
        nodes.pause(0)


async def testing_kit_in_memory() -> None:
    nodes = MemoryNodes(3, latency=0.001, appendonly=True)
    assert_type(nodes.redlock(ttl=1.0), Redlock)
    async with Redlock(nodes, clock=nodes.clock) as redlock:
        nodes.pause(0)
        nodes.advance(5)
        assert_type(len(nodes), int)
        with lose_at("a", "checked", nth=2):
            async with redlock.lock("a") as lease:
                assert_type(await lose(lease), None)
        assert_type(await lose_lock(redlock, b"a"), None)
