"""The OpenTelemetry sink under the real SDK: spans in the caller's trace, metrics without names."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Literal

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from aioredlock_ng import AcquireTimeout, LockHeld, Outcome, QuorumUnreachable, Redlock, Vote
from aioredlock_ng.events import (
    AllNodesForgot,
    LeaseLost,
    LeaseReleased,
    LockAcquired,
    LossFound,
    NodeDown,
    NodeQuarantined,
    NodeUp,
)
from aioredlock_ng.telemetry._buckets import HOLDS, WAITS
from aioredlock_ng.telemetry.otel import OpenTelemetrySink
from aioredlock_ng.telemetry.prometheus import PrometheusSink
from tests.support.rig import WAY
from tests.telemetry.doings import NAME, do_everything
from tests.telemetry.exposition import exposed
from tests.telemetry.listener import Listener

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from prometheus_client import CollectorRegistry

    from tests.support.node_set import NodeSet
    from tests.support.rig import Rig


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_an_acquire_is_a_span_below_that_of_its_caller(
    three_nodes: NodeSet, listener: Listener
) -> None:
    tracer = listener.tracers.get_tracer("application")
    async with Redlock(three_nodes.urls, sinks=[listener.sink], node_timeout=5.0) as redlock:
        before = time.time_ns()
        with tracer.start_as_current_span("request") as request:
            lease = await redlock.lock(NAME).acquire()
        after = time.time_ns()
        await lease.release()
    (span,) = listener.spans()
    assert span.parent == request.get_span_context()
    assert span.kind is SpanKind.INTERNAL
    assert span.status.status_code is StatusCode.UNSET
    assert span.start_time is not None
    assert span.end_time is not None
    assert before <= span.start_time < span.end_time <= after
    assert attributes(span) == {
        "aioredlock_ng.resource": NAME,
        "aioredlock_ng.outcome": "acquired",
        "aioredlock_ng.attempts": 1,
        "aioredlock_ng.fence": lease.fence,
        "aioredlock_ng.token_prefix": lease.token[:6],
    }
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "aioredlock_ng"
    votes = [dict(event.attributes or {}) for event in span.events]
    assert {event.name for event in span.events} == {"aioredlock_ng.vote"}
    told = [f"redis://{vote['server.address']}:{vote['server.port']}" for vote in votes]
    assert told == three_nodes.urls
    assert [vote["aioredlock_ng.vote"] for vote in votes].count("granted") >= 2
    assert lease.token not in span.to_json()


async def test_tasks_side_by_side_each_have_their_span(
    three_nodes: NodeSet, listener: Listener
) -> None:
    """The span belongs to the task that asked, and not to the one that released or to the loop."""
    tracer = listener.tracers.get_tracer("application")

    async def request(number: int) -> tuple[int, int]:
        with tracer.start_as_current_span(f"request {number}") as span:
            async with redlock.lock("a"):
                await asyncio.sleep(0)
            return span.get_span_context().trace_id, span.get_span_context().span_id

    async with Redlock(three_nodes.urls, sinks=[listener.sink]) as redlock:
        parents = await asyncio.gather(*map(request, range(20)))
    spans = listener.spans()
    assert sorted((s.parent.trace_id, s.parent.span_id) for s in spans if s.parent) == sorted(
        parents
    )
    assert len({attributes(span)["aioredlock_ng.fence"] for span in spans}) == 20


@pytest.mark.virtual_time
async def test_a_span_is_as_long_as_the_wait(rig: Rig, listener: Listener) -> None:
    holder, process = await rig.process(), await rig.process(sinks=[listener.sink])
    lease = await holder.lock("a").acquire()
    waiting = asyncio.create_task(process.lock("a").acquire())
    await asyncio.sleep(0.3)
    await lease.release()
    await (await waiting).release()
    (span,) = listener.spans()
    assert span.start_time is not None
    assert span.end_time is not None
    assert (span.end_time - span.start_time) / 1e9 == pytest.approx(0.3, abs=10 * WAY)
    assert attributes(span)["aioredlock_ng.attempts"] == 2
    assert listener.total("wakeups", aioredlock_ng__cause="notified") == 1
    (wait,) = listener.points("acquire.wait")
    assert wait.sum == pytest.approx(0.3, abs=10 * WAY)


@pytest.mark.virtual_time
async def test_the_span_of_a_semaphore_names_the_slot_and_no_metric_does(
    rig: Rig, listener: Listener
) -> None:
    process = await rig.process(sinks=[listener.sink])
    leases = [await process.redlock.semaphore("gpu", 2).acquire() for _ in range(2)]
    async with process.lock("a"):
        pass
    for lease in leases:
        await lease.release()
    told = [
        (attributes(span)["aioredlock_ng.resource"], attributes(span).get("aioredlock_ng.slot"))
        for span in listener.spans()
    ]
    assert told == [("gpu", leases[0].slot), ("gpu", leases[1].slot), ("a", None)]
    assert [dict(point.attributes) for point in listener.points("acquire.wait")] == [{}]


@pytest.mark.virtual_time
async def test_a_failed_acquire_is_an_error_with_its_type(rig: Rig, listener: Listener) -> None:
    process = await rig.process(sinks=[listener.sink])
    rig.occupy(b"a", ttl=5)
    with pytest.raises(LockHeld):
        await process.lock("a", blocking_timeout=0).acquire()
    with pytest.raises(AcquireTimeout):
        await process.lock("a", blocking_timeout=0.2).acquire()
    rig.disconnect(0, 1)
    with pytest.raises(QuorumUnreachable):
        await process.lock("b", blocking_timeout=0).acquire()
    spans = listener.spans()
    errors = ["LockHeld", "AcquireTimeout", "QuorumUnreachable"]
    assert [attributes(span).get("error.type") for span in spans] == [None, *errors[1:]]
    assert [attributes(span)["aioredlock_ng.outcome"] for span in spans] == [
        "held",
        "failed",
        "failed",
    ]
    assert [span.status.status_code for span in spans] == [
        StatusCode.UNSET,
        StatusCode.ERROR,
        StatusCode.ERROR,
    ]
    assert "still held by another" in (spans[1].status.description or "")
    (held, *_) = [dict(event.attributes or {}) for event in spans[0].events]
    assert held["server.address"] == "memory-0"
    assert held["aioredlock_ng.vote"] == "held"
    assert held["aioredlock_ng.remaining"] == pytest.approx(5, abs=0.1)
    (away, *_) = [dict(event.attributes or {}) for event in spans[2].events]
    assert away["aioredlock_ng.detail"]
    assert [listener.total("acquire.failures", error__type=error) for error in errors] == [1, 1, 1]
    assert "acquire.wait" not in listener.metrics()


@pytest.mark.virtual_time
async def test_a_cancelled_acquire_is_no_error(rig: Rig, listener: Listener) -> None:
    process = await rig.process(sinks=[listener.sink])
    rig.occupy(b"a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await process.lock("a").acquire()
    (span,) = listener.spans()
    assert span.status.status_code is StatusCode.UNSET
    assert attributes(span)["aioredlock_ng.outcome"] == "cancelled"
    assert listener.total("acquire.cancellations") == 1


async def test_metrics_agree_with_the_manager_and_name_no_lock(
    three_nodes: NodeSet, listener: Listener
) -> None:
    stats = await do_everything(three_nodes, listener.sink)
    (wait,) = listener.points("acquire.wait")
    (hold,) = listener.points("lease.hold")
    (round_,) = listener.points("renewal.round")
    assert wait.count == hold.count == stats.acquired
    assert tuple(wait.explicit_bounds) == WAITS
    assert tuple(hold.explicit_bounds) == HOLDS
    assert listener.total("leases.renewed") == stats.renewals >= round_.count >= 1
    assert listener.total("leases.held") == 0
    assert (
        listener.total("leases.lost")
        == listener.total("leases.lost", aioredlock_ng__cause="gone")
        == stats.lost
        == 1
    )
    assert listener.total("hand_overs") == stats.hand_overs
    assert listener.total("wakeups", aioredlock_ng__cause="notified") == stats.wakeups
    assert listener.total("acquire.failures", error__type="AcquireTimeout") == stats.timeouts == 1
    assert listener.total("acquire.cancellations") == 1
    assert listener.total("node.state", aioredlock_ng__state="up") == 3
    data = listener.reader.get_metrics_data()
    assert data is not None
    assert NAME not in data.to_json()
    units = {name: metric.unit for name, metric in listener.metrics().items()}
    assert {units[name] for name in ("acquire.wait", "lease.hold", "renewal.round")} == {"s"}
    assert units["leases.lost"] == "{lease}"


def test_nodes_have_the_conventional_attributes_of_servers(listener: Listener) -> None:
    for node in ("10.0.0.1:6379", "[fd00::1]:6379/2", "/run/redis.sock", "orders@sentinel"):
        listener.sink(NodeDown(node, "why"))
    assert [dict(point.attributes) for point in listener.points("node.outages")] == [
        {"server.address": "10.0.0.1", "server.port": 6379},
        {"server.address": "fd00::1", "server.port": 6379},
        {"server.address": "/run/redis.sock"},
        {"server.address": "orders@sentinel"},
    ]


def test_a_node_leaves_its_former_state(listener: Listener) -> None:
    for event in (NodeUp("n", ""), NodeQuarantined("n", 61, ""), NodeDown("n", "")):
        listener.sink(event)
    assert {
        dict(p.attributes)["aioredlock_ng.state"]: p.value for p in listener.points("node.state")
    } == {
        "up": 0,
        "quarantined": 0,
        "down": 1,
    }
    assert listener.total("node.quarantines") == 1


def test_a_loss_of_memory_of_all_nodes_is_counted(listener: Listener) -> None:
    listener.sink(AllNodesForgot(("a:1", "b:1"), 61.0))
    assert listener.total("memory_losses") == 1


def test_votes_are_not_formatted_for_a_span_that_is_not_recorded() -> None:
    class Asked(tuple[Vote, ...]):
        def __iter__(self) -> Any:
            raise AssertionError("nobody listens")

    listener = Listener(sampler=ALWAYS_OFF)
    listener.sink(LockAcquired("a", "abc123", 1, 0.1, 1, Asked([Vote("n", Outcome.GRANTED)])))
    assert listener.spans() == []
    assert listener.points("acquire.wait")[0].count == 1
    listener.close()


def test_a_span_without_a_parent_is_a_trace_of_its_own(listener: Listener) -> None:
    assert not trace.get_current_span().get_span_context().is_valid
    listener.sink(LockAcquired("a", "abc123", None, 0.1, 1, ()))
    (span,) = listener.spans()
    assert span.parent is None
    assert "aioredlock_ng.fence" not in attributes(span)


def test_a_loss_ends_the_hold(listener: Listener) -> None:
    listener.sink(LockAcquired("a", "abc123", None, 0.1, 1, ()))
    listener.sink(LeaseLost("a", "abc123", "gone", 2.0))
    assert listener.total("leases.held") == 0
    assert listener.points("lease.hold")[0].sum == 2.0


@pytest.mark.parametrize("cause", ["gone", "closed"])
def test_a_loss_that_is_found_after_the_release_is_counted_by_its_cause(
    cause: Literal["gone", "closed"], listener: Listener, registry: CollectorRegistry
) -> None:
    for sink in (listener.sink, PrometheusSink(registry)):
        sink(LockAcquired("a", "abc123", None, 0.1, 1, ()))
        sink(LeaseReleased("a", "abc123", 2.0))
        sink(LossFound("a", "abc123", "a reason", cause=cause))
    assert listener.total("leases.lost") == 1
    assert listener.total("leases.lost", aioredlock_ng__cause=cause) == 1
    seen = exposed(registry)
    assert seen.value("leases_lost_total", cause=cause) == 1
    assert listener.total("leases.held") == seen.value("leases_held") == 0


@pytest.mark.virtual_time
async def test_try_acquire_of_a_held_lock_is_no_error_and_a_task_that_would_wait_for_itself_is(
    rig: Rig, listener: Listener
) -> None:
    process = await rig.process(sinks=[listener.sink])
    async with process.lock("a"):
        assert await process.lock("a").try_acquire() is None
        with pytest.raises(LockHeld):
            await process.lock("a").acquire()
    _, tried, waited = listener.spans()
    assert tried.status.status_code is StatusCode.UNSET
    assert attributes(waited)["error.type"] == "LockHeld"
    assert waited.status.status_code is StatusCode.ERROR


@pytest.mark.virtual_time
async def test_a_kind_is_on_spans_and_metrics(rig: Rig, listener: Listener) -> None:
    listener.sink = OpenTelemetrySink(
        tracer_provider=listener.tracers,
        meter_provider=listener.meters,
        kind=lambda name: name.partition(":")[0],
    )
    process = await rig.process(sinks=[listener.sink])
    async with process.lock("order:42"), process.lock("seat:7"):
        assert listener.total("leases.held", aioredlock_ng__kind="order") == 1
        assert await process.lock("seat:7").try_acquire() is None
    assert [attributes(span)["aioredlock_ng.kind"] for span in listener.spans()] == [
        "order",
        "seat",
        "seat",
    ]
    assert listener.total("acquire.failures", aioredlock_ng__kind="seat") == 1
    assert listener.total("leases.held", aioredlock_ng__kind="order") == 0


@pytest.mark.virtual_time
async def test_opentelemetry_counts_a_lost_quorum(rig: Rig, listener: Listener) -> None:
    process = await rig.process(sinks=[listener.sink])
    rig.stop(0, 1)
    await asyncio.sleep(1)
    await process.redlock.aclose()
    assert listener.total("quorum.losses") == 1
