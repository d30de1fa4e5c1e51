"""Prints the end: the table of all phases, the losses, the verdict; never judges by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from .screen import milliseconds, phase_table

if TYPE_CHECKING:
    from rich.console import Console

    from .board import Board
    from .ledger import PhaseLedger, Verdict

__all__ = ["print_summary"]


def print_summary(console: Console, board: Board, verdict: Verdict, *, ascii_only: bool) -> None:
    """Print what the run has shown.

    Args:
        console: Where to.
        board: At the end of the run.
        verdict: Over it.
        ascii_only: Draw it for a log.
    """

    def line(words: str, style: str = "") -> None:
        console.print(Text(words, style="" if ascii_only else style), soft_wrap=True)

    line("")
    line("summary", "bold")
    console.print(phase_table(board.phases, ascii_only=ascii_only))
    for loss in board.losses:
        told = "never noticed" if loss.noticed_ms is None else f"noticed {milliseconds(loss.noticed_ms)} after {loss.since}"
        line(f"lock lost ({loss.how}; ttl {loss.ttl:g} s): {told}")
    if gone := sum(phase.leases_lost for phase in board.phases):
        line(f"{gone:,} more leases were lost by workers, who were told")
    if doubtful := sum(phase.in_doubt for phase in board.phases):
        line(f"{doubtful:,} increments in doubt: written by holders who were told at release that their lease had gone")
    locked = [phase for phase in board.phases if phase.locked]
    unlocked = [phase for phase in board.phases if not phase.locked]
    if unlocked:
        line(f"without the lock: {_lost_of(unlocked)}")
    line(f"under the lock: {_lost_of(locked)}", "bold")
    for fault in verdict.faults:
        line(f"FAILED: {fault}", "bold red")
    if verdict.ok:
        line(f"passed in {board.elapsed:.1f} s: nothing was lost under the lock", "bold green")


def _lost_of(phases: list[PhaseLedger]) -> str:
    return f"{sum(phase.lost for phase in phases):,} of {sum(phase.acknowledged for phase in phases):,} updates lost"
