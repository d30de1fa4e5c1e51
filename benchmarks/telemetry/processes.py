"""Run drivers as processes, to measure CPU time in turns or instructions under callgrind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from benchmarks.environments import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

__all__ = ["Driver", "Subject", "instructions"]

_DRIVER: Final = Path(__file__).with_name("driver.py")
_COLLECTED: Final = re.compile(r"Collected : (\d+)")


@dataclass(frozen=True)
class Subject:
    """A measured kind of sink and version of the package.

    Attributes:
        name: The name in the table.
        kind: The sink, a key of `driver.KINDS`.
        source: The folder that contains the package.
    """

    name: str
    kind: str
    source: Path = ROOT

    def command(self, urls: Sequence[str]) -> list[str]:
        """Return the command line of the driver."""
        return [sys.executable, str(_DRIVER), self.kind, *urls]

    def variables(self) -> dict[str, str]:
        """Return the environment of the driver. Strings hash alike in every process."""
        return os.environ | {"PYTHONPATH": str(self.source), "PYTHONHASHSEED": "0"}


class Driver:
    """A running driver, usable with `with`."""

    def __init__(self, subject: Subject, urls: Sequence[str]) -> None:
        self.subject = subject
        self._process = subprocess.Popen(
            subject.command(urls),
            env=subject.variables(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._line() != "ready":
            raise RuntimeError(
                f"the driver of {subject.name!r} did not start; what it said is above"
            )

    def cycles(self, number: int) -> float:
        """Run `number` cycles, and return the CPU seconds of one."""
        assert self._process.stdin is not None
        print(number, file=self._process.stdin, flush=True)
        return float(self._line()) / number

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=20)


def instructions(subject: Subject, cycles: int) -> float:
    """Return the instructions of one cycle.

    A driver runs under callgrind twice, the second time with twice as many cycles. Its nodes are in
    its own memory, and their instructions count too.
    """
    few, many = (_collected(subject, number) for number in (cycles, 2 * cycles))
    return (many - few) / cycles


def _collected(subject: Subject, cycles: int) -> int:
    callgrind = [
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        *subject.command(()),
    ]
    done = subprocess.run(
        callgrind,
        env=subject.variables(),
        input=f"{cycles}\n",
        capture_output=True,
        text=True,
        check=True,
    )
    found = _COLLECTED.search(done.stderr)
    assert found is not None, done.stderr
    return int(found[1])
