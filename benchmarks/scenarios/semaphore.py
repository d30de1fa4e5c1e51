"""Measure semaphores beside those of other libraries.

The figures are the rate, the holders at the same time, fairness, commands and lost slots.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import PY_REDIS_SEMAPHORE, REDIS_SEMAPHORE_ASYNC, SEMAPHORE, STEINDAMM
from benchmarks.crowd.figures import most_inside, reached, wire_only
from benchmarks.drivers.tracing import traced
from benchmarks.outcome import Outcome, Settings, at_least, at_most, median
from benchmarks.process import Driver, DriverFailed

from .handover import calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.clients import Client
    from benchmarks.crowd.figures import Hold

__all__ = ["TURNS", "Turn", "run"]

_LIMIT: Final = 8
_PROCESSES: Final = 4
_WAITERS: Final = 16
_HOLD: Final = 0.005
_TTL: Final = 10.0
_IDEAL: Final = _LIMIT / _HOLD

_LOST: Final = 4
"""Slots that the killed process holds. The other slots show that the survivors still work."""
_SURVIVORS: Final = 16
_LONG_HOLD: Final = 0.5
"""Hold of the survivors in seconds. With it even the slowest client uses every free slot."""
_TTL_OF_THE_KILLED: Final = 2.0
_TAKEN_SECONDS: Final = 10.0
_AGAIN_WITHIN: Final = _TTL_OF_THE_KILLED + 0.2
"""The ttl and a margin for the wake-up.

