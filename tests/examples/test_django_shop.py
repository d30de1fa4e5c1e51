"""The Django example: its own server, and its command beside it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest

from aioredlock_ng.sync import Redlock
from aioredlock_ng.testing import free_port
from tests.support.coverage import untraced

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.node_set import NodeSet

PATIENCE = 60.0


@pytest.fixture
def manage(nodes: NodeSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("SHOP", str(tmp_path / "shop.sqlite3"))
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    command = [sys.executable, "-u", str(EXAMPLES / "django_shop" / "manage.py")]
    subprocess.run(
        [*command, "migrate", "--run-syncdb"], env=untraced(), check=True, capture_output=True
    )
    return command


@pytest.mark.slow
@pytest.mark.once
def test_a_seat_is_sold_once_by_the_server(manage: list[str], nodes: NodeSet) -> None:
    port = free_port()
    run = [*manage, "runserver", "--noreload", f"127.0.0.1:{port}"]
    with (
        subprocess.Popen(
            run, env=untraced(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client,
    ):
        try:
            end = time.monotonic() + PATIENCE
            while True:
                try:
                    assert client.get("/").status_code == 404
                    break
                except httpx.ConnectError:
                    assert time.monotonic() < end
                    time.sleep(0.05)
            with Redlock.from_env() as elsewhere, elsewhere.lock("seat:12"):
                assert client.post("/seats/12").status_code == 423
            with ThreadPoolExecutor(4) as pool:
                answers = [
                    answer.status_code
                    for answer in pool.map(lambda _: client.post("/seats/12"), range(8))
                ]
            assert answers.count(200) == 1
            assert set(answers) <= {200, 409, 423}
            assert client.post("/seats/12").status_code == 409
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(PATIENCE) is not None


@pytest.mark.slow
@pytest.mark.once
def test_one_import_runs_at_a_time(manage: list[str], nodes: NodeSet) -> None:
    slow = [*manage, "import_seats", "100", "--pause", "60"]
    with subprocess.Popen(slow, env=untraced(), stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "seat 0\n"
        second = subprocess.run(
            [*manage, "import_seats", "2"],
            env=untraced(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 1
        assert "'import:seats' was not acquired" in second.stderr
        first.terminate()
        assert first.wait(PATIENCE) == 143
    third = subprocess.run(
        [*manage, "import_seats", "2"], env=untraced(), capture_output=True, text=True, check=True
    )
    assert third.stdout == "seat 0\nseat 1\n"
