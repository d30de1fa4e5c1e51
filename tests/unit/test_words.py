"""The words of users and for users: names, options, errors."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioredlock_ng as public
from aioredlock_ng import ConfigurationError, Options, Outcome, Redlock, Vote, errors
from aioredlock_ng._core.keys import MAX_NAME, OWN_KEYS, KeyFormat, resource_name
from aioredlock_ng._nodes.memory import MemoryNode


@given(st.binary(min_size=1, max_size=200).filter(lambda name: not name.startswith(OWN_KEYS)))
def test_a_name_of_bytes_is_its_own_key(name: bytes) -> None:
    assert KeyFormat("{name}").key(name) == name
    assert KeyFormat("l:{name}:é").key(name) == b"l:" + name + ":é".encode()
    assert KeyFormat("l:{name}:é").name(b"l:" + name + ":é".encode()) == name.decode(
        "utf-8", "backslashreplace"
    )


@pytest.mark.parametrize(
    ("key_format", "name"), [("{name}", "aioredlock_ng:marker"), ("aioredlock_ng:{name}", "a")]
)
def test_the_librarys_own_keys_are_no_locks(key_format: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"keeps for"):
        KeyFormat(key_format).key(name)


@pytest.mark.parametrize(
    ("key_format", "words"),
    [
        ("aioredlock_ng:{name}", "keeps for itself"),
        ("\ud800{name}", "lone surrogate"),
        ("{name}\udcff", "lone surrogate"),
    ],
)
def test_a_key_format_under_which_no_name_could_be_locked_is_refused(
    key_format: str, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"^key_format .*{words}"):
        Redlock(["redis://127.0.0.1:1"], key_format=key_format)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200))
def test_a_name_of_text_is_its_utf8(name: str) -> None:
    assert KeyFormat("{name}").key(name) == name.encode()
    assert resource_name((name, b"b")) == f"{name}, b"


@pytest.mark.parametrize("name", ["{name}", "{", "a\r\nb", "{0.__class__}"])
def test_braces_and_controls_in_names_mean_nothing(name: str) -> None:
    assert KeyFormat("lock:{name}").key(name) == b"lock:" + name.encode()


def test_the_longest_name_is_taken() -> None:
    assert len(KeyFormat("{name}").key("a" * MAX_NAME)) == MAX_NAME


@pytest.mark.parametrize("key_format", ["", "lock", "{name}{name}", "{Name}", "{}"])
def test_a_key_format_without_one_name_is_refused(key_format: str) -> None:
    with pytest.raises(ConfigurationError, match="key_format"):
        KeyFormat(key_format)


TIMES = (
    "ttl",
    "node_timeout",
    "max_ttl",
    "connect_timeout",
    "close_timeout",
    "drift_factor",
    "min_validity",
)


@pytest.mark.parametrize("name", TIMES)
def test_a_bad_time_is_refused_and_named(name: str) -> None:
    for value in (-1, math.inf):
        with pytest.raises(ConfigurationError, match=name):
            Options(**{name: value})


def test_a_share_is_no_number_of_seconds() -> None:
    for value in ("10", -1):
        with pytest.raises(
            ConfigurationError, match=r"drift_factor must be a (finite )?number"
        ) as caught:
            Options(drift_factor=value)  # type: ignore[arg-type]
        assert "seconds" not in str(caught.value)


def test_a_ttl_too_small_for_the_node_timeout_is_refused_with_the_inequality() -> None:
    with pytest.raises(ConfigurationError, match="ttl >= ") as caught:
        Options(ttl=0.1, node_timeout=0.1)
    assert "node_timeout" in str(caught.value)
    assert "drift_factor" in str(caught.value)


def test_a_max_ttl_that_must_be_milliseconds_is_refused() -> None:
    """The value would be written to the nodes and lengthen every quarantine."""
    assert Options(max_ttl=86_400).guard_ms == 86_400_000
    for max_ttl in (86_400.001, 6e7, 10**300):
        with pytest.raises(
            ConfigurationError,
            match=r"^max_ttl=.* seconds: .* milliseconds were meant: max_ttl=\S+\)$",
        ):
            Options(max_ttl=max_ttl)
    assert Options(max_ttl=3e7, recovery_guard=None).check_ttl(2e7) == 2e7
    with pytest.raises(ConfigurationError, match=r"^max_ttl=1e\+29 is more than 31,536,000 sec"):
        Options(max_ttl=1e29, recovery_guard=None)


def test_a_ttl_that_may_be_milliseconds_is_refused_with_a_hint() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"^ttl=10000 is above max_ttl=60 seconds; .*milliseconds were meant: ttl=10\)$",
    ):
        Options().check_ttl(10_000)
    with pytest.raises(
        ConfigurationError,
        match=r"^ttl=61 is above max_ttl=60 seconds; lower the ttl or raise max_ttl$",
    ):
        Options().check_ttl(61)


def test_a_ttl_above_max_ttl_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_ttl"):
        Options(ttl=61)


LOCK_ARGUMENTS = [
    {"ttl": 0},
    {"ttl": -1},
    {"ttl": math.inf},
    {"ttl": 61},
    {"ttl": 0.05},
    {"blocking_timeout": -1},
    {"blocking_timeout": math.nan},
    {"max_hold": 0},
    {"max_hold": "1"},
    {"min_hold": 0},
    {"min_hold": "1"},
    {"min_hold": 61},
    {"min_hold": 5, "max_hold": 4},
    {"on_lost": "ignore"},
]


@pytest.mark.parametrize("arguments", LOCK_ARGUMENTS, ids=str)
async def test_a_bad_argument_of_lock_is_refused_and_named(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(arguments))):
        Redlock([MemoryNode()]).lock("a", **arguments)


async def test_one_name_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="twice"):
        Redlock([MemoryNode()]).lock("a", b"a")


FAMILY = {
    "ConfigurationError": (errors.RedlockError, ValueError),
    "LockNotAcquired": (errors.RedlockError,),
    "LockHeld": (errors.LockNotAcquired,),
    "AcquireTimeout": (errors.LockNotAcquired, TimeoutError),
    "QuorumUnreachable": (errors.LockNotAcquired,),
    "LockLost": (errors.RedlockError,),
    "LockReleased": (errors.RedlockError,),
    "RedlockClosed": (errors.RedlockError,),
}


def test_errors_are_of_the_promised_family() -> None:
    for name, bases in FAMILY.items():
        assert all(issubclass(getattr(public, name), base) for base in bases), name
    assert not issubclass(errors.LockLost, errors.LockNotAcquired)


@pytest.mark.parametrize("name", FAMILY)
def test_errors_survive_pickling_with_all_that_they_carry(name: str) -> None:
    kind = getattr(public, name)
    votes = (Vote("node:1", Outcome.HELD, 1.5), Vote("node:2", Outcome.FAILED, detail="OOM"))
    carries = name in (
        "LockNotAcquired",
        "LockHeld",
        "AcquireTimeout",
        "QuorumUnreachable",
        "LockLost",
    )
    error = kind("words", resource="a", votes=votes, elapsed=0.25) if carries else kind("words")
    error.add_note("of the caller's")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == "words"
    assert again.__notes__ == ["of the caller's"]
    if carries:
        assert (again.resource, again.votes, again.elapsed) == ("a", votes, 0.25)


NUMBERS = (
    "TTL",
    "NODE_TIMEOUT",
    "MIN_VALIDITY",
    "MAX_TTL",
    "CONNECT_TIMEOUT",
    "CLOSE_TIMEOUT",
    "DRIFT_FACTOR",
)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_variable_of_the_environment_sets_a_number_and_refuses_other_words(name: str) -> None:
    nodes = {"AIOREDLOCK_NG_NODES": "redis://127.0.0.1:1"}
    value = {"TTL": 9.5, "MAX_TTL": 90.0}.get(name, 0.25)
    redlock = Redlock.from_env(nodes | {f"AIOREDLOCK_NG_{name}": f" {value} "})
    assert getattr(redlock._options, name.lower()) == value
    unit = "" if name == "DRIFT_FACTOR" else " of seconds"
    with pytest.raises(
        ConfigurationError, match=f"^AIOREDLOCK_NG_{name} must be a number{unit}, got 'soon'$"
    ):
        Redlock.from_env(nodes | {f"AIOREDLOCK_NG_{name}": "soon"})


@pytest.mark.parametrize(
    ("variables", "named", "words"),
    [
        ({"TTL": "nan"}, ["TTL"], "ttl must be a finite positive number"),
        ({"TTL": "90"}, ["TTL"], "ttl=90 is above max_ttl=60"),
        ({"TTL": "90", "MAX_TTL": "70"}, ["TTL", "MAX_TTL"], "ttl=90 is above max_ttl=70"),
        ({"MAX_TTL": "6e7"}, ["MAX_TTL"], "more than 86,400 seconds"),
        ({"DRIFT_FACTOR": "0.9"}, ["DRIFT_FACTOR"], "drift_factor must be a share"),
        ({"NODE_TIMEOUT": "20"}, ["NODE_TIMEOUT"], "ttl=10 is too small for node_timeout=20"),
        ({"OWNER": "a\nb"}, ["OWNER"], "owner must be one line"),
        ({"KEY_FORMAT": "lock"}, ["KEY_FORMAT"], "key_format must be"),
        ({"NODES": "redis://h:1,redis://h:1"}, ["NODES"], "nodes names the same server twice"),
        ({"NODES": "redis://h:port"}, ["NODES"], "its port is not a number"),
        ({"NODES": "http://h"}, ["NODES"], "is not a URL of a Redis server"),
    ],
    ids=str,
)
def test_an_unusable_value_of_the_environment_is_named_by_its_variable(
    variables: dict[str, str], named: list[str], words: str
) -> None:
    environ = {
        f"AIOREDLOCK_NG_{name}": value
        for name, value in ({"NODES": "redis://127.0.0.1:1"} | variables).items()
    }
    with pytest.raises(ConfigurationError) as caught:
        Redlock.from_env(environ)
    told, _, rest = str(caught.value).partition(": ")
    assert sorted(told.split(", ")) == sorted(f"AIOREDLOCK_NG_{name}" for name in named)
    assert rest.startswith(words) or words in rest


def test_an_error_about_an_argument_does_not_name_the_environment() -> None:
    environ = {"AIOREDLOCK_NG_NODES": "redis://127.0.0.1:1", "AIOREDLOCK_NG_TTL": "9"}
    with pytest.raises(ConfigurationError, match=r"^drift_factor must be"):
        Redlock.from_env(environ, drift_factor=0.9)
    with pytest.raises(ConfigurationError, match=r"^ttl must be"):
        Redlock.from_env(environ, ttl=0)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ttl", 8.0),
        ("fencing", True),
        ("recovery_guard", "strict"),
        ("owner", "web"),
        ("key_format", "lock:{name}"),
    ],
)
def test_an_argument_overrides_its_variable_whatever_the_variable_says(
    option: str, value: Any
) -> None:
    environ = {"AIOREDLOCK_NG_NODES": "redis://127.0.0.1:1", f"AIOREDLOCK_NG_{option.upper()}": ""}
    with pytest.raises(ConfigurationError, match=f"^AIOREDLOCK_NG_{option.upper()}"):
        Redlock.from_env(environ)
    redlock = Redlock.from_env(environ, **{option: value})
    assert getattr(redlock._options, option) == value


@pytest.mark.parametrize(
    "environ",
    [None, "AIOREDLOCK_NG_NODES=redis://h", ["redis://h"], {"AIOREDLOCK_NG_NODES": ["redis://h"]}],
)
def test_an_invalid_environment_is_refused(environ: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^environ must be a mapping|^AIOREDLOCK_NG_NODES must be a str"
    ):
        Redlock.from_env(environ)


def test_a_misspelt_variable_is_named_in_the_log_with_the_variable_that_was_meant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nodes = {"AIOREDLOCK_NG_NODES": "redis://127.0.0.1:1", "AIOREDLOCK": "x", "PATH": "/bin"}
    # A variable that `aioredlock-ng run` sets for its child is no misspelling.
    Redlock.from_env(
        nodes
        | dict.fromkeys(
            (
                f"AIOREDLOCK_NG_{name}"
                for name in ("NAME", "TOKEN", "FENCE", "SLOT", "REDIS_SERVER")
            ),
            "a",
        )
    )
    Redlock.from_env(nodes | {"AIOREDLOCK_NG_COLOUR": "red"})
    assert caplog.messages == []
    redlock = Redlock.from_env(nodes | {"AIOREDLOCK_NG_NODE_TIMOUT": "0.5"})
    assert redlock._options.node_timeout == 0.1
    assert caplog.messages == [
        (
            "AIOREDLOCK_NG_NODE_TIMOUT is not a setting and was not read; "
            "did you mean AIOREDLOCK_NG_NODE_TIMEOUT?"
        )
    ]


@pytest.mark.parametrize("url", ["redis://me:s3cr3t,x@10.0.0.1", "redis://me:12,s3cr3t,x@10.0.0.1"])
def test_a_comma_in_a_password_of_the_environment_shows_no_part_of_it(url: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"AIOREDLOCK_NG_NODES: entry 3 of \d .* as %2C"
    ) as caught:
        Redlock.from_env({"AIOREDLOCK_NG_NODES": f"redis://10.0.0.2,{url}"})
    assert "s3cr3t" not in str(caught.value)
    quoted = url.replace(",", "%2C")
    assert len(Redlock.from_env({"AIOREDLOCK_NG_NODES": f"redis://10.0.0.2,{quoted}"})._given) == 2


def test_the_environment_names_fencing_and_guard_by_words() -> None:
    nodes = {"AIOREDLOCK_NG_NODES": "redis://127.0.0.1:1"}
    words = {"AIOREDLOCK_NG_FENCING": "False", "AIOREDLOCK_NG_RECOVERY_GUARD": "none"}
    redlock = Redlock.from_env(nodes | words)
    assert (redlock._options.fencing, redlock._options.recovery_guard) == (False, None)
    assert Redlock.from_env(nodes | words, fencing=True)._options.fencing is True
    with pytest.raises(
        ConfigurationError, match="AIOREDLOCK_NG_RECOVERY_GUARD must be one of auto, strict, none"
    ):
        Redlock.from_env(nodes | {"AIOREDLOCK_NG_RECOVERY_GUARD": "yes"})
    with pytest.raises(ConfigurationError, match="recovery_guard must be"):
        Redlock(["redis://127.0.0.1:1"], recovery_guard="maybe")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="fencing must be"):
        Redlock(["redis://127.0.0.1:1"], fencing="yes")  # type: ignore[arg-type]
