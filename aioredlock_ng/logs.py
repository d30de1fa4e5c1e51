"""Send events to the standard library's log and to the given sinks.

The log never contains a whole token.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from aioredlock_ng.events import (
    AllNodesForgot,
    LeaseLost,
    LossFound,
    NodeDegraded,
    NodeDown,
    NodeQuarantined,
    NodeSuspect,
    NodeTrusted,
    NodeUp,
    QuorumLost,
    QuorumRegained,
    RenewalSlow,
    SteppingDown,
    TaskFailed,
    TermBegan,
    TermEnded,
    TermOutlived,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng.events import Event, EventSink

__all__ = ["Sinks", "log_event"]

_log = logging.getLogger("aioredlock_ng")


def log_event(event: Event) -> None:
    """Write an event to the log. Routine events, such as `LockAcquired`, are not logged."""
    match event:
        case LeaseLost():
            held_for, token = event.held_for, event.token_prefix
            _log.error(
                "lock %r lost after %.3f s: %s (token %s…)",
                event.resource,
                held_for,
                event.reason,
                token,
            )
        case LossFound():
            _log.error(
                "lock %r was lost: %s (token %s…)", event.resource, event.reason, event.token_prefix
            )
        case NodeDown():
            _log.warning("node %s is down: %s", event.node, event.reason)
        case NodeSuspect():
            _log.warning("node %s does not answer; rounds do not wait for it", event.node)
        case NodeDegraded():
            _log.warning("node %s: %s", event.node, event.reason)
        case NodeQuarantined() if event.left == inf:
            _log.warning(
                "node %s grants no lock, because it refuses the recovery guard: %s",
                event.node,
                event.reason,
            )
        case NodeQuarantined():
            _log.warning(
                "node %s grants no lock for %.1f s more: %s",
                event.node,
                event.left,
                event.reason,
            )
        case AllNodesForgot():
            _log.error(
                "all nodes restarted or lost their memory (%s): locks that they forgot are void; no"
                " lock is granted for %.1f s more",
                ", ".join(event.nodes),
                event.left,
            )
        case NodeTrusted():
            _log.info("node %s may grant locks again", event.node)
        case QuorumLost():
            back = (
                "" if event.back_in is None else f", a quorum may be back in {event.back_in:.1f} s"
            )
            _log.warning(
                "no quorum: %d of %d nodes can grant locks, %d are needed%s: %s",
                event.able,
                event.nodes,
                event.needed,
                back,
                "; ".join(event.reasons),
            )
        case QuorumRegained():
            able, nodes, needed = event.able, event.nodes, event.needed
            words = (
                "a quorum is back: %d of %d nodes can grant locks, %d are needed;"
                " there was no quorum for %.1f s"
            )
            _log.info(words, able, nodes, needed, event.after)
        case NodeUp():
            _log.info("node %s is up (%s)", event.node, event.server)
        case TaskFailed():
            _log.error(
                "%s failed: %s; it restarts in %g s", event.task, event.reason, event.retry_in
            )
        case TermBegan():
            _log.info("%s leads %r (fence %s)", event.label, event.resource, event.fence)
        case TermEnded():
            _log.info(
                "%s no longer leads %r after %.3f s: %s",
                event.label,
                event.resource,
                event.led_for,
                event.cause,
            )
        case RenewalSlow():
            _log.warning(
                "the lease of the leader of %r is not renewed; %.3f s remain",
                event.resource,
                event.remaining,
            )
        case SteppingDown(cause="max_hold"):
            _log.info(
                "the leader of %r steps down: its max_hold ends in %.3f s",
                event.resource,
                event.remaining,
            )
        case SteppingDown():
            _log.warning(
                "the leader of %r steps down: its lease was not renewed, and ends in %.3f s",
                event.resource,
                event.remaining,
            )
        case TermOutlived():
            _log.error(
                "the leader of %r has worked %.3f s longer than its lease (fence %s):"
                " another may lead at the same time",
                event.resource,
                event.over_for,
                event.fence,
            )


class Sinks:
    """Pass each event to several sinks. The log reports the first exception of each sink."""

    def __init__(self, sinks: Sequence[EventSink]) -> None:
        self._sinks = sinks
        self._reported: set[int] = set()

    def __call__(self, event: Event) -> None:
        """Send the event to each sink in turn."""
        for sink in self._sinks:
            try:
                sink(event)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:
                # A sink may also raise `CancelledError`, or the exception of a failed test. An
                # exception that leaves this method would end a timer of the engine, on which other
                # leases depend.
                if id(sink) not in self._reported:
                    self._reported.add(id(sink))
                    # A filter or a handler of the log may raise an exception, too.
                    with suppress(Exception):
                        _log.exception(
                            "the sink %r failed on %s; this is reported once",
                            sink,
                            type(event).__name__,
                        )
