"""Run the suite on other Pythons, the oldest redis-py, other event loops and the built wheel.

`make test-all` runs these sessions between `make test` and the rest of the suite. They run on local
servers, so they do not need Docker. Only the session "image" needs Docker, and it runs on demand
only. Cases that are marked `full` are left out here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import nox

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
FREE_THREADED = "3.14t"
HERE = f"{sys.version_info.major}.{sys.version_info.minor}" + "t" * bool(
    sysconfig.get_config_var("Py_GIL_DISABLED")
)

# A session can change connections and loops. The code above them behaves the same everywhere.
CONTRACT, BASIC = "tests/contract", "tests/integration/test_basic.py"
ON_THE_WIRE = (CONTRACT, BASIC, "tests/integration/test_cancellation.py")
FAULTS = ("tests/integration/test_cut_connections.py", "tests/integration/test_node_kinds.py")
ON_THE_IMAGE = (BASIC, *FAULTS, "tests/fencing/test_redis.py", "tests/containers")
INTERNALS = "tests/integration/test_redis_py_internals.py"
BETWEEN = (
    "tests/engine",
    "tests/contract",
    "tests/integration",
    "tests/fencing",
    "tests/sync",
    "tests/threaded",
)

# On the virtual loop there are no connections, and a session cannot choose the loop.
NO_WIRE = "virtual_time"

nox.needs_version = ">=2025.5"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True
# Without this setting uv downloads missing interpreters.
os.environ["UV_PYTHON_DOWNLOADS"] = "never"


def _interpreters() -> dict[str, str]:
    """Find a working CPython of each version, on `PATH` or among those of pyenv.

    The shims of pyenv may refuse to run, so its interpreters are tried directly.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {HERE: getattr(sys, "_base_executable", None) or sys.executable}
    for version in (*VERSIONS, FREE_THREADED):
        installed = pyenv.glob(f"{version.rstrip('t')}.*/bin/python")
        candidates = [shutil.which(f"python{version}"), *sorted(map(str, installed))]
        for candidate in filter(None, candidates):
            if version not in found and _runs_as(candidate, version):
                found[version] = candidate
    return {version: found[version] for version in (*VERSIONS, FREE_THREADED) if version in found}


def _runs_as(program: str, version: str) -> bool:
    # A Python without the global lock has a "t" behind its version.
    version_there = (
        "'%d.%d' % sys.version_info[:2] + 't' * bool(sysconfig.get_config_var('Py_GIL_DISABLED'))"
    )
    code = f"import sys, sysconfig, venv; print({version_there}, sys.implementation.name)"
    answer = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False)
    return answer.stdout.split() == [version, "cpython"]


_FOUND = _interpreters()
# Other sessions run on a Python with the global lock, unless there is none.
PYTHONS = {
    version: python for version, python in _FOUND.items() if version != FREE_THREADED
} or _FOUND
NEWEST = list(PYTHONS.values())[-1]
OURS = PYTHONS.get(HERE, NEWEST)
EAGER = next((python for version, python in reversed(PYTHONS.items()) if version != "3.11"), None)


def _install(session: nox.Session, *more: str) -> None:
    session.install("--quiet", "--editable", ".[demo]", "--group", "test", *more)


def _suite(
    session: nox.Session, *options: str, python: tuple[str, ...] = (), without: str = ""
) -> None:
    marked = " and ".join(
        f"not {marker}" for marker in ("containers", "full", "once", without) if marker
    )
    chosen = ("--numprocesses=auto", "--dist=worksteal", "--nodes=local", "-m", marked)
    # The suite spreads its cases over the server versions. A session varies something else, so one
    # version is enough.
    one = {"AIOREDLOCK_NG_TEST_ONE_SERVER": "1"}
    session.run("python", *python, "-m", "pytest", *chosen, *options, *session.posargs, env=one)


def _on(python: str, version: str, *paths: str, without: str = "") -> None:
    @nox.session(name=f"python{version}", python=python)
    def _(session: nox.Session) -> None:
        _install(session)
        _suite(session, *paths, without=without)


# The versions between the oldest and the newest run only the tests of connections, loops and
# threads. Other code would fail on the oldest or on the newest version too.
_ENDS = (next(iter(PYTHONS)), next(reversed(PYTHONS)))
for _version, _python in PYTHONS.items():
    if _python != OURS and _version in _ENDS:
        _on(_python, _version)
    elif _python != OURS:
        _on(_python, _version, *BETWEEN, without="slow")


