"""Draws a run: `python -m tests.chaos.draw DIR [PEER_DIR]`; of a second run, under the same plan,
the same window.

Writes timeline.png into each folder, or `--out NAME` as docs/images/NAME-<kind>.png.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.environments import ROOT, python_with

from .record import load
from .timeline import best_window, timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_NEEDS = ("matplotlib==3.10.7",)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.draw", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument(
        "--begin",
        type=float,
        help="seconds after the begin of the run (default: where the most happens)",
    )
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--rows", type=int, default=6, help="resources shown")
    parser.add_argument("--out", help="name of pictures in docs/images")
    options = parser.parse_args(arguments)
    records = [load(folder) for folder in options.folders]
    begin = options.begin
    if begin is None:
        begin = best_window(records[-1], options.seconds)
    for folder, record in zip(options.folders, records, strict=True):
        meta = json.loads((folder / "meta.json").read_text())
        drawn = timeline(
            record, begin, options.seconds, options.rows, guarded=meta["kind"] == "ours"
        )
        drawn |= {"kind": meta["kind"], "source": f"seed {meta['seed']}, commit {meta['commit']}"}
        (folder / "timeline.json").write_text(json.dumps(drawn))
        out = folder / "timeline.png"
        if options.out:
            out = ROOT / "docs" / "images" / f"{options.out}-{meta['kind'].replace('_', '-')}.png"
            out.parent.mkdir(exist_ok=True)
        script = Path(__file__).with_name("drawing.py")
        subprocess.run(
            [python_with("plots", _NEEDS), script, folder / "timeline.json", out], check=True
        )
        sys.stdout.write(f"{out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
