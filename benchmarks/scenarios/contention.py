"""Measure four processes that contend for one lock: rate, shares and overlaps."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.outcome import Outcome, Settings, at_least, at_most, median
from benchmarks.process import Driver, DriverFailed

if TYPE_CHECKING:
    from benchmarks.clients import Client

__all__ = ["run"]

_PROCESSES: Final = 4
_LONG_SECONDS: Final = 10.0
_HUNG: Final = 0.8

# aioredlock acquires the lock about once per second, so it runs for a short time only.
_PEER_ROUNDS: Final = 3
_PEER_SECONDS: Final = 3.0

# Each case has the waiters per process, whether one node hangs, and the bar for the rate.
_CASES: Final = (
    (25, False, 3000.0),
    (25, True, 3000.0 * _HUNG),
    (1, False, 500.0),
    (1, True, 500.0 * _HUNG),
)


def run(settings: Settings) -> Outcome:
    """Measure ours in every case, and aioredlock in the first case.

    aioredlock runs for a short time only, because it gets the lock about once per second.
    """
    outcome = Outcome(
        f"Contention between {_PROCESSES} processes, one lock, hold 0",
        (
            "client",
            "waiters each",
            "nodes",
            "hand-overs/s",
            "least share",
            "least turns of a waiter",
            "longest wait ms",
            "overlaps",
        ),
    )
    clients = [client for client in settings.clients if client.name in ("ours", "aioredlock")]
    for number in range(settings.rounds):
        for client in clients:
            if client.name != "ours" and number >= _PEER_ROUNDS:
                continue
            for waiters, hung, _ in _CASES if client.name == "ours" else _CASES[:1]:
                settings.say(
                    f"contention: round {number + 1}/{settings.rounds}, {client.name}, {waiters} "
                    "waiters each"
                )
                about = {"round": number, "client": client.name, "waiters": waiters, "hung": hung}
                seconds = settings.seconds(1.5, 1.0) if client.name == "ours" else _PEER_SECONDS
                if client.name == "ours" and not hung and waiters > 1 and number == 0:
                    # The bar of the share is for ten seconds. The other rounds measure the rate
                    # only.
                    seconds = settings.seconds(_LONG_SECONDS, 2.0)
                outcome.raw.append(
                    about | _measured(client, waiters, number % 5 if hung else None, seconds)
                )
    for client in clients:
        for waiters, hung, limit in _CASES if client.name == "ours" else _CASES[:1]:
            mine = [
                row
                for row in outcome.raw
                if (row["client"], row["waiters"], row["hung"]) == (client.name, waiters, hung)
            ]
            _summarise(outcome, client.name, waiters, hung, limit, mine)
    outcome.notes.append(
        "least share: of the slowest process, as a part of its fair quarter, in the longest window"
    )
    outcome.notes.append("overlaps: two inside at once, by a file that all processes map")
    return outcome


def _measured(client: Client, waiters: int, hung: int | None, seconds: float) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        nodes = stack.enter_context(LocalNodes(5))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="redlock-"))
        phase: dict[str, Any] = {
            "name": "line",
            "same": "line",
            "hold": 0.0,
            "seconds": seconds,
            "warmup": 0.5,
            # The window must not wait for the first acquisition of a process. A starving process
            # would be measured alone, after the windows of the others.
            "open": 0.0,
        }
        if client.name == "ours":
            phase["register"] = str(Path(folder) / "register")
        else:
            phase["grace"] = 0.2
        task = {"urls": nodes.urls, "coroutines": waiters, "ttl": 10.0, "phases": [phase]}
        try:
            drivers = [
                stack.enter_context(Driver(client.command(), client.variables(), task))
                for _ in range(_PROCESSES)
            ]
            for driver in drivers:
                driver.ready()
            if hung is not None:
                nodes.pause(hung)
            for driver in drivers:
                driver.begin()
            processes = [driver.line(seconds + 30.0) for driver in drivers]
        except DriverFailed as failure:
            return {"failed": str(failure)}
    total = sum(figures["acquired"] for figures in processes)
    return {
        "seconds": seconds,
        # The previous holder may be in another process. Every acquisition counts, because a waiter
        # cannot acquire the lock twice in a row.
        "handovers_per_second": sum(
            figures["acquired"] / figures["seconds"] for figures in processes
        ),
        "share_least": min(figures["acquired"] for figures in processes) * _PROCESSES / total
        if total
        else 0.0,
        "turns_least": min(figures["turns_least"] for figures in processes),
        # An unfinished wait at the end of the window counts too.
        "longest_wait": max(
            max(figures["waiting"], figures["wait"]["max"] if figures["wait"] else 0.0)
            for figures in processes
        ),
        "overlaps": sum(figures["overlaps"] or 0 for figures in processes),
        "lost": sum(figures["errors"] + figures["stuck"] for figures in processes),
        "processes": processes,
    }


def _summarise(
    outcome: Outcome,
    client: str,
    waiters: int,
    hung: bool,
    limit: float,
    rows: list[dict[str, Any]],
) -> None:
    measured = [row for row in rows if "failed" not in row]
    longest = max((row["seconds"] for row in measured), default=0.0)
    long = [row for row in measured if row["seconds"] == longest]
    summary: dict[str, Any] = {
        "client": client,
        "waiters": waiters,
        "hung": hung,
        "handovers_per_second": median(row["handovers_per_second"] for row in measured),
        "share_least": median(row["share_least"] for row in long),
        "turns_least": float(min((row["turns_least"] for row in long), default=0)),
        "longest_wait": max(
            (row["longest_wait"] for row in measured if row["longest_wait"]), default=None
        ),
        "overlaps": float(sum(row["overlaps"] for row in measured))
        if len(measured) == len(rows)
        else None,
        "lost": float(sum(row["lost"] for row in measured)) if len(measured) == len(rows) else None,
    }
    outcome.medians.append(summary)
    rate, wait = summary["handovers_per_second"], summary["longest_wait"]
    outcome.rows.append(
        (
            client,
            str(waiters),
            "one hung" if hung else "5",
            "-" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}",
            "-" if summary["share_least"] is None else f"{summary['share_least']:.2f}",
            f"{summary['turns_least']:,.0f}",
            "-" if wait is None else f"{wait * 1e3:,.0f}",
            f"{summary['overlaps']:.0f}"
            if client == "ours" and summary["overlaps"] is not None
            else "-",
        )
    )
    failed = next((row["failed"] for row in rows if "failed" in row), "")
    if failed:
        outcome.notes.append(f"{client}: {failed}")
    if client != "ours":
        return
    where = f"{_PROCESSES} processes x {waiters}{', one node hung' if hung else ''}"
    outcome.bars.append(at_least(f"{where}: hand-overs per second in all", rate, limit))
    outcome.bars.append(at_most(f"{where}: two inside at once", summary["overlaps"], 0))
    outcome.bars.append(
        at_most(f"{where}: acquires and releases that failed or hung", summary["lost"], 0)
    )
    if waiters > 1:
        share = f"{where}: slowest process / its fair share over {longest:g} s"
        outcome.bars.append(at_least(share, summary["share_least"], 0.5 * (_HUNG if hung else 1.0)))
        outcome.bars.append(
            at_least(f"{where}: turns of the waiter that got fewest", summary["turns_least"], 1)
        )
