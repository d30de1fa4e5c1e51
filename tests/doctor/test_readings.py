"""Test the pure functions that read the answers and the clocks of servers.

The tables list the error messages of every supported version of Redis and Valkey.
"""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._core.refusals import CHANNELS, KEYS, cure_of, harmless, missing_right
from aioredlock_ng._core.samples import TimeSample, clock_reading, round_trips
from aioredlock_ng._core.server_info import facts_of, info_fields, server_name, version_of
from aioredlock_ng._doctor.timing import look_at_clock, measure

SHA = "620cd258c2c9c88c9d10db67812ccf663d96bdc6"

NOPERM = "NOPERM this user has no permissions to run the"
FAILED = f"ERR Error running script (call to f_{SHA}): @user_script:1: @user_script: 1:"

# Errors of Redis 6.2.14 and 7.0.15 and of Valkey 8.1.8 and 9.1.2.
WORDS = {
    f"{NOPERM} 'evalsha' command or its subcommand": "evalsha",
    f"{NOPERM} 'script' command or its subcommand": "script|load",
    f"{NOPERM} 'client' command or its subcommand": "client|tracking",
    f"{NOPERM} 'config' command or its subcommand": "config|get",
    f"{NOPERM} 'client|tracking' command": "client|tracking",
    "NOPERM User locks has no permissions to run the 'script|load' command": "script|load",
    "this user has no permissions to run the 'select' command": "select",
    f"{FAILED} The user executing the script can't run this command or subcommand": "",
    "ERR The user executing the script can't run this command or subcommand"
    f" script: {SHA}, on @user_script:1.": "",
    "ERR ACL failure in script: User u has no permissions to run the 'get' command"
    f" script: {SHA}, on @user_script:1.": "get",
    "NOPERM this user has no permissions to access one of the keys used as arguments": KEYS,
    "NOPERM No permissions to access a key": KEYS,
    "ERR ACL failure in script: No permissions to access a key script: on @user_script:1.": KEYS,
    f"{FAILED} The user executing the script can't access"
    " at least one of the keys mentioned in the command arguments": KEYS,
    "NOPERM this user has no permissions to access one of the channels used as arguments": CHANNELS,
    "NOPERM No permissions to access a channel": CHANNELS,
    "NOPERM User locks has no permissions to run the 'publish' command": "publish",
    f"{FAILED} The user executing the script can't publish"
    " to the channel mentioned in the command": CHANNELS,
    "ERR The user executing the script can't publish to the channel mentioned in the command"
    f" script: {SHA}, on @user_script:1.": CHANNELS,
    "ERR ACL failure in script: No permissions to access a channel"
    " script: on @user_script:1.": CHANNELS,
    "OOM command not allowed when used memory > 'maxmemory'.": None,
    "MISCONF Redis is configured to save RDB snapshots,"
    " but it's currently unable to persist to disk.": None,
    "ERR unknown command 'CLIENT', with args beginning with: 'TRACKING' 'ON'": None,
}


@pytest.mark.parametrize(("words", "right"), WORDS.items())
def test_a_missing_right_is_read_from_the_words_of_every_version(
    words: str, right: str | None
) -> None:
    assert missing_right(words) == right


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", "memory"),
        (
            f"ERR Error running script (call to f_{SHA}): @user_script:1: -OOM command not allowed",
            "memory",
        ),
        ("MISCONF Redis is configured to save RDB snapshots", "disk"),
        ("READONLY You can't write against a read only replica.", "primary"),
        ("NOREPLICAS Not enough good replicas to write.", "min-replicas-to-write"),
        ("BUSY Redis is busy running a script.", "SCRIPT KILL"),
        ("LOADING Redis is loading the dataset in memory", "done"),
        ("ERR unknown command 'SCRIPT'", "Valkey"),
        ("ERR something new", None),
    ],
)
def test_the_remedy_is_read_from_the_words_of_the_error(words: str, cure: str | None) -> None:
    told = cure_of(words)
    assert told is None if cure is None else told is not None and cure in told


