"""List the scenarios by their names on the command line, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import (
    contention,
    crowd,
    cycle,
    election,
    faults,
    fences,
    handover,
    herd,
    imports,
    leases,
    memory,
    mixed,
    notified,
    rwlock,
    semaphore,
    storm,
    sync,
    thread,
    wakeup,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.outcome import Outcome, Settings

__all__ = ["SCENARIOS"]

SCENARIOS: Final[dict[str, Callable[[Settings], Outcome]]] = {
    "cycle": cycle.run,
    "hung": faults.run_hung,
    "slow": faults.run_slow,
    "killed": faults.run_killed,
    "fences": fences.run,
    "memory": memory.run,
    "leases": leases.run,
    "handover": handover.run,
    "contention": contention.run,
    "crowd": crowd.run,
    "mixed": mixed.run,
    "herd": herd.run,
    "wakeup": wakeup.run,
    "notified": notified.run,
    "storm": storm.run,
    "election": election.run,
    "rwlock": rwlock.run,
    "semaphore": semaphore.run,
    "thread": thread.run,
    "sync": sync.run,
    "imports": imports.run,
}
"""The scenarios in the order in which they run."""
