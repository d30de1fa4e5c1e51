"""The pytest plugin in sessions of its own: with pytest-asyncio in both modes, with anyio's plugin,
and with neither.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.coverage import untraced

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
async def test_a_manager_is_open_on_the_loop_of_the_test(redlock, redlock_nodes, lease):
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
async def test_a_marked_test_gets_real_servers_and_options(redlock, redlock_nodes):
    assert isinstance(redlock_nodes, LocalNodes) and len(redlock_nodes) == 1
    async with redlock.lock("a") as lease:
        assert lease.ttl == 3.0

MARK
async def test_a_lock_is_lost_by_its_name(redlock):
    with pytest.raises(LockLost):
        async with redlock.lock("a"):
            await lose_lock(redlock, "a")
"""

OWN_NODES = """
import pytest
from aioredlock_ng.testing import MemoryNodes

@pytest.fixture(scope="session")
def redlock_nodes():
    return MemoryNodes(5, latency=0.001)

async def test_a_manager_uses_the_nodes_of_an_overridden_fixture(redlock):
    async with redlock.lock("a") as lease:
        assert lease.nodes[1] == 5
"""

ANYIO = ("-p", "anyio")
PYTEST_ASYNCIO = ("-p", "asyncio", "-o", "asyncio_default_fixture_loop_scope=function")


def source(mark: str, fixture: str = "@pytest.fixture") -> str:
    return TESTS.replace("MARK", mark).replace("FIXTURE", fixture)


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run pytest with the named plugins and ours, warnings being errors."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name in os.environ.keys() - untraced().keys():
        monkeypatch.delenv(name)

    def run(*options: str) -> pytest.RunResult:
        ours = (
            "-p",
            "pytest_aioredlock_ng",
            "-p",
            "no:cacheprovider",
            "-W",
            "error",
            "--strict-markers",
            "-q",
        )
        return pytester.runpytest_subprocess(*ours, *options, timeout=200)

    return run


def test_the_fixtures_work_with_pytest_asyncio_in_auto_mode(
    pytester: pytest.Pytester, run: Run
) -> None:
    module = "(loop_scope='module')"
    pytester.makepyfile(
        test_function=source(""),
        test_module=source(f"@pytest.mark.asyncio{module}", f"@pytest_asyncio.fixture{module}"),
        test_own=OWN_NODES,
    )
    run(*PYTEST_ASYNCIO, "--asyncio-mode=auto").assert_outcomes(passed=11)


