"""Run servers and clients under faults, and check the histories."""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng._core.keys import slot_key
from aioredlock_ng._core.validity import keys_life, ttl_ms
from aioredlock_ng._manager.specs import _GRANT_SLACK as GRANT_SLACK
from aioredlock_ng.testing import LocalServer

from .clients.broken import KINDS
from .clients.registers import make_registers
from .crew import Crew
from .history import History
from .kind_rules import DRIFT
from .nemesis import Nemesis, Relay
from .nodes import Nodes
from .plan import Plan, plan
from .processes import Process

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["main"]

ROOT: Final = Path(__file__).parents[2]
_POOLS: Final = {
    "hot": 1,
    "quick": 40,
    "long": 8,
    "careless": 3,
    # Of our library only: semaphores, locks with `min_hold`, locks with `fair`, elections, and
    # read-write locks.
    "seat": 3,
    "once": 4,
    "fair": 2,
    "chair": 2,
    "page": 3,
}

_TTL_OF_ELECTIONS: Final = 3.5
"""Node timeouts in a ttl, so that a leader has time for a slow renewal and for its end."""

_LIMIT: Final = 4
"""The greatest limit of the semaphores."""

_MIN_HOLD: Final = 0.8
"""The longest `min_hold`, as a share of the ttl. The keys live longer than the ttl for it."""

_PEERS: Final = {
    "aioredlock": ("aioredlock==0.7.3", "aioredis==1.3.1", "hiredis==3.5.0", "setuptools<80")
}


