"""docker-compose.yml brings up five nodes for the demo, by `docker compose` or docker-compose 1.29,
whichever is there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.containers, pytest.mark.once]

ROOT = Path(__file__).parents[2]
PORTS = range(6381, 6386)


def compose_command() -> list[str] | None:
    """Return whichever there is, the plugin first."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if (
            shutil.which(command[0])
            and not subprocess.run([*command, "version"], capture_output=True).returncode
        ):
            return command
    return None


@pytest.fixture
def composed() -> Iterator[list[str]]:
    """The URLs of the five nodes, all healthy."""
    from tests.support.containers import image

    command = compose_command()
    assert command is not None, "neither `docker compose` nor `docker-compose` runs here"
    project = [
        *command,
        "--project-name",
        f"aioredlock-ng-{os.getpid()}",
        "--file",
        str(ROOT / "docker-compose.yml"),
    ]
    environment = os.environ | {"REDIS_IMAGE": image().name}

    def run(*words: str) -> str:
        done = subprocess.run([*project, *words], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        run("up", "--detach")
        _await_healthy(run("ps", "--quiet").split())
        yield [f"redis://127.0.0.1:{port}" for port in PORTS]
    finally:
        run("down", "--volumes", "--timeout", "1")


def _await_healthy(containers: list[str]) -> None:
    end = time.monotonic() + 120
    while True:
        told = json.loads(
            subprocess.run(
                ["docker", "inspect", *containers], capture_output=True, check=True
            ).stdout
        )
        states = [container["State"]["Health"]["Status"] for container in told]
        if states == ["healthy"] * len(PORTS):
            return
        assert time.monotonic() < end, f"not healthy within 120 s: {states}"
        time.sleep(0.1)


@pytest.mark.slow
def test_the_demo_runs_against_the_composed_nodes(composed: list[str]) -> None:
    words = [word for url in composed for word in ("--url", url)]
    demo = subprocess.run(
        [sys.executable, "-m", "aioredlock_ng", "demo", "--plain", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert re.search(r"under the lock: 0 of [\d,]+ updates lost", demo.stdout), demo.stdout
