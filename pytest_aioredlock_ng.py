"""Provide a manager and its nodes as pytest fixtures.

The plugin imports the library only when a test requests a fixture. `redlock_nodes` are nodes in
memory, or real servers if a test, the command line or the settings ask for them. `redlock` is an
open `Redlock` of these nodes on the event loop of the test. The loop may belong to pytest-asyncio
(in either mode) or to anyio's plugin. `sync_redlock` is an open manager of `aioredlock_ng.sync`.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import aioredlock_ng.sync
    from aioredlock_ng import Redlock
    from aioredlock_ng.testing import LocalNodes, MemoryNodes

__all__ = ["redlock", "redlock_nodes", "sync_redlock"]

_KINDS = ("memory", "local")
_LOOP_SCOPES = ("function", "class", "module", "package", "session")

_READY_SECONDS = 2.5
"""Longest wait in seconds for new nodes, a little more than one try to connect."""

_MARKER = (
    "redlock(nodes='memory', count=3, **options): the nodes of the fixtures redlock_nodes and"
    " redlock, 'memory' or 'local' (real servers), their number, and options of Redlock"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of nodes to the command line and the settings."""
    told = "nodes of the fixture redlock_nodes: in memory, or local servers"
    parser.getgroup("aioredlock_ng").addoption("--redlock-nodes", choices=_KINDS, help=told)
    parser.addini("redlock_nodes", f"{told} ({' or '.join(_KINDS)})", default="memory")


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker, and make the fixtures for pytest-asyncio if that plugin exists."""
    config.addinivalue_line("markers", _MARKER)
    if (kind := config.getini("redlock_nodes")) not in _KINDS:
        raise pytest.UsageError(f"redlock_nodes must be {' or '.join(_KINDS)}, not {kind!r}")
    if _has_loop_scopes(config):
        # The fixtures are made here, because pytest-asyncio may be missing or disabled when this
        # module is imported.
        fixtures = ModuleType(f"{__name__}.asyncio")
        vars(fixtures).update({scope: _asyncio_fixture(scope) for scope in _LOOP_SCOPES})
        config.pluginmanager.register(fixtures, fixtures.__name__)


@pytest.fixture
def redlock_nodes(request: pytest.FixtureRequest) -> Iterator[MemoryNodes | LocalNodes]:
    """Yield the nodes for one test: `MemoryNodes`, or real servers as `LocalNodes`.

    The marker `redlock` sets the kind and the number of the nodes. The default number is 3.
    """
    from aioredlock_ng.testing import LocalNodes, MemoryNodes

    wanted = _wanted(request)
    count = wanted.get("count", 3)
    config = request.config
    kind = (
        wanted.get("nodes") or config.getoption("redlock_nodes") or config.getini("redlock_nodes")
    )
    if kind == "memory":
        yield MemoryNodes(count)
    elif kind == "local":
        with LocalNodes(count) as nodes:
            yield nodes
    else:
        raise pytest.UsageError(
            f"the marker redlock has nodes={kind!r}; it must be {' or '.join(map(repr, _KINDS))}"
        )


@pytest.fixture
def redlock(request: pytest.FixtureRequest) -> Redlock:
    """Yield a `Redlock` of `redlock_nodes`, open on the event loop of the test.

    The manager is closed after the test.
    """
    opened: Redlock = request.getfixturevalue(_on_its_loop(request))
    return opened


@pytest.fixture
def sync_redlock(
    request: pytest.FixtureRequest, redlock_nodes: MemoryNodes | LocalNodes
) -> Iterator[aioredlock_ng.sync.Redlock]:
    """Yield a manager of `redlock_nodes` for threads. The manager is closed after the test.

    Nodes in memory serve only one event loop, so a test can request either this fixture or
    `redlock`. With real servers, a test can request both fixtures.
    """
    from aioredlock_ng import QuorumUnreachable
    from aioredlock_ng.sync import Redlock
    from aioredlock_ng.testing import LocalNodes

    nodes: Any = redlock_nodes
    options = _options(request)
    if isinstance(redlock_nodes, LocalNodes):
        nodes = redlock_nodes.urls
    else:
        # The manager uses the clock of the nodes, which their method `advance` changes.
        options = {"clock": redlock_nodes.clock} | options
    with Redlock(nodes, **options) as manager:
        if _may_be_ready_soon(manager):
            with suppress(QuorumUnreachable):
                manager.wait_ready(_READY_SECONDS)
        yield manager


def _on_its_loop(request: pytest.FixtureRequest) -> str:
    """Return the name of the fixture that opens a manager on the loop of the test."""
    asyncio_mode = _asyncio_mode(request.config)
    if "anyio_backend" in request.fixturenames:
        backend = request.getfixturevalue("anyio_backend")
        name = backend if isinstance(backend, str) else backend[0]
        if name != "asyncio":
            pytest.fail(
                f"the fixture redlock needs asyncio, not {name}: let anyio_backend be 'asyncio'",
                pytrace=False,
            )
        if asyncio_mode == "auto":
            pytest.fail(
                "pytest-asyncio also takes the fixtures of tests for anyio: set asyncio_mode"
                " = strict",
                pytrace=False,
            )
        return "_redlock_under_anyio"
    if not _has_loop_scopes(request.config):
        pytest.fail(
            "the fixture redlock needs an event loop: install pytest-asyncio 1.0 or newer, or"
            " mark the test with anyio",
            pytrace=False,
        )
    return _name(_loop_scope(request))


def _has_loop_scopes(config: pytest.Config) -> bool:
    """Return True if pytest-asyncio is installed and has a setting for the loop scope of tests.

    Return False for an older version too, so that tests without `redlock` still run.
    """
    try:
        config.getini("asyncio_default_test_loop_scope")
    except ValueError:
        return False
    return True


def _asyncio_mode(config: pytest.Config) -> str:
    """Return the mode of pytest-asyncio; "" if the plugin is missing."""
    if not config.pluginmanager.hasplugin("asyncio"):
        return ""
    return str(config.getoption("asyncio_mode") or config.getini("asyncio_mode"))


@pytest.fixture(name="_redlock_under_anyio")
async def _under_anyio(
    request: pytest.FixtureRequest, redlock_nodes: MemoryNodes | LocalNodes
) -> AsyncIterator[Redlock]:
    async with _opened(request, redlock_nodes) as manager:
        yield manager


# The loop of a fixture is fixed at its definition, but a manager must be on the loop of the test.
# So there is one fixture for each loop scope.
def _asyncio_fixture(loop_scope: Any) -> object:
    import pytest_asyncio

    @pytest_asyncio.fixture(loop_scope=loop_scope, name=_name(loop_scope))
    async def on_loop(
        request: pytest.FixtureRequest, redlock_nodes: MemoryNodes | LocalNodes
    ) -> AsyncIterator[Redlock]:
        async with _opened(request, redlock_nodes) as manager:
            yield manager

    return on_loop


@asynccontextmanager
async def _opened(
    request: pytest.FixtureRequest, nodes: MemoryNodes | LocalNodes
) -> AsyncIterator[Redlock]:
    from aioredlock_ng import QuorumUnreachable

    async with nodes.redlock(**_options(request)) as manager:
        if _may_be_ready_soon(manager):
            with suppress(QuorumUnreachable):
                await manager.wait_ready(_READY_SECONDS)
        yield manager


def _may_be_ready_soon(manager: Redlock | aioredlock_ng.sync.Redlock) -> bool:
    """Return True if nodes still connect or are in quarantine, for example on a busy machine.

    The servers are new, so none of them grants a lock before all of them are connected, and before
    the manager has then asked all of them. If a test has stopped a server, the wait is useless.
    """
    states = {node.state for node in manager.nodes}
    return not manager.ready and not states & {"down", "refused"}


def _name(loop_scope: str) -> str:
    return f"_redlock_on_{loop_scope}_loop"


def _loop_scope(request: pytest.FixtureRequest) -> str:
    """Return the scope of the loop on which pytest-asyncio runs the test."""
    marker = request.node.get_closest_marker("asyncio")
    named = {} if marker is None else marker.kwargs
    # pytest-asyncio still obeys `scope`, the former name of `loop_scope`.
    chosen = named.get("loop_scope") or named.get("scope")
    return str(chosen or request.config.getini("asyncio_default_test_loop_scope"))


def _wanted(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the arguments of the test's markers. The closest marker has priority."""
    wanted: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("redlock"))):
        if marker.args:
            raise pytest.UsageError(
                "the marker redlock takes named arguments only, such as nodes='local'; got"
                f" {marker.args}"
            )
        wanted |= marker.kwargs
    return wanted


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {
        name: value for name, value in _wanted(request).items() if name not in ("nodes", "count")
    }
