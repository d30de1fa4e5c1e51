"""Run `python -m benchmarks.telemetry`: measure the CPU time per cycle with each kind of sink.

The sinks take turns. With `--against COMMIT` an older version of the package, from before there
were events, takes turns too. `--at COMMIT` measures another version than the checkout.
`--instructions` compares "nobody listens" in both versions by the instructions that callgrind
counts. Other load on the machine does not change this count.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from aioredlock_ng.testing import LocalNodes
from benchmarks.environments import unpacked
from benchmarks.machine import describe
from benchmarks.telemetry.driver import COROUTINES
from benchmarks.telemetry.processes import Driver, Subject, instructions

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_SUBJECTS = (
    Subject("nobody listens", "off"),
    Subject("the log alone", "log"),
    Subject("a sink that does nothing", "no-op"),
    Subject("PrometheusSink", "prometheus"),
    Subject("OpenTelemetrySink, no SDK", "otel-api"),
    Subject("OpenTelemetrySink, SDK, 1 % of traces", "otel-sampled"),
    Subject("OpenTelemetrySink, SDK, every trace", "otel-sdk"),
)
_NODES = 5


def main(arguments: Sequence[str]) -> int:
    """Run the command line, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.telemetry", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=21, help="how often everybody takes a turn (21)"
    )
    parser.add_argument(
        "--cycles", type=int, default=5000, help="acquisitions and releases per turn (5000)"
    )
    parser.add_argument(
        "--at", metavar="COMMIT", help="measure this version instead of the checkout"
    )
    parser.add_argument(
        "--against", metavar="COMMIT", help="measure that version too, without sinks"
    )
    parser.add_argument(
        "--instructions",
        action="store_true",
        help="count instructions instead; needs --against, valgrind",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[subject.kind for subject in _SUBJECTS],
        metavar="SINK",
        help="these, and nobody",
    )
    asked = parser.parse_args(arguments)
    if asked.cycles < COROUTINES or asked.cycles % COROUTINES:
        parser.error(f"--cycles must be a multiple of {COROUTINES}, the number of coroutines")
    if asked.instructions and not asked.against:
        parser.error("--instructions compares two versions: say --against COMMIT")
    with tempfile.TemporaryDirectory() as folder:
        # All others are compared with "nobody listens".
        subjects = [
            subject
            for subject in _SUBJECTS
            if not asked.only or subject.kind in ("off", *asked.only)
        ]
        if asked.at:
            source = unpacked(asked.at, Path(folder, "at"))
            subjects = [replace(subject, source=source) for subject in subjects]
        if asked.against:
            subjects.append(
                Subject(asked.against, "off", unpacked(asked.against, Path(folder, "against")))
            )
        for name, value in describe().items():
            print(f"{name}: {asked.at if name == 'commit' and asked.at else value}")
        if asked.instructions:
            _count(subjects[0], subjects[-1], asked.cycles)
        else:
            _time(subjects, asked.rounds, asked.cycles)
    return 0


def _time(subjects: Sequence[Subject], rounds: int, cycles: int) -> None:
    """Measure the subjects in turns.

    Every other round runs backwards, so that no subject always follows the same one.
    """
    took: dict[Subject, list[float]] = {subject: [] for subject in subjects}
    with ExitStack() as stack:
        urls = stack.enter_context(LocalNodes(_NODES)).urls
        drivers = [stack.enter_context(Driver(subject, urls)) for subject in subjects]
        for driver in drivers:
            driver.cycles(cycles)
        for turn in range(rounds):
            for driver in drivers if turn % 2 else reversed(drivers):
                took[driver.subject].append(driver.cycles(cycles))
    first = took[subjects[0]]
    print(
        f"{'':42}{'µs/cycle':>10}{'more':>10}{'ratio':>8}   medians of {rounds} rounds of {cycles} "
        "cycles"
    )
    for subject in subjects:
        pairs = list(zip(took[subject], first, strict=True))
        more, ratio = median(a - b for a, b in pairs), median(a / b for a, b in pairs)
        print(f"{subject.name:42}{median(took[subject]) * 1e6:10.2f}{more * 1e6:10.2f}{ratio:8.3f}")


def _count(now: Subject, before: Subject, cycles: int) -> None:
    counts = []
    for subject in (now, before):
        counts.append(instructions(subject, cycles))
        print(
            f"{subject.name}: {counts[-1]:,.0f} instructions per cycle, nodes in memory included",
            flush=True,
        )
    print(f"more: {counts[0] - counts[1]:,.0f}, ratio {counts[0] / counts[1]:.4f}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
