"""Nothing of a framework is imported before its integration is."""

from __future__ import annotations

import subprocess
import sys

import pytest

FRAMEWORKS = {"aiohttp", "celery", "django", "fastapi", "flask", "pydantic", "rq", "starlette"}


@pytest.mark.parametrize(
    ("module", "brings"),
    [
        ("aioredlock_ng", set()),
        ("aioredlock_ng.integrations", set()),
        ("aioredlock_ng.integrations.fastapi", {"fastapi", "pydantic", "starlette"}),
        ("aioredlock_ng.integrations.aiohttp", {"aiohttp"}),
        # Celery imports Django where it is installed.
        ("aioredlock_ng.integrations.celery", {"celery", "django"}),
        ("aioredlock_ng.integrations.django", {"django"}),
        ("aioredlock_ng.integrations.flask", {"flask"}),
        ("aioredlock_ng.integrations.rq", {"rq"}),
    ],
)
def test_an_integration_imports_its_own_framework_only(module: str, brings: set[str]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {name.partition(".")[0] for name in told.split()} & FRAMEWORKS == brings


@pytest.mark.parametrize("framework", ["fastapi", "aiohttp", "celery", "django", "flask", "rq"])
def test_without_the_framework_the_error_names_the_extra(framework: str) -> None:
    code = f"import sys; sys.modules[{framework!r}] = None; import aioredlock_ng.integrations.{framework}"
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (
        f'aioredlock_ng.integrations.{framework} needs {framework}: install aioredlock-ng with its extra "{framework}"'
        in failed.stderr
    )
