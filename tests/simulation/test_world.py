"""Test the simulated world itself: clocks, stops and connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.simulation.network import Link, Profile
from tests.simulation.world import ProcessLoop, World

if TYPE_CHECKING:
    from collections.abc import Coroutine

pytestmark = pytest.mark.once


class Echo:
    """A server that records the bytes that it receives."""

    def __init__(self) -> None:
        self.name = "n0"
        self.up = True
        self.life = 1
        self.got: list[bytes] = []
        self.ended = False

    def accept(self, connection: object) -> Echo:
        return self

    def received(self, data: bytes) -> None:
        self.got.append(data)

    def closed(self) -> None:
        self.ended = True


class Reader:
    """The protocol of a process, which records the bytes that it receives."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.lost = False
        self._buffer = bytearray(100)

    def get_buffer(self, _: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, size: int) -> None:
        self.got.append(bytes(self._buffer[:size]))

    def connection_lost(self, _: Exception | None) -> None:
        self.lost = True


def played(
    world: World, loop: ProcessLoop, work: Coroutine[object, object, None], until: float = 1000.0
) -> float:
    """Run a coroutine, and return the true time at which it ended."""
    task = loop.create_task(work)
    world.run(until, task.done)
    task.result()
    return world.now


def process(world: World, rate: float = 1.0) -> ProcessLoop:
    return ProcessLoop(world, "p0", rate)  # type: ignore[abstract]


def test_a_process_with_a_fast_clock_sleeps_shorter() -> None:
    world = World(1)
    assert played(world, process(world, 1.25), asyncio.sleep(10.0)) == pytest.approx(8.0)


def test_a_stopped_process_goes_on_late_and_a_suspended_one_sleeps_on() -> None:
    for suspended, ends in ((False, 11.0), (True, 15.0)):
        world = World(1)
        loop = process(world)
        world.at(
            6.0, lambda loop=loop, suspended=suspended: loop.stop_for(5.0, suspended=suspended)
        )
        before = loop.clock()
        assert played(world, loop, asyncio.sleep(10.0)) == pytest.approx(ends)
        assert loop.clock() - before == pytest.approx(ends)


def test_a_loop_without_end_is_noticed() -> None:
    world = World(1)
    loop = process(world)
    troubles: list[str] = []
    world.on_trouble = troubles.append

    def again() -> None:
        loop.call_soon(again)

    loop.call_soon(again)
    world.run(1.0, lambda: bool(troubles))
    assert troubles
    assert "callbacks at one instant" in troubles[0]


def test_an_unhandled_exception_is_noticed() -> None:
    world = World(1)
    loop = process(world)
    troubles: list[str] = []
    world.on_trouble = troubles.append
    loop.call_later(1.0, {}.pop, "key")
    world.run(2.0, lambda: False)
    assert len(troubles) == 1
    assert "KeyError" in troubles[0]


async def connected(link: Link, reader: Reader) -> None:
    connection = await link.dial()
    connection.set_protocol(reader)
    link.connection = connection
    link.greeted()


def linked(world: World, *, spread: float = 0.01) -> tuple[Link, Echo, Reader]:
    echo, reader, loop = Echo(), Reader(), process(world)
    link = Link(world, loop, echo, Profile(0.001, spread, 0.0, 0.0))  # type: ignore[arg-type]
    played(world, loop, connected(link, reader))
    return link, echo, reader


def test_messages_of_one_connection_arrive_in_the_order_of_sending() -> None:
    world = World(1)
    link, echo, reader = linked(world)
    assert link.connection is not None
    for number in range(50):
        link.connection.write(b"%d" % number)
        link.connection.answer(b"%d" % number)
    world.run(world.now + 10.0, lambda: False)
    assert echo.got == reader.got == [b"%d" % number for number in range(50)]


def test_a_partition_keeps_back_the_messages_of_its_direction_alone() -> None:
    world = World(1)
    link, echo, reader = linked(world)
    assert link.connection is not None
    link.block(1)
    link.connection.write(b"there")
    link.connection.answer(b"back")
    world.run(world.now + 10.0, lambda: False)
    assert (echo.got, reader.got) == ([b"there"], [])
    assert link.calm_since == float("inf")
    link.unblock(1)
    world.run(world.now + 10.0, lambda: False)
    assert reader.got == [b"back"]
    assert link.calm_since < world.now


@pytest.mark.parametrize("executes", [True, False])
def test_a_cut_connection_may_still_deliver_a_request_under_way(executes: bool) -> None:
    world = World(1)
    link, echo, reader = linked(world)
    assert link.connection is not None
    link.connection.write(b"request")
    link.connection.answer(b"answer")
    link.connection.cut(executes=executes)
    world.run(world.now + 10.0, lambda: False)
    assert echo.got == ([b"request"] if executes else [])
    assert reader.got == []
    assert reader.lost
    assert link.calm_since == float("inf")


def test_data_written_before_a_close_arrives_before_the_end_of_the_connection() -> None:
    world = World(1)
    link, echo, reader = linked(world)
    assert link.connection is not None
    link.connection.write(b"release")
    link.connection.close()
    world.run(world.now + 10.0, lambda: False)
    assert echo.got == [b"release"]
    assert echo.ended
    assert reader.lost


def test_a_server_that_is_down_refuses_connections() -> None:
    world = World(1)
    echo, loop = Echo(), process(world)
    echo.up = False
    link = Link(world, loop, echo, Profile(0.001, 0.0, 0.0, 0.0))  # type: ignore[arg-type]
    with pytest.raises(ConnectionRefusedError):
        played(world, loop, connected(link, Reader()))
