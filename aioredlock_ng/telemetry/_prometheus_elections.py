"""The Prometheus metrics of elections. `PrometheusSink` makes and registers the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioredlock_ng.events import LeaderChanged, RenewalSlow, TermBegan, TermEnded, TermOutlived

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import Counter, Gauge

    from aioredlock_ng.events import Event
    from aioredlock_ng.telemetry._lock_kinds import Kinds

__all__ = ["Elections"]

_CAUSES: Final = ("done", "failed", "cancelled", "resigned", "step_down", "lost")


class _Counted(NamedTuple):
    """The metrics of the elections of one kind, or of all elections if there are no kinds."""

    leading: Gauge
    terms: Mapping[str, Counter]
    transitions: Counter
    slow: Counter
    outlived: Counter


class Elections:
    """The metrics of elections.

    Args:
        counter: Makes a counter from its name, help and labels.
        gauge: Makes a gauge from its name, help, multiprocess mode and labels.
        kinds: Maps the names of elections to kinds.
    """

    def __init__(
        self, counter: Callable[..., Counter], gauge: Callable[..., Gauge], kinds: Kinds
    ) -> None:
        self._kinds = kinds
        label = ("kind",) if kinds.wanted else ()
        self._leading = gauge(
            "election_leading",
            "Elections that the process leads, or whose leader's work in it has not ended yet.",
            "livesum",
            *label,
        )
        self._terms = counter("election_terms", "Ended terms of leaders.", "cause", *label)
        self._transitions = counter(
            "election_transitions",
            "Changes of leader, as a candidate or a watcher saw them.",
            *label,
        )
        self._slow = counter("election_slow_renewals", "Late renewals of leaders' leases.", *label)
        self._outlived = counter(
            "election_outlived_terms",
            "Leaders that kept working after the loss of their lease.",
            *label,
        )
        self._counted: dict[str, _Counted] = {}
        if not label:
            self._of("")

    @property
    def takers(self) -> dict[type[Event], Callable[[Any], None]]:
        """The functions that count the events, by the type of the event."""
        return {
            TermBegan: lambda event: self._of(event.resource).leading.inc(),
            TermEnded: self._ended,
            LeaderChanged: lambda event: self._of(event.resource).transitions.inc(),
            RenewalSlow: lambda event: self._of(event.resource).slow.inc(),
            TermOutlived: lambda event: self._of(event.resource).outlived.inc(),
        }

    def forget(self) -> None:
        """Set the gauges to 0 in a forked child, which leads no election of its parent."""
        for counted in list(self._counted.values()):
            counted.leading.set(0)

    def _ended(self, event: TermEnded) -> None:
        counted = self._of(event.resource)
        counted.leading.dec()
        counted.terms[event.cause].inc()

    def _of(self, resource: str) -> _Counted:
        kind = self._kinds.of(resource)
        if (counted := self._counted.get(kind)) is None:
            label = {"kind": kind} if self._kinds.wanted else {}
            # If a counter appeared with its first event, Prometheus would not count that event as
            # an increase. So all counters are created with the value 0.
            counted = self._counted[kind] = _Counted(
                leading=self._leading.labels(**label) if label else self._leading,
                terms={cause: self._terms.labels(cause=cause, **label) for cause in _CAUSES},
                transitions=self._transitions.labels(**label) if label else self._transitions,
                slow=self._slow.labels(**label) if label else self._slow,
                outlived=self._outlived.labels(**label) if label else self._outlived,
            )
        return counted
