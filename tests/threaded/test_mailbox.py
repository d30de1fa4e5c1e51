"""The way to a loop from other threads: in order, with one wake-up for many posts, and nothing
lost.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from aioredlock_ng._threaded.mailbox import Mailbox, home


async def test_posts_of_many_threads_run_once_each_and_in_the_order_of_each_thread() -> None:
    mailbox, ran, done = home(), list[tuple[int, int]](), asyncio.Event()

    def run(thread: int, number: int) -> None:
        ran.append((thread, number))
        if len(ran) == 4000:
            done.set()

    def post(thread: int) -> None:
        for number in range(1000):
            mailbox.post(run, thread, number)

    threads = [threading.Thread(target=post, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(30):
        await done.wait()
    for thread in threads:
        thread.join()
    assert sorted(ran) == [(thread, number) for thread in range(4) for number in range(1000)]
    for thread_number in range(4):
        assert [number for thread_of, number in ran if thread_of == thread_number] == list(
            range(1000)
        )


async def test_a_callback_that_raises_is_reported_and_stops_no_other() -> None:
    mailbox, troubles, ran = home(), list[dict[str, object]](), asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))

    def fail() -> None:
        raise ValueError("a bug")

    mailbox.post(fail)
    mailbox.post(ran.set)
    async with asyncio.timeout(30):
        await ran.wait()
    assert [str(trouble["exception"]) for trouble in troubles] == ["a bug"]


def test_a_closed_loop_is_said_to_be_closed() -> None:
    loop = asyncio.new_event_loop()
    mailbox = Mailbox(loop)
    loop.close()
    assert mailbox.closed
    for _ in range(2):
        with pytest.raises(RuntimeError):
            mailbox.post(print)


def test_a_loop_that_was_closed_before_it_ran_a_callback_is_said_to_be_closed() -> None:
    loop = asyncio.new_event_loop()
    mailbox = Mailbox(loop)
    mailbox.post(print)
    loop.close()
    with pytest.raises(RuntimeError):
        mailbox.post(print)


def test_each_loop_of_a_thread_has_one_mailbox() -> None:
    async def both() -> tuple[Mailbox, Mailbox]:
        return home(), home()

    first, again = asyncio.run(both())
    second, _ = asyncio.run(both())
    assert first is again
    assert first is not second


class WakeUps:
    """In place of a loop. Records each wake-up at its end.

    Attributes:
        threads: The thread of each wake-up.
        before: For each thread: what comes in between before its next wake-up.
    """

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.before: dict[int, Any] = {}

    def is_closed(self) -> bool:
        return False

    def call_soon_threadsafe(self, _: object) -> None:
        here = threading.get_ident()
        self.before.pop(here, lambda: None)()
        self.threads.append(here)


def test_a_handler_wakes_the_loop_even_if_another_thread_has_just_ended_its_own_wake_up() -> None:
    loop: Any = WakeUps()
    mailbox, main = Mailbox(loop), threading.get_ident()
    waking, may_end = threading.Event(), threading.Event()

    def post() -> None:
        def wait() -> None:
            waking.set()
            assert may_end.wait(30)

        loop.before[threading.get_ident()] = wait
        mailbox.post(print)

    def interrupt() -> None:
        may_end.set()
        other.join(30)
        # The handler of a signal, which came before the wake-up of its own thread.
        before = list(loop.threads)
        mailbox.post(print)
        assert loop.threads == [*before, main]

    other = threading.Thread(target=post)
    other.start()
    assert waking.wait(30)
    # The loop has run meanwhile.
    mailbox._run()
    loop.before[main] = interrupt
    mailbox.post(print)
    assert loop.threads[-2:] == [main, main]


def test_an_interrupted_wake_up_leaves_no_post_of_another_thread_unread() -> None:
    loop: Any = WakeUps()
    mailbox, main = Mailbox(loop), threading.get_ident()

    def interrupt() -> None:
        # The other thread sees that this thread is waking the loop, and does not wake it again.
        other = threading.Thread(target=mailbox.post, args=(print,))
        other.start()
        other.join(30)
        assert loop.threads == []
        raise KeyboardInterrupt

    loop.before[main] = interrupt
    with pytest.raises(KeyboardInterrupt):
        mailbox.post(print)
    assert loop.threads == [main]
