"""Arguments and uses that are wrong: one clear error each, before anything is sent, and never a
secret in it.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio

from aioredlock_ng import ConfigurationError, Redlock, RedlockClosed, RedlockError
from aioredlock_ng.testing import MemoryNodes
from tests.integration.helpers import no_keys_left, program
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet

CLIENT: Any = redis.asyncio.Redis
URLS = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]
SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([], "nodes is empty"),
        ("redis://127.0.0.1", "must be a list.*not str"),
        (b"redis://127.0.0.1", "must be a list.*not bytes"),
        (None, "must be a list.*not NoneType"),
        ([None], "not NoneType"),
        ([b"redis://127.0.0.1"], "not bytes"),
        ([redis.Redis()], "synchronous redis.Redis"),
        (["redis://h:1", "redis://h:1"], "same server twice: h:1 and h:1"),
        (["redis://h:1", "redis://h:1/2"], "same server twice: h:1 and h:1/2"),
        (["unix:///tmp/s", "unix:///tmp/s?db=1"], "same server twice: /tmp/s and /tmp/s/1"),
        (["127.0.0.1:6379"], "'127.0.0.1:6379' is not a URL"),
        (["http://127.0.0.1"], "use redis://, rediss:// or unix://"),
        (["redis://127.0.0.1?color=red"], "127.0.0.1:6379: unknown option 'color'"),
        (["redis://127.0.0.1?db=red"], "'redis://127.0.0.1': Invalid value for 'db'"),
        (["redis://127.0.0.1/red"], "its path is not a database number"),
        (["redis://127.0.0.1:99999"], "Port out of range"),
        (["redis://127.0.0.1:red"], "its port is not a number"),
        (["unix://"], "names no socket"),
        (["unix://run/redis.sock"], "node 'unix:///redis.sock': a socket has no host"),
        ([CLIENT(port="red")], "node localhost:red: invalid literal for int.* 'red'"),
        ([CLIENT(port=None)], "node localhost:None: .* not 'NoneType'"),
        ([CLIENT(port=1), CLIENT(port="1")], "same server twice: localhost:1 and localhost:1"),
        (["unix:///s", CLIENT(unix_socket_path=Path("/s"))], "same server twice: /s and /s"),
        (["unix:///run/a@b.sock"], "an '@' behind a .* percent-encode"),
        (["redis://127.0.0.1?client_name=a@b"], "an '@' behind a .* percent-encode"),
        (["redis://127.0.0.1,127.0.0.2"], "a node is one server"),
    ],
)
def test_unusable_nodes_are_refused_by_name(nodes: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Redlock(nodes)


WITH_A_SECRET = (
    f"http://me:{SECRET}@h:1",
    f"me:{SECRET}@h:1",
    f"redis://:{SECRET}/x@h:1",
    f"redis://:{SECRET}?x@h:1",
    f"redis://:{SECRET}#x@h:1",
    f"redis://:x/{SECRET}@h:1",
    f"redis://:x://{SECRET}@h:1",
    f"redis://me/x:{SECRET}@h:1",
    f"redis://:[{SECRET}@h:1",
    f"redis://h:99999?password=x@{SECRET}",
    f"redis://h:99999?password={SECRET}",
    f"redis://:{SECRET}@h?color={SECRET}",
    f"redis://:{SECRET}@h:99999",
    # Python's own words quote the place where these are written.
    f"redis://me:ä：{SECRET}@h:1",  # noqa: RUF001
    f"redis://:p[{SECRET}]x@h:1",
    f"redis://:[{SECRET}]@h:1",
    f"h:6380,password={SECRET},ssl=True",
    f"redis://h:1,password={SECRET}",
    f"redis://h,password={SECRET}",
    f"h:1,password=x@{SECRET},ssl=True",
    f"redis://h:1,password=x@{SECRET},ssl=True",
    f"http://me:x,{SECRET}@h:1",
    f"unix://:x/{SECRET}@/run/redis.sock",
    f"unix://:x?{SECRET}@/run/redis.sock",
    f"unix://:x/y#{SECRET}@/run/redis.sock",
    f"unix://me:{SECRET}/run/redis.sock",
    f"redis://us?er:{SECRET}=x@h?db=1",
    f"redis://:1?{SECRET}@h",
    f"redis://{SECRET}:1?x@h",
    f"redis://{SECRET}:1#x@h",
    f"redis://h?password=x&{SECRET}=y",
)


def test_a_url_that_is_refused_shows_no_part_of_its_password() -> None:
    shown = []
    for url in WITH_A_SECRET:
        with pytest.raises(ConfigurationError) as caught:
            Redlock([url])
        if SECRET in str(caught.value) + repr(caught.value):
            shown.append(url)
    assert shown == []


def test_a_percent_encoded_at_sign_does_not_separate_credentials_from_the_host() -> None:
    urls = ["unix:///run/a%40b.sock", "redis://h?client_name=a%40b", "redis://me:a,b@h2"]
    assert [node.address for node in Redlock(urls).nodes] == ["/run/a@b.sock", "h:6379", "h2:6379"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(
            (option, 0)
            for option in ("ttl", "node_timeout", "max_ttl", "connect_timeout", "close_timeout")
        ),
        *(
            ("ttl", value)
            for value in (-1, math.inf, -math.inf, math.nan, 10**400, "10", None, True, b"1")
        ),
        pytest.param("ttl", 10**5000, id="a number that Python does not print"),
        pytest.param(
            "min_validity", -(10**5000), id="a negative number that Python does not print"
        ),
    ],
)
def test_a_time_that_is_no_finite_positive_number_is_refused(option: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=option):
        Redlock(URLS, **{option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("ttl", value) for value in (math.nan, "10", True)),
        *((option, math.nan) for option in ("max_hold", "min_hold")),
    ],
)
def test_a_locks_time_that_is_no_finite_positive_number_is_refused(option: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=option):
        Redlock(URLS).lock("order", **{option: value})


@pytest.mark.parametrize("value", [-1, math.inf, math.nan, "10", True])
def test_a_blocking_timeout_that_is_no_finite_number_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="blocking_timeout"):
        Redlock(URLS).lock("order", blocking_timeout=value)


@pytest.mark.parametrize("value", ["false", None, 1])
def test_an_auto_extend_that_is_no_bool_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="auto_extend must be True or False, not"):
        Redlock(URLS).lock("order", auto_extend=value)


@pytest.mark.parametrize("token", [b"0123", 5, True])
async def test_a_token_that_is_no_text_is_refused_before_anything_is_asked(token: Any) -> None:
    with pytest.raises(
        ConfigurationError, match="token must be the whole token as a str, or None, not"
    ):
        await Redlock(URLS).force_release("order", token=token)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("clock", None),
        ("wall_clock", 1.0),
        ("rng", 7),
        ("rng", lambda: 0.5),
    ],
)
def test_an_invalid_clock_or_source_of_randomness_is_refused(option: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^{option} must be a"):
        Redlock(URLS, **{option: value})


def test_a_ttl_too_small_for_the_node_timeout_is_refused_with_the_inequality() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"ttl - ttl \* drift_factor - 0\.002 - node_timeout >= .* ttl >= 0\.5",
    ):
        Redlock(URLS, node_timeout=0.5, ttl=0.5)
    with pytest.raises(ConfigurationError, match="too small for node_timeout"):
        Redlock(URLS, node_timeout=0.5).lock("order", ttl=0.5)


@pytest.mark.parametrize("told", [1.7e12, 9e9, -1.0, math.nan, math.inf, 10**400, None, "1.7e9"])
async def test_a_wall_clock_that_does_not_return_seconds_is_refused_before_anything_is_sent(
    told: Any,
) -> None:
    """A fence from a clock in milliseconds would exceed the fences of all other clients."""
    redlock = Redlock(URLS, wall_clock=lambda: told)
    with pytest.raises(ConfigurationError, match="wall_clock must return seconds since 1970"):
        await redlock.open()


@pytest.mark.parametrize("told", [math.nan, math.inf, None, "1.0"])
async def test_a_clock_that_does_not_return_seconds_is_refused_before_anything_is_sent(
    told: Any,
) -> None:
    redlock = Redlock(URLS, clock=lambda: told)
    with pytest.raises(ConfigurationError, match="clock must return a finite number of seconds"):
        await redlock.open()


async def test_extending_checks_the_ttl_like_lock_does(one_node: NodeSet) -> None:
    async with Redlock(one_node.urls) as redlock, redlock.lock("order") as lease:
        for ttl in (0, -1, math.nan, math.inf, 61, 0.01):
            with pytest.raises(ConfigurationError, match="ttl"):
                await lease.extend(ttl)
        assert lease.valid


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "must not be empty"),
        (b"", "must not be empty"),
        (None, "str or bytes, not NoneType"),
        (7, "str or bytes, not int"),
        (["a"], "str or bytes, not list"),
        ("x" * 65_537, "65,537 bytes, more than 65,536"),
        ("ü" * 40_000, "80,000 bytes"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_an_unusable_name_is_refused_before_anything_is_sent(name: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Redlock(URLS).lock(name)
    with pytest.raises(ConfigurationError, match=words):
        Redlock(URLS).lock("fine", name)


def test_too_many_names_are_refused() -> None:
    assert len(Redlock(URLS).lock(*map(str, range(1_000))).resources) == 1_000
    with pytest.raises(ConfigurationError, match="at most 1,000 names at once, got 1,001"):
        Redlock(URLS).lock(*map(str, range(1_001)))


USABLE = (
    "a\r\nb",
    "\r\n$3\r\nfoo\r\n",
    "nul\0nul",
    "{name}",
    "{}",
    "%s",
    "a b",
    "ümläut",
    "🔒",
    b"\xff\xfe\0",
    "x" * 65_536,
)


async def test_every_usable_name_is_stored_as_its_bytes(one_node: NodeSet) -> None:
    async with (
        redis.asyncio.Redis.from_url(one_node.urls[0]) as client,
        Redlock(one_node.urls, node_timeout=5.0) as redlock,
        Redlock(one_node.urls, node_timeout=5.0, key_format="lock:{name}:1") as formatted,
    ):
        for name in USABLE:
            raw = name if isinstance(name, bytes) else name.encode()
            async with redlock.lock(name) as lease:
                assert await client.get(raw) == lease.token.encode()
                assert await redlock.lock(raw).try_acquire() is None
            assert one_node.keys() == [set()]
            async with formatted.lock(name):
                assert await client.keys("lock:*") == [b"lock:" + raw + b":1"]


async def test_the_same_server_by_two_addresses_is_refused_at_opening(
    start_server: Callable[..., LocalServer],
) -> None:
    server, another = start_server(), start_server()
    urls = [server.url, another.url, server.url.replace("127.0.0.1", "localhost")]
    with pytest.raises(ConfigurationError, match="same server") as caught:
        await Redlock(urls, node_timeout=5.0, connect_timeout=10.0).open()
    assert server.address in str(caught.value)
    assert f"localhost:{server.port}" in str(caught.value)
    with pytest.raises(ConfigurationError, match="same server"):
        await Redlock(
            [server.url, another.url, f"unix://{server.socket_path}"],
            node_timeout=5.0,
            connect_timeout=10.0,
        ).open()


def calls(redlock: Redlock, lease: Any) -> dict[str, Callable[[], Awaitable[object]]]:
    async def body() -> None:
        async with redlock.lock("other"):
            pass

    return {
        "acquire": lambda: redlock.lock("other").acquire(),
        "try_acquire": lambda: redlock.lock("other").try_acquire(),
        "async with": body,
        "locked": lambda: redlock.locked("order"),
        "inspect": lambda: redlock.inspect("order"),
        "force_release": lambda: redlock.force_release("order"),
        "extend": lambda: lease.extend(),
        "verify": lambda: lease.verify(),
        "release": lambda: lease.release(),
        "wait_lost": lambda: lease.wait_lost(),
        "aclose": redlock.aclose,
    }


MANAGERS = ["acquire", "try_acquire", "async with", "locked", "inspect", "force_release"]


async def test_calls_of_a_manager_that_is_not_open_are_refused(one_node: NodeSet) -> None:
    redlock = Redlock(one_node.urls)
    for name in MANAGERS:
        with pytest.raises(RedlockClosed, match="not open"):
            await calls(redlock, None)[name]()
    await redlock.open()
    with pytest.raises(RedlockClosed, match="open already"):
        await redlock.open()
    lease = await redlock.lock("order").acquire()
    await redlock.aclose()
    await redlock.aclose()
    for name in MANAGERS:
        with pytest.raises(RedlockClosed, match="not open"):
            await calls(redlock, None)[name]()
    assert await lease.release() is False
    for name in ("extend", "verify"):
        with pytest.raises(RedlockError):
            await calls(redlock, lease)[name]()
    await no_keys_left(one_node)
    async with redlock, redlock.lock("order"):
        assert one_node.keys() == [{"order"}]


async def test_every_call_from_another_loop_is_refused_and_changes_nothing(
    one_node: NodeSet,
) -> None:
    async with Redlock(one_node.urls, node_timeout=5.0) as redlock:
        lease = await redlock.lock("order").acquire()

        async def elsewhere() -> dict[str, str]:
            told = {}
            for name, call in calls(redlock, lease).items():
                with pytest.raises(RedlockClosed) as caught:
                    await call()
                told[name] = str(caught.value)
            with pytest.raises(RedlockClosed, match="loop"):
                lease.abandon()
            return told

        told = await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
        assert all("loop" in words for words in told.values())
        assert redlock.nodes[0].state == "up"
        assert one_node.keys() == [{"order"}]
        await lease.verify()
        assert await lease.release()
        await no_keys_left(one_node, redlock)


def test_opening_a_manager_again_on_another_loop_is_refused_with_the_remedy() -> None:
    redlock = MemoryNodes(1).redlock(clock=time.monotonic)
    asyncio.run(redlock.open())
    with pytest.raises(
        RedlockClosed, match=r"belongs to another event loop.*make a new Redlock in this one"
    ):
        asyncio.run(redlock.open())


async def test_check_may_be_called_from_a_thread(one_node: NodeSet) -> None:
    async with Redlock(one_node.urls) as redlock:
        lease = await redlock.lock("order").acquire()
        await asyncio.to_thread(lease.check)
        assert await asyncio.to_thread(lease.remaining) > 0
        await lease.release()
        with pytest.raises(RedlockError):
            await asyncio.to_thread(lease.check)


async def test_two_loops_in_two_threads_each_with_its_manager_exclude_each_other(
    three_nodes: NodeSet,
) -> None:
    inside, overlaps, entered = 0, 0, [0, 0]
    guard = threading.Lock()

    async def work(number: int) -> None:
        nonlocal inside, overlaps
        async with Redlock(three_nodes.urls) as redlock:
            await asyncio.gather(*(turn(redlock, number) for _ in range(50)))

    async def turn(redlock: Redlock, number: int) -> None:
        nonlocal inside, overlaps
        async with redlock.lock("order"):
            with guard:
                inside += 1
                overlaps += inside > 1
            await asyncio.sleep(0)
            with guard:
                inside -= 1
                entered[number] += 1

    await asyncio.gather(
        *(asyncio.to_thread(lambda n=number: asyncio.run(work(n))) for number in range(2))
    )
    assert entered == [50, 50]
    assert overlaps == 0
    # A node that answered late may still offer the key, for a fraction of a second, to a manager
    # that has closed.
    await eventually(lambda: three_nodes.keys() == [set()] * 3)


REFUSED = """
import asyncio, os, sys, traceback
from aioredlock_ng import LockLost, Redlock, RedlockClosed

