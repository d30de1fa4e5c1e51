"""Examine a set of nodes and return its weaknesses, without opening a manager."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any

from aioredlock_ng._clock import boottime
from aioredlock_ng._core.keys import KeyFormat
from aioredlock_ng.options import positive_seconds
from aioredlock_ng.records import NodeFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import redis.asyncio

    from aioredlock_ng._nodes.connect import Connector
    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng.options import Options
    from aioredlock_ng.records import Diagnosis

__all__ = ["PROBE", "WATCH", "diagnose"]

PROBE = "doctor:aioredlock_ng"
"""First part of the name of the doctor's lock. A random part follows.

The name does not begin with `aioredlock_ng:`, because keys with this beginning are not locks.
"""

WATCH = 1.0
"""Seconds between two readings of the nodes' clocks.

With round trips of a few milliseconds, the measured rate of a clock is then correct to within a
percent.
"""


async def diagnose(
    nodes: Iterable[str | redis.asyncio.Redis | Connector | Node],
    options: Options,
    *,
    watch: float = WATCH,
    probe: str | bytes = PROBE,
    clock: Callable[[], float] = boottime,
) -> Diagnosis:
    """Examine all nodes at the same time, as `Redlock.diagnose` does.

    If a server is given twice, the diagnosis contains a finding, and no error is raised.

    Raises:
        ConfigurationError: A node or an argument is invalid.

    Safety: as in `Redlock.diagnose`.
    """
    # The imports take milliseconds, so they happen only for a diagnosis.
    from aioredlock_ng._doctor.examine import examine
    from aioredlock_ng._doctor.findings import diagnosis_of
    from aioredlock_ng._nodes.connect import Connector

    watch = positive_seconds("watch", watch)
    keys = KeyFormat(options.key_format)
    keys.key(probe, "probe")
    name = probe.encode() if isinstance(probe, str) else bytes(probe)
    given: list[Any] = [
        node if isinstance(node, Connector) or hasattr(node, "ask") else Connector(node)
        for node in nodes
    ]
    # Each node has its own key. If one server is given twice, its two examinations must not compete
    # for the same lock.
    names = [(node, name + b":" + secrets.token_hex(8).encode()) for node in given]
    looks = [(node, keys.key(unique, "probe")) for node, unique in names]

    async def look(node: Connector | Node, key: bytes) -> NodeFacts:
        if isinstance(node, Connector):
            return await examine(node, key, options, watch, clock, time.time)
        return NodeFacts(
            address=node.address, problem="not-examined", words="it was given as a node object"
        )

    return diagnosis_of(await asyncio.gather(*(look(node, key) for node, key in looks)), options)
