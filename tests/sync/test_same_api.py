"""The classes for threads have the public names and arguments of the asyncio classes, but for a
table of differences.
"""

from __future__ import annotations

import inspect
import re
from inspect import Parameter
from typing import Any
from unittest.mock import ANY

import pytest

import aioredlock_ng
from aioredlock_ng import election, guarded, rwlock, sync

INTERNAL = re.compile(r"^\s*Internal: ", re.MULTILINE)

OPTIONS = {
    aioredlock_ng: {
        "LockOptions": guarded.LockOptions,
        "RWLockOptions": rwlock.RWLockOptions,
        "ElectionOptions": election.ElectionOptions,
        "GuardOptions": guarded.GuardOptions,
    },
    sync: {
        "LockOptions": sync.LockOptions,
        "RWLockOptions": sync.RWLockOptions,
        "ElectionOptions": sync.ElectionOptions,
        "GuardOptions": sync.GuardOptions,
        "RedlockOptions": sync.RedlockOptions,
    },
}

CLASSES = {
    "Redlock": (aioredlock_ng.Redlock, sync.Redlock),
    "Lock": (aioredlock_ng.Lock, sync.Lock),
    "Lease": (aioredlock_ng.Lease, sync.Lease),
    "Semaphore": (aioredlock_ng.Semaphore, sync.Semaphore),
    "RWLock": (aioredlock_ng.RWLock, sync.RWLock),
    "ReadLock": (rwlock.ReadLock, sync.ReadLock),
    "WriteLock": (rwlock.WriteLock, sync.WriteLock),
    "Election": (aioredlock_ng.Election, sync.Election),
}

DIFFERENCES = {
    # The engine always has a thread of its own, and there is no event loop that could stand still.
    "Redlock()": {"thread", "stall_limit"},
    "Redlock.from_env": {"thread", "stall_limit"},
    "Redlock.aclose": {"missing"},
    "Redlock.close": {"added"},
    # A decorated plain function gets its lease from here.
    "Redlock.current_lease": {"added"},
    # Nothing cancels a thread, so a function is called.
    "Redlock.election": {"on_lost"},
    # A thread has no `asyncio.timeout`.
    "Lease.wait_lost": {"timeout"},
}
"""The intended differences: the arguments that only one side has, or a name that is missing or
added here.
"""


def members(kind: type) -> dict[str, Any]:
    """Return the public members of a class, except the internal ones."""
    found = {
        name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")
    }
    return {
        name: member for name, member in found.items() if not INTERNAL.search(member.__doc__ or "")
    }


def arguments(function: Any, side: Any) -> dict[str, tuple[object, object]]:
    """Return the kinds and defaults of the parameters.

    A `TypedDict` of options has keyword arguments without defaults.
    """
    found: dict[str, tuple[object, object]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not Parameter.VAR_KEYWORD:
            found[name] = (parameter.kind, parameter.default)
            continue
        unpacked = re.fullmatch(r"Unpack\[(\w+)\]", parameter.annotation)
        if unpacked:
            options = OPTIONS[side][unpacked[1]].__annotations__
        else:
            options = {
                option: ""
                for option, kind in arguments(side.Redlock, side).items()
                if kind[0] is Parameter.KEYWORD_ONLY
            }
        found |= dict.fromkeys(options, (Parameter.KEYWORD_ONLY, ANY))
    return found


def unlike(first: Any, second: Any) -> set[str]:
    """Return the arguments in which a function for threads differs from that for coroutines."""
    theirs, ours = arguments(first, aioredlock_ng), arguments(second, sync)
    return {name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name)}


def differences(name: str) -> dict[str, set[str]]:
    theirs, ours = CLASSES[name]
    first, second = members(theirs), members(ours)
    found = {f"{name}.{member}": {"missing"} for member in first.keys() - second.keys()}
    found |= {f"{name}.{member}": {"added"} for member in second.keys() - first.keys()}
    for member in first.keys() & second.keys():
        if isinstance(first[member], property) or isinstance(second[member], property):
            found[f"{name}.{member}"] = (
                set() if type(first[member]) is type(second[member]) else {"property"}
            )
        else:
            found[f"{name}.{member}"] = unlike(getattr(theirs, member), getattr(ours, member))
    if name == "Redlock":
        found["Redlock()"] = unlike(theirs, ours)
    return {member: difference for member, difference in found.items() if difference}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_for_threads_has_the_names_and_arguments_of_the_asyncio_class(name: str) -> None:
    intended = {
        member: what for member, what in DIFFERENCES.items() if re.match(rf"{name}\W", member)
    }
    assert differences(name) == intended


def test_each_class_for_threads_is_compared() -> None:
    classes = {name for name in sync.__all__ if isinstance(getattr(sync, name), type)}
    options = {name for name in classes if name.endswith("Options")}
    assert classes - options == set(CLASSES)
    assert options == set(OPTIONS[sync])


def test_a_diagnosis_from_a_thread_takes_the_arguments_of_the_asyncio_one(
    redlock: sync.Redlock,
) -> None:
    with pytest.raises(aioredlock_ng.ConfigurationError, match="watch"):
        redlock.diagnose(watch=-1.0)
    with pytest.raises(aioredlock_ng.ConfigurationError, match="65"):
        redlock.diagnose(probe="x" * 70_000)
    assert len(redlock.diagnose(watch=0.05, probe="mine").nodes) == 3


def test_the_names_of_a_lock_and_the_limit_of_a_semaphore_cannot_be_replaced(
    redlock: sync.Redlock,
) -> None:
    semaphore = redlock.semaphore("gpu", 4)
    assert (semaphore.resources, semaphore.limit) == (("gpu",), 4)
    with pytest.raises(AttributeError):
        semaphore.resources = ("other",)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        semaphore.limit = 5  # type: ignore[misc]
