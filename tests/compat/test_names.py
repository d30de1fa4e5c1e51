"""What the real aioredlock 0.7.3 has under public names, ours has under the same, with the same arguments."""

from __future__ import annotations

import inspect
import json
import subprocess
from typing import Any

import pytest

from aioredlock_ng.compat import aioredlock
from tests.compat.environments import python_of, variables

# It may make an environment, from PyPI.
pytestmark = [pytest.mark.once, pytest.mark.timeout(300)]

ASK = """
import inspect, json, aioredlock
told = {}
for name in aioredlock.__all__:
    thing = getattr(aioredlock, name)
    told[name] = {"bases": [base.__name__ for base in thing.__mro__], "calls": {}, "fields": []}
    for attribute, value in inspect.getmembers(thing):
        if inspect.isfunction(value) and (attribute == "__init__" or not attribute.startswith("_")):
            parameters = inspect.signature(value).parameters.values()
            told[name]["calls"][attribute] = [[p.name, repr(p.default)] for p in parameters]
print(json.dumps(told))
"""

# What leads to aioredis, and nowhere else.
GONE = {"Sentinel": {"get_master", "get_sentinel"}}
# There a list, and the same node.
OTHER_DEFAULTS = {"redis_connections"}


@pytest.fixture(scope="module")
def real() -> dict[str, Any]:
    command = [str(python_of("aioredlock")), "-W", "ignore", "-c", ASK]
    told = subprocess.run(command, env=variables(), capture_output=True, text=True, check=True, timeout=60)
    answer: dict[str, Any] = json.loads(told.stdout)
    return answer


def test_every_public_name_is_here(real: dict[str, Any]) -> None:
    assert set(real) <= set(aioredlock.__all__)


def test_every_method_takes_the_same_arguments_by_the_same_names(real: dict[str, Any]) -> None:
    for name, told in real.items():
        ours = getattr(aioredlock, name)
        for method, parameters in told["calls"].items():
            if method in GONE.get(name, ()) or issubclass(ours, Exception):
                continue
            mine = [[p.name, repr(p.default)] for p in inspect.signature(getattr(ours, method)).parameters.values()]
            expected = [one for one in parameters if one[0] not in OTHER_DEFAULTS]
            found = [one for one in mine if one[0] not in OTHER_DEFAULTS]
            assert found[: len(expected)] == expected, f"{name}.{method}"


def test_errors_are_of_the_same_kinds(real: dict[str, Any]) -> None:
    for name, told in real.items():
        if name.endswith("Error"):
            ours = [base.__name__ for base in getattr(aioredlock, name).__mro__]
            assert ours == told["bases"]
