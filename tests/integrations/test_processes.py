"""Servers in processes of their own share a lock, and outlive each other."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.integrations.serving import PATIENCE, held
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.node_set import NodeSet

PROGRAM = Path(__file__).with_name("counting.py")
TTL = 5.0

pytestmark = pytest.mark.once


@contextmanager
def server(framework: str, counter: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server, and where it listens."""
    command = [sys.executable, str(PROGRAM), framework, str(counter)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=PROGRAM.parents[2]
    ) as process:
        try:
            assert process.stdout is not None
            yield process, f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()


@pytest.mark.slow
async def test_two_processes_lose_no_count_and_a_killed_one_blocks_the_other_for_its_ttl_only(
    nodes: NodeSet, tmp_path: Path
) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    with server("aiohttp", counter) as one, server("fastapi", counter) as other:
        await lose_no_count(nodes, counter, [one, other])
        await killed(nodes, one, other)


async def lose_no_count(
    nodes: NodeSet, counter: Path, started: list[tuple[subprocess.Popen[str], str]]
) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE * 2) as client:
        answers = await asyncio.gather(
            *(client.post(f"{started[n % 2][1]}/counters/a") for n in range(60))
        )
    assert {answer.status_code for answer in answers} == {200}
    assert sorted(answer.json()["count"] for answer in answers) == list(range(1, 61))
    assert {answer.json()["pid"] for answer in answers} == {process.pid for process, _ in started}
    assert counter.read_text() == "60"
    assert nodes.keys() == [set()] * 3


async def killed(
    nodes: NodeSet, one: tuple[subprocess.Popen[str], str], other: tuple[subprocess.Popen[str], str]
) -> None:
    (first, there), (_, here) = one, other
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        holding = asyncio.create_task(client.post(f"{there}/holders/a"))
        await eventually(lambda: held(nodes) == {"counter:a"}, within=PATIENCE)
        refused = await client.post(f"{here}/holders/a")
        assert (refused.status_code, refused.headers["Retry-After"]) == (423, "1")
        first.kill()
        loop = asyncio.get_running_loop()
        killed_at = loop.time()
        with pytest.raises(httpx.HTTPError):
            await holding
        assert (await client.post(f"{here}/counters/a")).json()["count"] == 61
        assert loop.time() - killed_at < TTL + PATIENCE / 2
