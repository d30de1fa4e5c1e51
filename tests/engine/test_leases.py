"""The life of a lease: its renewals, its loss, its end."""

from __future__ import annotations

import asyncio
import gc
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import Lease, LockLost, LockReleased, QuorumUnreachable
from aioredlock_ng._engine.keeping.batch import Batch
from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
from aioredlock_ng.events import LeaseLost, LeasesRenewed, RenewalFailed
from tests.support.rig import WAY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import FrameType

    from aioredlock_ng import Lock
    from aioredlock_ng.events import Event
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_lease_is_renewed_about_every_third_of_its_ttl(rig: Rig) -> None:
    process = await rig.process(ttl=3.0)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(300)
    assert lease.valid
    assert 300 / 1.05 <= process.redlock.stats().renewals <= 300 / 0.85
    assert lease.nodes == (3, 3)
    assert await lease.release() is True


async def test_a_hung_minority_does_not_shorten_a_lease(rig: Rig) -> None:
    process = await rig.process(ttl=3.0)
    lease = await process.lock("a").acquire()
    rig.hang(2)
    await asyncio.sleep(60)
    assert lease.valid
    assert not lease.lost
    assert lease.nodes == (2, 3)


@pytest.mark.parametrize("auto_extend", [True, False])
async def test_a_loss_is_reported_exactly_at_the_deadline_when_all_nodes_hang(
    rig: Rig, auto_extend: bool
) -> None:
    process = await rig.process(ttl=3.0)
    lease = await process.lock("a", auto_extend=auto_extend).acquire()
    deadline = now() + lease.remaining()
    rig.hang(0, 1, 2)
    await lease.wait_lost()
    assert now() == pytest.approx(deadline, abs=1e-5)
    assert lease.lost
    assert lease.remaining() == 0.0
    with pytest.raises(LockLost, match="deadline"):
        lease.check()


@pytest.mark.parametrize("auto_extend", [True, False])
@pytest.mark.parametrize("left", [0.05, 0.1, 0.102, 0.104, 0.106, 0.13, 0.3])
async def test_a_loss_is_reported_exactly_at_the_deadline_after_a_late_renewal(
    rig: Rig, left: float, auto_extend: bool
) -> None:
    """The timeout of the renewal, or the next try, may come just before or after the deadline."""
    process = await rig.process(ttl=3.0, node_timeout=0.1)
    lease = await process.lock("a", auto_extend=auto_extend).acquire()
    deadline = now() + lease.remaining()
    rig.hang(0, 1, 2)
    await asyncio.sleep(lease.remaining() - left)
    renewing = asyncio.ensure_future(lease.extend())
    await lease.wait_lost()
    assert now() == pytest.approx(deadline, abs=1e-5)
    with pytest.raises((LockLost, QuorumUnreachable)):
        await renewing


async def test_a_renewal_counts_from_before_it_was_sent(rig: Rig) -> None:
    process = await rig.process(ttl=10.0)
    lease = await process.lock("a").acquire()
    rig.ways[:] = [0.04] * 3
    sent = now()
    await lease.extend()
    assert now() - sent == pytest.approx(0.08, abs=1e-6)
    assert lease.remaining() == pytest.approx(10.0 - 0.102 - 0.08, abs=1e-6)


async def test_keys_deleted_on_a_quorum_are_noticed_at_once(rig: Rig) -> None:
    process = await rig.process(ttl=30.0)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(1)
    rig.vacate(b"a", on=(0, 1))
    before = now()
    await lease.wait_lost()
    assert now() - before < 0.1
    assert lease.lost


