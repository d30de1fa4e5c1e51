"""Measure acquire and release by threads without contention, beside other libraries.

Every thread has its own name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import (
    PORTAL,
    PYTHON_REDIS_LOCK,
    REDLOCK_PY,
    THREADS,
    THREADS_BARE,
    THREADSAFE,
)
from benchmarks.outcome import Outcome, Settings, at_least, at_most, median, paired_ratio
from benchmarks.process import run_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.clients import Client

__all__ = ["run"]

_THREADS: Final = (1, 100)
_AT_LEAST_PEER: Final = 1.5
_AT_LEAST_PER_SECOND: Final = 4_000
_AT_LEAST_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Turn:
    """One client on some of the five nodes."""

    client: Client
    nodes: int

    @property
    def ours(self) -> _Turn:
        return _Turn(THREADS, self.nodes)


_FIVE: Final = _Turn(THREADS, 5)
_ONE: Final = _Turn(THREADS, 1)
_REDLOCK_PY: Final = _Turn(REDLOCK_PY, 5)
_PYTHON_REDIS_LOCK: Final = _Turn(
    replace(PYTHON_REDIS_LOCK, driver="threads_python_redis_lock.py"), 1
)
_BARE_ONE: Final = _Turn(THREADS_BARE, 1)
_TURNS: Final = (
    _FIVE,
    _ONE,
    _REDLOCK_PY,
    _PYTHON_REDIS_LOCK,
    _Turn(PORTAL, 5),
    _Turn(THREADSAFE, 5),
    _Turn(THREADS_BARE, 5),
    _BARE_ONE,
)


def run(settings: Settings) -> Outcome:
    """Measure ours and the other clients on the same nodes, in turns."""
    outcome = Outcome(
        "Uncontended cycle (acquire + release) by threads, every thread its own name",
        (
            "threads",
            "client",
            "nodes",
            "cycles/s",
            "p50 ms",
            "p99 ms",
            "CPU µs/cycle",
            "slowest thread's share",
            "ours is",
        ),
    )
    for turn in _TURNS:
        turn.client.command()
    with LocalNodes(5) as nodes:
        for number in range(settings.rounds):
            for threads in _THREADS:
                for turn in _TURNS:
                    name = turn.client.name
                    settings.say(
                        f"sync: round {number + 1}/{settings.rounds}, {threads} threads, {name}, "
                        f"{turn.nodes} nodes"
                    )
                    urls = nodes.urls[: turn.nodes]
                    figures = run_client(turn.client, urls, threads, settings.seconds(2.0, 0.6))
                    outcome.raw.append(
                        {"round": number, "threads": threads, "client": name, "nodes": turn.nodes}
                        | _per_cycle(figures, threads)
                    )
    for threads in _THREADS:
        outcome.medians.extend(_medians(outcome.raw, threads))
    outcome.rows.extend(_rows(outcome.medians))
    _set_bars(outcome)
    outcome.notes.append(
        "ours is: our cycles/s on as many nodes, divided by the client's, each round by itself"
    )
    outcome.notes.append(
        "python-redis-lock: one node only, without its renewing thread; "
        "on one node ours keeps fences, queue and renewal"
    )
    outcome.notes.append("redlock-py: all five nodes, one after the other; it does not renew")
    outcome.notes.append(
        "anyio's portal, run_coroutine_threadsafe: our asyncio API from threads; "
        "an interrupted call may leave its lease"
    )
    floor = _ratio(outcome.raw, _BARE_ONE, _PYTHON_REDIS_LOCK, 1)
    outcome.notes.append(
        "bare in a thread: plain commands on an event loop in a thread, without a library; one "
        "thread on one node does "
        + ("an unknown multiple of" if floor is None else f"{floor:.2f} x")
        + " python-redis-lock's cycles/s"
    )
    outcome.notes.extend(
        f"{row['client']}, {row['threads']} threads: {why}"
        for row in outcome.medians
        if (why := row["failed"] or row["error"])
    )
    return outcome


def _per_cycle(figures: dict[str, Any], threads: int) -> dict[str, Any]:
    if not figures.get("cycles"):
        return figures
    cycles = figures["cycles"]
    return figures | {
        "cpu_per_cycle": figures["cpu_seconds"] / cycles,
        "share": figures["least"] * threads / cycles,
    }


def _by_round(raw: list[dict[str, Any]], turn: _Turn, threads: int, *path: str) -> dict[int, float]:
    found = {}
    for row in raw:
        if (row["client"], row["nodes"], row["threads"]) == (turn.client.name, turn.nodes, threads):
            value: Any = row
            for step in path:
                value = value.get(step) if value else None
            if value is not None:
                found[row["round"]] = value
    return found


def _ratio(raw: list[dict[str, Any]], turn: _Turn, peer: _Turn, threads: int) -> float | None:
    return paired_ratio(*(_by_round(raw, one, threads, "per_second") for one in (turn, peer)))


def _medians(raw: list[dict[str, Any]], threads: int) -> Iterator[dict[str, Any]]:
    for turn in _TURNS:
        mine = [
            row
            for row in raw
            if (row["client"], row["nodes"], row["threads"])
            == (turn.client.name, turn.nodes, threads)
        ]

        def figure(*path: str, of: _Turn = turn) -> float | None:
            return median(_by_round(raw, of, threads, *path).values())

        yield {
            "threads": threads,
            "client": turn.client.name,
            "nodes": turn.nodes,
            "per_second": figure("per_second"),
            "p50": figure("cycle", "p50"),
            "p99": figure("cycle", "p99"),
            "cpu_per_cycle": figure("cpu_per_cycle"),
            "share": figure("share"),
            "ours_ratio": None if turn.client is THREADS else _ratio(raw, turn.ours, turn, threads),
            "lost": sum(row.get("errors", 0) + row.get("stuck", 0) for row in mine),
            "failed": next((row["failed"] for row in mine if "failed" in row), ""),
            "error": next((row["first_error"] for row in mine if row.get("first_error")), ""),
        }


def _rows(medians: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    def shown(value: float | None, factor: float, pattern: str) -> str:
        return "-" if value is None else pattern.format(value * factor)

    for row in medians:
        yield (
            str(row["threads"]),
            row["client"],
            str(row["nodes"]),
            shown(row["per_second"], 1, "{:,.0f}"),
            shown(row["p50"], 1e3, "{:.3f}"),
            shown(row["p99"], 1e3, "{:.3f}"),
            shown(row["cpu_per_cycle"], 1e6, "{:.1f}"),
            shown(row["share"], 1, "{:.2f}"),
            "" if row["client"] == THREADS.name else shown(row["ours_ratio"], 1, "{:.2f} x"),
        )


def _set_bars(outcome: Outcome) -> None:
    for peer in (_REDLOCK_PY, _PYTHON_REDIS_LOCK):
        where = "five nodes" if peer.nodes == 5 else "one node"
        text = f"threads: cycles/s of one thread / {peer.client.name}'s, {where}"
        outcome.bars.append(at_least(text, _ratio(outcome.raw, peer.ours, peer, 1), _AT_LEAST_PEER))
    (crowd,) = (
        row
        for row in outcome.medians
        if (row["client"], row["nodes"], row["threads"]) == (THREADS.name, 5, 100)
    )
    outcome.bars.append(
        at_least(
            "threads: cycles/s of 100 threads on 100 names",
            crowd["per_second"],
            _AT_LEAST_PER_SECOND,
        )
    )
    outcome.bars.append(
        at_least("threads: share of the slowest of 100 threads", crowd["share"], _AT_LEAST_SHARE)
    )
    ours = [row for row in outcome.medians if row["client"] == THREADS.name]
    lost = None if any(row["failed"] for row in ours) else float(sum(row["lost"] for row in ours))
    outcome.bars.append(at_most("threads: acquires and releases that failed or hung", lost, 0))
