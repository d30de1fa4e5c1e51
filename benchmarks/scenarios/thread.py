"""Measure the cost of `thread=True`, and the leases that it saves if the event loop blocks."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import BARE, BARE_THREAD, OURS
from benchmarks.outcome import (
    Grid,
    Outcome,
    Settings,
    at_least,
    at_most,
    lost,
    median,
    paired_ratio,
)
from benchmarks.process import Driver, DriverFailed, run_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.clients import Client

__all__ = ["run"]

_COROUTINES: Final = (1, 10, 100)
_LATENCY_AT_MOST: Final = 2.0
_THROUGHPUT_AT_LEAST: Final = 0.5
_LEASES: Final = 1_000
_TTL: Final = 1.0
_BLOCKED_SECONDS: Final = 5.0
_DRIVER: Final = Path(__file__).parents[1] / "drivers" / "blocked_ours.py"


@dataclass(frozen=True, slots=True)
class _Turn:
    """One client on the caller's loop or in a thread of its own."""

    name: str
    client: Client
    thread: bool


_TURNS: Final = (
    _Turn("ours", OURS, thread=False),
    _Turn("ours", OURS, thread=True),
    _Turn("bare", BARE, thread=False),
    _Turn("bare", BARE_THREAD, thread=True),
)


def run(settings: Settings) -> Outcome:
    """Measure a manager with and without `thread=True`, in turns."""
    outcome = Outcome(
        (
            "Uncontended cycle with the engine in a thread of its own, five nodes, every coroutine "
            "its own name"
        ),
        ("coroutines", "client", "engine", "cycles/s", "p50 ms", "p99 ms", "CPU µs/cycle"),
    )
    blocked = Grid(
        (
            f"{_LEASES:,} leases, ttl {_TTL:g} s, while the event loop blocks for "
            f"{_BLOCKED_SECONDS:g} s"
        ),
        ("engine", "held before", "lost"),
    )
    losses = []
    with LocalNodes(5) as nodes:
        for number in range(settings.rounds):
            for coroutines in _COROUTINES:
                for turn in _TURNS:
                    settings.say(
                        f"thread: round {number + 1}/{settings.rounds}, {coroutines} coroutines, "
                        f"{turn.client.name} {_named(turn.thread)}"
                    )
                    figures = run_client(
                        turn.client,
                        nodes.urls,
                        coroutines,
                        settings.seconds(2.0, 0.6),
                        options={"thread": turn.thread},
                    )
                    outcome.raw.append(
                        {
                            "round": number,
                            "coroutines": coroutines,
                            "client": turn.name,
                            "thread": turn.thread,
                        }
                        | figures
                    )
        for thread in (False, True):
            settings.say(f"thread: blocked, {_named(thread)}")
            held, gone = _blocked(nodes.urls, thread=thread)
            outcome.raw.append({"blocked": True, "thread": thread, "held": held, "lost": gone})
            blocked.rows.append((_named(thread), f"{held:,}", f"{gone:,}"))
            losses.append(gone)
    outcome.rows.extend(_rows(outcome.raw))
    outcome.further.append(blocked)
    outcome.bars.append(
        at_most(
            "thread=True, p50 of a cycle at 1 coroutine / without",
            _ratio(outcome.raw, "ours", 1, "cycle", "p50"),
            _LATENCY_AT_MOST,
        )
    )
    outcome.bars.append(
        at_least(
            "thread=True, throughput at 100 coroutines / without",
            _ratio(outcome.raw, "ours", 100, "per_second"),
            _THROUGHPUT_AT_LEAST,
        )
    )
    outcome.bars.append(
        at_most(
            "thread=True, leases lost by a loop that blocks for five ttls", float(losses[1]), 0.0
        )
    )
    ours = (row for row in outcome.raw if row.get("client") == "ours")
    outcome.bars.append(at_most("thread: acquires and releases that failed or hung", lost(ours), 0))
    floor = _ratio(outcome.raw, "bare", 1, "cycle", "p50")
    outcome.notes.append(
        "bare: plain commands without a library; its p50 in a thread at 1 coroutine is "
        + ("unknown" if floor is None else f"{floor:.2f} x its p50 on the caller's loop")
    )
    return outcome


def _blocked(urls: list[str], *, thread: bool) -> tuple[int, int]:
    task = {
        "urls": urls,
        "leases": _LEASES,
        "ttl": _TTL,
        "thread": thread,
        "seconds": _BLOCKED_SECONDS,
    }
    try:
        with Driver([sys.executable, str(_DRIVER)], OURS.variables(), task) as driver:
            held = driver.ready()["held"]
            return held, driver.phase(_BLOCKED_SECONDS)["lost"]
    except DriverFailed:
        return 0, _LEASES


def _named(thread: bool) -> str:
    return "in a thread" if thread else "on the caller's loop"


def _by_round(
    raw: list[dict[str, Any]], client: str, coroutines: int, *path: str, thread: bool
) -> dict[int, float]:
    found = {}
    for row in raw:
        if (row.get("client"), row.get("coroutines"), row["thread"]) == (
            client,
            coroutines,
            thread,
        ):
            value: Any = row
            for step in path:
                value = value.get(step) if value else None
            if value is not None:
                found[row["round"]] = value
    return found


def _ratio(raw: list[dict[str, Any]], client: str, coroutines: int, *path: str) -> float | None:
    return paired_ratio(
        _by_round(raw, client, coroutines, *path, thread=True),
        _by_round(raw, client, coroutines, *path, thread=False),
    )


def _rows(raw: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    def shown(value: float | None, factor: float, pattern: str) -> str:
        return "-" if value is None else pattern.format(value * factor)

    for coroutines in _COROUTINES:
        for turn in _TURNS:

            def figure(*path: str, at: int = coroutines, of: _Turn = turn) -> float | None:
                return median(_by_round(raw, of.name, at, *path, thread=of.thread).values())

            cpu, cycles = figure("cpu_seconds"), figure("cycles")
            yield (
                str(coroutines),
                turn.name,
                _named(turn.thread),
                shown(figure("per_second"), 1, "{:,.0f}"),
                shown(figure("cycle", "p50"), 1e3, "{:.3f}"),
                shown(figure("cycle", "p99"), 1e3, "{:.3f}"),
                shown(None if cpu is None or not cycles else cpu / cycles, 1e6, "{:.1f}"),
            )