def test_quoted_arguments_and_control_codes_are_not_shown() -> None:
    assert (
        harmless("ERR unknown command 'AUTH', with args beginning with: 's3cr3t' ")
        == "ERR unknown command 'AUTH'"
    )
    assert (
        harmless("ERR unknown command `AUTH`, with args beginning with: `s3cr3t`, ")
        == "ERR unknown command `AUTH`"
    )
    assert harmless("a\x1b[31mb\r\nc") == "a [31mb  c"
    assert len(harmless("x" * 10_000)) == 300


@pytest.mark.parametrize(
    "words",
    [
        (
            f"ERR Error running script (call to f_{SHA}): @user_script:9: @user_script: 9:"
            " -OOM not allowed"
        ),
        f"-OOM not allowed script: {SHA}, on @user_script:9.",
        "-OOM not allowed script: on @user_script:9.",
    ],
)
def test_places_in_scripts_are_not_shown(words: str) -> None:
    assert harmless(words) == "-OOM not allowed"


@pytest.mark.parametrize(
    ("lines", "name", "version"),
    [
        ("redis_version:7.0.15", "redis 7.0.15", (7, 0, 15)),
        (
            "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2",
            "valkey 9.1.2",
            (9, 1, 2),
        ),
        ("redis_version:7.2.4\r\nserver_name:other", "other 7.2.4", (7, 2, 4)),
        ("redis_version:8.4-rc1", "redis 8.4-rc1", (8,)),
        ("role:master", "", ()),
    ],
)
def test_a_server_is_named_as_it_is(lines: str, name: str, version: tuple[int, ...]) -> None:
    info = info_fields(f"# Server\r\n{lines}\r\n".encode())
    assert server_name(info) == name
    assert version_of(name) == version


@pytest.mark.parametrize("line", ["redis_mode:cluster", "server_mode:cluster", "cluster_enabled:1"])
def test_cluster_mode_is_seen_however_it_is_said(line: str) -> None:
    assert facts_of(info_fields(line.encode()))["cluster"]


def test_the_facts_of_a_server_are_read_from_info() -> None:
    lines = (
        "run_id:abc", "redis_version:7.2.4", "role:slave", "master_host:10.0.0.2",
        "master_port:6380", "cluster_enabled:0", "uptime_in_seconds:7", "connected_slaves:2",
        "maxmemory:1024", "maxmemory_policy:noeviction", "evicted_keys:3", "aof_enabled:1",
        "aof_last_write_status:err", "aof_last_bgrewrite_status:ok", "rdb_last_bgsave_status:err",
    )  # fmt: skip
    assert facts_of(info_fields("\r\n".join(lines).encode())) == {
        "server": "redis 7.2.4",
        "run_id": "abc",
        "role": "slave",
        "primary": "10.0.0.2:6380",
        "cluster": False,
        "uptime": 7,
        "replicas": 2,
        "maxmemory": 1024,
        "maxmemory_policy": "noeviction",
        "evicted_keys": 3,
        "aof": True,
        "failing": ("aof_last_write_status", "rdb_last_bgsave_status"),
    }
    assert facts_of({"role": "master", "master_host": "x", "aof_enabled": "0"}) | {
        "aof": False,
        "primary": "",
    } == facts_of({"role": "master", "aof_enabled": "0"})


def test_an_info_that_says_nothing_gives_no_facts() -> None:
    assert not any(facts_of({}).values())
    assert facts_of({})["aof"] is None
    assert facts_of({"uptime_in_seconds": "many"})["uptime"] is None


@pytest.mark.parametrize(
    ("seconds", "p50", "p95", "p99"),
    [
        ([3.0], 3.0, 3.0, 3.0),
        ([2.0, 1.0], 1.0, 2.0, 2.0),
        ([float(n) for n in range(100, 0, -1)], 50.0, 95.0, 99.0),
    ],
)
def test_percentiles_are_by_nearest_rank(
    seconds: list[float], p50: float, p95: float, p99: float
) -> None:
    told = round_trips(seconds)
    assert told is not None
    assert (told.count, told.p50, told.p95, told.p99) == (len(seconds), p50, p95, p99)


