"""Run `python -m benchmarks`: measure the chosen scenarios and report them.

The command prints tables and writes a JSON file, the tables and plots. It ends with status 1 if a
bar is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console

from . import report
from .clients import ALL, named
from .crowd.cases import CASES
from .machine import describe
from .outcome import Outcome, Settings
from .scenarios import SCENARIOS

_QUICK_CLIENTS = ("ours", "floor", "aioredlock")
_CLAIM_ROUNDS = 5


def main() -> int:
    """Run the command line.

    Returns:
        The exit status: 0 when every bar of every scenario that ran was kept, else 1.
    """
    asked = _parser().parse_args()
    # Without a terminal rich assumes 80 columns, which are too few for the tables.
    console = Console(width=None if sys.stdout.isatty() else 132)
    clients = named(
        asked.clients or (list(_QUICK_CLIENTS) if asked.quick else [client.name for client in ALL])
    )
    # pip must not run beside a measurement, so all environments are made first.
    if set(asked.only or SCENARIOS) != {"crowd"}:
        for client in clients:
            client.command()
    started = time.time()
    outcomes: dict[str, Outcome] = {}
    machine = describe()
    for name in asked.only or SCENARIOS:
        with console.status(name) as status:
            settings = Settings(
                asked.rounds, asked.quick, clients, status.update, asked.cases, asked.library
            )
            outcomes[name] = outcome = SCENARIOS[name](settings)
            outcome.bars.append(outcome.failed_rounds(name))
        report.print_outcome(console, outcomes[name])
    bars = [bar for outcome in outcomes.values() for bar in outcome.bars]
    report.print_bars(console, bars)

    asked.out.mkdir(parents=True, exist_ok=True)
    about = {
        "machine": machine,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(time.time() - started, 1),
        "quick": asked.quick,
        "rounds": asked.rounds,
    }
    stem = "quick" if asked.quick else "bench"
    document = asked.out / f"{stem}.json"
    report.write_json(document, about, outcomes)
    tables = document.with_suffix(".md")
    report.write_tables(tables, outcomes)
    for path in (document, tables, *report.draw_plots(document)):
        console.print(f"written: {path}")
    if asked.rounds < _CLAIM_ROUNDS or asked.quick:
        console.print(
            f"figures for tuning: a claim takes a full run of {_CLAIM_ROUNDS} rounds or more"
        )
    return 0 if all(bar.kept for bar in bars) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="short windows, three clients: for tuning, not for claims",
    )
    parser.add_argument(
        "--only", nargs="+", choices=list(SCENARIOS), metavar="SCENARIO", help=", ".join(SCENARIOS)
    )
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=CASES,
        default=(),
        metavar="CASE",
        help=f"of crowd: {', '.join(CASES)}",
    )
    parser.add_argument(
        "--library",
        action="append",
        type=Path,
        default=[],
        metavar="PATH",
        help="a further tree of the library, for crowd and cycle",
    )
    parser.add_argument(
        "--clients",
        nargs="+",
        choices=[client.name for client in ALL],
        metavar="CLIENT",
        help="who runs",
    )
    parser.add_argument(
        "--rounds", type=int, default=_CLAIM_ROUNDS, help="how often everybody takes a turn (5)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent / "results",
        help="folder for JSON and plots",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
