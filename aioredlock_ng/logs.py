"""The default sink of events, the standard library's logging; it decides nothing and never logs a whole token."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aioredlock_ng.events import LeaseLost, NodeDegraded, NodeDown, NodeQuarantined, NodeSuspect, NodeTrusted, NodeUp

if TYPE_CHECKING:
    from aioredlock_ng.events import Event

__all__ = ["log_event"]

_log = logging.getLogger("aioredlock_ng")


def log_event(event: Event) -> None:
    """The default sink: losses are errors, node trouble is one warning per outage."""
    match event:
        case LeaseLost():
            held_for, token = event.held_for, event.token_prefix
            _log.error("lock %r lost after %.3f s: %s (token %s…)", event.resource, held_for, event.reason, token)
        case NodeDown():
            _log.warning("node %s is down: %s", event.node, event.reason)
        case NodeSuspect():
            _log.warning("node %s does not answer; going on without it", event.node)
        case NodeDegraded():
            _log.warning("node %s: %s", event.node, event.reason)
        case NodeQuarantined():
            _log.warning("node %s grants no lock for %.1f s more: %s", event.node, event.left, event.reason)
        case NodeTrusted():
            _log.info("node %s may grant locks again", event.node)
        case NodeUp():
            _log.info("node %s is up (%s)", event.node, event.server)