@pytest.mark.parametrize("auto_extend", [True, False])
async def test_a_lease_that_is_extended_early_is_watched_and_labelled_all_the_same(
    rig: Rig, auto_extend: bool
) -> None:
    process, other = await rig.process(ttl=30.0), await rig.process(ttl=30.0)
    lease = await process.lock("a", auto_extend=auto_extend).acquire()
    await asyncio.sleep(0.05)
    await lease.extend()
    await asyncio.sleep(1)
    seen = await other.redlock.inspect("a")
    assert seen.owner is not None
    before = now()
    rig.vacate(b"a", on=(0, 1))
    await lease.wait_lost()
    assert now() - before < 0.1
    assert lease.lost


@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_keys_deleted_are_noticed_at_once_though_a_node_is_down_and_another_slow(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=30.0)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(1)
    rig.stop(0)
    rig.hang(1)
    await asyncio.sleep(1)
    before = now()
    rig.vacate(b"a", on=(2, 3, 4))
    await lease.wait_lost()
    assert now() - before < 0.01, "three of five say that they have none: that is proof"
    assert lease.lost


@pytest.mark.parametrize(
    "without",
    [{"fencing": False}, {"recovery_guard": None}],
    ids=lambda without: next(iter(without)),
)
async def test_keys_deleted_on_a_minority_lose_nothing(rig: Rig, without: dict[str, Any]) -> None:
    process = await rig.process(ttl=3.0, **without)
    lease = await process.lock("a").acquire()
    rig.vacate(b"a", on=(1,))
    await asyncio.sleep(10)
    assert lease.valid
    assert lease.nodes == (2, 3)
    assert rig.values(b"a")[1] is None, "without fence and guard a missing key is not set again"


async def test_one_failed_renewal_is_tried_again_and_loses_nothing(rig: Rig) -> None:
    process = await rig.process(ttl=3.0)
    lease = await process.lock("a").acquire()
    rig.hang(0, 1, 2)
    await asyncio.sleep(1.9)
    assert process.redlock.stats().renewals_failed >= 2, (
        "tried again, faster than the usual cadence"
    )
    rig.resume()
    await asyncio.sleep(30)
    assert lease.valid
    assert rig.values(b"a") == [lease.token.encode()] * 3


async def test_renewals_that_are_answered_late_count_all_the_same(rig: Rig) -> None:
    process = await rig.process(ttl=3.0, node_timeout=0.1)
    lease = await process.lock("a").acquire()
    rig.ways[:] = [0.4] * 3
    await asyncio.sleep(2)
    for _ in range(100):
        await asyncio.sleep(0.5)
        lease.check()
        assert lease.remaining() <= 3.0 - 0.8 - 0.03, "from before the question"
    renewals = process.redlock.stats().renewals
    failed = process.redlock.stats().renewals_failed
    # Nodes that are slow are not asked much more often than others.
    assert failed <= 52 / (0.1 + 0.3) + 1
    assert renewals > 10
    rig.ways[:] = [0.4, 2.0, 2.0]
    await lease.wait_lost()
    assert lease.lost, "a minority is not a quorum, however late the others"


async def test_a_renewal_confirmed_late_does_not_end_the_retries_of_a_later_renewal(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=9.0, node_timeout=0.1)
    lease = await process.lock("a").acquire()
    rig.ways[:] = [0.4] * 3
    for _ in range(2):
        with pytest.raises(QuorumUnreachable):
            await lease.extend()
    # The nodes have not executed the second renewal when the connections are cut.
    await asyncio.sleep(0.25)
    rig.hang(0, 1, 2)
    await asyncio.sleep(0.45)
    assert process.redlock.stats().renewals == 1
    rig.disconnect(0, 1, 2)
    rig.resume()
    rig.ways[:] = [WAY] * 3
    rig.connect(0, 1, 2)
    await asyncio.sleep(30)
    assert lease.valid


