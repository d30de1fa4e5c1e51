"""Measure acquire and release without contention, with 1 to 1,000 coroutines.

There are no faults, and each coroutine has its own name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import OURS, SEMAPHORE, labelled
from benchmarks.outcome import (
    Bar,
    Outcome,
    Settings,
    at_least,
    at_most,
    lost,
    median,
    paired_ratio,
)
from benchmarks.process import run_client

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.clients import Client

__all__ = ["COROUTINES", "run"]

COROUTINES: Final = (1, 10, 100, 1000)

_AT_LEAST_AIOREDLOCK: Final = {10: 8.0, 100: 20.0, 1000: 25.0}
_AT_LEAST_FLOOR: Final = 0.6
_CLIENT_CPU_AT_MOST: Final = 1.6
_SERVER_CPU_AT_MOST: Final = 1.8
_SEMAPHORE_AT_LEAST: Final = 1 / 1.15

# With a thousand coroutines some cycles take more than a second. A window must contain several.
_LONG_WINDOW: Final = 2.5


def run(settings: Settings) -> Outcome:
    """Measure every client at every number of coroutines.

    The clients and the other trees of the library take turns.
    """
    clients = list(settings.clients)
    if OURS in clients:
        clients.append(SEMAPHORE)
    for path in settings.libraries:
        label = labelled(path, [client.name for client in clients])
        clients.append(
            replace(OURS, name=label, source=path.resolve(), note=f"the library at {label}")
        )
    outcome = Outcome(
        "Uncontended cycle (acquire + release), five nodes, every coroutine its own name",
        (
            "coroutines",
            "client",
            "cycles/s",
            "p50 ms",
            "p99 ms",
            "acquire p50 ms",
            "client CPU µs/cycle",
            "server CPU µs/cycle",
            "ours is",
        ),
    )
    with LocalNodes(5) as nodes:
        for number in range(settings.rounds):
            for coroutines in COROUTINES:
                seconds = settings.seconds(2.0, 0.6) * (
                    _LONG_WINDOW if coroutines == COROUTINES[-1] else 1.0
                )
                for client in clients:
                    settings.say(
                        f"cycle: round {number + 1}/{settings.rounds}, {coroutines} coroutines, "
                        f"{client.name}"
                    )
                    figures = run_client(
                        client, nodes.urls, coroutines, seconds, servers=nodes.urls
                    )
                    about = {"round": number, "coroutines": coroutines, "client": client.name}
                    outcome.raw.append(about | figures)
    for coroutines in COROUTINES:
        outcome.medians.extend(_medians(outcome.raw, coroutines, clients))
    outcome.rows.extend(_rows(outcome.medians))
    outcome.bars.extend(_bars(outcome.raw, {client.name for client in clients}))
    outcome.notes.extend(f"{client.name}: {client.note}" for client in clients if client.note)
    outcome.notes.extend(
        f"{row['client']} at {row['coroutines']} coroutines: {row['failed'] or row['first_error']}"
        for row in outcome.medians
        if row["failed"] or row["errors"]
    )
    return outcome


def by_round(
    raw: list[dict[str, Any]], client: str, coroutines: int, *path: str
) -> dict[int, float]:
    """Return one figure of one client by round. Rounds without the figure are left out."""
    found = {}
    for row in raw:
        if row["client"] == client and row["coroutines"] == coroutines:
            value: Any = row
            for step in path:
                value = value.get(step) if value else None
            if value is not None:
                found[row["round"]] = value
    return found


def _medians(
    raw: list[dict[str, Any]], coroutines: int, clients: Sequence[Client]
) -> Iterator[dict[str, Any]]:
    for client in clients:
        mine = [
            row for row in raw if row["client"] == client.name and row["coroutines"] == coroutines
        ]

        def figure(*path: str, name: str = client.name) -> float | None:
            return median(by_round(raw, name, coroutines, *path).values())

        rate = figure("per_second")
        cpu, server_cpu = (
            median(_cpu_by_round(raw, client.name, coroutines, whose).values())
            for whose in ("cpu_seconds", "server_cpu_seconds")
        )
        yield {
            "coroutines": coroutines,
            "client": client.name,
            "per_second": rate,
            "p50": figure("cycle", "p50"),
            "p99": figure("cycle", "p99"),
            "acquire_p50": figure("acquire", "p50"),
            "cpu_per_cycle": cpu,
            "server_cpu_per_cycle": server_cpu,
            "ours_throughput_ratio": paired_ratio(
                by_round(raw, "ours", coroutines, "per_second"),
                by_round(raw, client.name, coroutines, "per_second"),
            ),
            "errors": sum(row.get("errors", 0) for row in mine),
            "first_error": next((row["first_error"] for row in mine if row.get("first_error")), ""),
            "failed": next((row["failed"] for row in mine if "failed" in row), ""),
        }


def _cpu_by_round(
    raw: list[dict[str, Any]], client: str, coroutines: int, whose: str
) -> dict[int, float]:
    cycles = by_round(raw, client, coroutines, "cycles")
    return {
        number: cpu / cycles[number]
        for number, cpu in by_round(raw, client, coroutines, whose).items()
        if cycles[number]
    }


def _rows(medians: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    def shown(value: float | None, factor: float, pattern: str) -> str:
        return "-" if value is None else pattern.format(value * factor)

    for row in medians:
        yield (
            str(row["coroutines"]),
            row["client"],
            shown(row["per_second"], 1, "{:,.0f}"),
            shown(row["p50"], 1e3, "{:.3f}"),
            shown(row["p99"], 1e3, "{:.3f}"),
            shown(row["acquire_p50"], 1e3, "{:.3f}"),
            shown(row["cpu_per_cycle"], 1e6, "{:.1f}"),
            shown(row["server_cpu_per_cycle"], 1e6, "{:.1f}"),
            "" if row["client"] == "ours" else shown(row["ours_throughput_ratio"], 1, "{:.2f} x"),
        )


def _bars(raw: list[dict[str, Any]], asked: set[str]) -> Iterator[Bar]:
    """Yield the bars that compare ours with the clients in `asked`."""

    def ratio(peer: str, coroutines: int, *path: str) -> float | None:
        return paired_ratio(
            by_round(raw, "ours", coroutines, *path), by_round(raw, peer, coroutines, *path)
        )

    if "ours" in asked:
        ours = (row for row in raw if row["client"] in ("ours", SEMAPHORE.name))
        yield at_most("cycle: acquires and releases that failed or hung", lost(ours), 0)
    if {"ours", "aioredlock"} <= asked:
        yield at_most(
            "cycle p50 at 1 coroutine / aioredlock's", ratio("aioredlock", 1, "cycle", "p50"), 0.5
        )
        for coroutines, limit in _AT_LEAST_AIOREDLOCK.items():
            text = f"throughput at {coroutines} coroutines / aioredlock's"
            yield at_least(text, ratio("aioredlock", coroutines, "per_second"), limit)
    if SEMAPHORE.name in asked:
        for coroutines in (1, 100):
            theirs = paired_ratio(
                *(
                    by_round(raw, name, coroutines, "per_second")
                    for name in (SEMAPHORE.name, "ours")
                )
            )
            yield at_least(
                f"semaphores: throughput at {coroutines} coroutines / locks'",
                theirs,
                _SEMAPHORE_AT_LEAST,
            )
    if {"ours", "floor"} <= asked:
        yield at_least(
            "throughput at 100 coroutines / the floor's",
            ratio("floor", 100, "per_second"),
            _AT_LEAST_FLOOR,
        )
    if {"ours", "bare"} <= asked:

        def cpu(coroutines: int, whose: str) -> float | None:
            return paired_ratio(
                *(_cpu_by_round(raw, client, coroutines, whose) for client in ("ours", "bare"))
            )

        for coroutines in COROUTINES[1:]:
            text = f"client CPU per cycle at {coroutines} coroutines / the bare client's"
            yield at_most(text, cpu(coroutines, "cpu_seconds"), _CLIENT_CPU_AT_MOST)
        yield at_most(
            "server CPU per cycle at 100 coroutines / under the bare client",
            cpu(100, "server_cpu_seconds"),
            _SERVER_CPU_AT_MOST,
        )
