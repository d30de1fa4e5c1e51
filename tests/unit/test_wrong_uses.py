"""An object that is used in the wrong way raises an error that shows the right line."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import Redlock, sync
from aioredlock_ng.testing import MemoryNodes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NODES = ["redis://127.0.0.1:1"]
FOR_COROUTINES = Redlock(NODES)
FOR_THREADS = sync.Redlock(NODES)

ASYNC_LINES: list[tuple[Any, str]] = [
    (
        FOR_COROUTINES.lock("a"),
        "`async with redlock.lock('a'):`, or `lease = await redlock.lock('a').acquire()`",
    ),
    (
        FOR_COROUTINES.semaphore("a", 4),
        (
            "`async with redlock.semaphore('a', 4):`, or "
            "`lease = await redlock.semaphore('a', 4).acquire()`"
        ),
    ),
    (
        FOR_COROUTINES.rwlock("a").read(),
        (
            "`async with redlock.rwlock('a').read():`, or "
            "`lease = await redlock.rwlock('a').read().acquire()`"
        ),
    ),
    (
        FOR_COROUTINES.rwlock("a").write(),
        (
            "`async with redlock.rwlock('a').write():`, or "
            "`lease = await redlock.rwlock('a').write().acquire()`"
        ),
    ),
    (
        FOR_COROUTINES.election("a"),
        "`async with redlock.election('a'):`, or `await redlock.election('a').run(main)`",
    ),
]
THREAD_LINES: list[tuple[Any, str]] = [
    (FOR_THREADS, "`with Redlock([...]) as redlock:`, or `aioredlock_ng.Redlock` in a coroutine"),
    (FOR_THREADS.lock("a"), "`with redlock.lock('a'):`, or `aioredlock_ng.Redlock` in a coroutine"),
    (
        FOR_THREADS.lock("a", "b"),
        "`with redlock.lock('a', …):`, or `aioredlock_ng.Redlock` in a coroutine",
    ),
    (
        FOR_THREADS.semaphore("a", 4),
        "`with redlock.semaphore('a', 4):`, or `aioredlock_ng.Redlock` in a coroutine",
    ),
    (
        FOR_THREADS.rwlock("a").read(),
        "`with redlock.rwlock('a').read():`, or `aioredlock_ng.Redlock` in a coroutine",
    ),
    (
        FOR_THREADS.rwlock("a").write(),
        "`with redlock.rwlock('a').write():`, or `aioredlock_ng.Redlock` in a coroutine",
    ),
]
SIDES: list[tuple[Any, str]] = [
    (
        FOR_COROUTINES.rwlock("a"),
        "`async with redlock.rwlock('a').read():`, or `async with redlock.rwlock('a').write():`",
    ),
    (
        FOR_THREADS.rwlock("a"),
        "`with redlock.rwlock('a').read():`, or `with redlock.rwlock('a').write():`",
    ),
]


async def awaited(thing: Any) -> None:
    await thing


async def entered_by_with(thing: Any) -> None:
    with thing:
        raise AssertionError("no body begins")


async def entered_by_async_with(thing: Any) -> None:
    async with thing:
        raise AssertionError("no body begins")


async def acquired(thing: Any) -> None:
    await thing.acquire()


async def tried(thing: Any) -> None:
    await thing.try_acquire()


SAID: dict[Callable[[Any], Awaitable[None]], tuple[type[Exception], str]] = {
    awaited: (TypeError, "cannot be awaited"),
    entered_by_with: (TypeError, "does not support a plain `with`"),
    entered_by_async_with: (TypeError, "does not support `async with`"),
    acquired: (AttributeError, "has no acquire"),
    tried: (AttributeError, "has no acquire"),
}

CASES = [
    *(((awaited, entered_by_with), *line) for line in ASYNC_LINES[:-1]),
    ((awaited, entered_by_with, acquired, tried), *ASYNC_LINES[-1]),
    *(((awaited, entered_by_async_with), *line) for line in THREAD_LINES),
    *((tuple(SAID), *line) for line in SIDES),
]


@pytest.mark.parametrize(("uses", "thing", "right"), CASES)
async def test_a_wrong_use_raises_an_error_that_shows_the_right_line(
    uses: tuple[Callable[[Any], Awaitable[None]], ...], thing: Any, right: str
) -> None:
    for use in uses:
        kind, words = SAID[use]
        with pytest.raises(kind) as caught:
            await use(thing)
        assert str(caught.value) == f"{type(thing).__name__} {words}; use {right}"


@pytest.mark.parametrize("thing", [lock for lock, _ in SIDES])
def test_a_read_write_lock_has_no_acquire_for_a_program_that_asks_first(thing: Any) -> None:
    assert not hasattr(thing, "acquire")
    assert not hasattr(thing, "try_acquire")


@pytest.mark.parametrize("redlock", [FOR_COROUTINES, FOR_THREADS])
def test_the_error_about_an_unknown_option_names_the_public_method(redlock: Any) -> None:
    calls = [
        ("semaphore", lambda **options: redlock.semaphore("a", 4, **options)),
        ("semaphore", lambda **options: redlock.guard("a", limit=4, **options)),
        ("rwlock", lambda **options: redlock.rwlock("a", **options)),
        ("rwlock", lambda **options: redlock.guard("a", shared=True, **options)),
        ("election", lambda **options: redlock.election("a", **options)),
    ]
    for method, call in calls:
        # The internal functions have parameters of the names "names" and "options".
        for option in ("timeout", "names", "options"):
            with pytest.raises(TypeError) as caught:
                call(**{option: 1})
            words = f"Redlock.{method}() got an unexpected keyword argument {option!r}"
            assert str(caught.value) == words


def refuse_copies(thing: Any) -> None:
    for use in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"pickled or deep-copied.*only plain values"):
            use(thing)
    assert type(copy.copy(thing)) is type(thing)


@pytest.mark.parametrize(
    "thing",
    [
        FOR_COROUTINES,
        Redlock(NODES, thread=True),
        FOR_COROUTINES.lock("a", "b"),
        *(thing for thing, _ in (*ASYNC_LINES, *THREAD_LINES, *SIDES)),
        FOR_COROUTINES.election("a"),
        FOR_THREADS.election("a"),
    ],
)
def test_an_object_of_a_process_says_so_to_a_program_that_pickles_it(thing: Any) -> None:
    refuse_copies(thing)


@pytest.mark.parametrize("thread", [False, True])
async def test_a_lease_and_its_open_manager_say_that_they_cannot_be_pickled(thread: bool) -> None:
    async with Redlock(MemoryNodes(3), thread=thread) as redlock:
        lock = redlock.lock("a")
        async with lock as lease:
            for thing in (redlock, lock, lease, redlock.election("a")):
                refuse_copies(thing)
            assert copy.copy(lease) == lease
            lease.check()


def test_a_lease_of_a_thread_says_that_it_cannot_be_pickled() -> None:
    with sync.Redlock(MemoryNodes(3)) as redlock, redlock.lock("a") as lease:
        for thing in (redlock, redlock.lock("a"), lease):
            refuse_copies(thing)
        assert copy.copy(lease) == lease
        lease.check()
