"""Print the result of the demo: the table of all phases, the losses and the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from aioredlock_ng.cli.shown import seconds
from aioredlock_ng.cli.wrapping import wrapped

from .screen import phase_table

if TYPE_CHECKING:
    from rich.console import Console

    from .board import Board
    from .ledger import PhaseLedger, Verdict

__all__ = ["print_summary"]


def print_summary(console: Console, board: Board, verdict: Verdict, *, ascii_only: bool) -> None:
    """Print the result of the demo.

    With `ascii_only`, the output has no colours, and the table has an ASCII frame.
    """

    def line(words: str, style: str = "") -> None:
        for part in wrapped(words, console.width, further="  ") or [""]:
            console.print(Text(part, style="" if ascii_only else style), soft_wrap=True)

    line("")
    line("summary (p50, p99: seconds from the request of a lock to its grant)", "bold")
    console.print(phase_table(board.phases, console.width, ascii_only=ascii_only))
    for loss in board.losses:
        told = (
            "never noticed"
            if loss.noticed is None
            else f"noticed {seconds(loss.noticed)} after {loss.since}"
        )
        line(f"{loss.how} (ttl {seconds(loss.ttl)}): {told}")
    if gone := sum(phase.leases_lost for phase in board.phases):
        line(f"workers lost {gone:,} more leases, and were notified of each loss")
    if refused := sum(phase.refused for phase in board.phases):
        line(f"{refused:,} times a worker did not get its lock in time")
    if doubtful := sum(phase.in_doubt for phase in board.phases):
        line(
            f"{doubtful:,} uncertain updates: written by workers that were notified of the loss"
            " only at release"
        )
    locked = [phase for phase in board.phases if phase.locked]
    unlocked = [phase for phase in board.phases if not phase.locked]
    if unlocked:
        line(f"without the lock: {_lost_of(unlocked)}")
    line(f"under the lock: {_lost_of(locked)}", "bold")
    for fault in verdict.faults:
        line(f"FAILED: {fault}", "bold red")
    if verdict.ok:
        line(f"passed in {seconds(board.elapsed)}: nothing was lost under the lock", "bold green")


def _lost_of(phases: list[PhaseLedger]) -> str:
    lost = sum(phase.lost for phase in phases)
    acknowledged = sum(phase.acknowledged for phase in phases)
    return f"{lost:,} of {acknowledged:,} updates lost"
