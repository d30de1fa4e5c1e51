"""Uses the whole public API as users do; checked by mypy --strict, never run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, assert_type

from aioredlock_ng import (
    AcquireTimeout,
    ClockReading,
    ConfigurationError,
    Diagnosis,
    Election,
    ElectionOptions,
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
    Options,
    Outcome,
    Owner,
    Queued,
    QuorumUnreachable,
    ReaderInfo,
    ReadLock,
    Redlock,
    RedlockClosed,
    RedlockError,
    Refused,
    RoundTrips,
    RWLock,
    RWLockOptions,
    Semaphore,
    SemaphoreInfo,
    Severity,
    Stats,
    UpgradeRefused,
    Vote,
    WriteLock,
)
from aioredlock_ng import sync as threads
from aioredlock_ng.events import AcquireFailed, Event, LeaseLost, LockAcquired
from aioredlock_ng.fencing import MAX_FENCE, FenceGuard, RedisFence, StaleFence
from aioredlock_ng.testing import LocalNodes, LocalServer, MemoryNodes, lose, lose_at, lose_lock

if TYPE_CHECKING:
    import redis.asyncio


async def manager(client: redis.asyncio.Redis) -> None:
    async with Redlock(
        ["redis://10.0.0.1", client], ttl=10.0, node_timeout=0.1, drift_factor=0.01
    ) as redlock:
        assert_type(redlock, Redlock)
    assert_type(
        await Redlock(["redis://10.0.0.1"], key_format="lock:{name}", max_ttl=60.0).open(), Redlock
    )
    assert_type(await Redlock(["redis://10.0.0.1"], thread=True, stall_limit=30.0).open(), Redlock)
    assert_type(Redlock.from_env(), Redlock)
    assert_type(Redlock.from_env({"AIOREDLOCK_NG_NODES": "redis://10.0.0.1"}, ttl=5.0), Redlock)
    assert_type(await redlock.aclose(), None)


async def election(redlock: Redlock) -> None:
    chosen = redlock.election(
        "scheduler", label="ann", ttl=6.0, step_down=2.0, max_hold=None, rejoin=False
    )
    assert_type(chosen, Election)
    options: ElectionOptions = {"label": "bob", "ttl": 6.0}
    assert_type(redlock.election("scheduler", **options), Election)
    assert_type(
        (chosen.name, chosen.label, chosen.ttl, chosen.step_down), tuple[str, str, float, float]
    )
    assert_type((chosen.leading, chosen.leader), tuple[bool, str | None])

    async def lead(lease: Lease) -> int:
        return int(lease.fence)

    assert_type(await chosen.run(lead), int | None)
    async with chosen as lease:
        assert_type(lease, Lease)
    async for leader in chosen.watch():
        assert_type(leader, str | None)
    chosen.check()
    assert_type(await chosen.resign(), bool)


def options() -> None:
    chosen = Options(ttl=5.0, min_validity=None, recovery_guard="strict", owner="billing")
    assert_type(
        (chosen.ttl, chosen.node_timeout, chosen.drift_factor, chosen.max_ttl),
        tuple[float, float, float, float],
    )
    assert_type((chosen.connect_timeout, chosen.close_timeout), tuple[float, float])
    assert_type(chosen.min_validity, float | None)
    assert_type(chosen.key_format, str)
    assert_type(chosen.fencing, bool)
    assert_type(chosen.recovery_guard, Literal["auto", "strict"] | None)
    assert_type(chosen.owner, str | bool)


async def locks(redlock: Redlock) -> None:
    lock = redlock.lock(
        "orders:42",
        b"bytes",
        ttl=30,
        blocking_timeout=2,
        auto_extend=False,
        max_hold=60,
        on_lost="flag",
    )
    assert_type(lock, Lock)
    assert_type(lock.resource, str)
    assert_type(lock.resources, tuple[str | bytes, ...])
    assert_type(lock.ttl, float)
    async with lock as lease:
        assert_type(lease, Lease)
    assert_type(await lock.acquire(), Lease)
    if (taken := await lock.try_acquire()) is not None:
        assert_type(taken, Lease)
    assert_type(await lock.try_acquire(), Lease | None)
    redlock.lock("orders:42", owner="request 42")
    redlock.lock("orders:42", min_hold=30, max_hold=60.0)
    # Misuse is an error here as well as when it runs.
    await lock  # type: ignore[misc]
    with lock:  # type: ignore[attr-defined]
        pass
    await redlock  # type: ignore[misc]
    with redlock:  # type: ignore[attr-defined]
        pass


async def semaphores(redlock: Redlock) -> None:
    semaphore = redlock.semaphore(
        "gpu", 4, ttl=30, blocking_timeout=2, auto_extend=False, on_lost="flag", fair=True
    )
    assert_type(semaphore, Semaphore)
    assert_type((semaphore.resource, semaphore.limit, semaphore.ttl), tuple[str, int, float])
    async with semaphore as lease:
        assert_type(lease, Lease)
        assert_type(lease.slot, int | Any)
    assert_type(await semaphore.acquire(), Lease)
    assert_type(await semaphore.try_acquire(), Lease | None)
    info = await semaphore.inspect()
    assert_type(info, SemaphoreInfo)
    assert_type(
        (info.resource, info.limit, info.held, info.waiting), tuple[str, int, int, int | None]
    )
    assert_type(info.slots, tuple[LockInfo, ...])
    redlock.semaphore("gpu")  # type: ignore[call-arg]


async def rwlocks(redlock: Redlock) -> None:
    lock = redlock.rwlock(
        "catalog",
        ttl=30,
        blocking_timeout=2,
        auto_extend=False,
        max_hold=60,
        on_lost="flag",
        fail_fast=True,
    )
    assert_type(lock, RWLock)
    assert_type(lock.resource, str)
    assert_type(lock.read(), ReadLock)
    assert_type(lock.write(), WriteLock)
    options: RWLockOptions = {"ttl": 30.0, "owner": "a reader"}
    assert_type(redlock.rwlock("catalog", **options).read().ttl, float)
    async with lock.read() as reader:
        assert_type(reader, Lease)
    async with lock.write() as lease:
        assert_type(await lease.downgrade(), None)
    assert_type(await lock.read().acquire(), Lease)
    assert_type(await lock.write().try_acquire(), Lease | None)
    refused: type[LockHeld] = UpgradeRefused
    assert refused
    readers = (await redlock.inspect("catalog")).readers
    assert_type(readers, tuple[ReaderInfo, ...])
    assert_type(
        (readers[0].token, readers[0].remaining, readers[0].owner), tuple[str, float, Owner | None]
    )
    redlock.rwlock("catalog", fair=True)  # type: ignore[call-arg]
    redlock.rwlock("catalog", min_hold=30)  # type: ignore[call-arg]
    async with lock:  # type: ignore[attr-defined]
        pass
    await lock  # type: ignore[misc]
    lock.acquire()  # type: ignore[attr-defined]


def rwlocks_for_threads(redlock: threads.Redlock) -> None:
    def on_lost(lease: threads.Lease) -> None: ...

    lock = redlock.rwlock(
        "catalog", ttl=30, blocking_timeout=2, auto_extend=False, max_hold=60, on_lost=on_lost
    )
    assert_type(lock, threads.RWLock)
    assert_type(lock.resource, str)
    assert_type(lock.read(), threads.ReadLock)
    assert_type(lock.write(), threads.WriteLock)
    options: threads.RWLockOptions = {"ttl": 30.0, "fail_fast": True}
    assert_type(redlock.rwlock("catalog", **options).read().ttl, float)
    with lock.read() as reader:
        assert_type(reader, threads.Lease)
    with lock.write() as lease:
        assert_type(lease.downgrade(), None)
    assert_type(lock.read().acquire(), threads.Lease)
    assert_type(lock.write().try_acquire(), threads.Lease | None)
    redlock.rwlock("catalog", fair=True)  # type: ignore[call-arg]

    @redlock.guard("catalog:{shop}", shared=True, on_lost=on_lost)
    def read(shop: str) -> int:
        return 1

    assert_type(read("a"), int)


def election_for_threads(redlock: threads.Redlock) -> None:
    def on_lost(lease: threads.Lease) -> None: ...

    chosen = redlock.election(
        "scheduler",
        label="ann",
        ttl=6.0,
        step_down=2.0,
        max_hold=None,
        rejoin=False,
        on_lost=on_lost,
    )
    assert_type(chosen, threads.Election)
    options: threads.ElectionOptions = {"label": "bob", "on_lost": None}
    assert_type(redlock.election("scheduler", **options), threads.Election)
    assert_type(
        (chosen.name, chosen.label, chosen.ttl, chosen.step_down), tuple[str, str, float, float]
    )
    assert_type((chosen.leading, chosen.leader), tuple[bool, str | None])

    def lead(lease: threads.Lease) -> int:
        return int(lease.fence)

    assert_type(chosen.run(lead), int | None)
    with chosen as lease:
        assert_type(lease, threads.Lease)
    for leader in chosen.watch():
        assert_type(leader, str | None)
    chosen.check()
    assert_type(chosen.resign(), bool)
    chosen.acquire()  # type: ignore[attr-defined]


def semaphores_for_threads(redlock: threads.Redlock) -> None:
    def on_lost(lease: threads.Lease) -> None: ...

    semaphore = redlock.semaphore(
        "gpu", 4, ttl=30, blocking_timeout=2, auto_extend=False, on_lost=on_lost, fair=True
    )
    assert_type(semaphore, threads.Semaphore)
    assert_type((semaphore.resource, semaphore.limit, semaphore.ttl), tuple[str, int, float])
    with semaphore as lease:
        assert_type(lease, threads.Lease)
        assert_type(lease.slot, int | Any)
    assert_type(semaphore.acquire(), threads.Lease)
    assert_type(semaphore.try_acquire(), threads.Lease | None)
    assert_type(semaphore.inspect(), SemaphoreInfo)
    redlock.semaphore("gpu")  # type: ignore[call-arg]

    @redlock.guard("render:{page}", limit=4, on_lost=on_lost, owner="page {page}")
    def render(page: int) -> str:
        return "done"

    assert_type(render(7), str)

    @redlock.once("report:{day}", within=30)
    def report(day: str) -> bytes:
        return b""

    assert_type(report("monday"), bool)
    report(7)  # type: ignore[arg-type]


async def leases(lease: Lease) -> None:
    assert_type(lease.resource, str)
    assert_type(lease.resources, tuple[str | bytes, ...])
    assert_type(lease.token, str)
    assert_type(lease.fence, int | Any)
    # It serves as an int without a check, and only as that; with fencing=False a check is possible.
    fence: int = lease.fence
    assert fence + 1 > lease.fence
    wrong: str = lease.fence  # type: ignore[assignment]
    assert wrong
    if lease.fence is None:
        return
    assert_type(lease.ttl, float)
    assert_type(lease.remaining(), float)
    assert_type(lease.valid, bool)
    assert_type(lease.lost, bool)
    assert_type(lease.nodes, tuple[int, int])
    assert_type(lease.check(), None)
    assert_type(await lease.verify(), None)
    assert_type(await lease.extend(), None)
    assert_type(await lease.extend(ttl=5), None)
    assert_type(await lease.downgrade(), None)
    assert_type(await lease.release(), bool)
    assert_type(lease.abandon(), None)
    assert_type(await lease.wait_lost(), None)


async def operators(redlock: Redlock) -> None:
    assert_type(await redlock.locked("orders:42"), bool)
    assert_type(redlock.ready, bool)
    assert_type(await redlock.wait_ready(timeout=5), None)
    assert_type(redlock.lock("orders:42", fail_fast=True), Lock)
    assert_type(redlock.lock("orders:42", fair=True), Lock)
    info = await redlock.inspect("orders:42")
    assert_type(info, LockInfo)
    assert_type((info.resource, info.held, info.token), tuple[str, bool, str | None])
    assert_type((info.nodes, info.total, info.remaining), tuple[int, int, float])
    assert_type(info.answers, tuple[NodeAnswer, ...])
    answer = info.answers[0]
    assert_type((answer.node, answer.token), tuple[str, str | None])
    assert_type((answer.remaining, answer.detail), tuple[float | None, str])
    assert_type((info.waiting, info.offered), tuple[int | None, bool])
    assert_type((answer.waiting, answer.offered), tuple[int | None, bool])
    assert_type(await redlock.force_release("orders:42"), int)
    assert_type(await redlock.force_release(b"orders:42", token=info.token), int)
    assert_type(redlock.nodes, tuple[NodeState, ...])
    node = redlock.nodes[0]
    assert_type((node.address, node.reason), tuple[str, str])
    assert_type(
        node.state, Literal["connecting", "up", "suspect", "quarantined", "down", "refused"]
    )
    assert_type((node.server, node.run_id, node.tracking), tuple[str, str, bool])
    assert_type((node.pending, node.owed, node.connections), tuple[int, int, int])
    assert_type(redlock.leases, tuple[Lease, ...])
    stats = redlock.stats()
    assert_type(stats, Stats)
    assert_type(
        (stats.acquired, stats.attempts, stats.refused, stats.unreachable),
        tuple[int, int, int, int],
    )
    assert_type(
        (stats.timeouts, stats.cancelled, stats.released, stats.lost), tuple[int, int, int, int]
    )
    assert_type(stats.stalled, int)
    assert_type(
        (stats.renewals, stats.renewals_failed, stats.held, stats.waiting),
        tuple[int, int, int, int],
    )
    assert_type((stats.standing, stats.queued), tuple[int, tuple[Queued, ...]])
    queued = stats.queued[0]
    assert_type((queued.resource, queued.ticket, queued.rank), tuple[str, int, int | None])
    diagnosis = await redlock.diagnose(watch=10.0, probe="lock:doctor")
    assert_type(diagnosis, Diagnosis)
    assert_type(diagnosis.severity, Severity | None)
    assert_type(diagnosis.findings, tuple[Finding, ...])
    finding = diagnosis.findings[0]
    assert_type(
        (finding.code, finding.severity, finding.nodes), tuple[str, Severity, tuple[str, ...]]
    )
    assert_type((finding.what, finding.meaning, finding.remedy), tuple[str, str, str])
    assert_type(diagnosis.nodes, tuple[NodeFacts, ...])
    facts = diagnosis.nodes[0]
    assert_type(
        facts.problem,
        Literal[
            "",
            "unreachable",
            "authentication",
            "unusable-client",
            "not-ready",
            "silent",
            "not-examined",
        ],
    )
    assert_type(
        facts.trust, Literal["", "trusted", "waiting", "founding", "foreign", "excessive", "none"]
    )
    assert_type((facts.role, facts.fsync), tuple[str, str])
    assert_type(facts.round_trips, RoundTrips | None)
    assert_type(facts.clock, ClockReading | None)
    assert_type(facts.refusals, tuple[Refused, ...])


def errors(error: LockNotAcquired, lost: LockLost, held: LockHeld, late: AcquireTimeout) -> None:
    assert_type((held.owner, late.owner), tuple[str | None, str | None])
    family: list[type[RedlockError]] = [
        ConfigurationError, LockNotAcquired, LockHeld, AcquireTimeout, QuorumUnreachable,
        LockLost, LockReleased, RedlockClosed,
    ]  # fmt: skip
    also: tuple[type[ValueError], type[TimeoutError]] = (ConfigurationError, AcquireTimeout)
    assert family
    assert also[0]
    assert_type(error.votes, tuple[Vote, ...])
    vote = error.votes[0]
    assert_type(
        (vote.node, vote.outcome, vote.remaining, vote.detail),
        tuple[str, Outcome, float | None, str],
    )
    assert_type(error.elapsed, float)
    assert_type(lost.resource, str)


async def fencing(
    lease: Lease,
    client: redis.asyncio.Redis,
    cluster: redis.asyncio.RedisCluster,
    stale: StaleFence,
) -> None:
    guarded = RedisFence(client, keep=60)
    assert_type(RedisFence(cluster), RedisFence)
    assert_type(await guarded.set("order:42", "paid", fence=lease.fence, ttl=30), None)
    assert_type(await guarded.hset(b"order:42", {"state": "paid", "cents": 5}, fence=1), None)
    assert_type(await guarded.delete("order:42", fence=1), bool)
    assert_type(RedisFence.fence_key("order:42"), bytes)
    assert_type(
        FenceGuard(max_resources=1000, floor=MAX_FENCE).check("order:42", lease.fence), None
    )
    error: RedlockError = stale
    assert error
    assert_type((stale.resource, stale.fence, stale.seen), tuple[str | bytes, int, int])


async def guarded_functions(redlock: Redlock) -> None:
    @redlock.guard(
        "report:{user_id}",
        ttl=5,
        blocking_timeout=0,
        max_hold=60,
        on_lost="flag",
        auto_extend=False,
    )
    async def report(user_id: int, *, urgent: bool = False) -> str:
        return "done"

    class Account:
        number = 1

        @redlock.guard("account:{self.number}", fair=True, fail_fast=True, min_hold=5)
        async def close(self, reason: str) -> int:
            return 1

    assert_type(await report(7, urgent=True), str)
    assert_type(await Account().close("gone"), int)

    @redlock.guard("export:{day}", limit=4, blocking_timeout=60)
    async def export(day: str) -> bytes:
        return b""

    assert_type(await export("monday"), bytes)

    @redlock.guard("catalog:{shop}", shared=True, blocking_timeout=60)
    async def read(shop: str) -> int:
        return 1

    assert_type(await read("a"), int)

    def label(job_id: str) -> str | None:
        return f"job {job_id}"

    @redlock.guard("import:{shop}", owner="job {job_id}")
    @redlock.guard("shop:{shop}", owner=label)
    async def load(shop: str, job_id: str) -> int:
        return 1

    assert_type(await load("a", "b"), int)
    redlock.guard("x", owner=7)  # type: ignore[arg-type]
    redlock.guard("x", shared="yes")  # type: ignore[arg-type]
    redlock.guard("x", limit="4")  # type: ignore[arg-type]
    redlock.guard("x", timeout=3)  # type: ignore[call-arg]
    await report("seven")  # type: ignore[arg-type]

    @redlock.once("mail:{day}", within=30)
    async def mail(day: str, *, draft: bool = False) -> bytes:
        return b""

    assert_type(await mail("monday", draft=True), bool)
    await mail(7)  # type: ignore[arg-type]
    redlock.once("x")  # type: ignore[call-arg]
    redlock.once("x", within="30")  # type: ignore[arg-type]


async def owners_and_events(redlock: Redlock) -> None:
    info = await redlock.inspect("a")
    assert_type(info.owner, Owner | None)
    assert_type(info.over, bool)
    assert_type(info.answers[0].over, bool)
    if info.owner is not None:
        assert_type(
            (info.owner.label, info.owner.fence, info.owner.since), tuple[str, int | None, float]
        )

    def sink(event: Event) -> None:
        if isinstance(event, LockAcquired):
            assert_type(event.fence, int | None)
        elif isinstance(event, AcquireFailed):
            assert_type(
                event.error,
                Literal[
                    "LockHeld",
                    "UpgradeRefused",
                    "AcquireTimeout",
                    "QuorumUnreachable",
                    "RedlockClosed",
                ],
            )
        elif isinstance(event, LeaseLost):
            assert_type(
                event.cause,
                Literal["gone", "unrenewed", "stalled", "expired", "max_hold", "closed"],
            )

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
