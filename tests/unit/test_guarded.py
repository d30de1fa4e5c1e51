"""`Redlock.guard`: the names made of arguments, the refusals at decoration, the errors of calls."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng import ConfigurationError, LockHeld, LockLost, Redlock, RedlockClosed
from aioredlock_ng.guarded import NameTemplate
from tests.support.rig import Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@dataclass
class User:
    id: int
    tag: object = None


class Colour(Enum):
    RED = "red"


async def report(user_id: object, day: object = "today", *, urgent: bool = False) -> None: ...


def name(template: str, *args: Any, function: Callable[..., Any] = report, **kwargs: Any) -> str:
    return NameTemplate(template, function).name(*args, **kwargs)


# How names are made


@pytest.mark.parametrize(
    ("template", "value", "made"),
    [
        ("report:{user_id}", 7, "report:7"),
        ("report:{user_id}", "7", "report:7"),
        ("report:{user_id}", "a:b", "report:a:b"),
        ("report:{user_id}", None, "report:None"),
        ("report:{user_id.id}", User(7), "report:7"),
        ("report:{user_id.tag.id}:x", User(1, User(2)), "report:2:x"),
        ("report:{user_id:%Y-%m}", date(2026, 11, 21), "report:2026-11"),
        ("report:{user_id:04}", 7, "report:0007"),
        ("report:{user_id!r}", "7", "report:'7'"),
        ("report:{user_id.value}", Colour.RED, "report:red"),
        ("report:{user_id}", UUID(int=1), "report:00000000-0000-0000-0000-000000000001"),
        ("{{report}}:{user_id}", 7, "{report}:7"),
        ("report", 7, "report"),
        ("{user_id}/{day}/{urgent}", 7, "7/today/False"),
        ("{user_id}}}{day}", "a", "a}today"),
    ],
)
def test_the_name_is_that_of_str_format_with_the_calls_arguments(
    template: str, value: object, made: str
) -> None:
    assert name(template, value) == made


def test_positions_keywords_and_defaults_give_one_name() -> None:
    template = "{user_id}:{day}"
    assert (
        name(template, 7)
        == name(template, 7, "today")
        == name(template, day="today", user_id=7)
        == "7:today"
    )


texts = st.text(alphabet=":|ab", max_size=6)


@pytest.mark.parametrize("separator", [":", "::", ":|:", "a"])
@given(one=st.tuples(texts, texts), other=st.tuples(texts, texts))
def test_two_different_calls_never_have_the_same_name(
    separator: str, one: tuple[str, str], other: tuple[str, str]
) -> None:
    def made(pair: tuple[str, str]) -> str | None:
        try:
            return name(f"x{{user_id}}{separator}{{day}}y", *pair)
        except ConfigurationError:
            return None

    names = made(one), made(other)
    assert one == other or None in names or names[0] != names[1]
    # Nothing is refused without need.
    assert (names[0] is None) == ((one[0] + separator).find(separator) < len(one[0]))


def test_a_value_that_contains_its_own_separator_is_refused() -> None:
    assert name("{user_id}:{day}", "a", "b:c") == "a:b:c"
    with pytest.raises(
        ConfigurationError, match=r"\{day\}'\) of report\(\): the value 'a:b' of \{user_id\}"
    ):
        name("{user_id}:{day}", "a:b", "c")


@pytest.mark.parametrize(
    ("template", "value", "told"),
    [
        ("{user_id}", object(), "a object has no text that is the same in every process"),
        ("{user_id}", [object()], "a list has no text"),
        ("{user_id}", report, "a function has no text"),
        ("{user_id}", {"a", "b"}, "a set has no text"),
        ("{user_id}", frozenset(), "a frozenset has no text"),
        ("{user_id}", b"a", "a bytes has no text"),
        ("{user_id.id}", None, "'NoneType' object has no attribute 'id'"),
        ("{user_id:%d}", 5, "Invalid format specifier|has no value for the name"),
        ("{user_id:04}", None, "unsupported format string"),
    ],
)
def test_a_value_without_a_text_that_names_it_is_refused(
    template: str, value: object, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told) as caught:
        name(f"report:{template}", value)
    assert f"{template} has no value for the name" in str(caught.value)


def test_a_text_in_the_form_of_an_address_is_a_text() -> None:
    assert name("{user_id}", "<meet at 0xcafe>") == "<meet at 0xcafe>"


def test_a_call_with_a_missing_argument_is_refused_like_any_call() -> None:
    with pytest.raises(TypeError, match=r"report\(\) missing a required argument: 'user_id'"):
        name("{user_id}")


# Refusals at decoration


@pytest.fixture
def redlock() -> Redlock:
    """Never opened: decorating needs no connection."""
    return Redlock(["redis://127.0.0.1:1"])


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{usr}", r"\{usr\} names no parameter; there are: user_id, day, urgent"),
        ("{}", r"\{\} is not possible"),
        ("{0}", r"\{0\} is not possible"),
        ("{user_id[0]}", r"\{user_id\[0\]\} is not possible; .* like \{user.id\}"),
        ("{user_id.}", "is not possible"),
        ("{user_id:{day}}", "is not possible"),
        ("{user_id}{day}", "two placeholders stand side by side"),
        ("{user_id", r"expected '\}' before end of string; write a literal brace as \{\{ or \}\}"),
        ("a}", "Single '}'"),
        ("", "lock name must not be empty"),
        ("aioredlock_ng:marker", "keeps for itself"),
        (7, r'a lock needs a name, like @redlock.guard\("job:\{job_id\}"\); got 7'),
        (report, "a lock needs a name"),
    ],
)
def test_an_invalid_template_is_refused_at_once(redlock: Redlock, template: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        redlock.guard(template)(report)


@pytest.mark.parametrize("template", ["{args}", "{kwargs}"])
def test_collected_arguments_name_no_lock(redlock: Redlock, template: str) -> None:
    async def job(*args: int, **kwargs: int) -> None: ...

    with pytest.raises(ConfigurationError, match="names no parameter; there are: none"):
        redlock.guard(template)(job)


def test_a_function_that_is_no_coroutine_function_is_refused(redlock: Redlock) -> None:
    def plain() -> None: ...

    async def stream() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(
        ConfigurationError, match="is for functions defined by `async def`, not <function"
    ):
        redlock.guard("job")(plain)  # type: ignore[arg-type]
    with pytest.raises(
        ConfigurationError, match=r"the async generator .*stream\(\).* use `async with"
    ):
        redlock.guard("job")(stream)  # type: ignore[arg-type]
    for decorate in (redlock.guard("job"), redlock.once("job", within=5)):
        with pytest.raises(ConfigurationError, match=r"the async generator functools\.partial\("):
            decorate(partial(stream))  # type: ignore[arg-type]
    with pytest.raises(
        ConfigurationError, match="directly above the `async def`, below every other decorator"
    ):
        redlock.guard("job")(classmethod(report))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ttl": 0}, "ttl"),
        ({"blocking_timeout": -1}, "blocking_timeout"),
        ({"max_hold": 0}, "max_hold"),
        ({"min_hold": 0}, "min_hold"),
        ({"on_lost": "?"}, "on_lost"),
        ({"limit": 0}, "limit must be a whole number from 1 to 1,000"),
        ({"limit": 2, "ttl": 0}, "ttl"),
    ],
)
def test_an_invalid_option_is_refused_at_once(redlock: Redlock, options: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        redlock.guard("job", **options)
    with pytest.raises(TypeError, match="timeout"):
        redlock.guard("job", timeout=1)  # type: ignore[call-arg]


def test_a_guarded_function_keeps_its_name_and_signature(redlock: Redlock) -> None:
    guarded = redlock.guard("{user_id}")(report)
    assert inspect.iscoroutinefunction(guarded)
    assert inspect.signature(guarded) == inspect.signature(report)
    assert inspect.unwrap(guarded) is report
    assert (guarded.__name__, guarded.__module__) == ("report", __name__)
    # Without a name of its own, too.
    assert inspect.iscoroutinefunction(redlock.guard("{user_id}")(partial(report, urgent=True)))


def test_fastapi_sees_the_parameters_of_a_guarded_route(redlock: Redlock) -> None:
    app = FastAPI()

    @app.post("/reports/{user_id}")
    @redlock.guard("report:{user_id}:{day}")
    async def write(user_id: int, day: str = "today") -> str:
        return f"{user_id} {day}"

    parameters = app.openapi()["paths"]["/reports/{user_id}"]["post"]["parameters"]
    assert [(found["in"], found["name"], found["schema"]["type"]) for found in parameters] == [
        ("path", "user_id", "integer"),
        ("query", "day", "string"),
    ]


async def test_a_call_before_open_raises_redlock_closed(redlock: Redlock) -> None:
    guarded = redlock.guard("{user_id}")(report)
    with pytest.raises(RedlockClosed, match="not open"):
        await guarded(1)


# Calls, in a made-up world


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with Rig() as rig:
        yield rig


@pytest.mark.virtual_time
async def test_calls_with_one_name_run_one_at_a_time_and_others_together(rig: Rig) -> None:
    process, running, most = await rig.process(), [], {"a": 0, "b": 0}

    @process.redlock.guard("job:{kind}")
    async def job(kind: str, number: int) -> int:
        running.append(kind)
        for other in most:
            most[other] = max(most[other], running.count(other))
        both = len(set(running)) == 2
        await asyncio.sleep(1)
        running.remove(kind)
        return number if both else -number

    told = await asyncio.gather(*(job(kind, number) for number in range(1, 4) for kind in "ab"))
    assert most == {"a": 1, "b": 1}
    assert sorted(map(abs, told)) == [1, 1, 2, 2, 3, 3]
    assert max(told) > 0
    assert rig.clean


@pytest.mark.virtual_time
async def test_with_a_limit_as_many_calls_run_at_a_time_in_the_whole_fleet(rig: Rig) -> None:
    processes, running, most = [await rig.process() for _ in range(2)], [], 0

    async def call(host: str) -> int:
        nonlocal most
        running.append(host)
        most = max(most, running.count("a"))
        await asyncio.sleep(1)
        running.remove(host)
        return len(running)

    calls = [
        process.redlock.guard("api:{host}", limit=3, blocking_timeout=60)(call)
        for process in processes
    ]
    await asyncio.gather(*(calls[number % 2](host) for number in range(8) for host in ("a", "b")))
    assert most == 3
    leases = [
        await process.redlock.semaphore("api:a", 3).acquire()
        for process in (*processes, processes[0])
    ]
    with pytest.raises(LockHeld, match="in all 3 slots"):
        await processes[1].redlock.guard("api:{host}", limit=3, blocking_timeout=0)(call)("a")
    for lease in leases:
        await lease.release()
    assert rig.clean


@pytest.mark.virtual_time
async def test_shared_calls_run_at_the_same_time_and_beside_no_other_call(rig: Rig) -> None:
    processes, running, most = [await rig.process() for _ in range(2)], [], {"read": 0, "write": 0}

    async def read(shop: str) -> int:
        assert "write" not in running
        running.append("read")
        most["read"] = max(most["read"], len(running))
        await asyncio.sleep(0.1)
        running.remove("read")
        return len(running)

    async def write(shop: str) -> int:
        assert not running
        running.append("write")
        most["write"] = max(most["write"], len(running))
        await asyncio.sleep(0.1)
        running.remove("write")
        return len(running)

    guards = [process.redlock.guard for process in processes]
    reads = [guard("catalog:{shop}", shared=True)(read) for guard in guards]
    writes = [guard("catalog:{shop}", shared=False)(write) for guard in guards]
    await asyncio.gather(
        *(call("a") for number in range(4) for call in (reads[number % 2], writes[number % 2]))
    )
    assert (most["read"] > 1, most["write"]) == (True, 1)
    assert rig.clean


def test_shared_excludes_options_that_readers_cannot_have() -> None:
    redlock = Redlock(["redis://127.0.0.1:1"])
    for options, told in (
        ({"limit": 2}, "shared and limit exclude each other"),
        ({"min_hold": 5.0}, "min_hold is not possible for a read-write lock"),
        ({"fair": True}, "fair is not possible for a read-write lock"),
        ({"ttl": -1.0}, "ttl"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            redlock.guard("catalog", shared=True, **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="shared must be True or False, not int"):
        redlock.guard("catalog", shared=1)  # type: ignore[arg-type]


@pytest.mark.virtual_time
async def test_a_guarded_function_excludes_the_lock_of_its_name_and_passes_options_on(
    rig: Rig,
) -> None:
    one, other = await rig.process(), await rig.process()

    @other.redlock.guard("job:{number}", blocking_timeout=0, ttl=7)
    async def job(number: int) -> float:
        (lease,) = other.redlock.leases
        return lease.ttl

    async with one.lock("job:1"):
        with pytest.raises(LockHeld) as caught:
            await job(1)
        assert caught.value.resource == "job:1"
        assert await job(2) == 7
    assert await job(1) == 7


@pytest.mark.virtual_time
async def test_methods_and_functions_of_classes_are_guarded(rig: Rig) -> None:
    redlock = (await rig.process()).redlock

    class Account:
        def __init__(self, number: int) -> None:
            self.number = number

        @redlock.guard("account:{self.number}")
        async def names(self) -> list[str]:
            return [lease.resource for lease in redlock.leases]

        @classmethod
        @redlock.guard("class:{cls.__name__}")
        async def of_class(cls) -> list[str]:
            return [lease.resource for lease in redlock.leases]

        @staticmethod
        @redlock.guard("static:{number}")
        async def of_none(number: int) -> list[str]:
            return [lease.resource for lease in redlock.leases]

    account = Account(5)
    assert await account.names() == ["account:5"]
    assert await account.of_class() == ["class:Account"]
    assert await account.of_none(6) == ["static:6"]


@pytest.mark.virtual_time
async def test_a_lost_lock_cancels_the_call_and_raises_lock_lost_to_its_caller(rig: Rig) -> None:
    process, ends = await rig.process(), []

    @process.redlock.guard("job")
    async def job() -> None:
        rig.vacate(b"job")
        try:
            await asyncio.sleep(3600)
        finally:
            ends.append(asyncio.get_running_loop().time())

    began = asyncio.get_running_loop().time()
    with pytest.raises(LockLost):
        await job()
    assert ends[0] - began < 10


@pytest.mark.virtual_time
async def test_errors_and_cancellation_pass_and_leave_no_key(rig: Rig) -> None:
    process, entered = await rig.process(), asyncio.Event()

    @process.redlock.guard("job")
    async def job(error: Exception | None) -> None:
        if error:
            raise error
        entered.set()
        await asyncio.sleep(3600)

    with pytest.raises(KeyError, match="mine"):
        await job(KeyError("mine"))
    assert rig.clean
    task = asyncio.create_task(job(None))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rig.clean


@pytest.mark.virtual_time
async def test_a_call_within_itself_is_refused_instead_of_waiting_for_itself(rig: Rig) -> None:
    redlock = (await rig.process()).redlock

    @redlock.guard("tree")
    async def walk(depth: int) -> None:
        if depth:
            await walk(depth - 1)

    await walk(0)
    with pytest.raises(LockHeld):
        await walk(1)


@pytest.mark.virtual_time
async def test_a_call_may_name_every_argument_even_self(rig: Rig) -> None:
    redlock = (await rig.process()).redlock

    class Report:
        number = 7

        @redlock.guard("report:{self.number}:{day}")
        async def write(self, day: str) -> str:
            assert rig.keys()[0] >= {b"report:7:monday"}
            return day

    assert await Report.write(self=Report(), day="monday") == "monday"
