"""Turn events into Prometheus metrics in a registry of the application.

No label contains a lock's name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable  # noqa: TC003 -- the documentation resolves the signature
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from aioredlock_ng._forks import call_in_children
from aioredlock_ng.errors import ConfigurationError
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
    QuorumLost,
    RenewalFailed,
    WaiterWoken,
)
from aioredlock_ng.telemetry._buckets import HOLDS, ROUNDS, WAITS
from aioredlock_ng.telemetry._lock_kinds import Kinds
from aioredlock_ng.telemetry._prometheus_elections import Elections
from aioredlock_ng.telemetry._prometheus_nodes import Nodes

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.registry import Collector
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "aioredlock_ng.telemetry.prometheus needs prometheus_client: install aioredlock-ng with"
        ' its extra "prometheus"',
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from aioredlock_ng.events import Event

    _Ended = LeaseReleased | LeaseAbandoned | LeaseLost | LossFound

__all__ = ["PrometheusSink"]

_M = TypeVar("_M", Counter, Gauge, Histogram)

_ERRORS = ("LockHeld", "UpgradeRefused", "AcquireTimeout", "QuorumUnreachable", "RedlockClosed")
_CAUSES = ("notified", "expiry", "fallback")
_LOSSES = ("gone", "unrenewed", "stalled", "expired", "max_hold", "closed")


class _Counted(NamedTuple):
    """The metrics of the locks of one kind, or of all locks if there are no kinds."""

    wait: Histogram
    failures: dict[str, Counter]
    cancellations: Counter
    hold: Histogram
    lost: dict[str, Counter]
    held: Gauge


class PrometheusSink(Collector):
    """Count events: `Redlock(nodes, sinks=[PrometheusSink()])`.

    docs/telemetry.md has the table of the metrics. One sink serves every manager of a process. In
    the multiprocess mode of prometheus_client, the counters and histograms of all processes are
    added, and so are the held leases of live processes. If live processes see different states of a
    node, `node_state` is 1 for each of these states. The application must call `mark_process_dead`
    at the end of a process, as for any gauge of live processes.

    Args:
        registry: The registry that gets the metrics, by default the global one of
            prometheus_client.
        kind: Returns the kind of a lock's name, for example `lambda name: name.partition(":")[0]`.
            The metrics get the kind as their label `kind`. The function must be quick and always
            return the same kind for a name. A read lease has a kind of its own, for example "order
            read" if the kind of the name is "order". Each kind after the first hundred is replaced
            by "other". None: the metrics have no such label.

    Raises:
        ConfigurationError: `registry` is not a registry, `registry` already has metrics of these
            names, or `kind` is not callable.
    """

    def __init__(
        self, registry: CollectorRegistry = REGISTRY, *, kind: Callable[[str], str] | None = None
    ) -> None:
        if not callable(getattr(registry, "register", None)):
            given = type(registry).__name__
            raise ConfigurationError(
                f"registry must be a prometheus_client.CollectorRegistry, not {given}"
            )
        self._metrics: list[Counter | Gauge | Histogram] = []
        self._kinds = Kinds(kind)
        label = ("kind",) if self._kinds.wanted else ()
        self._wait = self._histogram(
            "acquire_wait_seconds", "Time from the call to the lease.", WAITS, *label
        )
        self._failures = self._counter(
            "acquire_failures",
            "Callers that received an error instead of a lease.",
            "error",
            *label,
        )
        self._cancellations = self._counter(
            "acquire_cancellations", "Callers that were cancelled while they waited.", *label
        )
        self._hold = self._histogram(
            "lease_hold_seconds",
            "Time from the start of a lease to its end.",
            HOLDS,
            *label,
        )
        self._lost = self._counter(
            "leases_lost",
            "Lost leases, including losses that were noticed only at the release.",
            "cause",
            *label,
        )
        self._held = self._gauge("leases_held", "Leases held now.", "livesum", *label)
        self._counted: dict[str, _Counted] = {}
        if not label:
            self._of_kind("")
        self._round = self._histogram(
            "renewal_round_seconds",
            "Time from the request of a renewal to the deciding answer.",
            ROUNDS,
        )
        self._renewed = self._counter("leases_renewed", "Leases that a quorum renewed.")
        self._unrenewed = self._counter(
            "renewal_failures",
            "Renewals of a lease that no quorum confirmed.",
        )
        self._hand_overs = self._counter(
            "hand_overs", "Leases that ended while a task of the same process waited for the lock."
        )
        wakeups = self._counter(
            "wakeups", "Attempts of waiters, by the cause of their wake-up.", "cause"
        )
        self._wakeups = {cause: wakeups.labels(cause) for cause in _CAUSES}
        self._memory_losses = self._counter(
            "memory_losses", "Times at which all nodes had restarted or lost their memory."
        )
        self._quorum_losses = self._counter(
            "quorum_losses", "Times at which no quorum of nodes could grant any more."
        )
        self._nodes = Nodes(self._counter, self._gauge)
        self._elections = Elections(self._counter, self._gauge, self._kinds)

        self._takers: dict[type[Event], Callable[[Any], None]] = {
            LockAcquired: self._acquired,
            AcquireFailed: lambda event: self._of(event).failures[event.error].inc(),
            AcquireCancelled: lambda event: self._of(event).cancellations.inc(),
            LeaseDowngraded: self._downgraded,
            LeaseReleased: self._ended,
            LeaseAbandoned: self._ended,
            LeaseLost: self._lose,
            LossFound: lambda event: self._of(event).lost[event.cause].inc(),
            LeasesRenewed: self._renew,
            RenewalFailed: lambda _: self._unrenewed.inc(),
            LockHandedOver: lambda _: self._hand_overs.inc(),
            WaiterWoken: lambda event: self._wakeups[event.cause].inc(),
            AllNodesForgot: lambda _: self._memory_losses.inc(),
            QuorumLost: lambda _: self._quorum_losses.inc(),
            **self._nodes.takers,
            **self._elections.takers,
        }
        # Set in a forked child until the gauges of the parent's leases and elections are 0.
        self._inherited: threading.RLock | None = None
        call_in_children(self, PrometheusSink._forked)
        try:
            registry.register(self)
        except ValueError:
            raise ConfigurationError(
                "registry already has metrics named aioredlock_ng_…: give the sink that made"
                " them to every Redlock of this process, or give this sink a registry of its"
                " own"
            ) from None

    def __call__(self, event: Event) -> None:
        """Count one event. Ignore an event that has no metric."""
        if (mutex := self._inherited) is not None:
            self._forget_parent(mutex)
        take = self._takers.get(type(event))
        if take is not None:
            take(event)

    def collect(self) -> Iterator[Metric]:
        """Return the metrics for a scrape of the registry, from any thread."""
        if (mutex := self._inherited) is not None:
            self._forget_parent(mutex)
        for metric in self._metrics:
            yield from metric.collect()

    def describe(self) -> Iterator[Metric]:
        """Return the metrics, so that the registry can check for duplicate names.

        If one name is taken, the registry refuses all metrics of the sink.
        """
        for metric in self._metrics:
            yield from metric.describe()

    def _of(self, event: _Ended | LockAcquired | AcquireFailed | AcquireCancelled) -> _Counted:
        return self._of_kind(self._kinds.of(event.resource, shared=event.shared))

    def _of_kind(self, kind: str) -> _Counted:
        if (counted := self._counted.get(kind)) is None:
            label = {"kind": kind} if self._kinds.wanted else {}
            # If a counter appeared with its first event, Prometheus would not count that event as
            # an increase. So all counters are created with the value 0.
            counted = self._counted[kind] = _Counted(
                wait=self._wait.labels(**label) if label else self._wait,
                failures={error: self._failures.labels(error=error, **label) for error in _ERRORS},
                cancellations=self._cancellations.labels(**label) if label else self._cancellations,
                hold=self._hold.labels(**label) if label else self._hold,
                lost={cause: self._lost.labels(cause=cause, **label) for cause in _LOSSES},
                held=self._held.labels(**label) if label else self._held,
            )
        return counted

    def _acquired(self, event: LockAcquired) -> None:
        counted = self._of(event)
        counted.wait.observe(event.waited)
        counted.held.inc()

    def _downgraded(self, event: LeaseDowngraded) -> None:
        self._of_kind(self._kinds.of(event.resource)).held.dec()
        self._of_kind(self._kinds.of(event.resource, shared=True)).held.inc()

    def _ended(self, event: LeaseReleased | LeaseAbandoned | LeaseLost) -> None:
        counted = self._of(event)
        counted.hold.observe(event.held_for)
        counted.held.dec()

    def _lose(self, event: LeaseLost) -> None:
        self._of(event).lost[event.cause].inc()
        self._ended(event)

    def _renew(self, event: LeasesRenewed) -> None:
        self._round.observe(event.took)
        self._renewed.inc(event.leases)

    def _forked(self) -> None:
        # The gauges have locks, which threads of the parent may have held at the fork. So the
        # gauges are not set before the child uses them.
        self._inherited = threading.RLock()

    def _forget_parent(self, mutex: threading.RLock) -> None:
        with mutex:
            if self._inherited is mutex:
                for counted in list(self._counted.values()):
                    counted.held.set(0)
                self._elections.forget()
                self._inherited = None

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return self._kept(Counter(f"aioredlock_ng_{name}", text, labels, registry=None))

    def _gauge(self, name: str, text: str, mode: Any, *labels: str) -> Gauge:
        return self._kept(
            Gauge(f"aioredlock_ng_{name}", text, labels, registry=None, multiprocess_mode=mode)
        )

    def _histogram(
        self, name: str, text: str, bounds: tuple[float, ...], *labels: str
    ) -> Histogram:
        return self._kept(
            Histogram(f"aioredlock_ng_{name}", text, labels, registry=None, buckets=bounds)
        )

    def _kept(self, metric: _M) -> _M:
        self._metrics.append(metric)
        return metric