async def refused(call):
    try:
        await call()
    except RedlockClosed as error:
        assert "fork" in str(error), error
    else:
        raise AssertionError("not refused")

"""

FORKS = """
async def in_child(redlock, lease, url):
    for call in (
        redlock.lock("b").acquire, redlock.lock("b").try_acquire,
        lease.release, lease.extend, lease.verify,
        lambda: redlock.locked("order"), redlock.open, redlock.aclose,
    ):
        await refused(call)
    assert (lease.valid, lease.lost, lease.remaining()) == (False, True, 0.0)
    try:
        lease.check()
    except LockLost as error:
        assert "fork" in str(error), error
    else:
        raise AssertionError("the parent's lease is still said to be valid here")
    async with Redlock([url], ttl=60, node_timeout=5.0) as own:
        assert await own.lock("order").try_acquire() is None
        async with own.lock("child"):
            pass

async def main(url):
    async with Redlock([url], ttl=60, node_timeout=5.0) as redlock:
        lease = await redlock.lock("order").acquire()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                # The child has no loop that runs: it starts one, as a worker process does.
                asyncio._set_running_loop(None)
                asyncio.new_event_loop().run_until_complete(in_child(redlock, lease, url))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        pid, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert status == 0, status
        await lease.verify()
        assert lease.valid and not lease.lost
        assert redlock.nodes[0].connections == 1
        assert await lease.release()
        async with redlock.lock("order"):
            pass
    print("fine", flush=True)