if FREE_THREADED in _FOUND and HERE != FREE_THREADED:
    _on(_FOUND[FREE_THREADED], FREE_THREADED)


@nox.session(name="image", python=OURS, default=False)
def image(session: nox.Session) -> None:
    """Run on containers of the image AIOREDLOCK_NG_TEST_IMAGE, redis:7 by default.

    The session fails if the image cannot be pulled.
    """
    _install(session)
    session.run(
        *(
            "python",
            "-m",
            "pytest",
            "--nodes=docker",
            "-m",
            f"not {NO_WIRE}",
            "--numprocesses=auto",
            "--dist=worksteal",
        ),
        *(CONTRACT, *ON_THE_IMAGE, *session.posargs),
        env={"AIOREDLOCK_NG_REQUIRE_DOCKER": "1", "AIOREDLOCK_NG_REQUIRE_IMAGE": "1"},
    )


@nox.session(name="redis-oldest", python=OURS)
def redis_oldest(session: nox.Session) -> None:
    """Run with the oldest redis-py and hiredis that the package supports.

    Every other session has the newest versions.
    """
    _install(session, "redis[hiredis]==5.3.*", "hiredis==3.2.*")
    _suite(
        session,
        *ON_THE_WIRE,
        *FAULTS,
        INTERNALS,
        "tests/integration/test_bad_servers.py",
        "tests/fencing/test_redis.py",
        "tests/doctor",
        without=NO_WIRE,
    )


@nox.session(name="uvloop", python=NEWEST)
def uvloop(session: nox.Session) -> None:
    """Run on uvloop, which has transports of its own."""
    _install(session, "uvloop")
    _suite(
        session,
        "--loop=uvloop",
        *ON_THE_WIRE,
        *FAULTS,
        INTERNALS,
        "tests/examples",
        without=NO_WIRE,
    )


@nox.session(name="debug", python=OURS)
def debug(session: nox.Session) -> None:
    """Run in asyncio's debug mode and Python's development mode."""
    _install(session)
    # The processes that tests start would inherit PYTHONDEVMODE. They must run as users run them.
    _suite(session, "--loop=debug", *ON_THE_WIRE, *FAULTS, python=("-X", "dev"))


@nox.session(name="eager", python=EAGER or NEWEST)
def eager(session: nox.Session) -> None:
    """Run with eager tasks, which start at once. Python has them since 3.12."""
    if not EAGER:
        session.skip("no CPython 3.12 or newer on this machine")
    _install(session)
    _suite(
        session,
        "--loop=eager",
        *ON_THE_WIRE,
        "tests/engine",
        "tests/integration/test_contention.py",
    )


@nox.session(name="wheel", python=OURS)
def wheel(session: nox.Session) -> None:
    """Run on the built wheel in an environment of its own, without the checkout's package.

    AIOREDLOCK_NG_TEST_WHEELS names the folder of a wheel that was built before.
    """
    build = Path(session.create_tmp()).resolve()
    shutil.rmtree(build)
    if given := os.environ.get("AIOREDLOCK_NG_TEST_WHEELS"):
        build.mkdir()
        (built,) = Path(given).resolve().glob("*.whl")
    else:
        session.run_install(
            "uv", "build", "--quiet", "--wheel", "--out-dir", str(build), external=True
        )
        (built,) = build.glob("*.whl")
    session.install("--quiet", "--group", "test")
    session.install(
        "--quiet", "--reinstall-package", "aioredlock-ng", f"aioredlock-ng[demo] @ {built.as_uri()}"
    )
    for name in ("tests", "examples", "README.md", "pyproject.toml"):
        if Path(name).exists():
            copy = shutil.copytree if Path(name).is_dir() else shutil.copy
            copy(name, build / name)
    session.chdir(build)
    where = session.run("python", "-c", "import aioredlock_ng as a; print(a.__file__)", silent=True)
    if "site-packages" not in str(where):
        session.error(f"the wheel is not what is imported: {where}")
    # A wheel can lack a file, contain a changed script, or fail to export a name.
    installed = (
        "tests/structure/test_exports.py",
        "tests/structure/test_scripts.py",
        "tests/structure/test_readme.py",
    )
    _suite(
        session, CONTRACT, BASIC, *installed, "tests/examples", "tests/testing_kit", without=NO_WIRE
    )
