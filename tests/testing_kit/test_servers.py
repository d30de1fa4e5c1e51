"""Servers of a test: they start ready, fail loudly, take faults, and never outlive the test run."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from redis.asyncio import Redis

from aioredlock_ng import ConfigurationError
from aioredlock_ng.testing import LocalNodes, LocalServer, ServerFailed, free_port

if TYPE_CHECKING:
    from collections.abc import Callable


def state(pid: int) -> str:
    """Return the kernel's letter for a process: R, S, T (stopped), Z, or "" when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def await_gone(pid: int) -> None:
    end = time.monotonic() + 10
    while state(pid) not in {"", "Z"}:
        assert time.monotonic() < end, f"process {pid} is still there"
        time.sleep(0.005)


@pytest.mark.parametrize(
    "settings",
    [{}, {"unix_socket": True}, {"password": "p:a/s@s w%"}, {"appendonly": True}],
    ids=str,
)
async def test_the_url_is_all_that_a_client_needs(settings: dict[str, Any]) -> None:
    async with LocalServer(**settings) as server, Redis.from_url(server.url) as client:
        assert await client.set("a", "1")
        server.wipe()
        assert await client.get("a") is None


def test_a_restart_keeps_the_address_and_forgets_the_keys(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server()
    address, pid = server.address, server.pid
    server.command("SET", "a", "1")
    server.command("SAVE")
    server.restart()
    assert server.address == address
    assert server.pid != pid
    assert server.command("EXISTS", "a") == b"0"


def test_with_appendonly_the_keys_are_there_after_a_crash(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server(appendonly=True)
    server.command("SET", "a", "1")
    server.crash()
    assert not server.running
    server.start()
    assert server.command("GET", "a") == b"1"


def test_when_pause_returns_the_process_has_stopped(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server()
    for _ in range(50):
        server.pause()
        assert state(server.pid) == "T"
        server.resume()
    assert server.command("PING") == b"PONG"


def test_a_paused_server_can_be_stopped(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    pid = server.pid
    server.pause()
    server.stop()
    assert state(pid) == ""


def test_a_server_that_cannot_start_says_why_in_its_own_words() -> None:
    with pytest.raises(ServerFailed, match=r"(?s)end of its log.*no-such-setting"):
        LocalServer(["--no-such-setting", "1"]).start()


def test_a_fixed_port_that_is_taken_is_an_error(start_server: Callable[..., LocalServer]) -> None:
    taken = start_server().port
    with pytest.raises(ServerFailed, match="already in use"):
        LocalServer(port=taken).start()


def test_a_chosen_port_that_is_taken_meanwhile_is_chosen_anew(
    start_server: Callable[..., LocalServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, free = start_server().port, free_port()
    choices = iter([taken, free])
    monkeypatch.setattr("aioredlock_ng.testing.servers.free_port", lambda: next(choices))
    assert start_server().port == free


def test_a_call_of_a_server_before_its_start_is_refused() -> None:
    server = LocalServer()
    for ask in (
        lambda: server.port,
        lambda: server.pid,
        lambda: server.socket_path,
        server.pause,
        server.crash,
    ):
        with pytest.raises(RuntimeError, match=r"before its first start|not running"):
            ask()
    server.stop()


def test_starting_twice_is_refused(start_server: Callable[..., LocalServer]) -> None:
    with pytest.raises(RuntimeError, match="running already"):
        start_server().start()


def test_starting_nodes_twice_is_refused_and_stops_none() -> None:
    with LocalNodes(2) as nodes:
        nodes.crash(0)
        with pytest.raises(RuntimeError, match="running already"), nodes:
            raise AssertionError("the block must not begin")
        assert [server.running for server in nodes] == [False, True]
        nodes.restore()
        assert [server.running for server in nodes] == [True, True]


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux can tie a child's life to its parent's"
)
@pytest.mark.parametrize("frozen", [False, True])
def test_servers_die_with_the_process_that_started_them_however_it_ends(frozen: bool) -> None:
    program = (
        "import sys, time\n"
        "from aioredlock_ng.testing import LocalServer\n"
        "server = LocalServer().start()\n"
        f"{'server.pause()' if frozen else ''}\n"
        "print(server.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert state(pid)
        os.kill(parent.pid, signal.SIGKILL)
    await_gone(pid)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("end", ["server.close()", "pass", "server.crash()"])
def test_a_server_outlives_a_forked_process_however_that_process_uses_it(end: str) -> None:
    program = (
        "import os\n"
        "from aioredlock_ng.testing import LocalServer\n"
        "server = LocalServer().start()\n"
        "if os.fork():\n"
        "    os.wait()\n"
        "    assert server.running\n"
        "    assert server.command('PING') == b'PONG'\n"
        "    server.crash()\n"
        "    assert server.restart().command('PING') == b'PONG'\n"
        "    server.close()\n"
        "    print('the parent is done')\n"
        "else:\n"
        f"    {end}\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert run.stdout == "the parent is done\n", run.stderr
    assert ("belongs to the process" in run.stderr) == (end == "server.crash()")


def test_a_server_outlives_the_thread_that_started_it() -> None:
    from concurrent.futures import ThreadPoolExecutor

    server = LocalServer()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(server.start).result()
    try:
        assert server.command("PING") == b"PONG"
    finally:
        server.close()


def test_nodes_are_independent_and_mended_by_restore() -> None:
    with LocalNodes(5) as nodes:
        assert len(nodes) == len(set(nodes.urls)) == 5
        nodes[0].command("SET", "a", "1")
        assert [node.command("DBSIZE") for node in nodes] == [b"1", b"0", b"0", b"0", b"0"]
        nodes.pause(0)
        nodes.crash(1)
        nodes.restore()
        assert [node.command("PING") for node in nodes] == [b"PONG"] * 5
        nodes.wipe(0)
        nodes.restart(2)
        nodes.wipe()
        assert [node.command("DBSIZE") for node in nodes] == [b"0"] * 5
        pids = [node.pid for node in nodes]
    assert [state(pid) for pid in pids] == [""] * 5


async def test_nodes_serve_an_async_with_too() -> None:
    async with LocalNodes(2, unix_socket=True) as nodes:
        nodes.pause(0)
        nodes.resume(0)
        assert all(url.startswith("unix://") for url in nodes.urls)


@pytest.mark.parametrize("kind", [LocalServer, lambda: LocalNodes(2)], ids=["server", "nodes"])
async def test_no_server_outlives_an_async_with_that_is_cancelled(
    kind: Callable[[], LocalServer | LocalNodes],
) -> None:
    def running(servers: LocalServer | LocalNodes) -> bool:
        each = [servers] if isinstance(servers, LocalServer) else servers
        return any(server.running for server in each)

    servers = kind()
    with anyio.CancelScope() as scope:
        async with servers:
            assert running(servers)
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert not running(servers)

    async def enter(servers: LocalServer | LocalNodes) -> None:
        async with servers:
            raise AssertionError("the body must not run")

    servers = kind()
    task = asyncio.create_task(enter(servers))
    # The start has begun in its thread, and the task waits for it.
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not running(servers)


def test_no_node_keeps_running_when_one_of_them_cannot_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = LocalNodes(3)
    start, pids = LocalServer.start, []

    def fails_at_the_third(server: LocalServer) -> LocalServer:
        if server is nodes[2]:
            raise ServerFailed("no")
        started = start(server)
        pids.append(server.pid)
        return started

    monkeypatch.setattr(LocalServer, "start", fails_at_the_third)
    with pytest.raises(ServerFailed), nodes:
        pytest.fail("entered without all nodes")
    assert len(pids) == 2
    assert [state(pid) for pid in pids] == ["", ""]


@pytest.mark.parametrize("count", [0, -1])
def test_an_empty_set_of_nodes_is_refused(count: int) -> None:
    with pytest.raises(ConfigurationError, match="count must be at least 1"):
        LocalNodes(count)


@pytest.mark.parametrize("count", ["3", 1.5, None, True])
def test_a_count_that_is_no_whole_number_is_refused(count: Any) -> None:
    with pytest.raises(ConfigurationError, match="count must be a whole number"):
        LocalNodes(count)


def test_a_node_that_is_not_there_is_refused_and_no_other_is_hurt() -> None:
    with LocalNodes(2) as nodes:
        for fault in (nodes.pause, nodes.resume, nodes.crash, nodes.restart, nodes.wipe):
            for index in (-1, 2):
                with pytest.raises(
                    ConfigurationError, match=f"index must be from 0 to 1, not {index}"
                ):
                    fault(index)
        assert [node.command("PING") for node in nodes] == [b"PONG", b"PONG"]


def test_the_port_of_a_crashed_server_is_not_given_to_another_one() -> None:
    """Clients of the crashed server would connect to the other one, and take it for theirs."""
    ports = [free_port() for _ in range(150)]
    assert len(set(ports)) == 150
    command = [
        sys.executable,
        "-c",
        "import os; from aioredlock_ng.testing import free_port; print(os.getpid(), free_port())",
    ]
    for _ in range(3):
        process, port = map(
            int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        )
        assert (port in ports) <= ((process - os.getpid()) % 64 == 0)
