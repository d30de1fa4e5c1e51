"""Run `python -m benchmarks.scaling`: measure, simulate and calculate.

The command writes the figures, the plots and the tables of the page.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.environments import ROOT, python_with
from benchmarks.machine import describe
from benchmarks.scaling.page import write_page
from benchmarks.scaling.study import FULL, QUICK, run
from benchmarks.scaling.tables import sections

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_PAGE: Final = ROOT / "docs" / "scaling.md"
_IMAGES: Final = ROOT / "docs" / "images"
_RESULTS: Final = ROOT / "benchmarks" / "results"
_DRAWING: Final = Path(__file__).with_name("drawing.py")
_DRAWING_NEEDS: Final = ("matplotlib==3.10.7",)


def main(arguments: Sequence[str]) -> int:
    """Run the command line, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="seconds instead of minutes: to see that it runs, not for claims",
    )
    parser.add_argument(
        "--out", type=Path, help="folder for the figures and plots; then the page is left as it is"
    )
    parser.add_argument("--no-plots", action="store_true", help="draw nothing: needs no matplotlib")
    parser.add_argument(
        "--from-results",
        action="store_true",
        help="measure nothing: only draw and write the page anew",
    )
    options = parser.parse_args(arguments)
    if options.quick and options.out is None:
        parser.error("--quick is not for the page: say --out FOLDER")
    results: Path = (options.out or _RESULTS) / "scaling.json"
    if options.from_results:
        document = json.loads(results.read_text(encoding="utf-8"))
    else:
        document = _study(quick=options.quick)
        results.parent.mkdir(parents=True, exist_ok=True)
        results.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(f"written: {results}")
    parts = sections(document)
    if options.out is None:
        write_page(_PAGE, parts)
        print(f"written: {_PAGE}")
    else:
        print("\n\n".join(parts.values()))
    if not options.no_plots:
        command = [python_with("plots", _DRAWING_NEEDS), _DRAWING, results, options.out or _IMAGES]
        subprocess.run(command, check=True)
    return 0


def _study(*, quick: bool) -> dict[str, Any]:
    machine = describe()
    started = time.time()

    def say(words: str) -> None:
        print(f"{time.time() - started:6.1f} s  {words}", flush=True)

    found = run(QUICK if quick else FULL, say)
    return {
        "machine": machine,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(time.time() - started),
        "quick": quick,
        **found,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