asyncio.run(main(sys.argv[1]))
"""


FORKS_WITH_ITS_LOOP = """
async def in_child(redlock, lease, waiting):
    for call in (redlock.lock("b").acquire, lease.release, lease.extend, redlock.aclose):
        await refused(call)
    # The child has copies of the timers and readers of the parent's loop. They must not renew or
    # release the lease, nor read answers meant for the parent.
    await asyncio.sleep(1.2)
    assert not lease.valid and lease.lost
    assert not waiting.done()

async def parent_goes_on(redlock, lease, waiting):
    await lease.verify()
    assert lease.valid and await lease.extend() is None
    assert redlock.nodes[0].connections == 1
    assert await lease.release()
    assert await (await waiting).release()
    await redlock.aclose()

loop = asyncio.new_event_loop()
redlock = Redlock([sys.argv[1]], ttl=60, node_timeout=5.0)
loop.run_until_complete(redlock.open())
lease = loop.run_until_complete(redlock.lock("order").acquire())
waiting = loop.create_task(redlock.lock("order").acquire())
loop.run_until_complete(asyncio.sleep(0.3))
child = os.fork()
if child == 0:
    status = 1
    try:
        loop.run_until_complete(in_child(redlock, lease, waiting))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
assert os.waitpid(child, 0)[1] == 0
loop.run_until_complete(parent_goes_on(redlock, lease, waiting))
print("fine", flush=True)
"""


@pytest.mark.parametrize(
    "program_text", [FORKS, FORKS_WITH_ITS_LOOP], ids=["a loop of its own", "the parent's loop"]
)
async def test_after_a_fork_the_child_is_refused_and_the_parent_goes_on(
    one_node: NodeSet, program_text: str
) -> None:
    async with program(REFUSED + program_text, one_node.urls[0]) as process:
        out, errors = await asyncio.wait_for(process.communicate(), 60)
    assert (out, process.returncode) == (b"fine\n", 0), errors.decode()
    await eventually(lambda: one_node.keys() == [set()])
