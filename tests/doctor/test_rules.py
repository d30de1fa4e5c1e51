"""The pure rules, as a full table: which facts make which finding, how bad, and which do not."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aioredlock_ng import ClockReading, NodeFacts, Options, Refused, RoundTrips, Severity
from aioredlock_ng._doctor.finding_kinds import KINDS
from aioredlock_ng._doctor.findings import diagnosis_of

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"

ERROR, WARNING, INFO = Severity

SOUND = NodeFacts(
    address="10.0.0.1:6379",
    endpoint="10.0.0.1:6379",
    server="redis 7.2.4",
    run_id="1",
    role="master",
    cluster=False,
    uptime=1e6,
    replicas=0,
    maxmemory=0,
    maxmemory_policy="noeviction",
    evicted_keys=0,
    aof=True,
    fsync="always",
    resp3=True,
    tracking=True,
    messages=True,
    granted=True,
    trust="trusted",
    round_trips=RoundTrips(50, 0.001, 0.002, 0.003),
    clock=ClockReading(0.001, 0.0005, 1.0, 0.001),
)


GONE = NodeFacts(address="10.0.0.9:6379", problem="unreachable", words="no route")


def sound_set(count: int = 3) -> list[NodeFacts]:
    nodes = range(1, count + 1)
    return [
        replace(SOUND, address=f"10.0.0.{n}:6379", endpoint=f"10.0.0.{n}:6379", run_id=str(n))
        for n in nodes
    ]


def found(nodes: list[NodeFacts], **options: Any) -> list[tuple[str, Severity]]:
    return [
        (finding.code, finding.severity)
        for finding in diagnosis_of(nodes, Options(**options)).findings
    ]


def clock(offset: float = 0.0, rate: float = 1.0, error: float = 0.0005) -> ClockReading:
    return ClockReading(offset, error, rate, 2 * error)


def trips(p50: float, p95: float) -> RoundTrips:
    return RoundTrips(50, p50, p95, p95)


UNNAMED = "ERR The user executing the script can't run this command or subcommand"
KEYS_REFUSED = "NOPERM No permissions to access a key"
NOPERM = "NOPERM this user has no permissions to run the '{}' command"

UNGUARDED = {"recovery_guard": None}

ONE_NODE: list[tuple[str, dict[str, Any], dict[str, Any], list[tuple[str, Severity]]]] = [
    ("nothing", {}, {}, []),
    ("unreachable", {"problem": "unreachable", "words": "refused"}, {}, [("unreachable", ERROR)]),
    (
        "authentication",
        {"problem": "authentication", "words": "WRONGPASS"},
        {},
        [("authentication", ERROR)],
    ),
    (
        "a client without a transport",
        {"problem": "unusable-client", "words": "no transport"},
        {},
        [("unusable-client", ERROR)],
    ),
    ("silent", {"problem": "silent", "words": "no answer"}, {}, [("silent", ERROR)]),
    ("not ready", {"problem": "not-ready", "words": "LOADING"}, {}, [("not-ready", ERROR)]),
    (
        "not examined",
        {"problem": "not-examined", "words": "given as an object"},
        {},
        [("not-examined", INFO)],
    ),
    (
        "no database",
        {"problem": "unreachable", "words": NOPERM.format("select")},
        {},
        [("missing-right", ERROR)],
    ),
    ("replica", {"role": "slave", "aof": False}, {}, [("replica", ERROR)]),
    ("cluster", {"cluster": True, "aof": False}, {}, [("cluster", ERROR)]),
    (
        "volatile",
        {"maxmemory": 1, "maxmemory_policy": "volatile-lru"},
        {},
        [("eviction-policy", ERROR)],
    ),
    (
        "allkeys",
        {"maxmemory": 1, "maxmemory_policy": "allkeys-lfu"},
        {},
        [("eviction-policy", ERROR)],
    ),
    ("no limit yet", {"maxmemory_policy": "volatile-lru"}, {}, [("eviction-policy", WARNING)]),
    (
        "limit unknown",
        {"maxmemory": None, "maxmemory_policy": "volatile-lru"},
        {},
        [("eviction-policy", WARNING)],
    ),
    ("policy unknown", {"maxmemory": 1, "maxmemory_policy": ""}, {}, []),
    ("evicted before", {"evicted_keys": 1}, {}, [("evicted-keys", WARNING)]),
    (
        "evicts",
        {"maxmemory": 1, "maxmemory_policy": "volatile-lru", "evicted_keys": 1},
        {},
        [("eviction-policy", ERROR), ("evicted-keys", ERROR)],
    ),
    ("no AOF", {"aof": False, "fsync": ""}, UNGUARDED, [("no-persistence", WARNING)]),
    ("no AOF, guarded", {"aof": False, "fsync": ""}, {}, [("no-persistence", INFO)]),
    ("everysec", {"fsync": "everysec"}, UNGUARDED, [("fsync", INFO)]),
    ("everysec, guarded", {"fsync": "everysec"}, {}, [("fsync", INFO)]),
    ("fsync no", {"fsync": "no"}, UNGUARDED, [("fsync", WARNING)]),
    ("fsync no, guarded", {"fsync": "no"}, {}, [("fsync", INFO)]),
    ("fsync unknown", {"fsync": ""}, {}, []),
    (
        "saving fails",
        {"failing": ("aof_last_write_status",)},
        {},
        [("persistence-failing", WARNING)],
    ),
    ("replicas", {"replicas": 2}, UNGUARDED, [("replicas", WARNING)]),
    ("replicas, guarded", {"replicas": 2}, {}, [("replicas", INFO)]),
    ("restarted, with its data", {"uptime": 60}, UNGUARDED, [("restarted", INFO)]),
    (
        "restarted, empty",
        {"uptime": 60, "aof": False},
        UNGUARDED,
        [("no-persistence", WARNING), ("restarted", WARNING)],
    ),
    ("restarted long enough ago", {"uptime": 61}, UNGUARDED, []),
    ("restarted, shorter leases", {"uptime": 60}, UNGUARDED | {"max_ttl": 30}, []),
    ("restarted, guarded", {"uptime": 60}, {}, []),
    ("another process's marker", {"trust": "foreign"}, {}, [("quarantined", WARNING)]),
    ("waits", {"trust": "waiting", "ready_in": 7.0}, {}, [("quarantined", WARNING)]),
    ("no marker beside trusted nodes", {"trust": "none"}, {}, [("quarantined", WARNING)]),
    (
        "founding beside trusted nodes",
        {"trust": "founding", "ready_in": 7.0},
        {},
        [("quarantined", WARNING)],
    ),
    (
        "other data",
        {"sampled_keys": 9, "foreign_keys": ("hash", "hash", "string")},
        {},
        [("other-keys", WARNING)],
    ),
    (
        "other data, locks apart",
        {"sampled_keys": 9, "foreign_keys": ("hash",)},
        {"key_format": "lock:{name}"},
        [],
    ),
    ("locks alone", {"sampled_keys": 9}, {}, []),
    ("Redis 6.0", {"server": "redis 6.0.16", "aof": False}, {}, [("old-version", ERROR)]),
    (
        "Redis 6.0 that knows no GETEX",
        {"server": "redis 6.0.16", "unknown": ("GETEX",)},
        {},
        [("old-version", ERROR)],
    ),
    ("no GETEX", {"unknown": ("GETEX",), "aof": False}, {}, [("unknown-command", ERROR)]),
    ("Redis 6.2.7", {"server": "redis 6.2.7"}, {}, [("noloop-defect", INFO)]),
    ("Redis 6.2.8", {"server": "redis 6.2.8"}, {}, []),
    ("Redis 7.0.4", {"server": "redis 7.0.4"}, {}, [("noloop-defect", INFO)]),
    ("Redis 7.0.5", {"server": "redis 7.0.5"}, {}, []),
    ("Redis 8", {"server": "redis 8.4.0"}, {}, []),
    ("Valkey", {"server": "valkey 7.0.4"}, {}, []),
    ("no RESP3", {"resp3": False, "tracking": None}, {}, [("no-resp3", WARNING)]),
    ("hidden identity", {"run_id": ""}, {}, [("no-identity", WARNING)]),
    (
        "INFO refused",
        {"refusals": (Refused("INFO", "ERR no"),), "server": ""},
        {},
        [("no-identity", WARNING)],
    ),
    (
        "INFO, no right",
        {"refusals": (Refused("INFO", NOPERM.format("info")),)},
        {},
        [("missing-right", WARNING)],
    ),
    (
        "SCRIPT LOAD",
        {"refusals": (Refused("SCRIPT LOAD", "ERR no"),)},
        {},
        [("no-script-load", INFO)],
    ),
    (
        "SCRIPT LOAD, no right",
        {"refusals": (Refused("SCRIPT LOAD", NOPERM.format("script|load")),)},
        {},
        [("missing-right", INFO)],
    ),
    (
        "messages",
        {"refusals": (Refused("PUBLISH", "ERR no"),), "messages": False},
        {},
        [("no-messages", WARNING)],
    ),
    ("queues", {"refusals": (Refused("queue ZRANK", "ERR no"),)}, {}, [("no-queue", WARNING)]),
    (
        "readers",
        {"refusals": (Refused("readers PEXPIREAT", "ERR no"),)},
        {},
        [("no-readers", WARNING)],
    ),
    (
        "a script of readers",
        {"refusals": (Refused("readers acquire_read", "ERR no"),)},
        {},
        [("no-readers", WARNING)],
    ),
    ("labels", {"refusals": (Refused("labels SET", "ERR no"),)}, {}, [("no-labels", WARNING)]),
    (
        "labels, no right",
        {"refusals": (Refused("labels SET", KEYS_REFUSED),)},
        {},
        [("missing-right", WARNING)],
    ),
    (
        "labels and the marker, for one reason",
        {"refusals": (Refused("labels SET", KEYS_REFUSED), Refused("script marker", KEYS_REFUSED))},
        {},
        [("missing-right", ERROR)],
    ),
    ("messages that get lost", {"messages": False}, {}, [("no-messages", WARNING)]),
    (
        "tracking",
        {"refusals": (Refused("CLIENT TRACKING", "ERR no"),), "tracking": False},
        {},
        [("no-tracking", WARNING)],
    ),
    (
        "TIME",
        {"refusals": (Refused("TIME", "ERR no"),), "clock": None},
        {},
        [("clock-unknown", INFO)],
    ),
    (
        "CONFIG",
        {"refusals": (Refused("CONFIG GET", "ERR no"),), "fsync": ""},
        {},
        [("fsync-unknown", INFO)],
    ),
    ("a script", {"refusals": (Refused("script acquire", "OOM x"),)}, {}, [("refused", ERROR)]),
    (
        "scripts, for one reason",
        {"refusals": (Refused("script acquire", "OOM x"), Refused("script extend", "OOM x"))},
        {},
        [("refused", ERROR)],
    ),
    (
        "a right that only the command itself names",
        {
            "refusals": (
                Refused("script acquire", "ERR can't run this command or subcommand"),
                Refused("command SET", NOPERM.format("set")),
            )
        },
        {},
        [("missing-right", ERROR)],
    ),
    (
        "a right that nothing names",
        {"refusals": (Refused("script acquire", UNNAMED),)},
        {},
        [("missing-right", ERROR)],
    ),
    (
        "one right, refused in several ways",
        {
            "refusals": (
                Refused("script release", f"ERR x: {NOPERM.format('del')}"),
                Refused("command DEL", NOPERM.format("del")),
            )
        },
        {},
        [("missing-right", ERROR)],
    ),
    (
        "TIME, for the scripts and for the doctor",
        {
            "refusals": (
                Refused("TIME", NOPERM.format("time")),
                Refused("script marker", NOPERM.format("time")),
            )
        },
        {},
        [("missing-right", ERROR)],
    ),
    (
        "the library's own keys",
        {
            "refusals": (
                Refused("script acquire_guarded", KEYS_REFUSED),
                Refused("script marker", KEYS_REFUSED),
            )
        },
        {},
        [("missing-right", ERROR)],
    ),
    # ttl 10 s, drift 0.102 s: a clock may be 0.102 / 9.898 = 1.03 % fast.
    ("a little fast", {"clock": clock(rate=1.0102)}, {}, []),
    ("too fast", {"clock": clock(rate=1.0120)}, {}, [("clock-rate", ERROR)]),
    ("too fast, perhaps", {"clock": clock(rate=1.0120, error=0.0045)}, {}, []),
    (
        "too fast for less drift",
        {"clock": clock(rate=1.0102)},
        {"drift_factor": 0.005},
        [("clock-rate", ERROR)],
    ),
    ("fast, and much drift allowed", {"clock": clock(rate=1.5)}, {"drift_factor": 0.4}, []),
    ("too slow", {"clock": clock(rate=0.9880)}, {}, [("clock-rate", WARNING)]),
    ("stepped back", {"clock": clock(rate=-3599.0)}, {}, [("clock-rate", WARNING)]),
    ("too far to tell", {"clock": clock(error=0.006)}, {}, [("clock-rate-unknown", INFO)]),
    ("slow now and then", {"round_trips": trips(0.01, 0.06)}, {}, [("round-trip", WARNING)]),
    ("slow now and then, but not half as slow", {"round_trips": trips(0.01, 0.045)}, {}, []),
    ("slow now and then, allowed", {"round_trips": trips(0.01, 0.06)}, {"node_timeout": 0.2}, []),
    ("slower than the timeout", {"round_trips": trips(0.1, 0.11)}, {}, [("round-trip", ERROR)]),
    ("nothing measured", {"round_trips": None, "clock": None}, {}, []),
]


@pytest.mark.parametrize(
    ("facts", "options", "expected"),
    [row[1:] for row in ONE_NODE],
    ids=[row[0] for row in ONE_NODE],
)
def test_facts_of_one_node_of_three_lead_to_the_expected_findings(
    facts: dict[str, Any], options: dict[str, Any], expected: list[tuple[str, Severity]]
) -> None:
    nodes = sound_set()
    nodes[1] = replace(nodes[1], **facts)
    diagnosis = diagnosis_of(nodes, Options(**options))
    assert [(finding.code, finding.severity) for finding in diagnosis.findings] == expected
    assert all(finding.nodes == (nodes[1].address,) for finding in diagnosis.findings)
    assert all(
        finding.what and finding.meaning and finding.remedy for finding in diagnosis.findings
    )


def at(nodes: list[NodeFacts], **changes: list[Any]) -> list[NodeFacts]:
    """The same nodes, each with its own value of every attribute named."""
    return [
        replace(node, **{name: values[index] for name, values in changes.items()})
        for index, node in enumerate(nodes)
    ]


QUICK, SLOW = trips(0.001, 0.002), trips(0.020, 0.0302)
SHORT = [("short-ttl", INFO)]

SETS: list[tuple[str, list[NodeFacts], dict[str, Any], list[tuple[str, Severity]]]] = [
    ("three", sound_set(), {}, []),
    ("five", sound_set(5), {}, []),
    ("one", sound_set(1), {}, [("single-node", WARNING)]),
    ("two", sound_set(2), {}, [("even-number", WARNING)]),
    ("four", sound_set(4), {}, [("even-number", WARNING)]),
    (
        "one process, two names",
        at(sound_set(), run_id=["1", "2", "1"]),
        {},
        [("same-server", ERROR)],
    ),
    (
        "one address, no identity",
        at(
            sound_set(),
            run_id=["", "2", ""],
            server=["", "redis 7.2.4", ""],
            endpoint=["10.0.0.1:1", "10.0.0.2:1"] * 2,
        ),
        {},
        [("same-server", ERROR)],
    ),
    (
        "one name twice, and nobody there",
        [GONE, *sound_set(), GONE],
        {},
        [("unreachable", ERROR), ("unreachable", ERROR), ("same-server", ERROR)],
    ),
    (
        "two on one host",
        at(sound_set(), endpoint=["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"]),
        {},
        [("same-host", WARNING)],
    ),
    (
        "loopback and a socket",
        at(sound_set(), endpoint=["127.0.0.1:1", "/run/redis.sock", "[::1]:1"]),
        {},
        [("same-host", WARNING)],
    ),
    (
        "one host by two families",
        at(sound_set(), endpoint=["10.0.0.1:1", "[::ffff:10.0.0.1]:2", "10.0.0.2:1"]),
        {},
        [("same-host", WARNING)],
    ),
    (
        "two on one host, no identity",
        at(
            sound_set(),
            run_id=["", "", "3"],
            server=["", "", ""],
            endpoint=["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"],
        ),
        {},
        [("same-host", WARNING)],
    ),
    (
        "one socket",
        at(sound_set(), endpoint=["/run/redis.sock", "10.0.0.1:1", "10.0.0.2:1"]),
        {},
        [],
    ),
    (
        "a minority gone",
        at(sound_set(), problem=["", "unreachable", ""]),
        {},
        [("unreachable", ERROR)],
    ),
    (
        "a majority gone",
        at(sound_set(), problem=["silent", "", "unreachable"]),
        {},
        [("silent", ERROR), ("unreachable", ERROR), ("no-quorum", ERROR)],
    ),
    (
        "a majority of replicas",
        at(sound_set(), role=["slave", "slave", "master"]),
        {},
        [("replica", ERROR), ("replica", ERROR), ("no-quorum", ERROR)],
    ),
    (
        "a majority that grants nothing",
        at(sound_set(), granted=[False, True, False]),
        {},
        [("no-quorum", ERROR)],
    ),
    ("a new set", at(sound_set(), trust=["none"] * 3), {}, [("unmarked", INFO)] * 3),
    (
        "a set that is founding",
        at(sound_set(), trust=["founding", "none", "founding"]),
        {},
        [("unmarked", INFO)] * 3,
    ),
    (
        "a majority in quarantine",
        at(sound_set(), trust=["trusted", "waiting", "none"]),
        {},
        [("no-quorum", ERROR), ("quarantined", WARNING), ("quarantined", WARNING)],
    ),
    (
        "all nodes forgot",
        at(sound_set(), trust=["waiting", "foreign", "waiting"]),
        {},
        [("all-forgot", ERROR), ("no-quorum", ERROR), *[("quarantined", WARNING)] * 3],
    ),
    (
        "all wait, and may be new",
        at(sound_set(), trust=["waiting"] * 3),
        {"recovery_guard": "strict"},
        [("no-quorum", ERROR), *[("quarantined", WARNING)] * 3],
    ),
    (
        "all of those that answer wait",
        at(sound_set(), trust=["waiting", "waiting", ""], problem=["", "", "unreachable"]),
        {},
        [("unreachable", ERROR), ("no-quorum", ERROR), *[("quarantined", WARNING)] * 2],
    ),
    (
        "a damaged marker",
        at(sound_set(), trust=["trusted", "excessive", "trusted"]),
        {},
        [("guard-time", WARNING)],
    ),
    (
        "foreign nodes",
        at(sound_set(), problem=["not-examined"] * 3),
        {},
        [("not-examined", INFO)] * 3,
    ),
    (
        "clocks apart",
        at(sound_set(), clock=[clock(), clock(0.2), clock()]),
        {},
        [("clock-offset", WARNING)],
    ),
    (
        "clocks apart, perhaps",
        at(sound_set(), clock=[clock(), clock(0.1062, error=0.004), clock()]),
        {},
        [],
    ),
    (
        "clocks apart less than the drift",
        at(sound_set(), clock=[clock(), clock(0.1), clock()]),
        {},
        [],
    ),
    ("our clock behind", at(sound_set(), clock=[clock(40)] * 3), {}, [("client-clock", WARNING)]),
    ("our clock ahead", at(sound_set(), clock=[clock(-40)] * 3), {}, [("client-clock", WARNING)]),
    ("our clock behind a little", at(sound_set(), clock=[clock(25)] * 3), {}, []),
    (
        "our clock behind, perhaps",
        at(sound_set(), clock=[ClockReading(30.3, 0.4, 1.0, 0.001)] * 3),
        {},
        [],
    ),
    ("no clock", at(sound_set(), clock=[None] * 3), {}, []),
    ("one slow node", at(sound_set(), round_trips=[SLOW, QUICK, QUICK]), {"ttl": 0.5}, SHORT),
    (
        "two slow nodes",
        at(sound_set(), round_trips=[SLOW, QUICK, SLOW]),
        {"ttl": 0.6},
        [("slow-quorum", WARNING), ("short-ttl", INFO)],
    ),
    (
        "two slow nodes, and one not measured",
        at(sound_set(), round_trips=[SLOW, None, SLOW]),
        {"ttl": 0.6},
        [("slow-quorum", WARNING), ("short-ttl", INFO)],
    ),
    (
        "two slow nodes, and leases long enough",
        at(sound_set(), round_trips=[SLOW, QUICK, SLOW]),
        {"ttl": 0.7},
        SHORT,
    ),
    ("a short ttl", sound_set(), {"ttl": 0.5}, SHORT),
    ("ten node_timeouts", sound_set(), {"ttl": 1.0}, []),
]


@pytest.mark.parametrize(
    ("nodes", "options", "expected"), [row[1:] for row in SETS], ids=[row[0] for row in SETS]
)
def test_facts_of_a_set_lead_to_the_expected_findings(
    nodes: list[NodeFacts], options: dict[str, Any], expected: list[tuple[str, Severity]]
) -> None:
    assert found(nodes, **options) == expected


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        (
            {"maxmemory": 3 * 2**19, "maxmemory_policy": "volatile-lru"},
            "maxmemory-policy is volatile-lru, at 1.5 MiB",
        ),
        ({"evicted_keys": 12_345}, "it has evicted 12,345 keys since its statistics began"),
        ({"trust": "waiting", "ready_in": 7.04}, "it is waiting, and may vote in 7.0 s"),
        ({"trust": "founding", "ready_in": 7.04}, "it is founding, and may vote in 7.0 s"),
        (
            {"trust": "founding", "ready_in": 7.04, "marked_max_ttl": 6.0},
            (
                "it is founding, and its marker names a max_ttl of 6 s: a manager with a max_ttl of"
                " 60 s lets it wait anew in 7.0 s, for 61 s"
            ),
        ),
        ({"replicas": 1}, "a replica is attached"),
        ({"replicas": 2}, "2 replicas are attached"),
        (
            {"clock": clock(rate=1.5)},
            (
                "its clock advanced 1.5 s (± 0.10%) in one second of this machine's clock; "
                "drift_factor allows for 1.01031"
            ),
        ),
        (
            {"clock": clock(error=0.02)},
            (
                "its clock advanced 1 s (± 4.00%) in one second of this machine's clock; "
                "drift_factor allows for 1.01031"
            ),
        ),
        (
            {"round_trips": trips(0.15, 0.2)},
            "half of 50 round trips took 0.15 s or more; node_timeout is 0.1 s",
        ),
        (
            {"round_trips": trips(0.01, 0.06)},
            "one in 20 of 50 round trips took 0.06 s or more; node_timeout is 0.1 s",
        ),
    ],
)
def test_a_finding_of_a_node_has_its_figures(facts: dict[str, Any], what: str) -> None:
    (finding,) = diagnosis_of([replace(SOUND, **facts), *sound_set()[1:]], Options()).findings
    assert finding.what == what


@pytest.mark.parametrize(
    ("nodes", "options", "what"),
    [
        (sound_set(2), {}, "there are 2 nodes; they tolerate the loss of none"),
        (sound_set(6), {}, "there are 6 nodes; they tolerate the loss of 2"),
        (
            at(sound_set(), clock=[clock(40)] * 3),
            {},
            "this machine's clock is 40 s behind the nearest node's",
        ),
        (
            at(sound_set(), clock=[clock(-40)] * 3),
            {},
            "this machine's clock is 40 s ahead of the nearest node's",
        ),
        (
            at(sound_set(), clock=[clock(1.5), clock(), clock()]),
            {},
            "the clocks of 10.0.0.2:6379 and 10.0.0.1:6379 are 1.5 s apart (± 0.001 s)",
        ),
        (
            at(sound_set(), round_trips=[trips(0.2, 0.25)] * 3),
            {"ttl": 4.0, "node_timeout": 0.51, "max_ttl": 4.0},
            "one in 20 round trips of a majority took 0.25 s or more, which is 6% of the ttl",
        ),
        (sound_set(), {"ttl": 0.75}, "ttl is 0.75 s, 7.5 times node_timeout"),
        (at(sound_set(), problem=["silent"] * 3), {}, "0 of 3 nodes can vote, 2 are needed"),
    ],
)
def test_a_finding_of_a_set_has_its_figures(
    nodes: list[NodeFacts], options: dict[str, Any], what: str
) -> None:
    assert what in [finding.what for finding in diagnosis_of(nodes, Options(**options)).findings]


def test_a_missing_right_is_said_with_its_name_and_the_command_that_grants_it() -> None:
    refusals = (
        Refused("script acquire", NOPERM.format("set")),
        Refused("command GET", KEYS_REFUSED),
    )
    right, key = diagnosis_of(
        [replace(SOUND, refusals=refusals), *sound_set()[1:]], Options()
    ).findings
    assert right.what == f"its user has no right to set: {NOPERM.format('set')}"
    assert right.remedy == "ACL SETUSER <user> +set (docs/acl.md)"
    assert (
        key.what
        == "its user has no right to the doctor's key: NOPERM No permissions to access a key"
    )
    assert "--probe" in key.remedy
    refusals = (Refused("script marker", KEYS_REFUSED),)
    (own,) = diagnosis_of([replace(SOUND, refusals=refusals), *sound_set()[1:]], Options()).findings
    assert own.what == f"its user has no right to the library's own keys: {KEYS_REFUSED}"
    assert own.remedy == "ACL SETUSER <user> ~aioredlock_ng:* (docs/acl.md)"
    refusals = (Refused("labels GET", KEYS_REFUSED), Refused("labels watch", KEYS_REFUSED))
    (label,) = diagnosis_of(
        [replace(SOUND, refusals=refusals), *sound_set()[1:]], Options()
    ).findings
    assert (label.what, label.remedy) == (own.what, own.remedy)
    assert "Locks work" in label.meaning
    assert "Election.leader" in label.meaning
    words = "NOPERM No permissions to access a channel"
    refusals = (Refused("SUBSCRIBE", words), Refused("PUBLISH", words))
    (channel,) = diagnosis_of(
        [replace(SOUND, refusals=refusals, messages=False), *sound_set()[1:]], Options()
    ).findings
    assert (channel.code, channel.severity) == ("missing-right", WARNING)
    assert channel.what == f"its user has no right to the library's channels: {words}"
    assert channel.remedy == "ACL SETUSER <user> &aioredlock_ng:* (docs/acl.md)"


WITNESS_FIRST = (
    "keeps the node out for max_ttl if the first process that connects had used the node "
    "before the restart"
)
MARKER_KEPT = (
    "keeps the marker of the recovery guard, so the node then grants nothing for max_ttl, "
    "even if all processes are new"
)
MARKER_OR_WITNESS = (
    "max_ttl if the replica had the marker, or if the first process that connects had used "
    "the primary"
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"aof": False, "fsync": ""}, WITNESS_FIRST),
        ({"fsync": "everysec"}, MARKER_KEPT),
        ({"fsync": "no"}, MARKER_KEPT),
        ({"replicas": 1}, MARKER_OR_WITNESS),
    ],
)
def test_a_finding_of_a_single_node_names_when_the_guard_keeps_the_node_out_after_a_loss(
    changes: dict[str, Any], words: str
) -> None:
    def meaning(nodes: list[NodeFacts], **options: Any) -> str:
        codes = ("no-persistence", "fsync", "replicas")
        return next(
            finding.meaning
            for finding in diagnosis_of(nodes, Options(**options)).findings
            if finding.code in codes
        )

    alone, among_others = [replace(SOUND, **changes)], [replace(SOUND, **changes), *sound_set()[1:]]
    assert words in meaning(alone)
    assert "is still there" not in meaning(alone)
    assert words not in meaning(among_others)
    # A node without data waits in any case.
    assert meaning(alone, recovery_guard="strict") == meaning(among_others)


def test_the_docs_say_that_all_forgot_needs_the_answer_of_every_node() -> None:
    silent = at(sound_set(), trust=["waiting", "waiting", ""], problem=["", "", "unreachable"])
    assert "all-forgot" in dict(found(at(sound_set(), trust=["waiting"] * 3)))
    assert "all-forgot" not in dict(found(silent))
    page = " ".join(OPERATIONS.read_text(encoding="utf-8").split())
    assert "* `all-forgot` (error)\\ All nodes answer, " in page


RAISED = "it is waiting, and its marker names a max_ttl of 20 s: a manager with a max_ttl of"


@pytest.mark.parametrize(
    ("marked", "max_ttl", "words"),
    [
        (20.0, 20.0, "it is waiting, and may vote in 7.0 s"),
        (30.0, 20.0, "it is waiting, and may vote in 7.0 s"),
        (20.0, 30.0, f"{RAISED} 30 s lets it wait anew, for 61 s"),
        (20.0, 80.0, f"{RAISED} 80 s lets it wait anew, for 81 s"),
    ],
)
def test_a_waiting_node_whose_max_ttl_is_raised_is_said_to_wait_anew(
    marked: float, max_ttl: float, words: str
) -> None:
    # The longest max_ttl of all markers counts, and the second node has 60 s.
    nodes = at(
        sound_set(),
        trust=["waiting", "trusted", "trusted"],
        ready_in=[7.0, None, None],
        marked_max_ttl=[marked, 60.0, None],
    )
    (finding,) = diagnosis_of(nodes, Options(max_ttl=max_ttl)).findings
    assert (finding.code, finding.what) == ("quarantined", words)


def test_the_finding_of_a_recent_start_has_its_time() -> None:
    (finding,) = diagnosis_of(
        [replace(SOUND, uptime=7), *sound_set()[1:]], Options(recovery_guard=None)
    ).findings
    assert finding.what == "it started 7 s ago, and leases may last 60 s (max_ttl)"


def test_the_tables_have_every_kind_of_finding() -> None:
    told = {code for row in [*ONE_NODE, *SETS] for code, _ in row[3]}
    assert told == KINDS.keys()


def test_the_worst_finding_comes_first_and_is_the_severity_of_the_diagnosis() -> None:
    nodes = at(
        sound_set(4),
        fsync=["everysec", "always", "always", "always"],
        problem=["", "", "silent", ""],
    )
    diagnosis = diagnosis_of(nodes, Options())
    assert [finding.severity for finding in diagnosis.findings] == [ERROR, WARNING, INFO]
    assert diagnosis.severity is ERROR
    assert diagnosis_of(sound_set(), Options()).severity is None


def test_findings_of_the_same_severity_come_in_the_order_of_the_nodes() -> None:
    nodes = at(sound_set(), replicas=[0, 1, 1], failing=[("x",), (), ("y",)])
    told = [
        (finding.code, finding.nodes)
        for finding in diagnosis_of(nodes, Options(recovery_guard=None)).findings
    ]
    first, second, third = ((node.address,) for node in nodes)
    assert told == [
        ("persistence-failing", first),
        ("replicas", second),
        ("persistence-failing", third),
        ("replicas", third),
    ]


def test_the_docs_explain_every_kind_of_finding_and_no_other() -> None:
    section = (
        OPERATIONS.read_text(encoding="utf-8").partition("## The doctor")[2].partition("\n## ")[0]
    )
    rows = re.findall(r"^\* `([a-z0-9-]+)` \((\w+(?: or \w+)*)\)\\$", section, re.MULTILINE)
    assert [code for code, _ in rows] == list(KINDS)
    shown: dict[str, set[str]] = {code: set() for code in KINDS}
    for row in [*ONE_NODE, *SETS]:
        for code, severity in row[3]:
            shown[code].add(severity.value)
    assert {code: set(words.split(" or ")) for code, words in rows} == shown
