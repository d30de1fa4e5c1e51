"""Run `python -m benchmarks.flash_sale`: measure the shop with every lock, in turns.

The command prints tables and writes figures and a plot. It ends with status 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from benchmarks.environments import ROOT, python_with
from benchmarks.machine import describe
from benchmarks.outcome import Outcome
from benchmarks.report import print_bars, print_outcome

from . import page
from .field import ALL, named, python
from .summary import COLUMNS, bars, ceilings, cells, medians
from .turn import Sale, take_turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .field import Contestant

__all__ = ["main"]

_RESULTS: Final = Path(__file__).parents[1] / "results"
_PAGE: Final = ROOT / "docs" / "flash-sale.md"
_IMAGE: Final = ROOT / "docs" / "images" / "flash-sale.png"
_DRAWING: Final = Path(__file__).with_name("drawing.py")
_DRAWING_NEEDS: Final = ("matplotlib==3.10.7",)
_QUICK: Final = [
    "no lock",
    "GETSET, no sleep",
    "GETSET, 0.1 s",
    "Redlock in sequence",
    "redis-py",
    "ours, 1",
    "ours, 5",
]
_ENDLESS: Final = 10**9


def main(arguments: Sequence[str]) -> int:
    """Run the command line.

    Returns:
        The exit status: 0 when every bar was kept, else 1.
    """
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.page and (asked.quick or asked.only or asked.here or asked.no_plots):
        parser.error("--page takes a full run, with its plot")
    # Without a terminal rich assumes 80 columns, which are too few for the tables.
    console = Console(width=None if sys.stdout.isatty() else 180)
    results: Path = (asked.out or _RESULTS) / (
        "flash_sale-quick.json" if asked.quick else "flash_sale.json"
    )
    if asked.from_results:
        document = json.loads(results.read_text(encoding="utf-8"))
    else:
        document = _measured(asked, console)
        results.parent.mkdir(parents=True, exist_ok=True)
        results.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        console.print(f"written: {results}")
    rows = medians(document["turns"])
    for sale in dict.fromkeys(row["sale"] for row in rows):
        mine = [row for row in rows if row["sale"] == sale]
        print_outcome(
            console, Outcome(sale, COLUMNS, rows=[cells(row) for row in mine], notes=_notes(mine))
        )
    found = bars(rows)
    print_bars(console, found)
    for ceiling in ceilings(rows):
        console.print(f"  {ceiling}", highlight=False)
    plot = results.with_suffix(".png")
    if not asked.no_plots:
        subprocess.run([python_with("plots", _DRAWING_NEEDS), _DRAWING, results, plot], check=True)
        console.print(f"written: {plot}")
    if asked.page:
        shutil.copyfile(plot, _IMAGE)
        page.write(_PAGE, page.parts(document, rows, found))
        console.print(f"written: {_PAGE}")
    return 0 if all(bar.kept for bar in found) else 1


def _measured(asked: argparse.Namespace, console: Console) -> dict[str, Any]:
    contestants = named(asked.only or (_QUICK if asked.quick else [each.name for each in ALL]))
    # pip must not run beside a measurement, so all environments are made first.
    for contestant in (ALL[0], *contestants):
        python(contestant, here=asked.here)
    if not asked.no_plots:
        python_with("plots", _DRAWING_NEEDS)
    machine, started = describe(), time.time()
    turns = []
    with console.status("") as status:
        for number in range(asked.rounds or (1 if asked.quick else 3)):
            for contestant in contestants:
                # The longer sale runs in the first round only, because a round of it takes minutes.
                for sale in _sales(asked)[: 1 if number else 2]:
                    status.update(f"round {number + 1}, {contestant.name}, {sale.name}")
                    turns.append(
                        {"round": number, "contestant": contestant.name, "sale": sale.name}
                    )
                    turns[-1] |= take_turn(contestant, sale, here=asked.here)
    return {
        "machine": machine,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(time.time() - started),
        "quick": asked.quick,
        "contestants": [_about(each) for each in contestants],
        "sales": [{name: getattr(sale, name) for name in sale.__slots__} for sale in _sales(asked)],
        "turns": turns,
    }


def _about(contestant: Contestant) -> dict[str, Any]:
    return {name: getattr(contestant, name) for name in contestant.__slots__}


def _sales(asked: argparse.Namespace) -> tuple[Sale, Sale]:
    common = {"buyers": asked.buyers, "workers": asked.workers, "patience": asked.patience}
    seconds = asked.seconds or (2.0 if asked.quick else 10.0)
    return (
        # The stock is four fifths of the requests, so a fifth of the buyers find it sold out.
        Sale(
            f"{asked.requests:,} requests",
            asked.requests * 4 // 5,
            asked.requests,
            5.0 if asked.quick else 12.0,
            **common,
        ),
        Sale(f"{seconds:g} seconds", _ENDLESS, None, seconds, **common),
    )


def _notes(rows: list[dict[str, Any]]) -> list[str]:
    notes = [f"{row['contestant']}: {failure}" for row in rows for failure in row["failures"]]
    return notes + [
        f"{row['contestant']}: first error: {row['first_error']}"
        for row in rows
        if row["first_error"]
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flash_sale", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one round of a few, short: to see that it runs, not for claims",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="LOCK",
        help="names, or how they begin: " + "; ".join(e.name for e in ALL),
    )
    parser.add_argument(
        "--rounds", type=int, help="how often everybody takes a turn in the first sale (3)"
    )
    parser.add_argument("--requests", type=int, default=1000, help="of the first sale (1000)")
    parser.add_argument("--seconds", type=float, help="length of the second sale (10)")
    parser.add_argument("--buyers", type=int, default=100, help="how many ask at once (100)")
    parser.add_argument("--workers", type=int, default=2, help="processes of the shop (2)")
    parser.add_argument(
        "--patience", type=float, default=10.0, help="seconds after which a buyer hangs up (10)"
    )
    parser.add_argument("--out", type=Path, help="folder for the figures and the plot")
    parser.add_argument("--no-plots", action="store_true", help="draw nothing: needs no matplotlib")
    parser.add_argument(
        "--here",
        action="store_true",
        help="all in the running Python's environment: makes none, takes no peer",
    )
    parser.add_argument(
        "--from-results",
        action="store_true",
        help="measure nothing: print and draw what was recorded",
    )
    parser.add_argument(
        "--page", action="store_true", help="write the tables of docs/flash-sale.md"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
