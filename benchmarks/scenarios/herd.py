"""Measure the commands and the memory of a thousand waiters behind a holder."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import Client
from benchmarks.outcome import Outcome, Settings, at_least, at_most
from benchmarks.process import Driver

from .handover import calls

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["measured", "run"]

_WAITERS: Final = 1000
_DRIVER: Final = Client("ours", "herd_ours.py")


def run(settings: Settings) -> Outcome:
    """Let one process hold the lock while another waits with a thousand tasks.

    The scenario runs once, because its figures hardly depend on the speed of the machine.
    """
    seconds = settings.seconds(10.0, 4.0)
    outcome = Outcome(
        (
            f"{_WAITERS:,} waiters on one lock that another process keeps for {seconds:.0f} s, "
            "five nodes"
        ),
        (
            "waiting",
            "commands/s in all",
            "KiB/waiter traced",
            "KiB/waiter resident",
            "connections per node",
            "served at the end",
        ),
    )
    settings.say(f"herd: {_WAITERS:,} waiters for {seconds:.0f} s")
    found = measured(_DRIVER, seconds, calls)
    weighed, served = found.pop("weighed"), found.pop("served_by")
    summary, rate, traced, resident = (
        found,
        found["commands_per_second"],
        found["traced_kib"],
        found["resident_kib"],
    )
    connections = found["connections"]
    outcome.raw.append({"weighed": weighed, "served": served} | summary)
    outcome.medians.append(summary)
    outcome.rows.append(
        (
            f"{weighed['waiting']:,}",
            f"{rate:.1f}",
            f"{traced:.2f}",
            f"{resident:.2f}",
            str(connections),
            f"{served['served']:,}",
        )
    )
    outcome.notes.append("commands: EVALSHA on all nodes, the holder's renewals included")
    outcome.notes.append(
        "memory: tracemalloc's difference for a thousand tasks that wait, tasks and coroutines "
        "included"
    )
    where = f"{_WAITERS:,} waiters"
    outcome.bars.append(
        at_most(f"{where}: commands per second on all nodes while nothing changes", rate, 5)
    )
    outcome.bars.append(at_most(f"{where}: memory per waiter by tracemalloc, KiB", traced, 2))
    outcome.bars.append(at_most(f"{where}: connections per node", float(connections), 1))
    outcome.bars.append(
        at_least(f"{where}: served in the end", float(served["served"]), _WAITERS + 1)
    )
    return outcome


def measured(driver: Client, seconds: float, count: Callable[[LocalNodes], int]) -> dict[str, Any]:
    """Let one process hold the lock while another waits with a thousand tasks.

    Args:
        driver: The driver of both processes.
        seconds: The measured time.
        count: Returns the number of commands that the nodes have read.
    """
    with LocalNodes(5) as nodes:
        task = {"urls": nodes.urls, "ttl": 10.0, "same": "herd", "waiters": _WAITERS}
        command, variables = driver.command(), driver.variables()
        with Driver(command, variables, task | {"holds": True}) as holder:
            holder.ready()
            with Driver(command, variables, task | {"holds": False}) as crowd:
                weighed = crowd.ready()
                time.sleep(0.5)
                sent, began = count(nodes), time.monotonic()
                time.sleep(seconds)
                rate = (count(nodes) - sent) / (time.monotonic() - began)
                # One connection belongs to the holder, and one to this measurement.
                connections = max(int(node.info()["connected_clients"]) for node in nodes) - 2
                crowd.begin()
                holder.begin()
                served = crowd.line(30.0)
    traced, resident = (
        weighed["traced_bytes"] / _WAITERS / 1024,
        weighed["resident_bytes"] / _WAITERS / 1024,
    )
    return {
        "weighed": weighed,
        "served_by": served,
        "waiting": weighed["waiting"],
        "commands_per_second": rate,
        "traced_kib": traced,
        "resident_kib": resident,
        "connections": connections,
        "served": served["served"],
    }
