"""Provide the command `demo`, which reads its options and runs the demo."""

from __future__ import annotations

import secrets
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from aioredlock_ng import ConfigurationError, Redlock
from aioredlock_ng.cli.tables import can_redraw, output_width
from aioredlock_ng.testing import LocalNodes, ServerFailed, ServerNotFound

from .board import Board
from .conductor import FULL_SECONDS, WORKER_TTL, Conductor, HolderFailed
from .counters import Counters
from .crew import Crew, WorkerFailed
from .faulty_nodes import GivenNodes, NodesFailed, OwnNodes
from .interruption import Interruption
from .ledger import judge
from .messages import Setup
from .screen import LiveView, PlainView
from .summary import print_summary

if TYPE_CHECKING:
    from .faulty_nodes import StagedNodes
    from .messages import Progress

__all__ = ["demo"]

_NODES = 5
# Largest width of the lines of `--plain`, in columns. A log is usually read in a terminal.
_PLAIN_WIDTH = 80


@dataclass(frozen=True, slots=True)
class _Options:
    plain: bool
    urls: tuple[str, ...]
    seconds: float
    pause_nodes: bool
    workers: int
    coroutines: int
    counters: int


def demo(
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help=(
                "Print one line per event, without control codes. This is the default if the output"
                " is not a terminal."
            ),
        ),
    ] = False,
    url: Annotated[
        list[str] | None,
        typer.Option(
            "--url",
            metavar="URL",
            help=(
                "URL of a node. Repeat the option for each node. Without this option, the demo"
                " starts five servers."
            ),
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            min=3.0,
            max=600.0,
            metavar="SECONDS",
            help="Approximate length of all phases together, 3 to 600.",
        ),
    ] = FULL_SECONDS,
    pause_nodes: Annotated[
        bool,
        typer.Option(
            "--pause-nodes",
            help=(
                "Pause nodes of --url for some seconds, with CLIENT PAUSE. Use this option only for"
                " nodes that nobody else uses."
            ),
        ),
    ] = False,
    workers: Annotated[
        int, typer.Option(min=1, max=64, metavar="COUNT", help="Worker processes, at most 64.")
    ] = 4,
    coroutines: Annotated[
        int,
        typer.Option(
            min=1,
            max=1000,
            metavar="COUNT",
            help="Coroutines in each worker process, at most 1000.",
        ),
    ] = 25,
    counters: Annotated[
        int,
        typer.Option(
            min=1,
            max=1000,
            metavar="COUNT",
            help="Counters, each with a lock of its own, at most 1000.",
        ),
    ] = 40,
) -> None:
    """Run the command `demo`, which pages.py describes."""
    options = _Options(
        plain or not can_redraw(),
        tuple(url or ()),
        seconds,
        pause_nodes,
        workers,
        coroutines,
        counters,
    )
    with Interruption() as interruption, ExitStack() as stack:
        errors = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
        try:
            status = _demo(options, interruption, stack)
        except (NodesFailed, ServerFailed, ServerNotFound, ConfigurationError) as error:
            errors.print(f"aioredlock-ng demo: {error}")
            status = 2
        except (WorkerFailed, HolderFailed) as error:
            errors.print(f"aioredlock-ng demo was aborted: {error}")
            status = 1
        except SystemExit:
            errors.print(
                "aioredlock-ng demo: stopped by a signal; its workers and servers have ended"
            )
            raise
    raise typer.Exit(status)


def _demo(options: _Options, interruption: Interruption, stack: ExitStack) -> int:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redlock-demo-")))
    nodes: StagedNodes
    if options.urls:
        # Bad URLs are refused with the library's own message before any process is started.
        Redlock(options.urls)
        nodes = given = GivenNodes(options.urls, throw_away=options.pause_nodes)
        interruption.run(given.look())
    else:
        nodes = OwnNodes(stack.enter_context(LocalNodes(_NODES)))
    return interruption.run(_play(options, nodes, folder))


async def _play(options: _Options, nodes: StagedNodes, folder: Path) -> int:
    console = (
        Console(color_system=None, force_terminal=False, width=min(output_width(), _PLAIN_WIDTH))
        if options.plain
        else Console()
    )
    board = Board(
        nodes.views,
        nodes.where,
        f"{options.workers} processes of {options.coroutines} coroutines, {options.counters}"
        " counters",
    )
    # The last counter is for the process that will lose its lock, and for the workers that compete
    # for this lock.
    count = options.counters + 1
    file = folder / "counters"
    # Each run has locks of its own, so that two demos on the same given nodes do not interfere.
    prefix = f"demo:{secrets.token_hex(3)}"
    setup = Setup(list(nodes.urls), str(file), count, prefix, options.coroutines, WORKER_TTL)
    view = PlainView(console, board) if options.plain else LiveView(console, board)
    conductor: Conductor | None = None

    def on_progress(report: Progress) -> None:
        if conductor is not None:
            conductor.progress(report)

    with Counters.create(file, count) as counters:
        async with Crew(setup, options.workers, folder, on_progress) as crew:
            conductor = Conductor(
                nodes,
                crew,
                counters,
                board,
                view,
                seconds=options.seconds,
                prefix=prefix,
                contested=count - 1,
            )
            with view:
                await conductor.run()
    verdict = judge(board.phases, board.losses)
    print_summary(console, board, verdict, ascii_only=options.plain)
    return verdict.exit_status
