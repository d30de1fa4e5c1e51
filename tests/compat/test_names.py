"""Every public name of the real aioredlock 0.7.3 is here, in the same place, with the same
arguments.
"""

from __future__ import annotations

import importlib
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

ASK_MODULES = """
import importlib, json, pkgutil, aioredlock
told = {}
for found in pkgutil.iter_modules(aioredlock.__path__):
    module = importlib.import_module("aioredlock." + found.name)
    told[found.name] = [
        name for name, thing in vars(module).items()
        if getattr(thing, "__module__", "") == module.__name__
    ]
print(json.dumps(told))
"""

# Modules of aioredlock that this package does not have: its connections through aioredis, and its
# own log.
GONE_MODULES = {"redis", "utility"}
# Methods of aioredlock that only give access to aioredis.
GONE = {"Sentinel": {"get_master", "get_sentinel"}}
# Parameters whose default differs. In aioredlock, this one is a list with the same node.
OTHER_DEFAULTS = {"redis_connections"}


def asked(code: str) -> dict[str, Any]:
    command = [str(python_of("aioredlock")), "-W", "ignore", "-c", code]
    told = subprocess.run(
        command, env=variables(), capture_output=True, text=True, check=True, timeout=60
    )
    answer: dict[str, Any] = json.loads(told.stdout)
    return answer


@pytest.fixture(scope="module")
def real() -> dict[str, Any]:
    return asked(ASK)


def test_the_compat_module_has_every_public_name(real: dict[str, Any]) -> None:
    assert set(real) <= set(aioredlock.__all__)


def test_every_module_that_programs_import_from_is_here_with_its_names() -> None:
    modules = asked(ASK_MODULES)
    assert set(modules) - GONE_MODULES == {"algorithm", "errors", "lock", "sentinel"}
    for module in set(modules) - GONE_MODULES:
        ours = importlib.import_module(f"aioredlock_ng.compat.aioredlock.{module}")
        assert set(modules[module]) <= set(ours.__all__)


def test_every_method_takes_the_same_arguments_by_the_same_names(real: dict[str, Any]) -> None:
    for name, told in real.items():
        ours = getattr(aioredlock, name)
        for method, parameters in told["calls"].items():
            if method in GONE.get(name, ()) or issubclass(ours, Exception):
                continue
            mine = [
                [p.name, repr(p.default)]
                for p in inspect.signature(getattr(ours, method)).parameters.values()
            ]
            expected = [one for one in parameters if one[0] not in OTHER_DEFAULTS]
            found = [one for one in mine if one[0] not in OTHER_DEFAULTS]
            assert found[: len(expected)] == expected, f"{name}.{method}"


def test_errors_have_the_same_base_classes(real: dict[str, Any]) -> None:
    for name, told in real.items():
        if name.endswith("Error"):
            ours = [base.__name__ for base in getattr(aioredlock, name).__mro__]
            assert ours == told["bases"]
