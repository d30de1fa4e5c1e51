"""The pytest plugin in sessions of its own: with pytest-asyncio in both modes, with anyio's plugin, and with neither."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., pytest.RunResult]

ROOT = Path(__file__).parents[2]

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.once

TESTS = """
import asyncio
import pytest
import pytest_asyncio
from aioredlock_ng import LockLost
from aioredlock_ng.testing import LocalNodes, MemoryNodes, lose_lock

FIXTURE
async def lease(redlock):
    lease = await redlock.lock("fixture").acquire()
    yield lease
    assert await lease.release()

MARK
async def test_an_open_manager_on_the_loop_of_the_test(redlock, redlock_nodes, lease):
    assert isinstance(redlock_nodes, MemoryNodes) and len(redlock_nodes) == 3
    async with redlock.lock("a", blocking_timeout=0):
        assert await redlock.locked("a")
        redlock_nodes.pause(0)
    async with redlock_nodes.redlock() as another:
        assert await another.locked("fixture")

MARK
@pytest.mark.parametrize("time", range(2))
async def test_every_test_has_nodes_of_its_own(redlock, time):
    assert not await redlock.locked("left")
    (await redlock.lock("left").acquire()).abandon()

MARK
@pytest.mark.redlock(nodes="local", count=1, ttl=3.0)
async def test_real_servers_and_options_where_marked(redlock, redlock_nodes):
    assert isinstance(redlock_nodes, LocalNodes) and len(redlock_nodes) == 1
    async with redlock.lock("a") as lease:
        assert lease.ttl == 3.0

MARK
async def test_lost_by_name(redlock):
    with pytest.raises(LockLost):
        async with redlock.lock("a"):
            await lose_lock(redlock, "a")
"""

PYTEST_ASYNCIO = ("-o", "asyncio_default_fixture_loop_scope=function")


def source(mark: str, fixture: str = "@pytest.fixture") -> str:
    return TESTS.replace("MARK", mark).replace("FIXTURE", fixture)


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Run pytest as users do, warnings being errors; the plugin is asked for by its name, be it installed or not."""

    def run(*options: str) -> pytest.RunResult:
        plugins = ("-p", "pytest_aioredlock_ng", "-p", "no:cacheprovider", "-p", "no:valkey")
        return pytester.runpytest_subprocess(*plugins, "-W", "error", "--strict-markers", "-q", *options, timeout=50)

    return run


@pytest.mark.parametrize(
    ("mode", "mark", "fixture"),
    [
        ("auto", "", "@pytest.fixture"),
        ("strict", "@pytest.mark.asyncio", "@pytest_asyncio.fixture"),
        ("auto", "@pytest.mark.asyncio(loop_scope='module')", "@pytest_asyncio.fixture(loop_scope='module')"),
    ],
    ids=["auto", "strict", "one loop per module"],
)
def test_pytest_asyncio_in_each_mode(pytester: pytest.Pytester, run: Run, mode: str, mark: str, fixture: str) -> None:
    pytester.makepyfile(source(mark, fixture))
    run("--asyncio-mode", mode, *PYTEST_ASYNCIO).assert_outcomes(passed=5)


