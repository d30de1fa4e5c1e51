"""Calls that are interrupted at any instant, in any way.

No key is left, the next task gets the lock, nothing leaks, and the caller sees its interruption.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioredlock_ng import AcquireTimeout, QuorumUnreachable
from aioredlock_ng._core.keys import slot_key
from aioredlock_ng._core.queue_formats import SLOT_QUEUE_KEYS
from aioredlock_ng._core.readers import READER_QUEUE_KEYS
from tests.support.rig import NODE_TIMEOUT, Process, Rig, occupied
from tests.support.stepping import SteppedLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioredlock_ng import Lock

KEY = b"orders:42"
NAME = "orders:42"

CLEAN_UP_TIME = 3 * NODE_TIMEOUT
"""Seconds that the owner may take until nothing of an interrupted attempt is left on any node that
answers.
"""

MOST_STEPS = 400


@dataclass
class World:
    """The surroundings of one scenario."""

    rig: Rig
    mine: Process
    other: Process


Scenario = tuple["Callable[[World], Awaitable[None]] | None", "Callable[[World], Awaitable[None]]"]


async def cycle(world: World) -> None:
    lease = await world.mine.lock(NAME).acquire()
    await lease.release()


async def try_once(world: World) -> None:
    lease = await world.mine.lock(NAME).try_acquire()
    if lease is not None:
        await lease.release()


async def body(world: World) -> None:
    async with world.mine.lock(NAME):
        await asyncio.sleep(0.002)
        await asyncio.sleep(0)


async def body_with_everything(world: World) -> None:
    async with world.mine.lock(NAME) as lease:
        await lease.extend()
        await lease.verify()
        await lease.extend(20.0)
        await lease.extend(5.0)


async def several_resources(world: World) -> None:
    async with world.mine.lock(NAME, "orders:43", "orders:44"):
        await asyncio.sleep(0.001)


async def nested(world: World) -> None:
    async with world.mine.lock("outer"), world.mine.lock(NAME):
        await asyncio.sleep(0.001)


async def bounded(world: World) -> None:
    with contextlib.suppress(AcquireTimeout, QuorumUnreachable):
        async with world.mine.lock(NAME, blocking_timeout=0.02):
            await asyncio.sleep(0.001)


async def retried_after_a_timeout(world: World) -> None:
    for _ in range(3):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.0005), world.mine.lock(NAME):
                await asyncio.sleep(0.001)
    async with world.mine.lock(NAME):
        await asyncio.sleep(0.001)


async def by_exit_stack(world: World) -> None:
    async with contextlib.AsyncExitStack() as stack:
        lease = await stack.enter_async_context(world.mine.lock(NAME))
        await lease.extend()


async def crowd(world: World) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(body(world))


async def slot(world: World) -> None:
    lease = await world.mine.redlock.semaphore(NAME, 2).acquire()
    await lease.release()


async def slot_crowd(world: World) -> None:
    async def enter() -> None:
        async with world.mine.redlock.semaphore(NAME, 2):
            await asyncio.sleep(0.002)

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(enter())


async def fair_slot(world: World) -> None:
    async with world.mine.redlock.semaphore(NAME, 2, fair=True):
        await asyncio.sleep(0.001)


async def try_slot(world: World) -> None:
    lease = await world.mine.redlock.semaphore(NAME, 4).try_acquire()
    if lease is not None:
        await lease.release()


async def read_again(world: World) -> None:
    catalog = world.mine.redlock.rwlock(NAME)
    async with catalog.read():
        await asyncio.sleep(0.002)
        async with catalog.read():
            await asyncio.sleep(0.001)


async def readers_and_writers(world: World) -> None:
    async def enter(lock: Lock) -> None:
        async with lock:
            await asyncio.sleep(0.002)

    catalog = world.mine.redlock.rwlock(NAME)
    async with asyncio.TaskGroup() as group:
        for lock in (catalog.read(), catalog.read(), catalog.write(), catalog.read()):
            group.create_task(enter(lock))


async def downgrade(world: World) -> None:
    catalog = world.mine.redlock.rwlock(NAME)
    async with catalog.write() as lease:
        await lease.downgrade()
        async with catalog.read():
            await lease.extend()


async def written_by_another_process(world: World) -> None:
    lease = await world.other.redlock.rwlock(NAME).write().acquire()
    asyncio.get_running_loop().call_later(0.003, _release_soon, lease)


async def read_by_another_process(world: World) -> None:
    lease = await world.other.redlock.rwlock(NAME).read().acquire()
    asyncio.get_running_loop().call_later(0.003, _release_soon, lease)


async def slots_held_by_another_process(world: World) -> None:
    for delay in (0.003, 0.006):
        lease = await world.other.redlock.semaphore(NAME, 2).acquire()
        asyncio.get_running_loop().call_later(delay, _release_soon, lease)


async def all_slots_but_the_last_held(world: World) -> None:
    # The first attempt is refused, whichever slot it asks for.
    for number in range(1, 5):
        world.rig.occupy(slot_key(KEY, number), 0.004 if number == 4 else 0.1)
    asyncio.get_running_loop().call_later(0.0015, world.rig.vacate, slot_key(KEY, 4))


async def held_by_another_process(world: World) -> None:
    lease = await world.other.lock(NAME).acquire()
    asyncio.get_running_loop().call_later(0.003, _release_soon, lease)


async def held_in_this_process(world: World) -> None:
    lease = await world.mine.lock(NAME).acquire()
    asyncio.get_running_loop().call_later(0.003, _release_soon, lease)


async def held_by_a_stranger(world: World) -> None:
    world.rig.occupy(KEY, 0.015)


async def minority_hangs(world: World) -> None:
    world.rig.hang(0)


async def majority_hangs(world: World) -> None:
    world.rig.hang(0, 2)
    asyncio.get_running_loop().call_later(0.3, world.rig.resume)


async def one_is_slow(world: World) -> None:
    world.rig.ways[1] = 0.004


async def two_are_slow(world: World) -> None:
    world.rig.ways[0] = 0.003
    world.rig.ways[2] = 0.005


async def first_two_are_down(world: World) -> None:
    world.rig.disconnect(0, 1)
    asyncio.get_running_loop().call_later(0.05, world.rig.connect, 0, 1)


async def all_refuse(world: World) -> None:
    world.rig.refuse("LOADING Redis is loading the dataset in memory", 0, 1, 2)
    asyncio.get_running_loop().call_later(0.05, world.rig.refuse, None, 0, 1, 2)


_releasing: set[asyncio.Task[bool]] = set()


def _release_soon(lease: Any) -> None:
    task = asyncio.ensure_future(lease.release())
    _releasing.add(task)
    task.add_done_callback(_releasing.discard)


SCENARIOS: dict[str, Scenario] = {
    "acquire": (None, cycle),
    "try": (None, try_once),
    "body": (None, body),
    "extend-verify": (None, body_with_everything),
    "several": (None, several_resources),
    "nested": (None, nested),
    "stack": (None, by_exit_stack),
    "crowd": (None, crowd),
    "retried": (None, retried_after_a_timeout),
    "retried-while-held": (held_by_another_process, retried_after_a_timeout),
    "contended": (held_by_another_process, body),
    "contended-crowd": (held_by_another_process, crowd),
    "in-line": (held_in_this_process, body),
    "stranger": (held_by_a_stranger, body),
    "try-held": (held_by_a_stranger, try_once),
    "bounded-held": (held_by_a_stranger, bounded),
    "minority-hangs": (minority_hangs, body_with_everything),
    "majority-hangs": (majority_hangs, body),
    "majority-hangs-bounded": (majority_hangs, bounded),
    "one-slow": (one_is_slow, body_with_everything),
    "two-slow": (two_are_slow, body),
    "two-slow-several": (two_are_slow, several_resources),
    "down-down-up": (first_two_are_down, body),
    "all-refuse": (all_refuse, body),
    "slot": (None, slot),
    "slot-crowd": (slots_held_by_another_process, slot_crowd),
    "slot-fair": (slots_held_by_another_process, fair_slot),
    "slot-two-slow": (two_are_slow, slot_crowd),
    "slot-try": (all_slots_but_the_last_held, try_slot),
    "read": (None, read_again),
    "read-behind-writer": (written_by_another_process, read_again),
    "readers-and-writers": (written_by_another_process, readers_and_writers),
    "downgrade": (read_by_another_process, downgrade),
    "downgrade-one-slow": (one_is_slow, downgrade),
}


class Interruption:
    """One way to end a coroutine from outside, and the outcome that its caller must see."""

    def __init__(self) -> None:
        self.struck = False
        self.finished = False
        self.error: BaseException | None = None

    async def host(self, work: Awaitable[None]) -> None:
        """Run the work in a place where `strike` can reach it."""
        raise NotImplementedError

    def strike(self) -> None:
        """End it now."""
        raise NotImplementedError

    def strike_again(self) -> None:
        """Interrupt the task again, if this interruption can repeat."""

    def check(self, task: asyncio.Task[None]) -> None:
        """Assert that the caller saw the interruption, given that `strike` came in time."""
        raise NotImplementedError

    async def run(self, work: Awaitable[None]) -> None:
        self.task = asyncio.current_task()
        try:
            await self.host(work)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.cancelling = self.task.cancelling()

    async def marked(self, work: Awaitable[None]) -> None:
        await work
        self.finished = True


class Native(Interruption):
    """`task.cancel()`."""

    async def host(self, work: Awaitable[None]) -> None:
        await self.marked(work)

    def strike(self) -> None:
        self.cancels = int(self.task.cancel())

    def strike_again(self) -> None:
        self.cancels += self.task.cancel()

    def check(self, task: asyncio.Task[None]) -> None:
        assert task.cancelled(), "a cancelled task ends cancelled"
        assert self.cancelling == self.cancels, "nobody took the caller's cancellation back"


class Timeout(Interruption):
    """`asyncio.timeout` around it."""

    async def host(self, work: Awaitable[None]) -> None:
        async with asyncio.timeout(None) as self.timeout:
            await self.marked(work)

    def strike(self) -> None:
        # The timer does the same when the time is up.
        self.timeout._on_timeout()

    def check(self, task: asyncio.Task[None]) -> None:
        assert isinstance(task.exception(), TimeoutError)
        assert self.cancelling == 0


class Scope(Interruption):
    """An anyio cancel scope: cancels again and again until it is left (level cancellation)."""

    async def host(self, work: Awaitable[None]) -> None:
        with anyio.CancelScope() as self.scope:
            await self.marked(work)

    def strike(self) -> None:
        self.scope.cancel()

    def check(self, task: asyncio.Task[None]) -> None:
        assert task.exception() is None
        assert self.scope.cancelled_caught is not self.finished
        assert self.cancelling == 0


class Sibling(Interruption):
    """Another task of the same `asyncio.TaskGroup` fails."""

    async def host(self, work: Awaitable[None]) -> None:
        self.bomb: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.explode())
            group.create_task(self.worker(work))

    async def worker(self, work: Awaitable[None]) -> None:
        await self.marked(work)
        if not self.bomb.done():
            self.bomb.set_result(None)

    async def explode(self) -> None:
        await self.bomb
        if self.struck:
            raise RuntimeError("bomb")

    def strike(self) -> None:
        if not self.bomb.done():
            self.bomb.set_result(None)

    def check(self, task: asyncio.Task[None]) -> None:
        error = task.exception()
        assert isinstance(error, ExceptionGroup)
        assert [str(e) for e in error.exceptions] == ["bomb"]


class AnyioSibling(Sibling):
    """Another task of the same anyio task group fails."""

    async def host(self, work: Awaitable[None]) -> None:
        self.bomb = asyncio.get_running_loop().create_future()
        async with anyio.create_task_group() as group:
            group.start_soon(self.explode)
            group.start_soon(self.worker, work)


INTERRUPTIONS: dict[str, tuple[type[Interruption], tuple[int, ...]]] = {
    "cancel": (Native, ()),
    "cancel-again-at-once": (Native, (0,)),
    "cancel-again-next": (Native, (1,)),
    "cancel-again-and-again": (Native, (1, 2, 3, 4, 6, 8)),
    "timeout": (Timeout, ()),
    "scope": (Scope, ()),
    "sibling": (Sibling, ()),
    "anyio-sibling": (AnyioSibling, ()),
}


MAIN_PATHS = {
    "acquire",
    "body",
    "extend-verify",
    "contended",
    "contended-crowd",
    "in-line",
    "one-slow",
    "slot-crowd",
    "read-behind-writer",
    "downgrade",
}
"""The scenarios that are interrupted in every way."""

LASTING = ("cancel-again-and-again", "scope")
OTHERS = ("cancel-again-at-once", "timeout", "sibling", "cancel-again-next", "anyio-sibling")


def pairs() -> list[tuple[str, str]]:
    """Return each main path with every interruption, and each other scenario with three.

    The three are a single cancellation, one that lasts, and one of the others in turn.
    """
    found = []
    for place, scenario in enumerate(SCENARIOS):
        ways: tuple[str, ...] = (
            "cancel",
            LASTING[place % len(LASTING)],
            OTHERS[place % len(OTHERS)],
        )
        if scenario in MAIN_PATHS:
            ways = tuple(INTERRUPTIONS)
        found += [(way, scenario) for way in ways]
    return found


@pytest.mark.parametrize(("interruption", "scenario"), pairs())
def test_a_call_interrupted_at_any_instant_leaves_nothing_and_the_next_gets_the_lock(
    interruption: str, scenario: str
) -> None:
    for step in range(1, MOST_STEPS):
        with asyncio.Runner(loop_factory=SteppedLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, SteppedLoop)
            try:
                in_time = runner.run(interrupt_once(loop, interruption, scenario, step))
                assert loop.troubles == []
            except BaseException as error:
                error.add_note(f"interrupted at step {step}")
                raise
        if not in_time:
            assert step > 3, "the scenario suspends somewhere"
            return
    pytest.fail("the scenario never ends")


async def interrupted(
    loop: SteppedLoop, how: Interruption, repeats: tuple[int, ...], play: Awaitable[None], at: int
) -> None:
    """Run `play` to its end, interrupt it at step `at` and again `repeats` steps later, and check
    how it ended.
    """

    def hook(step: int) -> None:
        if step == at and not task.done() and hasattr(how, "task"):
            how.struck = not how.finished
            if how.struck:
                how.strike()
                if 0 in repeats:
                    how.strike_again()
        elif step - at in repeats and how.struck and not task.done():
            how.strike_again()

    # Not counted: the step in which the task starts.
    task = asyncio.ensure_future(how.run(play))
    await asyncio.sleep(0)
    loop.watch(hook)
    await asyncio.wait([task])
    loop.watch(None)
    if how.struck:
        how.check(task)
    else:
        task.result()


async def interrupt_once(
    loop: SteppedLoop, interruption: str, scenario: str, at: int, **options: Any
) -> bool:
    """Play the scenario once. Return False if it ended before step `at`.

    `options` are the options of the interrupted manager.
    """
    prepare, play = SCENARIOS[scenario]
    kind, repeats = INTERRUPTIONS[interruption]
    how = kind()
    async with Rig(3) as rig:
        world = World(rig, await rig.process(**options), await rig.process())
        if prepare is not None:
            await prepare(world)

        await interrupted(loop, how, repeats, play(world), at)

        rig.resume()
        await asyncio.sleep(CLEAN_UP_TIME)
        assert rig.clean, f"keys left: {rig.keys()}"
        queues = (KEY, SLOT_QUEUE_KEYS + KEY, READER_QUEUE_KEYS + KEY)
        left = [server.queues.members(queue) for server in rig.servers for queue in queues]
        assert not any(left), "entries left in a queue"
        for process in (world.mine, world.other):
            assert process.redlock.stats().held == process.redlock.stats().waiting == 0
            assert process.redlock._present is not None
            lines = process.redlock._present.lines
            assert (occupied(lines), lines._standing) == ([], {})
            assert all(
                line.slots is not None or line.shared
                for others in lines._others.values()
                for line in others
            )
            assert not any(line.taken for line in lines._all())
        for process in (world.other, world.mine):
            lease = await process.lock(NAME).try_acquire()
            assert lease is not None
            assert lease.nodes[0] >= 2
            await lease.release()
        assert asyncio.all_tasks() == {asyncio.current_task()}
    return how.struck