The bar of `wakeup` for a waiter of an expired key is 120 ms.
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """One client and how its commands are counted.

    Attributes:
        client: Its driver reads `limit` from the task.
        nodes: Number of nodes that the client asks.
        sent: Commands that the client sends and its scripts do not call. Empty: all that no script
            can call.
        in_pairs: Commands of `sent` that always go out with a second command, which the scripts
            call too.
    """

    client: Client
    nodes: int = 1
    sent: tuple[str, ...] = ()
    in_pairs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the client in tables."""
        return "ours" if self.client is SEMAPHORE else self.client.name

    def commands(self, nodes: LocalNodes) -> int:
        """Return the number of commands that all nodes have read from this client.

        Commands that scripts call do not count.
        """
        if not self.sent:
            return sum(wire_only(node.command("INFO", "commandstats").decode()) for node in nodes)
        return calls(nodes, self.sent) + calls(nodes, self.in_pairs)


TURNS: Final = (
    Turn(SEMAPHORE, 5),
    Turn(STEINDAMM, sent=("evalsha", "blpop", "lpush", "expire", "multi", "exec")),
    # The client sends LTRIM together with PEXPIRE.
    Turn(PY_REDIS_SEMAPHORE, sent=("evalsha", "blpop", "lpush", "ltrim"), in_pairs=("ltrim",)),
    # The only script releases redis-py's lock and calls GET once. So the calls of GET include those
    # of EVALSHA.
    Turn(
        REDIS_SEMAPHORE_ASYNC,
        sent=(
            *("get", "set", "exists", "incrby", "decrby", "lpush", "lindex", "lrem", "rpop"),
            *("publish", "subscribe", "unsubscribe"),
        ),
    ),
)

_NOTES: Final = (
    (
        "the other libraries ask one node, ours asks five; commands: "
        "per acquisition and node, without those of scripts"
    ),
    (
        "inside: most holders at the same time, by the clock of the machine; slowest: "
        "share of the slowest waiter"
    ),
    (
        f"killed: from SIGKILL of a holder of {_LOST} slots, ttl {_TTL_OF_THE_KILLED:g} s, until "
        "others hold the first, and all"
    ),
    (
        "killed: each use of steindamm's keys puts off their expiry; "
        "the slots of redis-semaphore-async have no ttl"
    ),
)


def run(settings: Settings, turns: Sequence[Turn] = TURNS) -> Outcome:
    """Measure every client under the same load, and after a holder is killed."""
    outcome = Outcome(
        (
            f"Semaphore with {_LIMIT} slots, {_PROCESSES} x {_WAITERS} waiters, hold "
            f"{_HOLD * 1e3:g} ms"
        ),
        (
            *(
                "client",
                "nodes",
                "per s",
                f"of {_IDEAL:,.0f}",
                "inside",
                "slowest",
                "longest wait s",
                "commands",
            ),
            *("killed: first s", "all s"),
        ),
    )
    for turn in turns:
        turn.client.command()
    watched = settings.seconds(8.0, 5.0)
    for number in range(settings.rounds):
        for turn in turns:
            settings.say(f"semaphore: round {number + 1}/{settings.rounds}, {turn.name}")
            row: dict[str, Any] = {"round": number, "client": turn.name}
            for measure, seconds in ((_loaded, settings.seconds(4.0, 1.0)), (_killed, watched)):
                try:
                    row |= measure(turn, seconds)
                except DriverFailed as failure:
                    row["failed"] = str(failure)
            outcome.raw.append(row)
    for turn in turns:
        _summarise(outcome, turn, watched)
    outcome.notes += _NOTES
    return outcome


def _loaded(turn: Turn, seconds: float) -> dict[str, Any]:
    with ExitStack() as stack:
        nodes = stack.enter_context(LocalNodes(turn.nodes))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="redlock-"))
        task = _task(nodes, _WAITERS, _HOLD, seconds, _TTL, folder)
        drivers = [stack.enter_context(_driver(turn, task)) for _ in range(_PROCESSES)]
        pids = [driver.ready()["pid"] for driver in drivers]
        before = turn.commands(nodes)
        for driver in drivers:
            driver.begin()
        said = [driver.line(seconds + 40.0) for driver in drivers]
        commands = turn.commands(nodes) - before
        holds = _holds(Path(folder), pids, time.perf_counter())
    acquired, in_all = (sum(line[key] for line in said) for key in ("acquired", "acquired_in_all"))
    return {
        "rate": sum(line["acquired"] / line["seconds"] for line in said),
        "inside": most_inside(holds),
        "slowest": min(line["turns_least"] for line in said) * _PROCESSES * _WAITERS / acquired
        if acquired
        else 0.0,
        "wait": max(
            max(line["waiting"], line["wait"]["max"] if line["wait"] else 0.0) for line in said
        ),
        "commands": commands / in_all / turn.nodes if in_all else None,
        "errors": sum(line["errors"] for line in said),
        "stuck": sum(line["stuck"] for line in said),
        "first_error": next((line["first_error"] for line in said if line["first_error"]), ""),
    }


def _killed(turn: Turn, seconds: float) -> dict[str, Any]:
    """Kill a holder, and return the seconds until others held its first slot, and all slots.

    None means never.
    """
    with ExitStack() as stack:
        nodes = stack.enter_context(LocalNodes(turn.nodes))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="redlock-"))
        path, longer = Path(folder), seconds + 2 * _TAKEN_SECONDS
        tasks = (
            _task(nodes, _LOST, longer, longer, _TTL_OF_THE_KILLED, folder),
            _task(nodes, _SURVIVORS, _LONG_HOLD, longer, _TTL_OF_THE_KILLED, folder),
        )
        victim, survivors = (stack.enter_context(_driver(turn, task)) for task in tasks)
        pids = [driver.ready()["pid"] for driver in (victim, survivors)]
        victim.begin()
        _await_holds(path, pids[0], _LOST)
        survivors.begin()
        _await_holds(path, pids[1], _LIMIT - _LOST)
        # A client with renewal has renewed at this point.
        time.sleep(_TTL_OF_THE_KILLED / 2)
        os.kill(victim.pid, signal.SIGKILL)
        killed = time.perf_counter()
        before = most_inside(_holds(path, pids, killed))
        time.sleep(seconds)
        theirs = _holds(path, pids[1:], time.perf_counter())
        os.kill(survivors.pid, signal.SIGKILL)
    # A holder beyond the limit would look like a slot that is held again.
    told = before <= _LIMIT
    return {
        "inside_before": before,
        # Survivors that acquire nothing have another failure than a lost slot.
        "acquired_after": sum(got > killed for got, _ in theirs),
        "first_again": reached(theirs, _LIMIT - _LOST + 1, killed) if told else None,
        "all_again": reached(theirs, _LIMIT, killed) if told else None,
    }


def _task(
    nodes: LocalNodes, waiters: int, hold: float, seconds: float, ttl: float, folder: str
) -> dict[str, Any]:
    phase = {
        "name": "semaphore",
        "same": "bench",
        "hold": hold,
        "seconds": seconds,
        "trace": folder,
    }
    # Processes that starve would be left out if the window waited for their first acquisition.
    phase |= {"open": 0.0, "warmup": 0.5}
    return {
        "urls": nodes.urls,
        "coroutines": waiters,
        "ttl": ttl,
        "limit": _LIMIT,
        "phases": [phase],
    }


def _driver(turn: Turn, task: dict[str, Any]) -> Driver:
    return Driver(turn.client.command(), turn.client.variables(), task)


def _holds(folder: Path, pids: Iterable[int], now: float) -> list[Hold]:
    return [(got, left or now) for pid in pids for got, left in traced(folder, pid)]


def _await_holds(folder: Path, pid: int, count: int) -> None:
    """Wait until a process holds `count` slots.

    Raises:
        DriverFailed: The process holds fewer after ten seconds.
    """
    deadline = time.perf_counter() + _TAKEN_SECONDS
    while sum(not left for _, left in traced(folder, pid)) < count:
        if time.perf_counter() > deadline:
            raise DriverFailed(f"{count} slots were not taken in {_TAKEN_SECONDS:g} s")
        time.sleep(0.02)


def _summarise(outcome: Outcome, turn: Turn, watched: float) -> None:
    name = turn.name
    rows = [row for row in outcome.raw if row["client"] == name]
    loaded = [row for row in rows if "rate" in row]
    killed = [row for row in rows if "inside_before" in row]
    summary: dict[str, Any] = {"client": name, "nodes": turn.nodes}
    summary |= {
        key: median(row[key] for row in loaded) for key in ("rate", "slowest", "wait", "commands")
    }
    summary["inside"] = max((row["inside"] for row in loaded), default=None)
    # If one round has no value, the summary has none. A median would hide this round.
    for key in ("first_again", "all_again"):
        came = [row[key] for row in killed]
        summary[key] = median(came) if came and None not in came else None
    summary["lost"] = (
        sum(row["errors"] + row["stuck"] for row in loaded) if len(loaded) == len(rows) else None
    )
    outcome.medians.append(summary)

    def shown(value: float | None, digits: int) -> str:
        return "-" if value is None else f"{value:,.{digits}f}"

    def again(key: str) -> str:
        if not killed or any(row["inside_before"] > _LIMIT for row in killed):
            return "-"
        return f"never in {watched:g}" if summary[key] is None else shown(summary[key], 2)

    outcome.rows.append(
        (
            name,
            str(turn.nodes),
            shown(summary["rate"], 0),
            shown(None if summary["rate"] is None else summary["rate"] / _IDEAL, 2),
            shown(summary["inside"], 0),
            shown(summary["slowest"], 2),
            shown(summary["wait"], 2),
            shown(summary["commands"], 1),
            again("first_again"),
            again("all_again"),
        )
    )
    reasons = [row["failed"] for row in rows if "failed" in row] + [
        row["first_error"] for row in loaded if row["first_error"]
    ]
    outcome.notes += [f"{name}: {reason}" for reason in reasons[:1]]
    if summary["lost"]:
        outcome.notes.append(f"{name}: {summary['lost']} acquires or releases failed or hung")
    if name == "ours":
        outcome.bars += [
            at_least("semaphore: slowest of 64 waiters, share", summary["slowest"], 0.5),
            at_most("semaphore: acquires and releases that failed or hung", summary["lost"], 0),
            at_most(
                "semaphore: until all slots of a killed process are held again, s",
                summary["all_again"],
                _AGAIN_WITHIN,
            ),
        ]