def test_loops_of_a_session_by_the_settings(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(source(""))
    session = ("-o", "asyncio_default_fixture_loop_scope=session", "-o", "asyncio_default_test_loop_scope=session")
    run("--asyncio-mode", "auto", *session).assert_outcomes(passed=5)


@pytest.mark.parametrize("beside", [PYTEST_ASYNCIO, ("-p", "no:asyncio")], ids=["beside pytest-asyncio", "alone"])
def test_the_plugin_of_anyio(pytester: pytest.Pytester, run: Run, beside: tuple[str, ...]) -> None:
    pytester.makeconftest("import pytest\n@pytest.fixture\ndef anyio_backend(): return 'asyncio'")
    pytester.makepyfile(source("@pytest.mark.anyio"))
    run(*beside).assert_outcomes(passed=5)


def test_tests_for_anyio_and_for_pytest_asyncio_in_one_session(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_one=source("@pytest.mark.anyio"),
        test_two=source("@pytest.mark.asyncio", "@pytest_asyncio.fixture"),
    )
    run(*PYTEST_ASYNCIO).assert_outcomes(passed=10)


WRONG = """
import pytest

@pytest.fixture
def anyio_backend():
    return "trio", {}

def test_another_loop(anyio_backend, redlock):
    pass

@pytest.mark.redlock(nodes="docker")
def test_other_nodes(redlock_nodes):
    pass

@pytest.mark.redlock("local")
def test_no_name(redlock_nodes):
    pass
"""


@pytest.mark.parametrize(
    ("options", "test", "told"),
    [
        pytest.param(
            PYTEST_ASYNCIO,
            WRONG,
            ["needs asyncio, not trio", "nodes='docker'; it must be 'memory' or 'local'", "takes named arguments only"],
            id="words",
        ),
        pytest.param(
            ("--asyncio-mode=auto", *PYTEST_ASYNCIO),
            "import pytest\n@pytest.mark.anyio\nasync def test_both(redlock): pass",
            ["set asyncio_mode = strict"],
            id="anyio in auto mode",
        ),
        pytest.param(
            ("-p", "no:asyncio"),
            "def test_neither(redlock): pass",
            ["install pytest-asyncio, or mark the test with anyio"],
            id="no loop",
        ),
    ],
)
def test_what_cannot_be_says_what_to_do(
    pytester: pytest.Pytester, run: Run, options: tuple[str, ...], test: str, told: list[str]
) -> None:
    pytester.makepyfile(test)
    result = run(*options)
    result.assert_outcomes(errors=len(told))
    result.stdout.fnmatch_lines([f"*{words}*" for words in told])


def test_the_nodes_are_chosen_by_marker_then_command_line_then_settings(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.redlock(count=1)
        class TestNodes:
            def test_unmarked(self, redlock_nodes):
                assert len(redlock_nodes) == 1
                print("unmarked:", type(redlock_nodes).__name__)

            @pytest.mark.redlock(nodes="memory")
            def test_marked(self, redlock_nodes):
                assert len(redlock_nodes) == 1
                print("marked:", type(redlock_nodes).__name__)
    """)
    for options, unmarked in (
        ((), "MemoryNodes"),
        (("-o", "redlock_nodes=local"), "LocalNodes"),
        (("-o", "redlock_nodes=local", "--redlock-nodes=memory"), "MemoryNodes"),
    ):
        result = run("-s", *PYTEST_ASYNCIO, *options)
        result.assert_outcomes(passed=2)
        result.stdout.fnmatch_lines([f"*unmarked: {unmarked}", "*marked: MemoryNodes"])


def test_a_setting_that_cannot_be_is_told_at_once(run: Run) -> None:
    result = run(*PYTEST_ASYNCIO, "-o", "redlock_nodes=docker")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*redlock_nodes must be memory or local, not 'docker'"])


def test_own_nodes_are_what_the_manager_is_made_of(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("""
        import pytest
        from aioredlock_ng.testing import MemoryNodes

        @pytest.fixture(scope="session")
        def redlock_nodes():
            return MemoryNodes(5, latency=0.001)

        async def test_five(redlock):
            async with redlock.lock("a") as lease:
                assert lease.nodes[1] == 5
    """)
    run("--asyncio-mode=auto", *PYTEST_ASYNCIO).assert_outcomes(passed=1)


def test_a_session_that_asks_for_no_fixture_imports_nothing_of_the_library(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("""
        import sys

        def test_nothing(request):
            assert request.config.pluginmanager.hasplugin("pytest_aioredlock_ng")
            loaded = {name for name in sys.modules if name.split(".")[0] in ("aioredlock_ng", "redis", "hiredis")}
            assert loaded == set()
    """)
    run("-p", "no:cov", *PYTEST_ASYNCIO).assert_outcomes(passed=1)


def test_the_entry_point_is_the_module_by_its_own_name() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["entry-points"]["pytest11"] == {"pytest_aioredlock_ng": "pytest_aioredlock_ng"}
    assert (ROOT / "pytest_aioredlock_ng.py").is_file()
