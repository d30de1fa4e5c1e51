"""Measure 100,000 acquisitions while nodes hang, crash, lose their data and are flushed.

The scenario counts overlapping holders and fences that do not increase. Only ours runs.
"""

from __future__ import annotations

import random
import threading
from typing import Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import Client
from benchmarks.outcome import Outcome, Settings, at_least, at_most
from benchmarks.process import Driver

__all__ = ["run"]

_DRIVER: Final = Client("ours", "storm_ours.py")
_TTL: Final = 1.0
_FULL: Final = 100_000
_QUICK: Final = 5_000
_LONGEST: Final = 400.0

_FAULTS: Final = 10
"""The least number of faults. A fault takes about three seconds."""


def run(settings: Settings) -> Outcome:
    """Run once. Further rounds would only repeat the measurement."""
    outcome = Outcome(
        "A storm: five nodes that hang, die, restart empty and are flushed",
        (
            "acquired",
            "seconds",
            "faults",
            "lost",
            "not acquired",
            "repairs",
            "overlaps",
            "fences not greater",
        ),
    )
    wanted = int(settings.seconds(_FULL, _QUICK))
    settings.say(f"storm: {wanted:,} acquisitions")
    with LocalNodes(5) as nodes:
        task = {
            "urls": nodes.urls,
            "ttl": _TTL,
            "options": {},
            "acquisitions": wanted,
            "seconds": _LONGEST,
        }
        with Driver(_DRIVER.command(), _DRIVER.variables(), task) as driver:
            driver.ready()
            driver.begin()
            over = threading.Event()
            faults: list[str] = []
            weather = threading.Thread(target=_faults, args=(nodes, over, faults), name="storm")
            weather.start()
            try:
                figures = driver.line(_LONGEST + 30)
            finally:
                over.set()
                weather.join()
    outcome.raw.append(figures | {"faults": faults})
    outcome.medians.append(figures | {"faults": len(faults)})
    keys = ("acquired", "seconds", "lost", "refused", "repairs", "overlaps", "not_greater")
    shown = {key: f"{figures[key]:,.0f}" for key in keys}
    outcome.rows.append(
        (
            shown["acquired"],
            shown["seconds"],
            str(len(faults)),
            shown["lost"],
            shown["refused"],
            shown["repairs"],
            shown["overlaps"],
            shown["not_greater"],
        )
    )
    outcome.bars.append(at_least("acquisitions in the storm", figures["acquired"], wanted))
    outcome.bars.append(
        at_least("faults in the storm", float(len(faults)), settings.seconds(_FAULTS, 1))
    )
    outcome.bars.append(at_most("overlapping holders in the storm", figures["overlaps"], 0))
    outcome.bars.append(
        at_most("fences in the storm that were not greater", figures["not_greater"], 0)
    )
    return outcome


def _faults(nodes: LocalNodes, over: threading.Event, done: list[str]) -> None:
    """Inject faults until `over` is set.

    Some faults affect a minority of the nodes. A burst affects a majority.
    """
    luck = random.Random(1)
    while not over.wait(0.7):
        kind = luck.choice(("hang", "restart", "flush", "burst"))
        hit = luck.sample(range(5), 3 if kind == "burst" else luck.choice((1, 2)))
        done.append(f"{kind} {hit}")
        for index in hit:
            if kind == "hang":
                nodes.pause(index)
            elif kind == "flush":
                nodes.wipe(index)
            else:
                nodes.crash(index)
        over.wait(0.3)
        for index in hit:
            if kind == "hang":
                nodes.resume(index)
            elif kind != "flush":
                nodes.restart(index)
        # The pause is a little longer than the guard time. Otherwise no client could acquire a
        # lock.
        over.wait(0.2 if kind == "hang" else 2.5)
    nodes.restore()