async def test_a_failed_renewal_is_reported_once_and_not_after_a_later_success(
    rig: Rig,
) -> None:
    told: list[Event] = []
    process = await rig.process(ttl=10.0, sinks=[told.append])
    lease = await process.lock("a").acquire()
    await asyncio.sleep(2.5)
    rig.hang(0, 1, 2)
    await asyncio.sleep(1.4)
    rig.refuse("BUSY Redis is busy", 1)
    rig.resume(1)
    await asyncio.sleep(0.1)
    rig.refuse(None, 1)
    rig.resume(2)
    await asyncio.sleep(0.5)
    # The second renewal has succeeded. The outcome of the first can no longer be known.
    rig.disconnect(0)
    await asyncio.sleep(0.5)
    outcomes = [event for event in told if isinstance(event, (RenewalFailed, LeasesRenewed))]
    assert [type(event) for event in outcomes] == [RenewalFailed, LeasesRenewed]
    assert process.redlock.stats().renewals_failed == 1
    assert lease.valid


async def test_a_late_refusal_of_a_renewal_is_no_loss_because_the_key_may_be_repaired(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=3.0, node_timeout=0.1)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(0.5)
    rig.hang(0, 1)
    await asyncio.sleep(0.7)
    assert process.redlock.stats().renewals_failed == 1
    for server in rig.servers[:2]:
        server.forget_trackers()
        server.delete(b"a")
    rig.resume()
    for server in rig.servers[:2]:
        server.set(b"a", lease.token.encode(), 3.0)
    await asyncio.sleep(30)
    assert lease.valid


async def test_a_late_answer_to_a_renewal_does_not_lengthen_a_lease_shortened_since(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=9.0, node_timeout=0.1)
    lease = await process.lock("a", auto_extend=False).acquire()
    rig.hang(0, 1, 2)
    for ttl in (9.0, 2.0):
        with pytest.raises(QuorumUnreachable):
            await lease.extend(ttl)
    rig.resume()
    await asyncio.sleep(0.1)
    assert lease.valid
    assert lease.remaining() <= 2.0 - 0.2, "nodes have kept the later, shorter one"


async def test_a_release_follows_a_repair_under_way(rig: Rig) -> None:
    process = await rig.process()
    rig.ways[1] = 0.02
    rig.occupy(b"a", ttl=0.0205, on=[1])
    lease = await process.lock("a").acquire()
    await lease.extend()
    # That node's refusal of the acquire has been read by now, and its answer to the repair has not.
    await asyncio.sleep(0.0375)
    assert rig.values(b"a")[1] is not None
    await lease.release()
    await asyncio.sleep(1)
    assert rig.clean


