"""Measure a few coroutines while one of five nodes hangs, is slow, or is dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.distance import distant
from benchmarks.outcome import Outcome, Settings, at_most, lost, median, paired_ratio
from benchmarks.process import Driver, DriverFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.clients import Client

__all__ = ["run_hung", "run_killed", "run_slow"]

_COROUTINES: Final = 4
_NODES: Final = 5
_SLOW_MILLISECONDS: Final = 5

# The floor and the bare client have no timeouts, and redis-py's Lock has one node. A fault of a
# minority cannot be measured with them.
_NOT_HERE: Final = ("bare", "floor", "redis-py")


def run_hung(settings: Settings) -> Outcome:
    """Stop the process of one node by SIGSTOP.

    The node keeps its connections but does not answer.
    """
    return _run(
        settings,
        "one node hung",
        1.2,
        lambda client, node: _broken(settings, client, node, LocalNodes.pause),
    )


def run_killed(settings: Settings) -> Outcome:
    """Kill the process of one node (SIGKILL).

    Connections to the node are reset, and new ones are refused.
    """
    return _run(
        settings,
        "one node killed",
        1.2,
        lambda client, node: _broken(settings, client, node, LocalNodes.crash),
    )


def run_slow(settings: Settings) -> Outcome:
    """Delay the answers of one node by 5 ms."""
    title = f"one node {_SLOW_MILLISECONDS} ms slow"
    return _run(settings, title, 2.0, lambda client, node: _slowed(settings, client, node))


def _run(
    settings: Settings,
    fault: str,
    limit: float,
    measure: Callable[[Client, int], tuple[dict[str, Any], dict[str, Any]]],
) -> Outcome:
    outcome = Outcome(
        f"{fault.capitalize()}, {_COROUTINES} coroutines",
        (
            "client",
            "healthy p50 ms",
            "p50 ms",
            "ratio",
            "p99 ms",
            "longest ms",
            "cycles",
            "errors",
            "stuck coroutines",
        ),
    )
    clients = [client for client in settings.clients if client.name not in _NOT_HERE]
    for number in range(settings.rounds):
        for client in clients:
            settings.say(f"{fault}: round {number + 1}/{settings.rounds}, {client.name}")
            about = {"round": number, "client": client.name}
            try:
                healthy, faulty = measure(client, number % _NODES)
            except DriverFailed as failure:
                outcome.raw.append(about | {"failed": str(failure)})
            else:
                outcome.raw.append(about | {"healthy": healthy, "faulty": faulty})
    for client in clients:
        mine = [row for row in outcome.raw if row["client"] == client.name]
        summary = _medians(client, mine)
        outcome.medians.append(summary)
        outcome.rows.append(_row(summary))
        if summary["first_error"]:
            outcome.notes.append(f"{client.name}: {summary['first_error']}")
        if client.name == "ours":
            outcome.bars.append(
                at_most(f"{fault}: cycle p50 / healthy p50", summary["ratio"], limit)
            )
            outcome.bars.append(
                at_most(f"{fault}: acquires and releases that failed or hung", summary["lost"], 0)
            )
    return outcome


def _broken(
    settings: Settings, client: Client, node: int, fault: Callable[[LocalNodes, int], None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run one process through a healthy phase, the fault, and a phase that begins with it."""
    healthy, faulty = settings.seconds(2.0, 0.6), settings.seconds(4.0, 1.5)
    phases = [
        {"name": "healthy", "seconds": healthy},
        {"name": "faulty", "seconds": faulty, "warm": False},
    ]
    with LocalNodes(_NODES) as nodes, _driver(client, nodes.urls, phases) as driver:
        driver.ready()
        first = driver.phase(healthy)
        fault(nodes, node)
        return first, driver.phase(faulty)


def _slowed(settings: Settings, client: Client, node: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run two processes, one after the other.

    The first reaches all nodes directly. The second reaches one node through the proxy.
    """
    seconds = settings.seconds(2.0, 0.6)
    phases = [{"name": "cycle", "seconds": seconds}]
    with LocalNodes(_NODES) as nodes:
        with _driver(client, nodes.urls, phases) as driver:
            driver.ready()
            healthy = driver.phase(seconds)
        with (
            distant(nodes.urls, _SLOW_MILLISECONDS, [node]) as urls,
            _driver(client, urls, phases) as driver,
        ):
            driver.ready()
            return healthy, driver.phase(seconds)


def _driver(client: Client, urls: Sequence[str], phases: Sequence[dict[str, Any]]) -> Driver:
    task = {"urls": urls, "coroutines": _COROUTINES, "ttl": 10.0, "phases": phases}
    return Driver(client.command(), client.variables(), task)


def _medians(client: Client, rows: list[dict[str, Any]]) -> dict[str, Any]:
    measured = [row for row in rows if "failed" not in row]

    def by_round(phase: str, figure: str) -> dict[int, float]:
        return {
            row["round"]: row[phase]["cycle"][figure] for row in measured if row[phase]["cycle"]
        }

    def total(figure: str) -> int:
        return sum(row["faulty"][figure] for row in measured)

    errors, stuck = total("errors"), total("stuck")
    first_error = next(
        (row["faulty"]["first_error"] for row in measured if row["faulty"]["first_error"]), ""
    )
    return {
        "client": client.name,
        "healthy_p50": median(by_round("healthy", "p50").values()),
        "p50": median(by_round("faulty", "p50").values()),
        "ratio": paired_ratio(by_round("faulty", "p50"), by_round("healthy", "p50")),
        "p99": median(by_round("faulty", "p99").values()),
        "longest": max(by_round("faulty", "max").values(), default=None),
        "cycles": total("cycles"),
        "errors": errors,
        "stuck": stuck,
        # The calls before the fault must not fail either.
        "lost": lost(row[phase] for row in measured for phase in ("healthy", "faulty"))
        if len(measured) == len(rows)
        else None,
        "first_error": first_error or next((row["failed"] for row in rows if "failed" in row), ""),
    }


def _row(summary: dict[str, Any]) -> tuple[str, ...]:
    def shown(value: float | None, factor: float = 1e3, digits: int = 3) -> str:
        return "-" if value is None else f"{value * factor:,.{digits}f}"

    # If a cycle never ended, the median of the others cannot be compared.
    ratio = (
        "hangs" if summary["p50"] is None and summary["stuck"] else shown(summary["ratio"], 1, 2)
    )
    return (
        summary["client"],
        shown(summary["healthy_p50"]),
        shown(summary["p50"]),
        ratio,
        shown(summary["p99"]),
        shown(summary["longest"]),
        f"{summary['cycles']:,}",
        f"{summary['errors']:,}",
        f"{summary['stuck']:,}",
    )
