"""Make virtual environments for other libraries, and unpack the library at an older commit."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ROOT", "python_with", "unpacked"]

ROOT: Final = Path(__file__).parents[1]
_FOLDER: Final = ROOT / ".cache" / "bench-envs"


def python_with(name: str, requirements: Sequence[str]) -> Path:
    """Return the interpreter of an environment that contains these packages.

    The environment is made with the running Python if it is missing. A file lock ensures that only
    one process makes environments at a time.

    Raises:
        subprocess.CalledProcessError: They could not be installed.
    """
    # The name of the folder depends on the requirements. So an environment with that name is either
    # complete or missing.
    wanted = "\n".join((sys.version, *requirements))
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:10]
    folder = _FOLDER / f"{name}-{sys.version_info.major}.{sys.version_info.minor}-{digest}"
    complete = folder / "complete"
    if not complete.exists():
        _FOLDER.mkdir(parents=True, exist_ok=True)
        with (_FOLDER.parent / "environments.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Another process may have made the environment meanwhile.
            if not complete.exists():
                print(f"making the environment of {name}: {', '.join(requirements)}", flush=True)
                make = [
                    sys.executable,
                    str(ROOT / "tools" / "make_venv.py"),
                    str(folder),
                    *requirements,
                ]
                subprocess.run(make, check=True)
                complete.touch()
    return folder / "bin" / "python"


def unpacked(commit: str, folder: Path) -> Path:
    """Extract the package of a commit into `folder`. The checkout does not change."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, "aioredlock_ng"],
        capture_output=True,
        check=True,
    )
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder
