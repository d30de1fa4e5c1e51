"""The OpenTelemetry metrics of elections. A term has no span, because it may last for months."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioredlock_ng.events import LeaderChanged, RenewalSlow, TermBegan, TermEnded, TermOutlived

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.metrics import Counter, Meter

    from aioredlock_ng.events import Event

__all__ = ["ElectionEvent", "Elections"]

ElectionEvent = TermBegan | TermEnded | LeaderChanged | RenewalSlow | TermOutlived


class Elections:
    """The metrics of elections.

    Args:
        prefix: The beginning of the names of metrics and attributes.
        kind: Returns the attributes for the kind of an election.
    """

    def __init__(
        self, meter: Meter, prefix: str, kind: Callable[[ElectionEvent], dict[str, str]]
    ) -> None:
        self._prefix = prefix
        self._kind = kind
        self._leading = meter.create_up_down_counter(
            f"{prefix}election.leading",
            "{election}",
            "Elections that the process leads, or whose leader's work in it has not ended yet.",
        )

        def counter(name: str, unit: str, text: str) -> Counter:
            return meter.create_counter(f"{prefix}election.{name}", unit, text)

        self._terms = counter("terms", "{term}", "Ended terms of leaders.")
        self._transitions = counter(
            "transitions",
            "{transition}",
            "Changes of leader, as a candidate or a watcher saw them.",
        )
        self._slow = counter("slow_renewals", "{renewal}", "Late renewals of leaders' leases.")
        self._outlived = counter(
            "outlived_terms", "{term}", "Leaders that worked on although their lease was lost."
        )

    @property
    def takers(self) -> dict[type[Event], Callable[[Any], None]]:
        """The functions that count the events, by the type of the event."""
        return {
            TermBegan: lambda event: self._leading.add(1, self._kind(event)),
            TermEnded: self._ended,
            LeaderChanged: lambda event: self._transitions.add(1, self._kind(event)),
            RenewalSlow: lambda event: self._slow.add(1, self._kind(event)),
            TermOutlived: lambda event: self._outlived.add(1, self._kind(event)),
        }

    def _ended(self, event: TermEnded) -> None:
        kind = self._kind(event)
        self._leading.add(-1, kind)
        self._terms.add(1, {f"{self._prefix}cause": event.cause, **kind})
