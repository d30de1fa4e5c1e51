"""Draws the board: a live picture for a terminal, a line per event for a log; never changes what it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from .board import NodeState

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from rich.console import Console, RenderableType

    from .board import Board
    from .ledger import PhaseLedger

__all__ = ["LiveView", "PlainView", "milliseconds", "phase_table"]

_MARKS = {
    NodeState.UP: ("● up", "bold green"),
    NodeState.HUNG: ("◌ hung", "bold yellow"),
    NodeState.KILLED: ("✕ killed", "bold red"),
    NodeState.STARTING: ("… starting", "cyan"),
    NodeState.DOWN: ("✕ down", "red"),
}
_PLAIN_PROGRESS_SECONDS = 1.0
# What the picture needs besides events: title, nodes, the table's frame and head, the events' frame.
_OTHER_LINES = 11
_FEWEST_EVENTS = 3
_MOST_EVENTS = 12


def milliseconds(value: float | None) -> str:
    """Return a time for a table; a dash when there is none."""
    if value is None:
        return "-"
    return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"


def phase_table(phases: list[PhaseLedger], *, ascii_only: bool, rate: float | None = None) -> Table:
    """Return a table of what was counted.

    Args:
        phases: A row each.
        ascii_only: Draw it without colours and lines that a log cannot show.
        rate: Increments in the last second, in the place of the mean of a phase that still runs.
    """
    table = Table(box=box.ASCII if ascii_only else box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("phase", no_wrap=True)
    for head in ("increments", "per second", "lost", "acquire p50", "p99", "refused"):
        table.add_column(head, justify="right", no_wrap=True)
    for phase in phases:
        p50, p99 = phase.acquire_ms(0.50, 0.99)
        per_second = phase.per_second if phase.seconds else rate or 0.0
        table.add_row(
            phase.title,
            f"{phase.acknowledged:,}",
            f"{per_second:,.0f}",
            Text(f"{phase.lost:,}", style="" if ascii_only else _lost_style(phase)),
            milliseconds(p50),
            milliseconds(p99),
            f"{phase.refused:,}" if phase.locked else "-",
        )
    return table


def _lost_style(phase: PhaseLedger) -> str:
    if not phase.lost:
        return "green" if phase.locked else ""
    return "bold red" if phase.locked else "yellow"


class LiveView:
    """The live picture: nodes, phases, events."""

    def __init__(self, console: Console, board: Board) -> None:
        self._console = console
        self._board = board
        self._over = False
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._picture)

    def event(self, words: str) -> None:
        """Show it at once."""
        self._live.refresh()

    def refresh(self) -> None:
        """Draw everything anew."""
        self._live.refresh()

    def _picture(self) -> RenderableType:
        board = self._board
        title = Text.assemble(
            ("aioredlock-ng demo", "bold"),
            (f"  phase {len(board.phases)} of {board.planned}, {board.elapsed:4.1f} s  ", "cyan"),
            (f"{board.where}; {board.workload}", "dim"),
        )
        title.truncate(self._console.width, overflow="ellipsis")
        if self._over:
            return Group(title, self._nodes(), self._events())
        return Group(title, self._nodes(), phase_table(board.phases, ascii_only=False, rate=board.rate), self._events())

    def _nodes(self) -> RenderableType:
        lane = Table.grid(expand=True)
        for _ in self._board.nodes:
            lane.add_column(ratio=1)
        panels = []
        for number, node in enumerate(self._board.nodes, 1):
            words, style = _MARKS[node.state]
            address = Text(node.address, style="dim", overflow="ellipsis", no_wrap=True, justify="center")
            panels.append(
                Panel(
                    Group(Text(words, style=style, justify="center"), address),
                    title=f"node {number}",
                    border_style=style.removeprefix("bold "),
                    padding=0,
                )
            )
        lane.add_row(*panels)
        return lane

    def _events(self) -> RenderableType:
        room = self._console.height - _OTHER_LINES - len(self._board.phases)
        shown = list(self._board.events)[-max(_FEWEST_EVENTS, min(room, _MOST_EVENTS)) :]
        lines = [Text(f"{at:5.1f} s  {words}", no_wrap=True, overflow="ellipsis") for at, words in shown]
        return Panel(Group(*lines), title="events", title_align="left", border_style="dim", padding=(0, 1))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # The table is the summary's; what has happened stays above it.
        self._over = kind is None
        self._live.stop()


class PlainView:
    """A line per event and per second, without control codes."""

    def __init__(self, console: Console, board: Board) -> None:
        self._console = console
        self._board = board
        self._next_at = 0.0

    def event(self, words: str) -> None:
        """Print it."""
        self._line(words)

    def refresh(self) -> None:
        """Print the present phase's figures, once a second."""
        if self._board.elapsed < self._next_at or not self._board.phases:
            return
        self._next_at = self._board.elapsed + _PLAIN_PROGRESS_SECONDS
        phase = self._board.phases[-1]
        p50, p99 = phase.acquire_ms(0.50, 0.99)
        acquire = "" if p50 is None else f", acquire p50 {milliseconds(p50)}, p99 {milliseconds(p99)}"
        self._line(
            f"  {phase.title}: {phase.acknowledged} increments, {self._board.rate:.0f} per second, {phase.lost} lost{acquire}"
        )

    def _line(self, words: str) -> None:
        self._console.print(f"{self._board.elapsed:5.1f} s  {words}", markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._console.print(f"aioredlock-ng demo: {self._board.where}; {self._board.workload}", markup=False, soft_wrap=True)
        for number, node in enumerate(self._board.nodes, 1):
            self._console.print(f"  node {number}: {node.address}, {node.state.value}", markup=False, soft_wrap=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
