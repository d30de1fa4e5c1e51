"""Run one turn with fresh servers, a fresh shop and a crowd, and return its figures."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.testing import LocalNodes, LocalServer
from benchmarks.process import Driver, DriverFailed

from .field import ALL, python, variables
from .ledger import Reading, Watch, over_the_wire, read
from .shop import FAILED, REFUSED, SOLD, SOLD_OUT
from .till import KEY
from .web import ShopFailed, Web

if TYPE_CHECKING:
    from .field import Contestant

__all__ = ["Sale", "take_turn"]

_BUYERS: Final = ("-m", "benchmarks.flash_sale.buyers")
_WARM_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Sale:
    """The items and the buyers of one sale.

    Attributes:
        name: The name in the figures.
        stock: Number of items.
        requests: Number of requests. None for as many as the time allows.
        seconds: The longest duration.
        patience: Seconds after which a buyer closes the connection.
        buyers: Number of buyers at the same time.
        workers: Number of the shop's processes.
    """

    name: str
    stock: int
    requests: int | None
    seconds: float
    patience: float = 10.0
    buyers: int = 100
    workers: int = 2


class _Buyers(Driver):
    """The process of the crowd.

    The threads that read its pipes close them when the process has ended.
    """

    def _read(self) -> None:
        super()._read()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _drain(self) -> None:
        super()._drain()
        assert self._process.stderr is not None
        self._process.stderr.close()


def take_turn(contestant: Contestant, sale: Sale, *, here: bool = False) -> dict[str, Any]:
    """Run one sale, with `here` in the running Python's environment.

    Returns:
        The figures, or `{"failed": why}`. A contestant that cannot run does not end the
        benchmark.
    """
    try:
        with ExitStack() as stack:
            return _turn(stack, contestant, sale, here)
    except (DriverFailed, ShopFailed) as failure:
        return {"failed": str(failure)}


def _turn(stack: ExitStack, contestant: Contestant, sale: Sale, here: bool) -> dict[str, Any]:
    till = stack.enter_context(LocalServer())
    nodes: list[LocalServer] = []
    if contestant.nodes:
        nodes = list(stack.enter_context(LocalNodes(contestant.nodes)))
    with ExitStack() as watching:
        # Each worker acquires locks while it starts, so the watches see its commands.
        watches = [watching.enter_context(Watch(node.socket_path)) for node in nodes]
        urls, shops, crowds = (
            [node.url for node in nodes],
            python(contestant, here=here),
            python(ALL[0], here=here),
        )
        workers = min(sale.workers, contestant.workers or sale.workers)
        web = stack.enter_context(Web(contestant, urls, till.url, workers, shops))
    warm = {
        "path": "/nothing",
        "requests": 10 * sale.buyers,
        "seconds": _WARM_SECONDS,
        "patience": _WARM_SECONDS,
    }
    real = {
        "path": "/buy",
        "requests": sale.requests,
        "seconds": sale.seconds,
        "patience": sale.patience,
    }
    task = {
        "port": web.port,
        "workers": workers,
        "connections": sale.buyers,
        "phases": [warm, real],
    }
    buyers = stack.enter_context(_Buyers([str(crowds), *_BUYERS], variables(), task))
    buyers.ready()
    buyers.phase(_WARM_SECONDS)
    wire = over_the_wire(watches)

    till.command("SET", KEY, str(sale.stock))
    before, till_before, cpu = [read(node) for node in nodes], read(till), web.cpu_seconds()
    figures = buyers.phase(sale.seconds)
    after, till_after, cpu = [read(node) for node in nodes], read(till), web.cpu_seconds() - cpu
    notes = web.stop()
    work = [new.since(old) for new, old in zip(after, before, strict=True)]
    total = read(till).since(till_before)
    return _figures(sale, figures, work, wire, till_after.since(till_before)) | {
        "oversold": total.calls.get("set", 0) - (sale.stock - int(till.command("GET", KEY))),
        "in_both": sorted({name for watch in watches for name in watch.sent & watch.inner}),
        "web_cpu": cpu,
        "shares": [sum(note["answers"].values()) for note in notes if note],
        "first_error": next(
            (note["first_error"] for note in notes if note and note["first_error"]), ""
        ),
    }


def _figures(
    sale: Sale, figures: dict[str, Any], work: list[Reading], wire: set[str] | None, stock: Reading
) -> dict[str, Any]:
    answers = {int(status): count for status, count in figures["answers"].items()}
    sold, entered = stock.calls.get("set", 0), stock.calls.get("get", 0)
    calls: dict[str, int] = {}
    for reading in work:
        for name, count in reading.calls.items():
            calls[name] = calls.get(name, 0) + count
    seconds = figures["seconds"]
    return {
        "sale": sale.name,
        "seconds": seconds,
        "sold_within": figures["sold_within"],
        "sold": answers.get(SOLD, 0),
        "sold_out": answers.get(SOLD_OUT, 0),
        "refused": answers.get(REFUSED, 0),
        "failed_requests": answers.get(FAILED, 0) + figures["broken"],
        "timeouts": figures["timeouts"],
        "unfinished": figures["unfinished"],
        "requests_per_second": sum(answers.values()) / seconds if answers else 0.0,
        "sales_per_second": answers.get(SOLD, 0) / seconds if answers else 0.0,
        "answer": figures["answer"],
        "wait": figures["wait"],
        "sold_by_server": sold,
        "entered": entered,
        "commands_sent": sum(reading.sent(wire) for reading in work),
        "commands_all": sum(reading.all for reading in work),
        "commands_sent_busiest": max((reading.sent(wire) for reading in work), default=0),
        "calls": dict(sorted(calls.items())),
        "wire": sorted(calls.keys() if wire is None else calls.keys() & wire),
        "lock_cpu": sum(reading.cpu for reading in work),
        "stock_commands": stock.all,
        "stock_cpu": stock.cpu,
        "buyers_cpu": figures["cpu_seconds"],
    }
