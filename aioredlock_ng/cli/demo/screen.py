"""Draw the board as a live picture for a terminal, or as lines for a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.columns import Columns
from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from aioredlock_ng.cli.shown import seconds
from aioredlock_ng.cli.tables import Column, fitted
from aioredlock_ng.cli.wrapping import wrapped

from .board import NodeState

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from rich.console import Console, RenderableType
    from rich.table import Table

    from .board import Board, NodeView
    from .ledger import PhaseLedger

__all__ = ["LiveView", "PlainView", "phase_table"]

_MARKS = {
    NodeState.UP: ("● up", "bold green"),
    NodeState.HUNG: ("◌ hung", "bold yellow"),
    NodeState.KILLED: ("✕ killed", "bold red"),
    NodeState.STARTING: ("… starting", "cyan"),
    NodeState.DOWN: ("✕ down", "red"),
}
_PLAIN_PROGRESS_SECONDS = 1.0
_FEWEST_EVENTS = 3
_MOST_EVENTS = 12
# Lines and columns of the frame around the events.
_FRAME_LINES, _FRAME_COLUMNS = 2, 4

_COLUMNS = (
    Column("phase"),
    Column("updates", right=True),
    Column("per s", 3, right=True),
    Column("lost", right=True),
    Column("p50 (s)", 2, right=True),
    Column("p99 (s)", 1, right=True),
)


def phase_table(
    phases: list[PhaseLedger], width: int, *, ascii_only: bool, rate: float | None = None
) -> Table:
    """Return a table of the counts, with a row for each phase.

    Columns that do not fit into `width` are left out. With `ascii_only`, the table has an ASCII
    frame and no colours. For a running phase, the table shows `rate` as the updates per second.
    """
    rows = []
    for phase in phases:
        p50, p99 = (
            seconds(value).removesuffix(" s") for value in phase.acquire_seconds(0.50, 0.99)
        )
        per_second = phase.per_second if phase.seconds else rate or 0.0
        lost = Text(f"{phase.lost:,}", style="" if ascii_only else _lost_style(phase))
        rows.append((phase.title, f"{phase.acknowledged:,}", f"{per_second:,.0f}", lost, p50, p99))
    return fitted(_COLUMNS, rows, width, box.ASCII if ascii_only else box.SIMPLE_HEAD)


def _lost_style(phase: PhaseLedger) -> str:
    if not phase.lost:
        return "green" if phase.locked else ""
    return "bold red" if phase.locked else "yellow"


class LiveView:
    """Show nodes, phases and events as a live picture."""

    def __init__(self, console: Console, board: Board) -> None:
        self._console = console
        self._board = board
        self._over = False
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._picture)

    def event(self, words: str) -> None:
        """Show the event immediately."""
        self._live.refresh()

    def refresh(self) -> None:
        """Draw everything again."""
        self._live.refresh()

    def _picture(self) -> RenderableType:
        board, width = self._board, self._console.width
        phase = f"  phase {len(board.phases)} of {board.planned}, {seconds(board.elapsed)}"
        parts: list[RenderableType] = [
            Text.assemble(("aioredlock-ng demo", "bold"), (phase, "cyan")),
            *(
                Text(line, style="dim")
                for line in wrapped(f"{board.where}; {board.workload}", width)
            ),
            "",
            Columns(
                [_node_text(number, node) for number, node in enumerate(board.nodes, 1)],
                padding=(0, 3),
            ),
        ]
        # The summary prints the table of phases, so the last picture does not show this table.
        if not self._over:
            parts.append(phase_table(board.phases, width, ascii_only=False, rate=board.rate))
        used = len(self._console.render_lines(Group(*parts)))
        return Group(*parts, self._events(self._console.height - used - _FRAME_LINES - 1))

    def _events(self, room: int) -> RenderableType:
        width = self._console.width - _FRAME_COLUMNS
        lines = [
            line for at, words in self._board.events for line in _event_lines(at, words, width)
        ]
        shown = lines[-max(_FEWEST_EVENTS, min(room, _MOST_EVENTS)) :]
        return Panel(
            Text("\n".join(shown)),
            title="events",
            title_align="left",
            border_style="dim",
            padding=(0, 1),
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over = kind is None
        self._live.stop()


def _node_text(number: int, node: NodeView) -> Text:
    words, style = _MARKS[node.state]
    return Text.assemble(f"{number} ", (words, style), " ", (node.address, "dim"))


def _event_lines(at: float, words: str, width: int) -> list[str]:
    return wrapped(words, width, f"{at:5.1f} s  ", " " * 9)


class PlainView:
    """Print each event, and the figures once a second, as lines without control codes."""

    def __init__(self, console: Console, board: Board) -> None:
        self._console = console
        self._board = board
        self._next_at = 0.0

    def event(self, words: str) -> None:
        """Print the event."""
        self._line(words)

    def refresh(self) -> None:
        """Print the figures of the present phase, once a second."""
        if self._board.elapsed < self._next_at or not self._board.phases:
            return
        self._next_at = self._board.elapsed + _PLAIN_PROGRESS_SECONDS
        phase = self._board.phases[-1]
        p50, p99 = phase.acquire_seconds(0.50, 0.99)
        acquire = "" if p50 is None else f", p50 {seconds(p50)}, p99 {seconds(p99)}"
        self._line(
            f"- {phase.acknowledged:,} updates, {self._board.rate:,.0f} per s, {phase.lost:,}"
            f" lost{acquire}"
        )

    def _line(self, words: str) -> None:
        self._print(_event_lines(self._board.elapsed, words, self._console.width))

    def _print(self, lines: list[str]) -> None:
        for line in lines:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        board, width = self._board, self._console.width
        self._print(
            wrapped(f"aioredlock-ng demo: {board.where}; {board.workload}", width, further="  ")
        )
        for number, node in enumerate(board.nodes, 1):
            self._print(wrapped(f"node {number}: {node.address}, {node.state.value}", width, "  "))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