def test_a_manager_is_on_the_loop_of_a_test_that_uses_the_former_name_of_loop_scope(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.asyncio(scope="module")
        async def test_former_name(redlock):
            async with redlock.lock("a", blocking_timeout=0):
                pass
        """)
    former = ("-W", 'ignore:The "scope" keyword::')
    run(*PYTEST_ASYNCIO, *former).assert_outcomes(passed=1)


def test_the_fixtures_work_on_one_loop_for_all_tests(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(source(""))
    session = (
        "-o",
        "asyncio_default_fixture_loop_scope=session",
        "-o",
        "asyncio_default_test_loop_scope=session",
    )
    run(*PYTEST_ASYNCIO, "--asyncio-mode=auto", *session).assert_outcomes(passed=5)


def test_the_fixtures_work_with_pytest_asyncio_in_strict_mode_beside_anyio(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makeconftest("import pytest\n@pytest.fixture\ndef anyio_backend(): return 'asyncio'")
    pytester.makepyfile(
        test_anyio=source("@pytest.mark.anyio"),
        test_asyncio=source("@pytest.mark.asyncio", "@pytest_asyncio.fixture"),
    )
    run(*PYTEST_ASYNCIO, *ANYIO).assert_outcomes(passed=10)


def test_the_fixtures_work_with_the_plugin_of_anyio_alone(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(source("@pytest.mark.anyio"))
    run(*ANYIO).assert_outcomes(passed=5)


SLOW_NODE = """
import pytest
import aioredlock_ng.sync
from aioredlock_ng.events import QuorumLost
from aioredlock_ng.testing import LocalNodes

with_a_slow_node = []

class SlowlyOpened(aioredlock_ng.sync.Redlock):
    # The slow node is connected before the fixture looks, but no node grants locks yet.

    def __enter__(self):
        manager = super().__enter__()
        while any(node.state == "connecting" for node in manager.nodes):
            pass
        return manager

def resume(event):
    # The manager has given up waiting for the paused node.
    if isinstance(event, QuorumLost):
        with_a_slow_node[-1].resume(2)

@pytest.fixture
def redlock_nodes():
    with LocalNodes(3) as nodes:
        with_a_slow_node.append(nodes)
        nodes.pause(2)
        yield nodes

pytestmark = pytest.mark.redlock(sinks=[resume])

@pytest.mark.asyncio
async def test_asyncio(redlock):
    assert await redlock.lock("a").try_acquire()

@pytest.mark.anyio
async def test_anyio(anyio_backend, redlock):
    assert await redlock.lock("a").try_acquire()

def test_threads(sync_redlock):
    assert sync_redlock.lock("a").try_acquire()

@pytest.fixture
def slowly_opened(monkeypatch):
    monkeypatch.setattr(aioredlock_ng.sync, "Redlock", SlowlyOpened)

def test_a_slow_thread(slowly_opened, sync_redlock):
    assert sync_redlock.lock("a").try_acquire()
"""


def test_a_manager_of_a_fixture_grants_at_once_although_a_node_was_slow(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makeconftest("import pytest\n@pytest.fixture\ndef anyio_backend(): return 'asyncio'")
    pytester.makepyfile(SLOW_NODE)
    run(*PYTEST_ASYNCIO, *ANYIO).assert_outcomes(passed=4)


WRONG = """
import pytest

@pytest.fixture
def anyio_backend():
    return "trio", {}

def test_a_manager_refuses_another_loop(anyio_backend, redlock):
    pass

@pytest.mark.redlock(nodes="docker")
def test_a_marker_refuses_an_unknown_kind_of_nodes(redlock_nodes):
    pass

@pytest.mark.redlock("local")
def test_a_marker_refuses_an_argument_without_a_name(redlock_nodes):
    pass
"""


@pytest.mark.parametrize(
    ("options", "test", "told"),
    [
        pytest.param(
            PYTEST_ASYNCIO,
            WRONG,
            [
                "needs asyncio, not trio",
                "nodes='docker'; it must be 'memory' or 'local'",
                "takes named arguments only",
            ],
            id="words",
        ),
        pytest.param(
            (*PYTEST_ASYNCIO, *ANYIO, "--asyncio-mode=auto"),
            "import pytest\n@pytest.mark.anyio\n"
            "async def test_a_manager_refuses_auto_mode_beside_anyio(redlock): pass",
            ["set asyncio_mode = strict"],
            id="anyio in auto mode",
        ),
        pytest.param(
            ANYIO,
            "def test_a_manager_needs_a_plugin_for_coroutines(redlock): pass",
            ["install pytest-asyncio 1.0 or newer, or mark the test with anyio"],
            id="no loop",
        ),
    ],
)
def test_an_unusable_request_for_a_fixture_names_the_remedy(
    pytester: pytest.Pytester, run: Run, options: tuple[str, ...], test: str, told: list[str]
) -> None:
    pytester.makepyfile(test)
    result = run(*options)
    result.assert_outcomes(errors=len(told))
    result.stdout.fnmatch_lines([f"*{words}*" for words in told])


def test_an_old_pytest_asyncio_disturbs_only_tests_that_ask_for_a_manager(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        old="""
        from types import ModuleType

        def pytest_addoption(parser, pluginmanager):
            parser.addoption("--asyncio-mode")
            parser.addini("asyncio_mode", "", default="strict")
            pluginmanager.register(ModuleType("old"), "asyncio")
        """,
        test_old="""
        def test_a_test_without_a_manager_passes(redlock_nodes):
            pass

        def test_a_test_with_a_manager_fails(redlock):
            pass
        """,
    )
    result = run("-p", "old")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*install pytest-asyncio 1.0 or newer*"])


@pytest.mark.parametrize(
    ("options", "unmarked"),
    [
        ((), "MemoryNodes"),
        (("-o", "redlock_nodes=local"), "LocalNodes"),
        (("-o", "redlock_nodes=local", "--redlock-nodes=memory"), "MemoryNodes"),
    ],
    ids=["default", "settings", "command line"],
)
def test_the_nodes_are_chosen_by_marker_then_command_line_then_settings(
    pytester: pytest.Pytester, run: Run, options: tuple[str, ...], unmarked: str
) -> None:
    pytester.makepyfile(f"""
        import pytest

        @pytest.mark.redlock(count=1)
        class TestNodes:
            def test_an_unmarked_test_gets_the_configured_nodes(self, redlock_nodes):
                assert (type(redlock_nodes).__name__, len(redlock_nodes)) == ({unmarked!r}, 1)

            @pytest.mark.redlock(nodes="memory", count=2)
            def test_a_marked_test_gets_the_nodes_of_its_marker(self, redlock_nodes):
                assert (type(redlock_nodes).__name__, len(redlock_nodes)) == ("MemoryNodes", 2)
    """)
    run(*options).assert_outcomes(passed=2)


def test_an_invalid_setting_is_refused_at_once(run: Run) -> None:
    result = run("-o", "redlock_nodes=docker")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*redlock_nodes must be memory or local, not 'docker'"])


def test_a_session_that_asks_for_no_fixture_imports_nothing_of_the_library(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile("""
        import sys

        def test_nothing_of_the_library_is_imported(request):
            assert request.config.pluginmanager.hasplugin("pytest_aioredlock_ng")
            loaded = {name.split(".")[0] for name in sys.modules}
            assert loaded & {"aioredlock_ng", "redis", "hiredis"} == set()
    """)
    run(*PYTEST_ASYNCIO, *ANYIO).assert_outcomes(passed=1)


def test_the_entry_point_is_the_module_by_its_own_name() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["entry-points"]["pytest11"] == {
        "pytest_aioredlock_ng": "pytest_aioredlock_ng"
    }
    assert (ROOT / "pytest_aioredlock_ng.py").is_file()


def test_a_test_without_a_loop_gets_a_manager_for_threads(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile("""
        import threading
        import pytest
        from aioredlock_ng import LockLost
        from aioredlock_ng.testing import lose_at

        def test_a_lock_excludes_another_thread(sync_redlock, redlock_nodes):
            with sync_redlock.lock("a") as lease:
                found, other = [], sync_redlock.lock("a")
                thread = threading.Thread(target=lambda: found.append(other.try_acquire()))
                thread.start()
                thread.join()
                assert found == [None]

        def test_a_lease_expires_when_time_is_advanced(sync_redlock, redlock_nodes):
            lease = sync_redlock.lock("a").acquire()
            redlock_nodes.advance(11)
            with pytest.raises(LockLost):
                lease.check()

        def test_a_lock_is_lost_at_a_check(sync_redlock):
            with lose_at("a", "checked"), pytest.raises(LockLost), sync_redlock.lock("a") as lease:
                lease.check()

        @pytest.mark.redlock(nodes="local", count=1, ttl=3.0)
        def test_a_marked_test_gets_real_servers_and_options(sync_redlock):
            with sync_redlock.lock("a") as lease:
                assert (lease.ttl, lease.nodes) == (3.0, (1, 1))
    """)
    run().assert_outcomes(passed=4)
