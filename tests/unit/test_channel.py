"""A channel with late and surplus answers, over a transport that records all writes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from aioredlock_ng._core.replies import ALL_OURS, GRANTED, released
from aioredlock_ng._core.votes import Dropped, Refusal
from aioredlock_ng._nodes.channel import Channel, Outbox, Subscription
from aioredlock_ng._nodes.channel.tracking import CACHING
from aioredlock_ng._scripts import Command, Request
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from tests.simulation.resp import message, subscribed

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 0.2
QUESTION = b"*1\r\n$4\r\nTIME\r\n"
PROBE = b"*1\r\n$4\r\nTIME\r\n"


class Asker:
    """A `Sink` that keeps its answers."""

    def __init__(self, started: float = 0.0, command: Request | None = None) -> None:
        self.command = command or Request(QUESTION)
        self.started = started
        self.replies: list[object] = []

    def stands(self) -> bool:
        return True

    def deliver(self, index: int, reply: object) -> None:
        self.replies.append(reply)


class Transport:
    """Records all writes."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.aborted = False

    def set_protocol(self, protocol: object) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.aborted = True


class Line:
    """A channel with its transport, and the reports to its node."""

    def __init__(
        self, outbox: Outbox, on_close: Callable[[str], None] = lambda reason: None
    ) -> None:
        self.transport = Transport()
        self.silences: list[bool] = []
        self.messages: list[bytes] = []
        self.closed: list[str] = []
        self.garbled: list[str] = []
        self.refused: list[Request] = []
        self.untracked: list[str] = []
        self.channel = Channel(
            0,
            outbox,
            PATIENCE,
            on_push=lambda keys: None,
            on_message=self.messages.append,
            on_close=lambda reason, releases: (self.closed.append(reason), on_close(reason)),
            on_silent=self.silences.append,
            on_garbled=self.garbled.append,
            on_release_refused=lambda command, words: self.refused.append(command),
            on_tracking_refused=self.untracked.append,
        )
        self.channel.attach(cast("Any", self.transport), b"", keep=None)
        outbox.join(self.channel)

    def receive(self, data: bytes) -> None:
        view = self.channel.get_buffer(-1)
        view[: len(data)] = data
        self.channel.buffer_updated(len(data))

    def take_written(self) -> list[bytes]:
        taken, self.transport.written = self.transport.written, []
        return taken


