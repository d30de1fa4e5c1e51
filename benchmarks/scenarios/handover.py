"""Measure a hundred waiters of one process on one lock: rate, order and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import FLOOR_IN_LINE, PYTHON_REDIS_LOCK
from benchmarks.outcome import Outcome, Settings, at_least, at_most, median
from benchmarks.process import Driver, DriverFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.clients import Client

__all__ = ["calls", "run"]

_WAITERS: Final = 100
_HOLD: Final = 0.005
_HUNG: Final = 0.8

# Commands that each client sends, without the commands that its scripts run on the server.
_SENT: Final = {"python-redis-lock": ("evalsha", "set", "blpop")}


def run(settings: Settings) -> Outcome:
    """Measure ours with all nodes and with one hung node, and the peers, in turns."""
    outcome = Outcome(
        f"Handing over, {_WAITERS} waiters on one lock, one process",
        (
            "client",
            "nodes",
            "hold ms",
            "hand-overs/s",
            "commands/acquisition",
            "hand-over p50 ms",
            "p99 ms",
            "overtaken",
        ),
    )
    PYTHON_REDIS_LOCK.command()
    peers = [client for client in settings.clients if client.name == "aioredlock"]
    if not settings.quick:
        peers.append(PYTHON_REDIS_LOCK)
    ours = [client for client in settings.clients if client.name == "ours"]
    peers += [FLOOR_IN_LINE for client in settings.clients if client.name == "floor"]
    for number in range(settings.rounds):
        for client in [*ours, *peers]:
            settings.say(f"handover: round {number + 1}/{settings.rounds}, {client.name}")
            holds = (0.0, _HOLD) if client.name in ("ours", "floor") else (0.0,)
            for hung in (False, True) if client.name == "ours" else (False,):
                for figures in _measured(settings, client, holds, number % 5 if hung else None):
                    outcome.raw.append(
                        {"round": number, "client": client.name, "hung": hung} | figures
                    )
    for client in [*ours, *peers]:
        for hung in (False, True):
            for hold in (0.0, _HOLD):
                mine = [
                    row
                    for row in outcome.raw
                    if (row["client"], row["hung"], row.get("hold", hold))
                    == (client.name, hung, hold)
                ]
                if mine:
                    _summarise(outcome, client.name, hung, hold, mine)
    outcome.notes.append(
        "floor: no lock library, an acquire and a release per hand-over and a queue; "
        "what this machine allows"
    )
    outcome.notes.append(
        "hand-over: from release() called to the next waiter running; commands: "
        "EVALSHA on all nodes together"
    )
    outcome.notes.append(
        "python-redis-lock: threads, one node only, in its own environment, SET and BLPOP counted "
        "as well"
    )
    return outcome


def calls(
    nodes: LocalNodes, commands: Sequence[str] = ("evalsha",), hung: int | None = None
) -> int:
    """Return how often the nodes have run these commands.

    A hung node is left out, because it does not answer.
    """
    total = 0
    for index, node in enumerate(nodes):
        if index != hung:
            for line in node.command("INFO", "commandstats").decode().splitlines():
                name, _, rest = line.partition(":calls=")
                if name.removeprefix("cmdstat_") in commands:
                    total += int(rest.partition(",")[0])
    return total


def _measured(
    settings: Settings, client: Client, holds: Sequence[float], hung: int | None
) -> list[dict[str, Any]]:
    seconds = settings.seconds(1.2, 0.8)
    phases = [
        {"name": f"hold {hold}", "same": f"line:{hold}", "hold": hold, "seconds": seconds}
        for hold in holds
    ]
    sent = _SENT.get(client.name, ("evalsha",))
    rows = []
    with LocalNodes(5) as nodes:
        task = {"urls": nodes.urls, "coroutines": _WAITERS, "ttl": 10.0, "phases": phases}
        try:
            with Driver(client.command(), client.variables(), task) as driver:
                driver.ready()
                if hung is not None:
                    nodes.pause(hung)
                for hold in holds:
                    before = calls(nodes, sent, hung)
                    figures = driver.phase(seconds)
                    figures["hold"] = hold
                    figures["commands"] = (calls(nodes, sent, hung) - before) / max(
                        1, figures["acquired_in_all"]
                    )
                    rows.append(figures)
        except DriverFailed as failure:
            rows.append({"failed": str(failure)})
    return rows


def _summarise(
    outcome: Outcome, client: str, hung: bool, hold: float, rows: list[dict[str, Any]]
) -> None:
    measured = [row for row in rows if "failed" not in row]
    delays = [row["delay"] for row in measured if row["delay"]]
    summary: dict[str, Any] = {
        "client": client,
        "hung": hung,
        "hold": hold,
        "handovers_per_second": median(row["handovers_per_second"] for row in measured),
        "commands": median(row["commands"] for row in measured),
        "delay_p50": median(delay["p50"] for delay in delays),
        "delay_p99": median(delay["p99"] for delay in delays),
        "overtaken": float(sum(row["overtaken"] for row in measured))
        if measured and "overtaken" in measured[0]
        else None,
        "lost": float(sum(row["errors"] + row["stuck"] for row in measured))
        if len(measured) == len(rows)
        else None,
    }
    outcome.medians.append(summary)

    def shown(value: float | None, factor: float, digits: int) -> str:
        return "-" if value is None else f"{value * factor:,.{digits}f}"

    outcome.rows.append(
        (
            client,
            "one hung" if hung else "1" if client == "python-redis-lock" else "5",
            f"{hold * 1e3:g}",
            shown(summary["handovers_per_second"], 1, 0),
            shown(summary["commands"], 1, 1),
            shown(summary["delay_p50"], 1e3, 3),
            shown(summary["delay_p99"], 1e3, 3),
            shown(summary["overtaken"], 1, 0),
        )
    )
    failed = next((row["failed"] for row in rows if "failed" in row), "")
    error = failed or next((row["first_error"] for row in measured if row["first_error"]), "")
    if error:
        outcome.notes.append(f"{client}: {error}")
    if client == "ours":
        _set_bars(outcome, summary)


def _set_bars(outcome: Outcome, summary: dict[str, Any]) -> None:
    hold, slack = summary["hold"], _HUNG if summary["hung"] else 1.0
    where = (
        f"{_WAITERS} waiters, hold {hold * 1e3:g} ms{', one node hung' if summary['hung'] else ''}"
    )
    rate, delay = summary["handovers_per_second"], summary["delay_p50"]
    if hold:
        possible = None if rate is None else rate * hold
        outcome.bars.append(
            at_least(
                f"{where}: hand-overs / the possible {1 / hold:.0f} per second",
                possible,
                0.9 * slack,
            )
        )
        ms = None if delay is None else delay * 1e3
        outcome.bars.append(
            at_most(f"{where}: hand-over delay p50, ms", ms, 0.3 / slack if slack == 1.0 else 0.36)
        )
    else:
        outcome.bars.append(at_least(f"{where}: hand-overs per second", rate, 5000 * slack))
        outcome.bars.append(
            at_most(
                f"{where}: commands per acquisition, nodes that answer", summary["commands"], 12
            )
        )
    outcome.bars.append(
        at_most(f"{where}: served before an earlier arrival", summary["overtaken"], 0)
    )
    outcome.bars.append(
        at_most(f"{where}: acquires and releases that failed or hung", summary["lost"], 0)
    )
