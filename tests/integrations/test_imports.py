"""Nothing of a framework is imported before its integration is, and nothing of redis-py before the
first manager.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import tiers

FRAMEWORKS = {"aiohttp", "celery", "django", "fastapi", "flask", "pydantic", "rq", "starlette"}


@pytest.mark.parametrize(
    ("module", "brings"),
    tiers.ends(
        [
            # Whatever the package imports by itself, this imports too.
            pytest.param("aioredlock_ng.integrations", set()),
            pytest.param("aioredlock_ng.integrations.aiohttp", {"aiohttp"}),
            # Celery imports Django where it is installed.
            pytest.param("aioredlock_ng.integrations.celery", {"celery", "django"}),
            pytest.param("aioredlock_ng.integrations.django", {"django"}),
            pytest.param("aioredlock_ng.integrations.flask", {"flask"}),
            pytest.param("aioredlock_ng.integrations.rq", {"rq"}),
            pytest.param(
                "aioredlock_ng.integrations.fastapi", {"fastapi", "pydantic", "starlette"}
            ),
        ]
    ),
)
def test_an_integration_imports_its_own_framework_only(module: str, brings: set[str]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert {name.partition(".")[0] for name in told.split()} & FRAMEWORKS == brings


def test_redis_py_is_imported_with_the_first_manager_and_not_before() -> None:
    code = """
import sys, aioredlock_ng
print("redis" in sys.modules)
aioredlock_ng.Redlock(["redis://127.0.0.1"])
print("redis" in sys.modules)
"""
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert told.split() == ["False", "True"]


@pytest.mark.parametrize(
    "framework", tiers.ends(["fastapi", "aiohttp", "celery", "django", "flask", "rq"])
)
def test_without_the_framework_the_error_names_the_extra(framework: str) -> None:
    code = (
        f"import sys; sys.modules[{framework!r}] = None; "
        f"import aioredlock_ng.integrations.{framework}"
    )
    failed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (
        f"aioredlock_ng.integrations.{framework} needs {framework}: "
        f'install aioredlock-ng with its extra "{framework}"'
    ) in failed.stderr
