"""Turn events into OpenTelemetry spans and metrics.

Only the API of OpenTelemetry is imported, never its SDK.
"""

from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING, Any, Literal

from aioredlock_ng import __version__
from aioredlock_ng.events import (
    AcquireCancelled,
    AcquireFailed,
    AllNodesForgot,
    LeaseAbandoned,
    LeaseDowngraded,
    LeaseLost,
    LeaseReleased,
    LeasesRenewed,
    LockAcquired,
    LockHandedOver,
    LossFound,
    NodeDown,
    NodeQuarantined,
    QuorumLost,
    RenewalFailed,
    WaiterWoken,
)
from aioredlock_ng.telemetry._buckets import HOLDS, ROUNDS, WAITS
from aioredlock_ng.telemetry._lock_kinds import Kinds
from aioredlock_ng.telemetry._otel_elections import Elections
from aioredlock_ng.telemetry._states import NODE_EVENTS, NodeStates

try:
    from opentelemetry import metrics, trace
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "aioredlock_ng.telemetry.otel needs opentelemetry-api: install aioredlock-ng with its"
        ' extra "otel"',
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from aioredlock_ng import Vote
    from aioredlock_ng.events import Event
    from aioredlock_ng.telemetry._states import NodeEvent

    class _OfALock(Protocol):
        @property
        def resource(self) -> str: ...


__all__ = ["OpenTelemetrySink"]

_PREFIX = "aioredlock_ng."


