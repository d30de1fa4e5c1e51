"""The Prometheus sink: what a scrape shows after what happened, and never a lock's name."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING, get_args, get_type_hints

import pytest

from aioredlock_ng import (
    ConfigurationError,
    LockLost,
    LockNotAcquired,
    Redlock,
    RedlockClosed,
    Vote,
    errors,
)
from aioredlock_ng._core.votes import AcquireError
from aioredlock_ng._vocabulary.causes import LossCause, WakeCause
from aioredlock_ng.events import (
    AcquireCancelled,
    AcquireFailed,
    AllNodesForgot,
    LeaseLost,
    NodeAnswers,
    NodeDown,
    NodeQuarantined,
    NodeSuspect,
    NodeTrusted,
    NodeUp,
    WaiterWoken,
)
from aioredlock_ng.telemetry._states import NodeStates
from aioredlock_ng.telemetry.prometheus import PrometheusSink
from tests.support.eventually import eventually
from tests.support.rig import WAY
from tests.telemetry.doings import NAME, do_everything
from tests.telemetry.exposition import exposed, scraped

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from aioredlock_ng.events import Event
    from aioredlock_ng.telemetry._states import Change, NodeEvent
    from tests.support.node_set import NodeSet
    from tests.support.rig import Rig


async def test_a_scrape_agrees_with_the_statistics_of_the_manager(
    three_nodes: NodeSet, registry: CollectorRegistry, metrics_url: str
) -> None:
    stats = await do_everything(three_nodes, PrometheusSink(registry))
    seen = await asyncio.to_thread(scraped, metrics_url)
    assert seen.value("acquire_wait_seconds_count") == stats.acquired
    assert seen.value("acquire_failures_total", error="LockHeld") == 1
    assert seen.value("acquire_failures_total", error="AcquireTimeout") == stats.timeouts == 1
    assert seen.value("acquire_failures_total", error="QuorumUnreachable") == 0
    assert seen.value("acquire_cancellations_total") == stats.cancelled == 1
    assert seen.value("lease_hold_seconds_count") == stats.acquired
    assert seen.value("leases_lost_total", cause="gone") == stats.lost == 1
    assert seen.value("leases_held") == stats.held == 0
    assert (
        seen.value("leases_renewed_total")
        == stats.renewals
        >= seen.value("renewal_round_seconds_count")
        >= 1
    )
    assert seen.value("hand_overs_total") == stats.hand_overs >= 1
    assert seen.value("wakeups_total", cause="notified") == stats.wakeups >= 1
    assert {seen.state(url.removeprefix("redis://")) for url in three_nodes.urls} == {"up"}
    assert NAME not in seen.text


@pytest.mark.virtual_time
async def test_waits_holds_and_wake_ups_are_measured(rig: Rig, registry: CollectorRegistry) -> None:
    sink = PrometheusSink(registry)
    holder, process = await rig.process(), await rig.process(sinks=[sink])
    lease = await holder.lock("a").acquire()
    waiting = asyncio.create_task(process.lock("a").acquire())
    await asyncio.sleep(0.2)
    await lease.release()
    lease = await waiting
    assert exposed(registry).value("leases_held") == 1
    await asyncio.sleep(3)
    await lease.release()
    seen = exposed(registry)
    assert seen.value("acquire_wait_seconds_sum") == pytest.approx(0.2, abs=10 * WAY)
    assert seen.value("lease_hold_seconds_sum") == pytest.approx(3.0, abs=10 * WAY)
    assert [
        seen.value("wakeups_total", cause=cause) for cause in ("notified", "expiry", "fallback")
    ] == [1, 0, 0]


def test_wake_ups_are_counted_by_the_causes_that_waiters_can_have(
    registry: CollectorRegistry,
) -> None:
    PrometheusSink(registry)
    (metric,) = [metric for metric in registry.collect() if metric.name == "aioredlock_ng_wakeups"]
    causes = {sample.labels["cause"] for sample in metric.samples}
    assert causes == set(get_args(WakeCause)) == set(get_args(get_type_hints(WaiterWoken)["cause"]))


def test_failures_and_losses_are_counted_by_the_values_that_events_can_have(
    registry: CollectorRegistry,
) -> None:
    PrometheusSink(registry)
    samples = {metric.name: metric.samples for metric in registry.collect()}
    causes = {sample.labels["cause"] for sample in samples["aioredlock_ng_leases_lost"]}
    assert causes == set(get_args(LossCause)) == set(get_args(get_type_hints(LeaseLost)["cause"]))
    counted = {sample.labels["error"] for sample in samples["aioredlock_ng_acquire_failures"]}
    named = get_type_hints(AcquireFailed, localns={"Vote": Vote})["error"]
    assert counted == set(failures()) == set(get_args(AcquireError)) == set(get_args(named))


@pytest.mark.virtual_time
async def test_failed_renewals_and_losses_are_counted(
    rig: Rig, registry: CollectorRegistry
) -> None:
    process = await rig.process(sinks=[PrometheusSink(registry)], ttl=3.0)
    lease = await process.lock("a").acquire()
    rig.hang(0, 1)
    await lease.wait_lost()
    seen = exposed(registry)
    assert seen.value("renewal_failures_total") >= 1
    assert seen.value("leases_lost_total", cause="unrenewed") == 1
    assert seen.value("leases_held") == 0


@pytest.mark.virtual_time
async def test_a_loss_by_a_blocked_event_loop_is_counted_apart(
    rig: Rig, registry: CollectorRegistry
) -> None:
    process = await rig.process(sinks=[PrometheusSink(registry)], ttl=3.0)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(0.5)
    asyncio.get_running_loop().advance(3.0)  # type: ignore[attr-defined]
    await lease.wait_lost()
    seen = exposed(registry)
    assert seen.value("leases_lost_total", cause="stalled") == 1
    assert seen.value("leases_lost_total", cause="unrenewed") == 0


@pytest.mark.virtual_time
async def test_an_end_that_the_application_wanted_is_counted_apart(
    rig: Rig, registry: CollectorRegistry
) -> None:
    process, closing = (
        await rig.process(sinks=[PrometheusSink(registry)]),
        list[asyncio.Task[None]](),
    )
    with pytest.raises(LockLost, match="max_hold"):
        async with process.lock("a", max_hold=2):
            await asyncio.sleep(3)
    asyncio.get_running_loop().call_later(
        1, lambda: closing.append(asyncio.ensure_future(process.redlock.aclose()))
    )
    with pytest.raises(LockLost, match="not to be renewed"):
        async with process.lock("a", ttl=0.5, auto_extend=False):
            await asyncio.sleep(0.9)
    with pytest.raises(LockLost, match="closed"):
        async with process.lock("a"):
            await asyncio.sleep(3)
    await closing[0]
    seen, causes = (
        exposed(registry),
        ("gone", "unrenewed", "stalled", "expired", "max_hold", "closed"),
    )
    assert {cause: seen.value("leases_lost_total", cause=cause) for cause in causes} == {
        "gone": 0,
        "unrenewed": 0,
        "stalled": 0,
        "expired": 1,
        "max_hold": 1,
        "closed": 1,
    }


@pytest.mark.virtual_time
async def test_leases_that_were_never_given_do_not_make_the_gauge_negative(
    rig: Rig, registry: CollectorRegistry
) -> None:
    """Cancelled at every instant of an acquire and a release, the gauge ends at 0."""
    process = await rig.process(sinks=[PrometheusSink(registry)])

    async def cycle() -> None:
        async with process.lock("a"):
            await asyncio.sleep(WAY)

    loop = asyncio.get_running_loop()
    for step in range(60):
        task = asyncio.create_task(cycle())
        await asyncio.sleep(0)
        # Timers of one instant run in the order of their fractions: behind the answers of the
        # nodes, in their tick.
        loop.call_at(loop.time() + step * WAY / 10 + 1e-10, task.cancel)
        await asyncio.wait([task])
        await asyncio.sleep(10 * WAY)
        assert exposed(registry).value("leases_held") == 0, step


@pytest.mark.faults
@pytest.mark.once
async def test_the_state_of_a_node_follows_its_faults(
    three_nodes: NodeSet, registry: CollectorRegistry
) -> None:
    node = three_nodes.urls[0].removeprefix("redis://")
    # With these a node that forgot votes again after five seconds.
    async with Redlock(
        three_nodes.urls, sinks=[PrometheusSink(registry)], node_timeout=0.2, ttl=4.0, max_ttl=4.0
    ) as redlock:

        async def shows(state: str) -> bool:
            async with redlock.lock("a"):
                return exposed(registry).state(node) == state

        await eventually(lambda: shows("up"))
        three_nodes.pause(0)
        await eventually(lambda: shows("suspect"))
        three_nodes.resume(0)
        await eventually(lambda: shows("up"))
        three_nodes.crash(0)
        await eventually(lambda: shows("down"))
        await asyncio.to_thread(three_nodes.restart, 0)
        await eventually(lambda: shows("quarantined"))
        await eventually(lambda: shows("up"))
        seen = exposed(registry)
        assert seen.value("node_outages_total", node=node) == 1
        assert seen.value("node_quarantines_total", node=node) == 1
        assert seen.value("leases_held") == 0


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([NodeUp("n", "")], "up"),
        ([NodeUp("n", ""), NodeSuspect("n", 0.3)], "suspect"),
        ([NodeUp("n", ""), NodeSuspect("n", 0.3), NodeAnswers("n")], "up"),
        ([NodeUp("n", ""), NodeSuspect("n", 0.3), NodeDown("n", "")], "down"),
        ([NodeDown("n", "")], "down"),
        ([NodeUp("n", ""), NodeQuarantined("n", 61, "")], "quarantined"),
        ([NodeUp("n", ""), NodeQuarantined("n", 61, ""), NodeTrusted("n")], "up"),
        ([NodeUp("n", ""), NodeQuarantined("n", 61, ""), NodeDown("n", "")], "down"),
        ([NodeUp("n", ""), NodeQuarantined("n", 61, ""), NodeDown("n", ""), NodeUp("n", "")], "up"),
        (
            [
                NodeQuarantined("n", 61, ""),
                NodeDown("n", ""),
                NodeUp("n", ""),
                NodeQuarantined("n", 60, ""),
            ],
            "quarantined",
        ),
        (
            [NodeUp("n", ""), NodeQuarantined("n", 61, ""), NodeSuspect("n", 1), NodeTrusted("n")],
            "suspect",
        ),
    ],
)
def test_a_node_has_one_state(events: list[Event], state: str, registry: CollectorRegistry) -> None:
    sink = PrometheusSink(registry)
    for event in events:
        sink(event)
    assert exposed(registry).state("n") == state


def test_managers_in_two_threads_change_the_state_of_a_node_one_after_the_other() -> None:
    states, shown = NodeStates(), list["Change"]()

    def show(event: NodeEvent) -> None:
        with states.taking(event) as change:
            shown.append(change)

    other = threading.Thread(target=show, args=(NodeDown("n", ""),))
    with states.taking(NodeUp("n", "")) as change:
        other.start()
        # Without mutual exclusion, the other thread shows its state here.
        other.join(0.1)
        shown.append(change)
    other.join()
    assert shown == [("n", None, "up"), ("n", "up", "down")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_is_forked_while_a_thread_reports_a_node_is_not_stuck() -> None:
    states, taken, go = NodeStates(), threading.Event(), threading.Event()

    def report() -> None:
        with states.taking(NodeUp("n", "")):
            taken.set()
            go.wait()

    other = threading.Thread(target=report)
    other.start()
    taken.wait()
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.alarm(60)
            with states.taking(NodeDown("n", "")):
                status = 0
        finally:
            os._exit(status)
    go.set()
    other.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_loss_of_memory_of_all_nodes_is_counted(registry: CollectorRegistry) -> None:
    sink = PrometheusSink(registry)
    assert exposed(registry).value("memory_losses_total") == 0
    sink(AllNodesForgot(("a", "b"), 61.0))
    assert exposed(registry).value("memory_losses_total") == 1


def test_an_alert_can_count_from_nought(registry: CollectorRegistry) -> None:
    """A series that begins with its first event shows Prometheus no increase for it."""
    sink = PrometheusSink(registry)
    sink(NodeUp("n", ""))
    seen = exposed(registry)
    for error in failures():
        assert seen.value("acquire_failures_total", error=error) == 0
    assert {
        seen.value("leases_lost_total", cause=cause)
        for cause in ("gone", "unrenewed", "max_hold", "closed")
    } == {0}
    assert (
        seen.value("node_outages_total", node="n")
        == seen.value("node_quarantines_total", node="n")
        == 0
    )


def failures() -> list[str]:
    """The errors that a caller of `acquire` may get, without the base class that is never raised
    itself.
    """
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, LockNotAcquired)
    ]
    return [kind.__name__ for kind in (*kinds, RedlockClosed) if kind is not LockNotAcquired]


@pytest.mark.parametrize("error", failures())
def test_every_error_is_counted_by_its_name(
    error: AcquireError, registry: CollectorRegistry
) -> None:
    sink = PrometheusSink(registry)
    sink(AcquireFailed("a", error, "why", 0.1, 1, ()))
    assert exposed(registry).value("acquire_failures_total", error=error) == 1


async def test_managers_share_a_sink(
    one_node: NodeSet, three_nodes: NodeSet, registry: CollectorRegistry
) -> None:
    sink = PrometheusSink(registry)
    async with (
        Redlock(three_nodes.urls, sinks=[sink]) as redlock,
        Redlock(one_node.urls, sinks=[sink]) as other,
        redlock.lock("a"),
        other.lock("b"),
    ):
        assert exposed(registry).value("leases_held") == 2
    assert exposed(registry).value("leases_held") == 0


@pytest.mark.virtual_time
async def test_a_kind_is_a_label_of_the_metrics_of_locks(
    rig: Rig, registry: CollectorRegistry
) -> None:
    sink = PrometheusSink(registry, kind=lambda name: name.partition(":")[0])
    process = await rig.process(sinks=[sink])
    async with process.lock("order:42"), process.lock("order:43"), process.lock("seat:7"):
        assert exposed(registry).value("leases_held", kind="order") == 2
        assert await process.lock("seat:7").try_acquire() is None
    seen = exposed(registry)
    assert seen.value("acquire_wait_seconds_count", kind="order") == 2
    assert seen.value("acquire_failures_total", kind="seat", error="LockHeld") == 1
    assert seen.value("lease_hold_seconds_count", kind="seat") == 1
    assert seen.value("leases_lost_total", kind="seat", cause="gone") == 0
    assert seen.value("leases_held", kind="order") == 0
    assert "order:42" not in seen.text


def test_a_sink_distinguishes_a_hundred_kinds(registry: CollectorRegistry) -> None:
    sink = PrometheusSink(registry, kind=lambda name: name)
    for number in range(250):
        sink(AcquireCancelled(f"order:{number}", 1.0, 1))
    seen = exposed(registry)
    assert seen.value("acquire_cancellations_total", kind="order:99") == 1
    assert seen.value("acquire_cancellations_total", kind="other") == 150


def test_a_kind_that_is_no_callable_is_refused(registry: CollectorRegistry) -> None:
    with pytest.raises(ConfigurationError, match="kind must be a callable"):
        PrometheusSink(registry, kind="order")  # type: ignore[arg-type]


@pytest.mark.virtual_time
async def test_prometheus_counts_a_lost_quorum(rig: Rig, registry: CollectorRegistry) -> None:
    process = await rig.process(sinks=[PrometheusSink(registry)])
    assert exposed(registry).value("quorum_losses_total") == 0
    rig.stop(0, 1)
    await asyncio.sleep(1)
    await process.redlock.aclose()
    assert exposed(registry).value("quorum_losses_total") == 1
