"""A real gunicorn with preload, whose master opens the manager before it forks."""

from __future__ import annotations

import re
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.integrations.serving import held
from tests.integrations.working import PATIENCE, Worker, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.node_set import NodeSet

pytestmark = [pytest.mark.once, pytest.mark.slow]

# A socket for control would be in the home directory.
OPTIONS = ["--preload", "--workers=2", "--bind=127.0.0.1:0", "--no-control-socket"]
COMMAND = ["-m", "gunicorn", *OPTIONS, "tests.integrations.preloaded:app"]


def test_workers_open_a_manager_anew_that_their_master_had_open_and_share_its_locks(
    nodes: NodeSet, tmp_path: Path
) -> None:
    with Worker(COMMAND, tmp_path, "") as master:
        until(lambda: master.said.count("Booting worker") == 2)
        found = re.search(r"Listening at: (\S+)", master.said)
        assert found is not None
        with (
            httpx.Client(base_url=found[1], timeout=PATIENCE) as client,
            ThreadPoolExecutor(1) as pool,
        ):
            first = pool.submit(client.get, "/hold/a")
            busy = master.begun("a")
            assert busy != master.process.pid
            assert held(nodes) == {"master", "seat"}
            # The other worker answers, because the first one serves one request at a time.
            assert client.get("/hold/b").status_code == 423
            other = client.get("/state").json()
            assert other["pid"] not in (busy, master.process.pid)
            assert (other["opened"], other["lost"]) == (True, True)
            master.let_end("a")
            assert first.result(PATIENCE).json()["fence"] > 0
        until(lambda: held(nodes) == {"master"})
        assert master.ends(signal.SIGTERM) == 0
        assert held(nodes) == set()