class OpenTelemetrySink:
    """Trace and count events: `Redlock(nodes, sinks=[OpenTelemetrySink()])`.

    Each call of `acquire` becomes a span "lock acquire" from the call to its outcome. The span is a
    child of the caller's current span, and has one event per vote. Spans contain the lock's name,
    but metrics do not. No span or metric contains a whole token. One sink serves every manager of a
    process.

    Args:
        tracer_provider: Provider of the tracer. None takes the global provider, even if it is set
            later.
        meter_provider: Provider of the meter. None takes the global provider, even if it is set
            later.
        kind: Returns the kind of a lock's name, for example `lambda name: name.partition(":")[0]`.
            Spans and metrics get the kind as their attribute `aioredlock_ng.kind`. The function
            must be quick and always return the same kind for a name. A read lease has a kind of its
            own, for example "order read" if the kind of the name is "order". Each kind after the
            first hundred is replaced by "other". None: spans and metrics have no such attribute.

    Raises:
        ConfigurationError: `kind` is not callable.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        kind: Callable[[str], str] | None = None,
    ) -> None:
        self._kinds = Kinds(kind)
        self._tracer = trace.get_tracer("aioredlock_ng", __version__, tracer_provider)
        meter = metrics.get_meter("aioredlock_ng", __version__, meter_provider)
        self._nodes = NodeStates()
        self._addresses: dict[str, dict[str, str | int]] = {}

        def counter(name: str, unit: str, text: str) -> metrics.Counter:
            return meter.create_counter(_PREFIX + name, unit, text)

        def histogram(name: str, text: str, bounds: tuple[float, ...]) -> metrics.Histogram:
            return meter.create_histogram(
                _PREFIX + name, "s", text, explicit_bucket_boundaries_advisory=bounds
            )

        self._wait = histogram("acquire.wait", "Time from the call to the lease.", WAITS)
        self._failures = counter(
            "acquire.failures", "{failure}", "Callers that received an error instead of a lease."
        )
        self._cancellations = counter(
            "acquire.cancellations",
            "{cancellation}",
            "Callers that were cancelled while they waited.",
        )
        self._hold = histogram("lease.hold", "Time from the start of a lease to its end.", HOLDS)
        self._lost = counter(
            "leases.lost",
            "{lease}",
            "Lost leases, including losses that were noticed only at the release.",
        )
        self._held = meter.create_up_down_counter(
            _PREFIX + "leases.held", "{lease}", "Leases held now."
        )
        self._round = histogram(
            "renewal.round", "Time from the request of a renewal to the deciding answer.", ROUNDS
        )
        self._renewed = counter("leases.renewed", "{lease}", "Leases that a quorum renewed.")
        self._unrenewed = counter(
            "renewal.failures", "{lease}", "Renewals of a lease that no quorum confirmed."
        )
        self._hand_overs = counter(
            "hand_overs",
            "{hand_over}",
            "Leases that ended while a task of the same process waited for the lock.",
        )
        self._wakeups = counter(
            "wakeups", "{wakeup}", "Attempts of waiters, by the cause of their wake-up."
        )
        self._outages = counter(
            "node.outages", "{outage}", "Lost connections and failed connections to nodes."
        )
        self._quarantines = counter(
            "node.quarantines",
            "{quarantine}",
            "Quarantines of nodes that may have forgotten locks.",
        )
        self._memory_losses = counter(
            "memory_losses",
            "{loss}",
            "Times at which all nodes had restarted or lost their memory.",
        )
        self._quorum_losses = counter(
            "quorum.losses", "{loss}", "Times at which no quorum of nodes could grant any more."
        )
        self._state = meter.create_up_down_counter(
            _PREFIX + "node.state", "{node}", "1 for the present state of a node."
        )

        self._takers: dict[type[Event], Callable[[Any], None]] = {
            LockAcquired: self._acquired,
            AcquireFailed: self._failed,
            AcquireCancelled: self._cancelled,
            LeaseDowngraded: self._downgraded,
            LeaseReleased: self._ended,
            LeaseAbandoned: self._ended,
            LeaseLost: self._lose,
            LossFound: lambda event: self._lost.add(
                1, {_PREFIX + "cause": event.cause, **self._kind(event)}
            ),
            LeasesRenewed: self._renew,
            RenewalFailed: lambda _: self._unrenewed.add(1),
            LockHandedOver: lambda _: self._hand_overs.add(1),
            WaiterWoken: lambda event: self._wakeups.add(1, {_PREFIX + "cause": event.cause}),
            **dict.fromkeys(NODE_EVENTS, self._node),
            AllNodesForgot: lambda _: self._memory_losses.add(1),
            QuorumLost: lambda _: self._quorum_losses.add(1),
            **Elections(meter, _PREFIX, self._kind).takers,
        }

    def __call__(self, event: Event) -> None:
        """Trace and count one event. Ignore an event that has neither a span nor a metric."""
        take = self._takers.get(type(event))
        if take is not None:
            take(event)

    def _kind(self, event: _OfALock, *, shared: bool = False) -> dict[str, str]:
        if not self._kinds.wanted:
            return {}
        shared = shared or getattr(event, "shared", False)
        return {_PREFIX + "kind": self._kinds.of(event.resource, shared=shared)}

    def _acquired(self, event: LockAcquired) -> None:
        kind = self._kind(event)
        self._wait.record(event.waited, kind)
        self._held.add(1, kind)
        about: dict[str, str | int] = {_PREFIX + "token_prefix": event.token_prefix}
        if event.fence is not None:
            about[_PREFIX + "fence"] = event.fence
        if event.slot is not None:
            about[_PREFIX + "slot"] = event.slot
        self._span(event, "acquired", about, event.votes)

    def _failed(self, event: AcquireFailed) -> None:
        self._failures.add(1, {"error.type": event.error, **self._kind(event)})
        if event.error == "LockHeld" and event.attempts:
            # The caller asked for an error instead of a wait, so the span has no error status.
            # LockHeld without an attempt means that the task would wait for itself. The span of
            # this mistake has an error status.
            self._span(event, "held", {}, event.votes)
            return
        status = trace.Status(trace.StatusCode.ERROR, event.reason)
        self._span(event, "failed", {"error.type": event.error}, event.votes, status)

    def _cancelled(self, event: AcquireCancelled) -> None:
        self._cancellations.add(1, self._kind(event))
        self._span(event, "cancelled", {}, ())

    def _span(
        self,
        event: LockAcquired | AcquireFailed | AcquireCancelled,
        outcome: Literal["acquired", "held", "failed", "cancelled"],
        about: dict[str, str | int],
        votes: tuple[Vote, ...],
        status: trace.Status | None = None,
    ) -> None:
        """Create one span that began in the past, because its attributes are known only now."""
        now = time_ns()
        about[_PREFIX + "resource"] = event.resource
        about[_PREFIX + "outcome"] = outcome
        about[_PREFIX + "attempts"] = event.attempts
        if event.shared:
            about[_PREFIX + "shared"] = True
        about |= self._kind(event)
        span = self._tracer.start_span(
            "lock acquire", attributes=about, start_time=now - int(event.waited * 1e9)
        )
        if span.is_recording():
            for vote in votes:
                said: dict[str, str | int | float] = {
                    **self._address(vote.node),
                    _PREFIX + "vote": vote.outcome.value,
                }
                if vote.remaining is not None:
                    said[_PREFIX + "remaining"] = vote.remaining
                if vote.detail:
                    said[_PREFIX + "detail"] = vote.detail
                span.add_event(_PREFIX + "vote", said, now)
            if status is not None:
                span.set_status(status)
        span.end(now)

    def _downgraded(self, event: LeaseDowngraded) -> None:
        self._held.add(-1, self._kind(event))
        self._held.add(1, self._kind(event, shared=True))

    def _ended(self, event: LeaseReleased | LeaseAbandoned | LeaseLost) -> None:
        kind = self._kind(event)
        self._hold.record(event.held_for, kind)
        self._held.add(-1, kind)

    def _lose(self, event: LeaseLost) -> None:
        self._lost.add(1, {_PREFIX + "cause": event.cause, **self._kind(event)})
        self._ended(event)

    def _renew(self, event: LeasesRenewed) -> None:
        self._round.record(event.took)
        self._renewed.add(event.leases)

    def _node(self, event: NodeEvent) -> None:
        address = self._address(event.node)
        if isinstance(event, NodeDown):
            self._outages.add(1, address)
        elif isinstance(event, NodeQuarantined):
            self._quarantines.add(1, address)
        with self._nodes.taking(event) as (_, before, after):
            if before is not None and before != after:
                self._state.add(-1, {**address, _PREFIX + "state": before})
            if before != after:
                self._state.add(1, {**address, _PREFIX + "state": after})

    def _address(self, node: str) -> dict[str, str | int]:
        """Return the attributes for a node's address, as OpenTelemetry's conventions name them."""
        address = self._addresses.get(node)
        if address is None:
            host, _, rest = node.rpartition(":")
            port = rest.partition("/")[0]
            address = self._addresses[node] = {"server.address": node}
            if host and port.isdecimal():
                address |= {"server.address": host.strip("[]"), "server.port": int(port)}
        return address
