"""The real gevent and eventlet, in processes of their own: what they replace cannot be put back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.coverage import untraced

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

# The packages are in the dependency group "dev", because gevent has no wheel for every Python of
# the matrix.
pytestmark = pytest.mark.once

PATIENCE = 60.0

PROGRAM = """
import asyncio, faulthandler, socket, sys, time, warnings

# A hang shows the stacks of all threads.
faulthandler.dump_traceback_later(45, exit=True)
warnings.simplefilter("ignore")
package, kind, moment, urls, *untouched = sys.argv[1:]

def patch(**options):
    if package == "gevent":
        from gevent import monkey
        monkey.patch_all(**options)
    else:
        import eventlet
        eventlet.monkey_patch(**options)

if moment in ("first", "apart"):
    patch(**dict.fromkeys(untouched, False))

import aioredlock_ng, aioredlock_ng.sync
nodes = urls.replace("127.0.0.1", "localhost").split(",")

def make():
    if kind == "sync":
        return aioredlock_ng.sync.Redlock(nodes, ttl=30.0)
    return aioredlock_ng.Redlock(nodes, thread=True, ttl=30.0)

async def hold():
    async with redlock.lock("a") as lease:
        await lease.verify()
    print("held", flush=True)

def use():
    if kind == "sync":
        with redlock.lock("a") as lease:
            lease.verify()
        print("held", flush=True)
    else:
        asyncio.run(hold())

def refused(call):
    try:
        call()
    except aioredlock_ng.ConfigurationError as error:
        print(error, flush=True)

async def open_and_hold():
    await redlock.open()
    await hold()

def free():
    # Return whether no node has the key.
    replies = []
    for url in urls.split(","):
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
            connection.sendall(b"EXISTS held\\r\\n")
            replies.append(connection.recv(16))
    return set(replies) == {b":0\\r\\n"}

def release_refused():
    if kind == "sync":
        lease = redlock.lock("held").acquire()
        patch()
        refused(lease.release)
    else:
        asyncio.run(release_refused_in_a_loop())
    while not free():
        time.sleep(0.05)
    print("free", flush=True)

async def release_refused_in_a_loop():
    lease = await redlock.lock("held").acquire()
    patch()
    try:
        await lease.release()
    except aioredlock_ng.ConfigurationError as error:
        print(error, flush=True)

def first_use():
    use() if kind == "sync" else asyncio.run(open_and_hold())

def close():
    redlock.close() if kind == "sync" else asyncio.run(redlock.aclose())

if moment == "first":
    refused(make)
    sys.exit()
redlock = make()
if moment == "between":
    patch()
    refused(first_use)
    refused(first_use)
    sys.exit()
if moment == "while held":
    first_use()
    release_refused()
    sys.exit()
first_use()
if moment == "later":
    patch()
    refused(use)
    refused(close)
else:
    close()
"""

packages = pytest.mark.parametrize("package", ["gevent", "eventlet"])
kinds = pytest.mark.parametrize("kind", ["sync", "thread=True"])


def lines_of(package: str, kind: str, moment: str, nodes: NodeSet, *untouched: str) -> list[str]:
    """Run the program; return the lines that it printed."""
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        package,
        kind,
        moment,
        ",".join(nodes.urls),
        *untouched,
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=untraced(),
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("package", "untouched", "replaced", "kind"),
    [
        ("gevent", [], "threading", "sync"),
        ("gevent", ["thread"], "select", "thread=True"),
        ("gevent", ["thread", "select"], "queue", "sync"),
        ("eventlet", [], "thread", "thread=True"),
    ],
    ids=["gevent", "gevent select", "gevent queue", "eventlet"],
)
def test_a_manager_is_refused_where_threads_would_wait_as_greenlets(
    package: str, untouched: list[str], replaced: str, kind: str, three_nodes: NodeSet
) -> None:
    (refused,) = lines_of(package, kind, "first", three_nodes, *untouched)
    assert refused.startswith(
        f"{package} has replaced `{replaced}` by greenlets, and the locks need a thread; "
        "use them in"
    )


@packages
@kinds
def test_a_manager_that_lost_its_threads_before_its_first_use_is_refused(
    package: str, kind: str, three_nodes: NodeSet
) -> None:
    """Of gunicorn with preload, for example, which patches in its workers only."""
    refused = lines_of(package, kind, "between", three_nodes)
    assert len(refused) == 2
    assert all(line.startswith(f"{package} has replaced `thread") for line in refused)


@packages
@kinds
def test_a_manager_that_lost_its_threads_while_open_refuses_each_call_and_the_process_ends(
    package: str, kind: str, three_nodes: NodeSet
) -> None:
    held, *refused = lines_of(package, kind, "later", three_nodes)
    assert held == "held"
    assert len(refused) == 2
    assert all(line.startswith(f"{package} has replaced `thread") for line in refused)


@packages
@kinds
def test_a_release_that_is_refused_because_threads_were_lost_is_sent_all_the_same(
    package: str, kind: str, three_nodes: NodeSet
) -> None:
    refused, freed = lines_of(package, kind, "while held", three_nodes)[1:]
    assert refused.startswith(f"{package} has replaced `thread")
    assert freed == "free"


@kinds
@pytest.mark.parametrize(
    ("package", "untouched"),
    [("gevent", ("thread", "select", "queue")), ("eventlet", ("thread",))],
    ids=["gevent", "eventlet"],
)
def test_locks_work_if_the_modules_of_threads_are_left_alone(
    package: str, untouched: tuple[str, ...], kind: str, three_nodes: NodeSet
) -> None:
    assert lines_of(package, kind, "apart", three_nodes, *untouched) == ["held"]
    assert three_nodes.keys() == [set()] * 3
