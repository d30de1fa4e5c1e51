"""Builds the site, once for all workers of a session."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

from tests.support.coverage import untraced

__all__ = ["build"]

DOCS = Path(__file__).parents[2] / "docs"


def build(builder: str, folder: Path) -> Path:
    """Build into a folder; what one builder has read, the next need not read again."""
    strict = ("-q", "-W", "--keep-going", "-n")
    places = ("-d", str(folder / "doctrees"), str(DOCS), str(folder / builder))
    command = [sys.executable, "-m", "sphinx", *strict, "-b", builder, *places]
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / f"{builder}.done").exists():
            told = subprocess.run(
                command, capture_output=True, text=True, timeout=250, check=False, env=untraced()
            )
            assert told.returncode == 0, told.stdout + told.stderr
            (folder / f"{builder}.done").touch()
    return folder / builder
