"""Make a virtual environment and install into it, with Python's standard library only.

Debian's Python comes without ensurepip, and an old pip knows no dependency groups. So `uv` does the
installing. It is fetched by the available pip, or by the wheel of the newest pip, which runs
without installation.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import venv
from pathlib import Path

INDEX = "https://pypi.org/simple/pip/"
WHEEL = re.compile(
    r'href="(?P<url>[^"#]*/pip-(?P<version>[\d.]+)-py3-none-any\.whl)'
    r'#sha256=(?P<sha256>[0-9a-f]{64})"'
)


def main() -> None:
    """Make the environment `sys.argv[1]`, and run `uv pip install` there with the rest."""
    folder, *wanted = sys.argv[1:]
    python = Path(folder) / ("Scripts" if os.name == "nt" else "bin") / "python"
    has_pip = importlib.util.find_spec("ensurepip") is not None
    if not python.exists():
        venv.create(folder, with_pip=has_pip, clear=True)
    if subprocess.run([python, "-c", "import uv"], stderr=subprocess.DEVNULL).returncode:
        quiet = ("--quiet", "--disable-pip-version-check")
        if has_pip:
            subprocess.run([python, "-m", "pip", "install", *quiet, "uv"], check=True)
        else:
            with tempfile.TemporaryDirectory() as download:
                subprocess.run(
                    [python, f"{_pip_wheel(Path(download))}/pip", "install", *quiet, "uv"],
                    check=True,
                )
    subprocess.run(
        [python, "-m", "uv", "pip", "install", "--quiet", "--python", python, *wanted], check=True
    )


def _pip_wheel(folder: Path) -> Path:
    with urllib.request.urlopen(INDEX, timeout=60) as answer:
        page, base = answer.read().decode(), answer.url
    version, url, sha256 = max(
        (
            tuple(map(int, match["version"].split("."))),
            urllib.parse.urljoin(base, match["url"]),
            match["sha256"],
        )
        for match in WHEEL.finditer(page)
    )
    with urllib.request.urlopen(url, timeout=60) as answer:
        content = answer.read()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise SystemExit(f"{url} is not what the index says it is")
    path = folder / f"pip-{'.'.join(map(str, version))}-py3-none-any.whl"
    path.write_bytes(content)
    return path


if __name__ == "__main__":
    main()