def main(arguments: Sequence[str] | None = None, schedule: Plan | None = None) -> int:
    """Carry out a run, by the plan of the seed if none is given.

    Returns:
        The exit status: 0 without any violation.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.kind == "ours" and options.ttl < _TTL_OF_ELECTIONS * options.node_timeout:
        parser.error(f"elections need a ttl of {_TTL_OF_ELECTIONS:g} node timeouts at least")
    folder = Path(options.out or tempfile.mkdtemp(prefix="chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.jsonl"):
        old.unlink()
    _say(f"seed {options.seed}, histories in {folder}")
    began = time.monotonic()
    asyncio.run(_run(options, folder, schedule or _plan(options)))
    _say(f"the run took {time.monotonic() - began:.0f} s; checking")
    checking = [sys.executable, "-m", "tests.chaos.check", str(folder.resolve())]
    if options.page:
        checking += ["--page", str(Path(options.page).resolve())]
    status = subprocess.run(checking, cwd=ROOT, check=False).returncode
    _merge(folder)
    if options.draw:
        drawing = [sys.executable, "-m", "tests.chaos.draw", str(folder.resolve())]
        status = subprocess.run(drawing, cwd=ROOT, check=False).returncode or status
    return status


def _say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--duration", type=_seconds, default=60.0, help="such as 30s, 30m, 2h (default: 60s)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, choices=(3, 5), default=5)
    parser.add_argument("--back-end", choices=("local", "docker"), default="local")
    parser.add_argument("--clients", type=int, default=6, help="processes at a time (default: 6)")
    parser.add_argument(
        "--kind",
        choices=("ours", "redis_py", "aioredlock"),
        default="ours",
        help="which lock library",
    )
    parser.add_argument(
        "--broken",
        choices=sorted(KINDS),
        default="",
        help="a deliberate defect that is to be found",
    )
    parser.add_argument(
        "--idle",
        type=float,
        default=0.045,
        help="mean seconds between the short holds of a coroutine",
    )
    # Short, so that a node which forgot is back soon: it waits for the longest ttl and a second.
    parser.add_argument(
        "--ttl", type=float, default=1.5, help="of all locks, seconds (default: 1.5)"
    )
    # Two processors that servers, relay and clients share are now and then late by the library's
    # default of 0.1.
    parser.add_argument(
        "--node-timeout", type=float, default=0.2, help="of our clients, seconds (default: 0.2)"
    )
    parser.add_argument(
        "--out", help="folder for histories, the event log and the report (default: a new one)"
    )
    parser.add_argument("--page", help="write the figures into this page, such as docs/proof.md")
    parser.add_argument(
        "--draw",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the timeline (default: drawn)",
    )
    return parser


def _seconds(text: str) -> float:
    if not (match := re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 60s, 30m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600, None: 1}[match[2]]


def _plan(options: argparse.Namespace) -> Plan:
    return plan(
        options.seed,
        nodes=options.nodes,
        seconds=options.duration,
        slots=options.clients,
        careless=_careless(options),
        ttl=options.ttl,
        guard=options.ttl + 1.0,
    )


def _careless(options: argparse.Namespace) -> int:
    return max(1, int(options.clients) // 4)


async def _run(options: argparse.Namespace, folder: Path, schedule: Plan) -> None:
    history = History(folder / "nemesis.jsonl")
    pools = {pool: [f"{pool}:{index}" for index in range(count)] for pool, count in _POOLS.items()}
    slots = [
        slot_key(seat.encode(), slot).decode()
        for seat in pools["seat"]
        for slot in range(1, _LIMIT + 1)
    ]
    names = [*(name for pool in pools.values() for name in pool), *slots]
    make_registers(folder / "registers", len(names))
    nodes, store = Nodes(options.nodes, docker=options.back_end == "docker"), LocalServer()
    crew: Crew | None = None
    relay: Process | None = None
    try:
        nodes.start()
        store.start()
        ways = {"addresses": nodes.addresses, "history": str(folder / "relay.jsonl")}
        relay = Process("relay", ways, folder / "relay.log")
        orders = Relay(relay)
        urls = [f"redis://127.0.0.1:{port}" for port in await orders.ports()]
        task = _task(options, urls, store.url, folder, names, pools)
        crew = Crew(_roles(options), task, folder, history, _python(options))
        await crew.start()
        _write_meta(options, folder, nodes)
        long = {*pools["long"], *pools["chair"], *pools["page"], *slots}
        nemesis = Nemesis(nodes, orders, crew, history, long, options.ttl, _life(options))
        about = {
            "seed": options.seed,
            "nodes": options.nodes,
            "ttl": options.ttl,
            "life": _life(options),
        }
        history.write("begin", **about)
        await nemesis.run(schedule, options.duration, _say)
        await crew.close()
        history.write("over")
    finally:
        if crew is not None:
            crew.kill()
        if relay is not None:
            await asyncio.to_thread(relay.close, 5.0)
        history.close()
        store.close()
        nodes.close()


def _task(
    options: argparse.Namespace,
    urls: list[str],
    store: str,
    folder: Path,
    names: list[str],
    pools: dict[str, list[str]],
) -> dict[str, Any]:
    return {
        "kind": options.kind,
        "broken": options.broken,
        "urls": urls,
        "store": store,
        "registers": str(folder / "registers"),
        "names": names,
        "pools": pools,
        "ttl": options.ttl,
        "max_ttl": options.ttl,
        "node_timeout": options.node_timeout,
        "idle": options.idle,
        "seed": options.seed,
        # Locks of several names at once.
        "several": options.kind == "ours",
        "limit": _LIMIT,
        "min_hold": _MIN_HOLD * options.ttl,
    }


def _life(options: argparse.Namespace) -> float:
    """Return the seconds that the keys of the longest `min_hold` live."""
    within = 2 * options.node_timeout + GRANT_SLACK
    return ttl_ms(keys_life(options.ttl, _MIN_HOLD * options.ttl, within, DRIFT)) / 1000


def _roles(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the number of coroutines of each kind, for each client process.

    Some processes take many short locks, and some hold few for long. The last ones write without a
    check of the lease. The first make the load, and have the lower priority, because the time until
    the others are notified of a loss is measured. Of every five processes, the third and the fourth
    have an engine in a thread of its own.
    """
    ours, careless = options.kind == "ours", _careless(options)
    kinds = ("quick", "long", "careless", "seat", "once", "fair", "chair", "page", "blocking")
    nothing = dict.fromkeys(kinds, 0)
    quick, long = nothing | {"quick": 11, "nice": 10}, nothing | {"long": 5, "nice": 0}
    if ours:
        quick |= {"quick": 6, "seat": 3, "once": 2, "fair": 2, "chair": 1, "page": 3}
        long |= {"seat": 2, "chair": 1, "page": 3}
    roles: list[dict[str, Any]] = []
    for index in range(options.clients - careless):
        # The defects of a broken client are put into an engine on the loop of its holders.
        thread = ours and not options.broken and index % 5 in (2, 3)
        role = long if index % 2 == 1 else quick
        blocking = int(thread and role["long"] > 0)
        # While a body blocks its loop, a read lease has no body yet, and keeps all writers waiting.
        roles.append(
            role | {"thread": thread, "blocking": blocking, "page": 0 if blocking else role["page"]}
        )
    return [
        *roles,
        *(nothing | {"careless": 2, "nice": 10, "thread": False} for _ in range(careless)),
    ]


def _python(options: argparse.Namespace) -> Path | None:
    if options.kind not in _PEERS:
        return None
    from benchmarks.environments import python_with

    return python_with(options.kind, _PEERS[options.kind])


def _write_meta(options: argparse.Namespace, folder: Path, nodes: Nodes) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    meta = {
        "seed": options.seed,
        "duration": options.duration,
        "nodes": options.nodes,
        "clients": options.clients,
        "kind": options.kind,
        "broken": options.broken,
        "ttl": options.ttl,
        "node_timeout": options.node_timeout,
        "server": nodes.version,
        "memories": nodes.memories,
        "python": sys.version.split()[0],
        "processors": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "commit": commit.stdout.strip(),
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")


def _merge(folder: Path) -> None:
    """Write one event log: the lines of all histories in the order of time, each with its process's
    name.
    """
    with (folder / "events.log").open("w", encoding="ascii") as log:
        # Not .jsonl: what ends so is a history.
        for _, line in heapq.merge(*(_lines(path) for path in sorted(folder.glob("*.jsonl")))):
            log.write(line)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="ascii") as file:
        lines: Iterable[str] = file
        for line in lines:
            if line.endswith("\n"):
                yield int(line[5 : line.index(",")]), f'{line[:-2]},"o":"{path.stem}"}}\n'
