"""The counts are right: answers by kind, commands over the wire, medians, sums and bars."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.flash_sale import crowd as crowd_module
from benchmarks.flash_sale.crowd import Crowd
from benchmarks.flash_sale.ledger import Watch, over_the_wire, read
from benchmarks.flash_sale.summary import bars, ceilings, cells, medians

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aioredlock_ng.testing import LocalServer

pytestmark = pytest.mark.once

ENDLESS = {"path": "/", "requests": None, "seconds": 30.0, "patience": 30.0}


class Shop:
    """Answers by a script: the number of the request decides."""

    def __init__(self, answer: Callable[[int, asyncio.StreamWriter], Awaitable[None]]) -> None:
        self.answer = answer
        self.requests = 0
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.requests += 1
                await self.answer(self.requests, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def answer(status: int, body: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d Word\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


@pytest.fixture
async def crowd_at() -> AsyncIterator[Callable[..., Awaitable[Crowd]]]:
    servers: list[asyncio.Server] = []
    crowds: list[Crowd] = []

    async def start(shop: Shop, connections: int, workers: int = 1) -> Crowd:
        servers.append(await asyncio.start_server(shop, "127.0.0.1", 0))
        crowd = Crowd(servers[-1].sockets[0].getsockname()[1], connections)
        crowds.append(crowd)
        await crowd.connect(workers)
        return crowd

    yield start
    for crowd in crowds:
        for buyer in crowd.buyers:
            buyer.hang_up()
    for server in servers:
        server.close()
        await server.wait_closed()


async def test_every_answer_is_counted_by_its_status(
    crowd_at: Callable[..., Awaitable[Crowd]],
) -> None:
    async def by_number(number: int, writer: asyncio.StreamWriter) -> None:
        # In two parts: a head may come without its body.
        whole = answer((201, 410, 503)[number % 3], b"body")
        writer.write(whole[:20])
        await asyncio.sleep(0)
        writer.write(whole[20:])

    shop = Shop(by_number)
    crowd = await crowd_at(shop, 7)
    found = await crowd.phase(ENDLESS | {"requests": 300})
    assert found["answers"] == {"201": 100, "410": 100, "503": 100}
    assert (found["timeouts"], found["broken"], found["unfinished"]) == (0, 0, 0)
    assert (shop.requests, shop.connections) == (300, 7)
    assert 0 < found["sold_within"] <= found["seconds"]
    assert (
        found["answer"]["p50"]
        <= found["answer"]["p99"]
        <= found["answer"]["max"]
        <= found["seconds"]
    )


async def test_connections_are_spread_evenly_over_the_workers(
    crowd_at: Callable[..., Awaitable[Crowd]],
) -> None:
    # Two of three connections are taken by the same worker.
    async def by_connection(number: int, writer: asyncio.StreamWriter) -> None:
        named = asyncio.current_task()
        workers.setdefault(named, b"2" if shop.connections % 3 == 0 else b"1")
        served[workers[named]] += number > asked
        writer.write(answer(201).replace(b"\r\n", b"\r\nX-Worker: " + workers[named] + b"\r\n", 1))

    workers: dict[Any, bytes] = {}
    served: Counter[bytes] = Counter()
    asked = 10**6
    shop = Shop(by_connection)
    crowd = await crowd_at(shop, 10, 2)
    asked = shop.requests
    await crowd.phase(ENDLESS | {"requests": 10})
    assert served == {b"1": 5, b"2": 5}


async def test_a_buyer_that_waits_too_long_hangs_up_and_another_comes(
    crowd_at: Callable[..., Awaitable[Crowd]], monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = 0.0

    async def never_the_first(number: int, writer: asyncio.StreamWriter) -> None:
        nonlocal passed
        if number > 2:
            writer.write(answer(201))
        elif number == 2:
            passed = 30.0

    def now() -> float:
        return time.perf_counter() + passed

    monkeypatch.setattr(
        crowd_module, "time", SimpleNamespace(perf_counter=now, process_time=time.process_time)
    )
    shop = Shop(never_the_first)
    crowd = await crowd_at(shop, 2)
    found = await crowd.phase(ENDLESS | {"requests": 10, "seconds": 90.0})
    assert (found["timeouts"], found["answers"]) == (2, {"201": 8})
    assert shop.connections == 4
    assert found["wait"]["max"] >= 30.0


async def test_a_connection_that_is_cut_is_no_answer(
    crowd_at: Callable[..., Awaitable[Crowd]],
) -> None:
    async def cut_the_first(number: int, writer: asyncio.StreamWriter) -> None:
        if number == 1:
            writer.close()
        else:
            writer.write(answer(201))

    crowd = await crowd_at(Shop(cut_the_first), 1)
    found = await crowd.phase(ENDLESS | {"requests": 5})
    assert (found["broken"], found["answers"]) == (1, {"201": 4})


async def test_a_request_without_an_answer_at_the_end_is_unfinished(
    crowd_at: Callable[..., Awaitable[Crowd]],
) -> None:
    async def never(number: int, writer: asyncio.StreamWriter) -> None:
        pass

    crowd = await crowd_at(Shop(never), 3)
    found = await crowd.phase(ENDLESS | {"seconds": 0.1})
    assert (found["unfinished"], found["timeouts"], found["answers"], found["answer"]) == (
        3,
        0,
        {},
        None,
    )
    assert 0 < found["wait"]["p50"] <= found["seconds"]
    assert found["seconds"] >= 0.1


def test_commands_of_scripts_are_counted_apart_from_commands_over_the_wire(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server()
    script = (
        'redis.call("SET", KEYS[1], 1) redis.call("GET", KEYS[1]) return redis.call("DEL", KEYS[1])'
    )
    with Watch(server.socket_path) as watch:
        server.command("EVAL", script, "1", "a")
        server.command("SET", "b", "1")
    assert (watch.sent, watch.inner) == ({"eval", "set"}, {"set", "get", "del"})
    assert over_the_wire([watch]) == {"eval", "set"}
    before = read(server)
    for _ in range(10):
        server.command("EVAL", script, "1", "a")
    server.command("SET", "b", "1")
    server.command("EXISTS", "b")
    found = read(server).since(before)
    assert found.calls == {"eval": 10, "set": 11, "get": 10, "del": 10, "exists": 1}
    assert found.all == 42
    # A command that scripts and clients both use counts as sent: the count is an upper bound.
    assert found.sent({"eval", "set"}) == 21
    assert found.sent(None) == 42
    assert found.cpu >= 0


def turn(contestant: str, number: int = 0, **figures: Any) -> dict[str, Any]:
    names = (
        "timeouts refused failed_requests oversold sold_out entered commands_all"
        " commands_sent_busiest stock_commands lock_cpu stock_cpu web_cpu"
    )
    whole: dict[str, Any] = {
        "contestant": contestant,
        "sale": "s",
        "round": number,
        "first_error": "",
    }
    whole |= dict.fromkeys(names.split(), 0)
    whole |= {
        "sales_per_second": 100.0,
        "requests_per_second": 100.0,
        "sold": 100,
        "sold_by_server": 100,
    }
    whole |= {"commands_sent": 1000, "wait": {"p50": 0.001, "p99": 0.002, "max": 0.003}}
    return whole | figures


def test_speeds_are_medians_and_failures_are_summed() -> None:
    rates = [90.0, 100.0, 500.0]
    turns = [
        turn("redis-py", n, sales_per_second=rate, oversold=n, timeouts=1)
        for n, rate in enumerate(rates)
    ]
    (row,) = medians(turns)
    assert (row["sales_per_second"], row["oversold"], row["timeouts"], row["rounds"]) == (
        100.0,
        3,
        3,
        3,
    )
    assert row["commands"] == 10
    assert cells(row)[:4] == ("redis-py", "1", "100", "100")


def test_a_bar_is_judged_against_the_best_polling_lock() -> None:
    ours = turn("ours, 5 nodes", sales_per_second=1000.0, commands_sent=1000)
    others = [
        turn("no lock", sales_per_second=9000.0, oversold=100),
        turn("asyncio.Lock, 1 worker", sales_per_second=3000.0),
        turn("ours, 1 node", sales_per_second=9000.0),
        turn("GETSET, 2 s", sales_per_second=10.0, commands_sent=100),
        turn("redis-py", sales_per_second=150.0, commands_sent=9000),
        turn("pottery", sales_per_second=2.0, commands_sent=80_000),
        turn("redlock-ng", sales_per_second=3.0, commands_sent=60_000),
    ]
    found = {bar.text: bar for bar in bars(medians([ours, *others]))}
    speed = found["s: sales/s, ours / redis-py (best)"]
    assert speed.value == pytest.approx(1000 / 150)
    commands = found["s: commands/sale, ours / redlock-ng (best on five nodes)"]
    assert commands.value == pytest.approx(1000 / 60_000)
    assert ceilings(medians([ours, *others])) == [
        "s: without any lock the shop sells 60.0 times as much as with the best polling lock",
        (
            "s: with `asyncio.Lock` in one worker, the shop sells 20.0 times as much"
            " as with the best polling lock"
        ),
    ]
    assert all(bar.kept for bar in found.values())


@pytest.mark.parametrize(
    "worse",
    [
        {"sales_per_second": 400.0},
        {"commands_sent": 2500},
        {"oversold": 1},
        {"timeouts": 1},
        {"refused": 1},
        {"failed_requests": 1},
    ],
    ids=lambda worse: next(iter(worse)),
)
def test_each_bar_can_be_missed(worse: dict[str, Any]) -> None:
    good: dict[str, Any] = {"sales_per_second": 1000.0, "commands_sent": 1000}
    rows = medians([turn("ours, 5 nodes", **(good | worse)), turn("redis-py", commands_sent=9000)])
    missed = Counter(bar.kept for bar in bars(rows))[False]
    assert missed == 1


def test_a_contestant_that_could_not_run_is_shown_and_wins_nothing() -> None:
    failed = {"contestant": "aioredlock", "sale": "s", "round": 0, "failed": "why"}
    rows = medians([turn("ours, 5 nodes"), failed])
    assert rows[0]["failures"] == ["why"]
    assert cells(rows[0])[2:4] == ("-", "-")
    assert [bar for bar in bars(rows) if "polls" in bar.text] == []
