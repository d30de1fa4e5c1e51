"""Texts that the command prints: event logs, plans and totals."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.plan import Plan
    from tests.simulation.run import Outcome

__all__ = ["Totals", "log_lines", "plan_lines", "repeat"]


@dataclass(slots=True)
class Totals:
    """Sums and maxima over many runs."""

    seeds: int = 0
    simulated: float = 0.0
    acquired: int = 0
    prompt: float = 0.0
    slow: float = 0.0
    overtaken: int = 0
    turns: int = 0
    crowd: tuple[int, int, float] = (0, 0, 0.0)
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of one run."""
        self.seeds += 1
        self.simulated += outcome.simulated
        self.acquired += outcome.acquired
        self.faults += outcome.faults
        self.prompt = max(self.prompt, outcome.waited[0])
        self.slow = max(self.slow, outcome.waited[1])
        self.overtaken = max(self.overtaken, outcome.overtaken)
        self.turns = max(self.turns, outcome.turns)
        (acquired, attempts, commands), more = self.crowd, outcome.crowd
        self.crowd = acquired + more[0], attempts + more[1], commands + more[2]

    def lines(self, seconds: float) -> list[str]:
        """Return the totals as lines of text, for runs that took so many real seconds."""
        acquired, attempts, commands = self.crowd
        by_kind = ", ".join(f"{kind} {count:,}" for kind, count in self.faults.most_common())
        return [
            (
                f"{self.seeds:,} seeds in {seconds:.1f} s:"
                f" {self.seeds / max(seconds, 1e-9):.1f} seeds/s,"
                f" {self.simulated / 3600:.2f} simulated hours,"
                f" {self.acquired:,} acquisitions, {self.faults.total():,} faults"
            ),
            f"faults: {by_kind or 'none'}",
            (
                f"longest wait for a free lock: {self.prompt:.2f} s,"
                f" or {self.slow:.2f} s if a refresh has to end the wait;"
                f" most later requests granted before a waiter:"
                f" {self.overtaken:+} beyond the number of waiters;"
                f" most grants to the other side of a read-write lock: {self.turns};"
                f" crowds without faults: {acquired:,} acquisitions,"
                f" {attempts / max(1, acquired):.2f} attempts and"
                f" {commands / max(1, acquired):.2f} commands per node for each"
            ),
        ]


def plan_lines(plan: Plan) -> list[str]:
    """Return the settings, the actions and the faults of a plan as lines of text."""
    return [
        (
            f"seed {plan.seed}: {plan.nodes} nodes, {plan.processes} processes, {plan.network},"
            f" ttl {plan.ttl:g} s, node_timeout {plan.node_timeout:g} s,"
            f" max_ttl {plan.max_ttl:g} s, fencing {plan.fencing}, guard {plan.guard},"
            f" clock rates {'within' if plan.within_drift else 'beyond'} the drift factor"
            f"{_threads(plan)}"
        ),
        *(f"  {action}" for action in plan.actions),
        *(f"  {fault}" for fault in plan.faults),
    ]


def _threads(plan: Plan) -> str:
    threaded = [f"p{process}" for process, has in enumerate(plan.threads) if has]
    limit = "" if plan.stall_limit is None else f" and stall_limit {plan.stall_limit:g} s"
    return f", thread=True{limit} in {' '.join(threaded)}" if threaded else ""


def log_lines(log: Iterable[tuple[object, ...]]) -> list[str]:
    """Return one line of text for each event."""
    return [f"{at:12.6f} {' '.join(str(word) for word in words)}" for at, *words in log]


def repeat(plan: Plan, whole: Plan, mutant: str | None) -> str:
    """Return the command that repeats a run."""
    words = [f"python -m tests.simulation --seed {plan.seed}"]
    if len(plan.names) < len(whole.names):
        words.append(f"--keep {','.join(plan.names) or 'nothing'}")
    if mutant is not None:
        words.append(f"--mutant {mutant}")
    return " ".join(words)