class Clock:
    """A clock that tests set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_silent_server_counts_as_answering_only_once_it_answers_a_question_in_time() -> (
    None
):
    clock = Clock()
    line = Line(Outbox(asyncio.get_running_loop(), clock))
    asker = Asker(clock.now)
    line.channel.ask(asker)
    line.channel.silent = True
    await asyncio.sleep(0)
    assert line.take_written() == [QUESTION]
    clock.now += 5
    line.receive(b"+late\r\n")
    assert asker.replies == [b"late"]
    for _ in range(3):
        await asyncio.sleep(0)
        assert line.take_written() == [PROBE]
        clock.now += PATIENCE + 0.1
        line.receive(b"+anything\r\n")
        assert line.channel.silent
    await asyncio.sleep(0)
    assert line.take_written() == [PROBE]
    # A request in the meantime causes no second probe.
    line.channel.ask(Asker(clock.now))
    await asyncio.sleep(0)
    assert line.take_written() == [QUESTION]
    clock.now += PATIENCE - 0.1
    line.receive(b"+anything\r\n")
    assert (line.channel.silent, line.silences) == (False, [False])
    line.receive(b"+answer\r\n")
    await asyncio.sleep(0)
    assert (line.take_written(), line.closed) == ([], [])


async def test_a_server_that_refuses_a_ping_answers_too() -> None:
    line = Line(Outbox(asyncio.get_running_loop(), Clock()))
    line.channel.ask(Asker())
    line.channel.silent = True
    line.receive(b"+late\r\n")
    line.receive(b"-NOPERM this user has no permissions to run the 'time' command\r\n")
    assert (line.channel.silent, line.silences, line.closed) == (False, [False], [])


async def test_a_ping_that_the_connection_does_not_outlive_is_no_answer() -> None:
    line = Line(Outbox(asyncio.get_running_loop(), Clock()))
    line.channel.ask(Asker())
    line.channel.silent = True
    line.receive(b"+late\r\n")
    line.channel.close("cut")
    assert (line.channel.silent, line.silences, line.closed) == (True, [], ["cut"])


async def test_a_surplus_answer_closes_its_own_connection_and_disturbs_no_other_connection() -> (
    None
):
    troubles: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: troubles.append(context))
    outbox = Outbox(loop, Clock())
    broken, well = Line(outbox), Line(outbox)
    before, asked, other = Asker(), Asker(), Asker()
    broken.channel.ask(before)
    await asyncio.sleep(0)
    # In the tick in which both get a request, one answers its earlier request twice.
    broken.channel.ask(asked)
    well.channel.ask(other)
    broken.receive(b"+one\r\n+two\r\n")
    await asyncio.sleep(0)
    assert troubles == []
    assert broken.closed == ["not the Redis protocol: an answer that nobody asked for"]
    assert broken.transport.aborted
    assert (before.replies, asked.replies) == ([b"one"], [b"two"])
    assert well.take_written() == [QUESTION]
    well.receive(b"+answer\r\n")
    assert (other.replies, well.closed) == ([b"answer"], [])


async def test_a_request_made_while_a_connection_breaks_overtakes_no_request_of_another_one() -> (
    None
):
    loop = asyncio.get_running_loop()
    outbox = Outbox(loop, Clock())
    first, later = Asker(), Asker(command=Request.of("ECHO", b"later"))

    def ask_all(_reason: str) -> None:
        outbox.ask_all(later)
        outbox.hurry()

    broken, well = Line(outbox, on_close=ask_all), Line(outbox)
    broken.channel.ask(Asker())
    await asyncio.sleep(0)
    broken.channel.ask(Asker())
    well.channel.ask(first)
    broken.receive(b"+one\r\n+two\r\n")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert b"".join(well.take_written()).startswith(QUESTION)
    well.receive(b"+first\r\n+later\r\n")
    assert (first.replies, later.replies) == ([b"first"], [b"later"])


async def test_drain_does_not_wait_for_a_connection_that_is_closed() -> None:
    line = Line(Outbox(asyncio.get_running_loop(), Clock()))
    asker = Asker()
    line.channel.ask(asker)
    draining = asyncio.create_task(line.channel.drain(60.0))
    await asyncio.sleep(0)
    assert not draining.done()
    line.channel.close("cut")
    await asyncio.wait_for(draining, 10)
    assert isinstance(asker.replies[0], Dropped)


NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
KEY = (b"order",)
COMMANDS: dict[str, Request] = {
    "acquire": MUTEX.acquiring(KEY, (), b"token", b"1000", 0),
    "renewal": Command(MUTEX.extend, KEY, (1000, b"token")),
    "release": MUTEX.releasing(KEY, b"token", 1e9),
    "no script": Request(QUESTION),
}


@pytest.mark.parametrize("name", COMMANDS)
async def test_a_server_that_answers_noscript_to_eval_too_is_asked_in_full_once(name: str) -> None:
    line = Line(Outbox(asyncio.get_running_loop(), Clock()))
    asker = Asker(command=COMMANDS[name])
    line.channel.ask(asker)
    await asyncio.sleep(0)
    assert line.take_written() == [COMMANDS[name].packed]
    line.receive(NOSCRIPT)
    await asyncio.sleep(0)
    assert line.take_written() == [COMMANDS[name].packed_in_full()]
    assert asker.replies == []
    line.receive(NOSCRIPT)
    await asyncio.sleep(0)
    assert line.take_written() == []
    assert [str(reply)[:8] for reply in asker.replies] == ["NOSCRIPT"]
    assert line.refused == ([COMMANDS[name]] if name == "release" else [])
    assert line.channel.pending == 0


async def test_a_server_that_knows_no_script_ends_calls_sent_as_one_in_a_few_commands() -> None:
    line = Line(outbox := Outbox(asyncio.get_running_loop(), Clock()))
    releases = [
        Asker(command=MUTEX.releasing((b"%d" % number,), b"token", 1e9)) for number in range(5)
    ]
    acquires = [
        Asker(command=MUTEX.acquiring((b"%d" % number,), (), b"token", b"1000", 0))
        for number in range(5, 10)
    ]
    for asker in [*releases, *acquires]:
        outbox.ask_all(asker)
    sent = 0
    for _ in range(20):
        await asyncio.sleep(0)
        line.take_written()
        sent += (pending := line.channel.pending)
        line.receive(NOSCRIPT * pending)
    # Two calls that stand for all, two loads of their scripts, and each call alone: the first one
    # of either script in full, and the others by name and then in full.
    assert sent == 2 + 2 + 10 + 8
    assert all(
        isinstance(asker.replies[0], Refusal) and len(asker.replies) == 1
        for asker in [*releases, *acquires]
    )
    assert line.refused == [asker.command for asker in releases]


async def test_calls_sent_as_one_to_a_server_that_forgot_scripts_are_sent_again_once() -> None:
    line = Line(outbox := Outbox(asyncio.get_running_loop(), Clock()))
    releases = [
        Asker(command=MUTEX.releasing((b"%d" % number,), b"token", 1e9)) for number in range(5)
    ]
    for asker in releases:
        outbox.ask_all(asker)
    await asyncio.sleep(0)
    line.take_written()
    line.receive(NOSCRIPT)
    await asyncio.sleep(0)
    load, first, *others = line.take_written()[0].split(b"EVAL")[1:]
    assert load
    assert MUTEX.release.source in first
    assert len(others) == 4
    assert all(call.startswith(b"SHA") and MUTEX.release.sha in call for call in others)


async def test_an_answer_too_large_for_the_memory_closes_the_connection_and_is_no_exception() -> (
    None
):
    clock = Clock()
    line = Line(Outbox(asyncio.get_running_loop(), clock))
    asker = Asker()
    line.channel.ask(asker)
    await asyncio.sleep(0)

    class Parser:
        def feed(self, *_data: object) -> None:
            pass

        def gets(self) -> object:
            raise MemoryError

    line.channel._reader = Parser()
    line.receive(b"*4294967295\r\n")
    assert line.closed == ["not the Redis protocol: an answer too large for this machine"]
    assert isinstance(asker.replies[0], Dropped)


OWN = b"aioredlock_ng:0123456789abcdef"


def subscribing(line: Line) -> tuple[Subscription, Asker]:
    asker = Asker()
    subscription = Subscription(OWN, asker)
    line.channel.ask(subscription)
    return subscription, asker


async def test_a_confirmed_subscription_takes_no_answer_away_from_other_requests() -> None:
    line = Line(Outbox(asyncio.get_running_loop(), Clock()))
    before, after = Asker(), Asker()
    line.channel.ask(before)
    subscription, asker = subscribing(line)
    line.channel.ask(after)
    await asyncio.sleep(0)
    asked = b"*2\r\n$9\r\nSUBSCRIBE\r\n$30\r\n" + OWN + b"\r\n"
    assert line.take_written() == [QUESTION + asked + QUESTION]
    line.receive(b"+one\r\n" + subscribed(OWN) + b"+two\r\n")
    assert (before.replies, asker.replies, after.replies) == ([b"one"], [b"OK"], [b"two"])
    assert subscription.confirmed
    assert line.closed == []


async def test_a_refused_subscription_gets_the_refusal_and_no_messages() -> None:
    line = Line(Outbox(asyncio.get_running_loop(), Clock()))
    subscription, asker = subscribing(line)
    line.receive(b"-NOPERM No permissions to access a channel\r\n" + message(OWN, b"turn a"))
    assert [str(reply) for reply in asker.replies] == ["NOPERM No permissions to access a channel"]
    assert (subscription.confirmed, line.messages, line.closed) == (False, [], [])


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("early", [False, True])
async def test_a_confirmation_out_of_its_place_ends_the_connection(
    early: bool, asked: bool
) -> None:
    line = Line(Outbox(asyncio.get_running_loop(), Clock()))
    other = Asker()
    line.channel.ask(other)
    if asked:
        subscribing(line)
    line.receive(subscribed(OWN) if early else b"+one\r\n" + subscribed(OWN) * 2)
    assert line.closed == ["not the Redis protocol: a subscription that nobody asked for"]
    assert len(other.replies) == 1


@pytest.mark.parametrize(
    "confirmation", [subscribed(b"another"), subscribed(OWN).replace(b":1\r\n", b":2\r\n")]
)
async def test_a_confirmation_of_another_subscription_ends_the_connection(
    confirmation: bytes,
) -> None:
    line = Line(Outbox(asyncio.get_running_loop(), Clock()))
    subscription, asker = subscribing(line)
    line.receive(confirmation)
    assert line.closed == ["not the Redis protocol: a subscription that nobody asked for"]
    assert isinstance(asker.replies[0], Dropped)
    assert not subscription.confirmed


async def test_messages_and_answers_keep_their_order() -> None:
    line = Line(Outbox(asyncio.get_running_loop(), Clock()))
    subscribing(line)
    line.receive(subscribed(OWN))
    askers = [Asker(), Asker()]
    seen: list[int] = []
    for asker in askers:
        line.channel.ask(asker)
    line.receive(message(OWN, b"1") + b"+one\r\n")
    seen.append(len(line.messages))
    line.receive(message(OWN, b"2") + message(OWN, b"3") + b"+two\r\n")
    seen.append(len(line.messages))
    assert (seen, line.messages) == ([1, 3], [b"1", b"2", b"3"])
    assert [asker.replies for asker in askers] == [[b"one"], [b"two"]]


@pytest.mark.parametrize(
    "push",
    [
        message(b"another", b"turn a"),
        message(OWN, b"turn a").replace(b">3", b">4") + b":1\r\n",
        message(OWN, b"turn a").replace(b"$6\r\nturn a", b":6"),
        b">1\r\n$7\r\nmessage\r\n",
        b">0\r\n",
        b">2\r\n$7\r\nmessage\r\n*0\r\n",
    ],
)
async def test_a_push_that_is_no_message_of_the_own_channel_is_ignored(push: bytes) -> None:
    line = Line(Outbox(asyncio.get_running_loop(), Clock()))
    subscribing(line)
    line.receive(subscribed(OWN) + push + message(OWN, b"head a"))
    assert (line.messages, line.closed) == ([b"head a"], [])


TRACKED = MUTEX.watching(KEY, (b"token",))


@pytest.mark.parametrize(
    "answer", [b"+OK\r\n", b"-ERR no tracking\r\n", b":1\r\n", b"*1\r\n:1\r\n"]
)
async def test_the_answer_to_caching_is_no_answer_to_the_tracked_command(
    answer: bytes,
) -> None:
    line = Line(Outbox(asyncio.get_running_loop(), Clock()))
    tracked, after = Asker(command=TRACKED), Asker()
    line.channel.ask(tracked)
    line.channel.ask(after)
    await asyncio.sleep(0)
    assert line.take_written() == [CACHING.packed + TRACKED.packed + QUESTION]
    line.receive(answer)
    assert (tracked.replies, line.garbled) == ([], [])
    line.receive(b":1\r\n+after\r\n")
    assert (tracked.replies, after.replies, line.closed) == ([ALL_OURS], [b"after"], [])


@pytest.mark.parametrize(
    ("words", "lasts"),
    [
        ("NOPERM this user has no permissions to run the 'client|caching' command", True),
        ("ERR CLIENT CACHING can be called only when the client is in tracking mode", True),
        ("BUSY Redis is busy running a script", False),
        ("LOADING Redis is loading the dataset in memory", False),
    ],
)
async def test_a_refused_caching_is_reported_unless_the_server_is_only_busy(
    words: str, lasts: bool
) -> None:
    line = Line(Outbox(asyncio.get_running_loop(), Clock()))
    tracked = Asker(command=TRACKED)
    line.channel.ask(tracked)
    await asyncio.sleep(0)
    line.receive(f"-{words}\r\n:1\r\n".encode())
    assert line.untracked == [words] * lasts
    assert (tracked.replies, line.closed) == ([ALL_OURS], [])


async def test_a_tracked_command_for_all_nodes_stays_behind_its_caching_among_joined_calls() -> (
    None
):
    outbox = Outbox(asyncio.get_running_loop(), Clock())
    lines = [Line(outbox), Line(outbox)]
    releases = [
        Asker(command=MUTEX.releasing((b"%d" % number,), b"token", 1e9)) for number in range(2)
    ]
    acquires = [
        Asker(command=MUTEX.acquiring((b"%d" % number,), (), b"token", b"1000", 0))
        for number in range(2)
    ]
    tracked = Asker(command=TRACKED)
    for asker in [*releases, tracked, *acquires]:
        outbox.ask_all(asker)
    await asyncio.sleep(0)
    for line in lines:
        (written,) = line.take_written()
        assert written.count(CACHING.packed + TRACKED.packed) == 1
        # Two calls sent as one, the pair, and two calls sent as one.
        assert line.channel.pending == 4
        line.receive(b":2\r\n+OK\r\n:1\r\n:2\r\n")
        assert line.closed == []
    expected = [[released(1)] * 2] * 2 + [[ALL_OURS] * 2] + [[GRANTED, GRANTED]] * 2
    assert [asker.replies for asker in [*releases, tracked, *acquires]] == expected


async def test_a_tracked_command_asked_behind_a_channels_own_goes_to_each_channel_as_a_pair() -> (
    None
):
    outbox = Outbox(asyncio.get_running_loop(), Clock())
    line = Line(outbox)
    line.channel.ask(Asker())
    outbox.ask_all(Asker(command=TRACKED))
    await asyncio.sleep(0)
    assert line.take_written() == [QUESTION + CACHING.packed + TRACKED.packed]


async def test_a_tracked_command_that_is_sent_in_full_has_a_caching_of_its_own() -> None:
    line = Line(Outbox(asyncio.get_running_loop(), Clock()))
    tracked = Asker(command=TRACKED)
    line.channel.ask(tracked)
    await asyncio.sleep(0)
    line.take_written()
    line.receive(b"+OK\r\n" + NOSCRIPT)
    await asyncio.sleep(0)
    assert line.take_written() == [CACHING.packed + TRACKED.packed_in_full()]
    line.receive(b"+OK\r\n:1\r\n")
    assert (tracked.replies, line.closed) == ([ALL_OURS], [])