def test_there_are_no_percentiles_without_values() -> None:
    assert round_trips([]) is None


@pytest.mark.parametrize(
    ("usual", "count"), [(0.001, 100), (0.3, 20)], ids=["a near node", "a far node"]
)
@pytest.mark.parametrize("slow", range(20))
async def test_one_slow_round_trip_does_not_decide_about_a_node(
    usual: float, count: int, slow: int
) -> None:
    class Node:
        now, trips = 0.0, 0

        async def call(self, _step: str, _command: object) -> None:
            self.now += 2.0 if self.trips == slow else usual
            self.trips += 1

    node = Node()
    told = await measure(cast("Any", node), cast("Any", None), 3.0, lambda: node.now)
    assert told is not None
    assert told.count == count
    assert told.p95 == pytest.approx(usual)
    # The slowest of all is the p99 of fewer than a hundred round trips.
    assert told.p99 == pytest.approx(usual if count == 100 else 2.0)


durations = st.floats(0.0, 0.5)


@given(
    offset=st.floats(-1e5, 1e5),
    rate=st.floats(0.5, 2.0),
    between=st.floats(1.0, 60.0),
    ways=st.tuples(durations, durations, durations, durations),
    pause=st.floats(0.0, 1.0),
)
def test_a_reading_is_never_off_by_more_than_it_says(
    offset: float,
    rate: float,
    between: float,
    ways: tuple[float, float, float, float],
    pause: float,
) -> None:
    """However the round trip is divided between the two ways and a pause after the wall clock."""
    wall_at_0 = 1e9

    def node_clock(at: float) -> float:
        return wall_at_0 + offset + rate * at

    def sample(sent: float, there: float, back: float) -> TimeSample:
        received = sent + there + back
        wall = wall_at_0 + received - pause * back
        return TimeSample(sent, received, node_clock(sent + there), wall)

    first, last = sample(50.0, *ways[:2]), sample(between + 51.0, *ways[2:])
    told = clock_reading(first, last)
    read_at = between + 51.0 + ways[2]
    assert told.offset_error == pytest.approx((ways[2] + ways[3]) / 2, abs=1e-6)
    middles = between + 1.0 + (ways[2] + ways[3] - ways[0] - ways[1]) / 2
    assert told.rate_error == pytest.approx(sum(ways) / 2 / middles, abs=1e-6)
    assert (
        abs(told.offset - (node_clock(read_at) - wall_at_0 - read_at)) <= told.offset_error + 1e-6
    )
    # The instants of reading are known up to the errors of both samples, and the clock advances at
    # its own rate in them.
    assert abs(told.rate - rate) <= told.rate_error * rate + 1e-6


class PausedOnce:
    """A clock, a wall clock and a node that agree, until this process is paused once.

    Args:
        at: The number of the call after which the process is paused for 0.2 s.
    """

    def __init__(self, at: int) -> None:
        self.now, self._calls, self._at = 0.0, 0, at

    def read(self) -> float:
        now = self.now
        self._calls += 1
        self.now += 0.2 if self._calls == self._at else 0.0
        return now

    async def ask(self, _word: str) -> list[bytes]:
        self.now += 0.001
        told = self.read()
        self.now += 0.001
        return [b"%d" % told, b"%d" % round(told % 1 * 1e6)]


@pytest.mark.parametrize("at", range(1, 10))
async def test_a_pause_of_the_doctor_neither_falsifies_nor_spoils_a_reading(at: int) -> None:
    paused = PausedOnce(at)
    sample = await look_at_clock(cast("Any", paused), paused.read, paused.read)
    assert isinstance(sample, TimeSample)
    assert sample.error < 0.01
    assert abs(sample.told + sample.error - sample.wall) <= sample.error + 1e-5
