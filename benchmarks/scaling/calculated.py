"""Calculate the limit of each resource from the measured and the simulated figures.

The constants of this module are the only assumptions.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["SHARE", "calculate"]

SHARE = 0.5
"""Share of one core of each server that may be used.

Redis executes commands on one core. Above this share the latency grows, and there is no room for a
burst.
"""

_CLIENTS = (10, 100, 1_000, 10_000, 100_000)
_RESOURCES = (1, 1_000, 10_000, 100_000, 1_000_000)
_TTLS = (10, 60)
_SETS = (1, 2, 4, 8, 16)
_NODES = (1, 3, 5, 7, 9)
_DOWN = (0.01, 0.001)


def calculate(measured: dict[str, Any], simulated: dict[str, Any]) -> dict[str, Any]:
    """Return all calculated figures."""
    commands, memory = measured["commands"], measured["memory"]
    pair = {
        how: commands["acquire"][how] + commands["release"][how] for how in ("single", "pipelined")
    }
    most = 1e6 * SHARE / pair["single"]
    # Each lease is renewed on every node three times per ttl.
    renewals = {str(ttl): 3 * commands["extend"]["pipelined"] / ttl for ttl in _TTLS}
    held = memory["lock"] + memory["tracked"]
    asks, pushes = _per_waiting_process(simulated["contention"])
    woken = asks * commands["refused"]["single"] + pushes * measured["push"]
    return {
        "share": SHARE,
        "acquisitions": {how: 1e6 * SHARE / usec for how, usec in pair.items()},
        "leases": {ttl: 1e6 * SHARE / usec for ttl, usec in renewals.items()},
        "clients": [
            {
                "clients": clients,
                "memory": clients * memory["connection"],
                "accepted": clients <= memory["maxclients"],
                "busy": {str(rate): clients * rate * pair["single"] / 1e6 for rate in (0.1, 1, 10)},
                "sets": {
                    str(rate): max(1, math.ceil(clients * rate / most)) for rate in (0.1, 1, 10)
                },
            }
            for clients in _CLIENTS
        ],
        "resources": [
            {
                "resources": resources,
                "memory": memory["counters"] + resources * held,
                "busy": {ttl: resources * usec / 1e6 for ttl, usec in renewals.items()},
                "sets": {
                    ttl: max(1, math.ceil(resources * usec / 1e6 / SHARE))
                    for ttl, usec in renewals.items()
                },
            }
            for resources in _RESOURCES
        ],
        "asks": asks,
        "pushes": pushes,
        "waiting": [
            {
                "clients": clients,
                "usec": pair["single"] + clients * woken,
                "rate": 1e6 / (pair["single"] + clients * woken),
            }
            for clients in _CLIENTS
        ],
        "nodes": [
            {
                "nodes": nodes,
                "bears": (nodes - 1) // 2,
                "commands": 2 * nodes,
                "client": measured["client"].get(str(nodes)),
                "down": {str(down): _no_majority(nodes, down) for down in _DOWN},
            }
            for nodes in _NODES
        ],
        "sets": [
            {
                "sets": sets,
                "acquisitions": sets * most,
                "connections": 3 * sets,
                "some_down": 1 - (1 - _no_majority(3, 0.001)) ** sets,
                "names_down": _no_majority(3, 0.001),
            }
            for sets in _SETS
        ],
    }


def _no_majority(nodes: int, down: float) -> float:
    """Return the probability that too few nodes are up.

    Each node is down for a share of time, independently of the others.
    """
    bears = (nodes - 1) // 2
    return sum(
        math.comb(nodes, dead) * down**dead * (1 - down) ** (nodes - dead)
        for dead in range(bears + 1, nodes + 1)
    )


def _per_waiting_process(contention: list[dict[str, Any]]) -> tuple[float, float]:
    """Return the refused requests and the pushes of each process per hand-over.

    A process sends the requests to the lead node, which notifies it of a deleted key.
    """
    most = max(contention, key=lambda row: row["processes"])
    asks = max(0.0, most["commands"] - 2 * most["nodes"])
    return asks / most["processes"], most["pushes"] / most["processes"]