async def test_no_repair_begins_after_the_deadline_of_a_lease(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    lease = await process.lock("a", auto_extend=False).acquire()
    await asyncio.sleep(0.5)
    rig.vacate(b"a", on=(1,))
    await asyncio.sleep(0.02)
    # The repair is due 0.05 s after the report. The process stands still until the deadline has
    # passed.
    asyncio.get_running_loop().advance(5.0)  # type: ignore[attr-defined]
    await asyncio.sleep(0.1)
    assert lease.lost
    assert process.redlock.stats().repairs == 0
    assert rig.clean


async def test_refused_renewals_are_retried_at_a_bounded_rate(rig: Rig) -> None:
    process = await rig.process(ttl=0.2, node_timeout=0.02)
    lease = await process.lock("a").acquire()
    rig.ways[:] = [0.0] * 3
    rig.refuse("MISCONF cannot persist", 0, 1, 2)
    await asyncio.wait_for(lease.wait_lost(), 1)
    assert process.redlock.stats().renewals_failed < 30


async def test_max_hold_ends_a_lease_that_could_be_renewed(rig: Rig) -> None:
    process = await rig.process(ttl=3.0)
    before = now()
    lease = await process.lock("a", max_hold=7.0).acquire()
    await lease.wait_lost()
    assert now() - before == pytest.approx(7.0, abs=1e-5)
    with pytest.raises(LockLost, match="max_hold"):
        lease.check()
    await asyncio.sleep(0.01)
    assert rig.clean


async def test_a_lease_that_max_hold_ends_before_its_ttl_is_not_renewed(rig: Rig) -> None:
    """After a crash of the holder, a renewal would keep the keys for longer than needed."""
    process = await rig.process(ttl=3.0)
    lease = await process.lock("a", max_hold=2.0).acquire()
    await asyncio.sleep(1.9)
    assert lease.valid
    assert process.redlock.stats().renewals == 0
    assert rig.servers[0].pttl(b"a") <= 1100
    await lease.release()


async def test_without_auto_extend_nothing_is_renewed_but_by_hand(rig: Rig) -> None:
    process = await rig.process(ttl=3.0)
    lease = await process.lock("a", auto_extend=False).acquire()
    await asyncio.sleep(2)
    assert process.redlock.stats().renewals == 0
    await lease.extend()
    await asyncio.sleep(2)
    assert lease.valid
    await asyncio.sleep(1)
    assert lease.lost


@pytest.mark.parametrize("ttl", [1.0, 30.0])
async def test_extend_changes_the_ttl_for_later_renewals_too(rig: Rig, ttl: float) -> None:
    process = await rig.process(ttl=10.0)
    lease = await process.lock("a").acquire()
    await lease.extend(ttl)
    assert lease.ttl == ttl
    assert lease.remaining() == pytest.approx(ttl - ttl * 0.01 - 0.002 - 2 * WAY, abs=1e-5)
    await asyncio.sleep(40)
    assert lease.valid
    assert lease.ttl == ttl
    assert rig.servers[0].pttl(b"a") <= ttl * 1000


async def test_a_shorter_ttl_counts_before_any_node_has_confirmed_it(rig: Rig) -> None:
    process = await rig.process(ttl=10.0)
    lease = await process.lock("a", auto_extend=False).acquire()
    rig.hang(0, 1, 2)
    extending = asyncio.ensure_future(lease.extend(1.0))
    await asyncio.sleep(0)
    assert lease.remaining() <= 1.0 - 0.012 + 1e-9
    with pytest.raises(QuorumUnreachable):
        await extending
    await asyncio.sleep(1.0)
    assert lease.lost


async def test_a_shorter_ttl_that_was_refused_is_tried_again_in_its_own_time(rig: Rig) -> None:
    process = await rig.process(ttl=60.0)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(1)
    rig.refuse("LOADING Redis is loading the dataset in memory", 0, 1)
    with pytest.raises(QuorumUnreachable):
        await lease.extend(2.0)
    rig.refuse(None, 0, 1)
    assert lease.remaining() <= 2.0
    await asyncio.sleep(0.2)
    assert lease.remaining() > 2.0, "two seconds are left: 5 % of a minute would be too late"


async def test_a_renewal_sent_before_a_shortening_does_not_take_it_back(rig: Rig) -> None:
    process = await rig.process(ttl=10.0)
    lease = await process.lock("a", auto_extend=False).acquire()
    longer = asyncio.ensure_future(lease.extend())
    await asyncio.sleep(WAY / 2)
    shorter = asyncio.ensure_future(lease.extend(1.0))
    await asyncio.sleep(WAY * 0.7)
    # The first was executed and is answered; the second will be executed too, but its answer does
    # not come in time.
    rig.ways[:] = [50.0] * 3
    await longer
    with pytest.raises(QuorumUnreachable):
        await shorter
    assert rig.servers[0].pttl(b"a") <= 1000
    assert lease.remaining() <= rig.servers[0].pttl(b"a") / 1000


async def test_a_shorter_renewal_under_way_bounds_a_longer_renewal_confirmed_before_it(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=10.0)
    lease = await process.lock("a", auto_extend=False).acquire()
    longer = asyncio.ensure_future(lease.extend(30.0))
    await asyncio.sleep(WAY / 2)
    as_before = asyncio.ensure_future(lease.extend())
    await asyncio.sleep(WAY * 0.7)
    rig.ways[:] = [50.0] * 3
    await longer
    with pytest.raises(QuorumUnreachable):
        await as_before
    assert lease.remaining() <= rig.servers[0].pttl(b"a") / 1000


async def test_extends_at_the_same_time_all_succeed(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    await asyncio.gather(lease.extend(), lease.extend(), lease.extend())
    assert lease.valid


@pytest.mark.parametrize("end", [Lease.release, Lease.abandon, lambda lease: lease.lose("told to")])
async def test_leases_that_were_renewed_are_not_kept_when_they_are_over(
    rig: Rig, end: Callable[[Lease], Awaitable[bool] | None]
) -> None:
    process = await rig.process()

    def alive() -> int:
        gc.collect()
        return sum(issubclass(type(thing), (Batch, LeaseRecord)) for thing in gc.get_objects())

    before = alive()
    lasting = await process.lock("lasting").acquire()
    earlier = await process.lock("first").acquire()
    await earlier.extend()
    for number in range(20):
        lease = await process.lock(f"{number}").acquire()
        process.redlock.engine().extender.renew(
            [lasting._record, earlier._record, lease._record], 30.0
        )
        # Over while its second renewal is under way: what confirms the others says nothing of it
        # any more.
        ending = end(earlier)
        if ending is not None:
            await ending
        assert earlier.nodes == (3, 3)
        await asyncio.sleep(0.2)
        earlier = lease
    assert lasting.valid
    assert lasting.nodes == earlier.nodes == (3, 3)
    # Three holdings of the last batch, and that.
    assert alive() - before <= 4


async def test_verify_asks_the_nodes(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    await lease.verify()
    rig.hang(0)
    await lease.verify()
    rig.hang(1)
    with pytest.raises(QuorumUnreachable):
        await lease.verify()
    assert lease.valid
    rig.resume()
    await asyncio.sleep(0.3)
    rig.servers[1].delete(b"a")
    rig.servers[2].set(b"a", b"another", 10)
    with pytest.raises(LockLost):
        await lease.verify()
    assert lease.lost


async def test_an_abandoned_lease_is_neither_renewed_nor_released(rig: Rig) -> None:
    process, other = await rig.process(ttl=3.0), await rig.process()
    lease = await process.lock("a").acquire()
    lease.abandon()
    assert await lease.release() is False
    assert not lease.lost
    await asyncio.sleep(2.5)
    assert await other.lock("a").try_acquire() is None
    await asyncio.sleep(0.6)
    assert await other.lock("a").try_acquire() is not None


async def test_a_lease_that_is_abandoned_after_its_deadline_is_lost(rig: Rig) -> None:
    """The process stood still for longer than the ttl, and so worked without the lock."""
    events: list[Event] = []
    process = await rig.process(sinks=[events.append])
    lease = await process.lock("a").acquire()
    asyncio.get_running_loop().advance(20)  # type: ignore[attr-defined]
    lease.abandon()
    assert lease.lost
    with pytest.raises(LockLost):
        lease.check()
    assert [event.cause for event in events if isinstance(event, LeaseLost)] == ["stalled"]

    async def body() -> None:
        async with process.lock("a") as lease:
            asyncio.get_running_loop().advance(20)  # type: ignore[attr-defined]
            lease.abandon()

    with pytest.raises(LockLost):
        await body()


async def test_a_lease_that_is_abandoned_while_it_is_verified_is_not_reported_as_lost(
    rig: Rig,
) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    rig.vacate(b"a")
    verifying = asyncio.create_task(lease.verify())
    await asyncio.sleep(0)
    lease.abandon()
    with pytest.raises(LockReleased):
        await verifying
    assert not lease.lost


async def test_wait_lost_returns_for_a_lease_that_ended_with_its_manager(
    rig: Rig,
) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    await process.redlock.aclose()
    await lease.wait_lost()
    assert not lease.lost


async def test_release_is_idempotent_and_ends_the_lease(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    assert await asyncio.gather(lease.release(), lease.release()) == [True, False]
    assert await lease.release() is False
    assert not lease.lost
    for use in (lease.extend, lease.verify):
        with pytest.raises(LockReleased):
            await use()
    with pytest.raises(LockReleased):
        lease.check()


async def test_release_returns_false_if_the_keys_were_already_gone(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    rig.vacate(b"a")
    assert await lease.release() is False


async def test_a_node_that_never_granted_does_not_count_as_still_holding_the_key(rig: Rig) -> None:
    process, rival = await rig.process(), await rig.process()
    rig.refuse("OOM command not allowed when used memory > 'maxmemory'.", 2)
    lease = await process.lock("a").acquire()
    rig.refuse(None, 2)
    rig.vacate(b"a", on=[1])
    await rival.lock("a").acquire()
    assert await lease.release() is False, "1 and 2 are a quorum, and the rival's"


async def test_a_silent_node_counts_as_still_holding_the_key(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    await asyncio.sleep(0.01)
    rig.hang(1)
    rig.vacate(b"a", on=[2])
    assert await lease.release() is True


async def test_a_lease_outlives_connections_that_are_all_cut_and_made_anew(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    lease = await process.lock("a").acquire()
    for _ in range(5):
        await asyncio.sleep(0.3)
        rig.disconnect(0, 1, 2)
        await asyncio.sleep(0.2)
        rig.connect(0, 1, 2)
    await asyncio.sleep(0.9)
    assert lease.valid
    assert await lease.release() is True


async def test_releasing_a_stale_lease_touches_no_key_of_a_newer_lease(rig: Rig) -> None:
    process, other = await rig.process(ttl=1.0), await rig.process()
    stale = await process.lock("a", auto_extend=False).acquire()
    await asyncio.sleep(2)
    newer = await other.lock("a").acquire()
    assert await stale.release() is False
    again = await process.lock("a").try_acquire()
    assert again is None
    await asyncio.sleep(5)
    assert newer.valid
    assert rig.values(b"a") == [newer.token.encode()] * 3


async def test_releasing_a_stale_lease_does_not_stop_the_renewals_of_a_newer_lease(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=1.0)
    stale = await process.lock("a", auto_extend=False).acquire()
    await asyncio.sleep(2)
    newer = await process.lock("a").acquire()
    assert await stale.release() is False
    await asyncio.sleep(10)
    assert newer.valid
    assert rig.values(b"a") == [newer.token.encode()] * 3


async def test_a_release_never_deletes_anothers_key(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    rig.occupy(b"a", value=b"another")
    assert await lease.release() is False
    await asyncio.sleep(0.1)
    assert rig.values(b"a") == [b"another"] * 3


async def test_a_release_does_not_wait_longer_than_the_node_timeout(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    rig.hang(0, 1, 2)
    before = now()
    assert await lease.release() is True
    assert now() - before <= 0.11
    rig.resume()
    await asyncio.sleep(0.1)
    assert rig.clean


async def test_a_lease_is_lost_once_and_never_after_its_release(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    lost = await process.lock("a").acquire()
    released = await process.lock("b").acquire()
    await released.release()
    rig.hang(0, 1, 2)
    await lost.wait_lost()
    await asyncio.sleep(5)
    assert lost.lost
    assert not released.lost
    assert process.redlock.stats().lost == 1


async def test_a_stalled_process_learns_of_the_loss_before_anything_else(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    lease = await process.lock("a").acquire()
    asyncio.get_running_loop().advance(5.0)  # type: ignore[attr-defined]
    assert lease.remaining() == 0.0
    assert not lease.valid
    with pytest.raises(LockLost):
        lease.check()
    assert await lease.release() is False


async def test_check_in_a_thread_raises_after_the_deadline_and_touches_no_loop(rig: Rig) -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    process = await rig.process(ttl=1.0)
    lease = await process.lock("a").acquire()
    await asyncio.to_thread(lease.check)
    loop.advance(5.0)  # type: ignore[attr-defined]
    with pytest.raises(LockLost):
        await asyncio.to_thread(lease.check)
    await asyncio.sleep(0.1)
    assert lease.lost


async def test_a_thread_that_sees_a_lease_lost_gets_the_complete_error(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    told: set[str] = set()

    def at_each_line(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_globals["__name__"].startswith("aioredlock_ng._"):
            return None
        if lease.lost:
            told.add(str(lease.lost_error()))
        return at_each_line

    before = sys.gettrace()
    sys.settrace(at_each_line)
    try:
        lease.lose("somebody took it")
    finally:
        sys.settrace(before)
    assert told == {str(lease.lost_error())}


async def test_waiting_for_a_loss_leaves_nothing_behind_when_cancelled(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    for _ in range(50):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lease.wait_lost(), 0.01)
    assert len(lease._record.waiters or ()) < 5


async def test_without_repair_a_loss_node_by_node_is_reported_at_once(rig: Rig) -> None:
    """A node that lost its keys before the last renewal no longer counts for the quorum."""
    process = await rig.process(fencing=False, ttl=30.0)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(1)
    rig.vacate(b"a", on=[0])
    await asyncio.sleep(20)
    assert lease.valid
    before = asyncio.get_running_loop().time()
    rig.vacate(b"a", on=[1])
    await lease.wait_lost()
    assert asyncio.get_running_loop().time() - before < 0.05


@pytest.mark.parametrize(
    ("ttl", "node_timeout"),
    [
        *((0.005, 0.001), (0.0135, 0.01), (0.02, 0.01)),
        *((0.03, 0.02), (0.056, 0.05), (0.1, 0.05)),
    ],
)
async def test_the_shortest_leases_are_kept_alive_and_not_in_a_hot_loop(
    rig: Rig, ttl: float, node_timeout: float
) -> None:
    process = await rig.process(ttl=ttl, node_timeout=node_timeout)
    rig.ways[:] = [0.0002] * 3
    async with process.lock("a", auto_extend=True) as lease:
        await asyncio.sleep(2.0)
        lease.check()
    # Some slots of the wheel are met twice and more; who lives no longer than one is renewed at
    # half of what is left.
    assert process.redlock.stats().renewals <= 3 * 2.0 / min(0.02, ttl)


@pytest.mark.parametrize("how", ["gone", "expired", "stalled", "released"])
async def test_the_reported_life_of_a_lost_lease_does_not_depend_on_when_it_is_read(
    rig: Rig, how: str
) -> None:
    events: list[Event] = []
    process = await rig.process(sinks=[events.append])
    lease = await process.lock("a", ttl=1.0, auto_extend=how == "gone").acquire()
    await asyncio.sleep(0.5)
    lost_after = 1.0 - 0.012
    if how in ("gone", "released"):
        rig.vacate(b"a")
        lost_after = 0.5
    if how == "released":
        assert not await lease.release()
    elif how == "stalled":
        asyncio.get_running_loop().advance(2.0)  # type: ignore[attr-defined]
    await asyncio.sleep(3.0)
    with pytest.raises(LockLost) as raised:
        raise lease.lost_error()
    assert raised.value.elapsed == pytest.approx(lost_after, abs=10 * WAY)
    assert f"was lost after {raised.value.elapsed:.3f} s" in str(raised.value)
    told = [event for event in events if isinstance(event, LeaseLost)]
    assert [event.held_for for event in told] == (
        [] if how == "released" else [raised.value.elapsed]
    )


STOOD_STILL = r"its deadline passed before a quorum renewed it; the event loop stood still for {} s"


def block(seconds: float) -> None:
    """As code that does not come back to the event loop for so long."""
    asyncio.get_running_loop().advance(seconds)  # type: ignore[attr-defined]


async def loss_of(lock: Lock, body: Callable[[Lease], Awaitable[None]]) -> str:
    """Return the message of the loss of a lock whose body goes on for long after `body`."""

    async def hold() -> None:
        async with lock as lease:
            await body(lease)
            await asyncio.sleep(60)

    with pytest.raises(LockLost) as caught:
        await hold()
    return str(caught.value)


@pytest.mark.parametrize("looks", [True, False], ids=["by a check in the body", "by the timers"])
async def test_a_loss_by_a_blocked_event_loop_says_for_how_long_it_stood_still(
    rig: Rig, looks: bool
) -> None:
    events: list[Event] = []
    process = await rig.process(ttl=3.0, sinks=[events.append])

    async def body(lease: Lease) -> None:
        await asyncio.sleep(0.5)
        block(3.0)
        if looks:
            lease.check()

    said = await loss_of(process.lock("a"), body)
    # The timers of the loop are half a second apart at most.
    assert re.search(STOOD_STILL.format(r"(2\.[5-9]|3\.0)"), said)
    lost = [event for event in events if isinstance(event, LeaseLost)]
    assert [event.cause for event in lost] == ["stalled"]
    assert (process.redlock.stats().stalled, process.redlock.stats().lost) == (1, 1)
    assert "the event loop stood still" in lost[0].reason


async def test_a_loss_names_a_standstill_that_the_lease_outlived_for_a_while(rig: Rig) -> None:
    process = await rig.process(ttl=3.0)

    async def body(_: Lease) -> None:
        await asyncio.sleep(0.5)
        block(2.0)
        # It ended in time for a renewal, which no node answers.
        rig.hang(0, 1, 2)

    assert re.search(STOOD_STILL.format(r"(1\.[5-9]|2\.0)"), await loss_of(process.lock("a"), body))


@pytest.mark.parametrize("stall", [0.0, 0.25])
async def test_a_loss_by_silent_nodes_blames_no_event_loop(rig: Rig, stall: float) -> None:
    process = await rig.process(ttl=3.0)

    async def body(_: Lease) -> None:
        # A standstill before the last renewal had no part in it, and one of less than a tenth of
        # the ttl hardly any.
        await asyncio.sleep(0.5)
        block(1.0)
        await asyncio.sleep(10)
        rig.hang(0, 1, 2)
        block(stall)

    said = await loss_of(process.lock("a"), body)
    assert "its deadline passed before a quorum renewed it" in said
    assert "stood still" not in said
    assert (process.redlock.stats().stalled, process.redlock.stats().lost) == (0, 1)


async def test_a_lease_that_was_not_to_be_renewed_blames_no_event_loop(rig: Rig) -> None:
    process = await rig.process(ttl=3.0)

    async def body(_: Lease) -> None:
        block(5.0)

    said = await loss_of(process.lock("a", auto_extend=False), body)
    assert "not to be renewed" in said
    assert "stood still" not in said


@pytest.mark.parametrize("call", [Lease.extend, Lease.verify])
async def test_a_call_that_no_node_can_hear_lets_the_event_loop_run(
    rig: Rig, call: Callable[[Lease], Awaitable[None]]
) -> None:
    process = await rig.process(ttl=30.0)
    lease = await process.lock("a").acquire()
    rig.stop(0, 1, 2)
    ran: list[bool] = []
    asyncio.get_running_loop().call_soon(ran.append, True)
    with pytest.raises(QuorumUnreachable):
        await call(lease)
    assert ran


async def test_leases_whose_min_holds_end_at_nearly_the_same_time_are_renewed_together(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=10.0)
    for number in range(40):
        await process.lock(f"a{number}", min_hold=8.0).acquire()
    sent = process.questions()
    await asyncio.sleep(5.0)
    renewals = {id(command) for command in sent if command.script.name == "extend"}
    assert process.redlock.stats().renewals == 40
    assert len(renewals) <= 10
