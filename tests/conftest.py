"""Options, the report's header, and the nodes that tests get."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from hypothesis import settings

from aioredlock_ng.testing import LocalServer, TLSFiles
from tests.support import browser, left_out, loops, server_versions, spread, tiers, workers
from tests.support.backends import choose, docker_answers
from tests.support.coverage import pytest_runtest_call
from tests.support.pool import Pool, VersionPools
from tests.support.sentinel import SentinelSet
from tests.support.tiers import pytest_ignore_collect, pytest_itemcollected
from tests.support.workers import (
    pytest_deselected,
    pytest_testnodedown,
    pytest_xdist_auto_num_workers,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.support.node_set import NodeSet
    from tests.support.server_versions import ServerVersion

REQUIRE_DOCKER = "AIOREDLOCK_NG_REQUIRE_DOCKER"

_NODE_FIXTURES = {"one_node": 1, "three_nodes": 3, "five_nodes": 5}
_VERSION_FIXTURES = {"node_of_each_version": 1, "nodes_of_each_version": 3}

# Hooks that are told elsewhere.
__all__ = [
    "pytest_deselected",
    "pytest_ignore_collect",
    "pytest_itemcollected",
    "pytest_runtest_call",
    "pytest_testnodedown",
    "pytest_xdist_auto_num_workers",
]

pool_key = pytest.StashKey[Pool]()

# The time of an example depends on the load of the machine. The suite's own timeout ends a test
# that hangs.
settings.register_profile("aioredlock_ng", settings(), deadline=None)
settings.load_profile("aioredlock_ng")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("aioredlock_ng")
    group.addoption(
        "--nodes",
        choices=("docker", "local", "urls"),
        help=(
            "where the nodes run; default: URLs in AIOREDLOCK_NG_TEST_NODES,"
            " else containers, else local processes"
        ),
    )
    group.addoption(
        "--loop", choices=loops.KINDS, default="plain", help="the event loop that tests run on"
    )
    group.addoption(
        "--tier", choices=tiers.TIERS, help="the tests of `make test`, or all others; else: both"
    )


def pytest_configure(config: pytest.Config) -> None:
    if (
        os.environ.get(REQUIRE_DOCKER) == "1"
        and config.getoption("--nodes") != "local"
        and not docker_answers()
    ):
        raise pytest.UsageError(f"{REQUIRE_DOCKER}=1, but no Docker engine answers")
    if os.environ.get("CI") == "true" and server_versions.with_tls() is None:
        raise pytest.UsageError(
            "CI=true, but no server with TLS is at hand, and every test of TLS would be left out"
        )
    workers.check(config)
    # A shell lets programs in the background ignore SIGINT, and the programs that tests start would
    # inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[pool_key] = Pool(lambda: choose(config.getoption("--nodes")))


def pytest_unconfigure(config: pytest.Config) -> None:
    if (pool := config.stash.get(pool_key, None)) is not None:
        pool.close()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    kind = config.getoption("--loop")
    return {kind: loops.factory(kind, virtual=item.get_closest_marker("virtual_time") is not None)}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    versions: tuple[ServerVersion | None, ...] = ()
    if _VERSION_FIXTURES.keys() & set(metafunc.fixturenames):
        # The version of containers is that of the image.
        docker = metafunc.config.getoption("--nodes") == "docker"
        versions = (None,) if docker else server_versions.at_hand()
    if spread.arguments_of(metafunc):
        spread.parametrize(metafunc, versions, _version_id)
    elif versions:
        versions = spread.chosen(metafunc, versions)
        metafunc.parametrize(
            "server_version", tiers.ends(versions), ids=[*map(_version_id, versions)]
        )


def _version_id(version: ServerVersion | None) -> str:
    return version.id if version else "image"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what cannot run here, visibly."""
    tiers.take_out(config, items)
    left_out.take_out(config, items, lambda item: _lacking(config, item))


def _lacking(config: pytest.Config, item: pytest.Item) -> str:
    """Name what a test needs and there is not, "" when it can run."""
    fixtures = set(getattr(item, "fixturenames", ()))
    if item.get_closest_marker("containers") and not _docker_is_there():
        return "a Docker engine"
    if (
        "tls_server" in fixtures or item.get_closest_marker("tls")
    ) and server_versions.with_tls() is None:
        return "a server with TLS"
    if item.get_closest_marker("promtool") and shutil.which("promtool") is None:
        return "promtool"
    # In CI a missing browser fails these tests: nothing else looks at the pages.
    if (
        item.get_closest_marker("browser")
        and browser.program() is None
        and os.environ.get("CI") != "true"
    ):
        return "a browser"
    if wanted := max(
        (_NODE_FIXTURES[name] for name in fixtures & _NODE_FIXTURES.keys()), default=0
    ):
        backend = config.stash[pool_key].backend
        if wanted > backend.limit:
            return "more nodes than are given"
        if item.get_closest_marker("faults") and not backend.faults:
            return "nodes that may be hurt"
    return ""


_docker_is_there = cache(docker_answers)


def pytest_collection_finish() -> None:
    """Leave the collected tests out of all later garbage collections, each of which would visit
    them.
    """
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> list[str]:
    lines = [f"loop: {config.getoption('--loop')}"]
    # This process collects nothing then: it cannot know what the tests need.
    return (
        [*lines, *_told(config, {*_NODE_FIXTURES, *_VERSION_FIXTURES})]
        if workers.is_shared(config)
        else lines
    )


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Say what the nodes are once it is known that tests need any: a test that needs none starts
    and asks nothing.
    """
    return _told(config, {name for item in items for name in getattr(item, "fixturenames", ())})


def _told(config: pytest.Config, fixtures: set[str]) -> list[str]:
    lines = []
    versions_of_image = _VERSION_FIXTURES if config.getoption("--nodes") == "docker" else {}
    if fixtures & {*_NODE_FIXTURES, *versions_of_image}:
        lines.append(f"nodes: {config.stash[pool_key].backend.headline()}")
    if fixtures & _VERSION_FIXTURES.keys() and config.getoption("--nodes") != "docker":
        lines.append(
            f"server versions: {', '.join(version.name for version in server_versions.at_hand())}"
        )
    return [*lines, *left_out.summary(config)]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what is left out where others have collected, who have told it only now."""
    if workers.is_shared(config):
        for line in left_out.summary(config):
            terminalreporter.write_line(line)


def _nodes(name: str) -> Callable[[pytest.FixtureRequest], Iterator[NodeSet]]:
    def nodes(request: pytest.FixtureRequest) -> Iterator[NodeSet]:
        with request.config.stash[pool_key].nodes(_NODE_FIXTURES[name]) as node_set:
            yield node_set

    return pytest.fixture(name=name)(nodes)


one_node = _nodes("one_node")
three_nodes = _nodes("three_nodes")
five_nodes = _nodes("five_nodes")


@pytest.fixture(scope="session")
def _version_pools() -> Iterator[VersionPools]:
    with VersionPools() as pools:
        yield pools


@pytest.fixture
def _version_pool(
    request: pytest.FixtureRequest,
    server_version: ServerVersion | None,
    _version_pools: VersionPools,
) -> Pool:
    return (
        request.config.stash[pool_key]
        if server_version is None
        else _version_pools.of(server_version)
    )


@pytest.fixture
def node_of_each_version(_version_pool: Pool) -> Iterator[NodeSet]:
    """One node, a `NodeSet` of 1; the test runs once per server version at hand."""
    with _version_pool.nodes(1) as node_set:
        yield node_set


@pytest.fixture
def nodes_of_each_version(_version_pool: Pool) -> Iterator[NodeSet]:
    """Three nodes; the test runs once per server version at hand."""
    with _version_pool.nodes(3) as node_set:
        yield node_set


@pytest.fixture
def start_server() -> Iterator[Callable[..., LocalServer]]:
    """Start a server of the test's own, with the arguments of `LocalServer`; it is gone when the
    test ends.
    """
    servers: list[LocalServer] = []

    def start(*args: Any, **settings: Any) -> LocalServer:
        server = LocalServer(*args, **settings)
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        # In good order it would end at its next tick, a tenth of a second later. It may have ended
        # already.
        with contextlib.suppress(RuntimeError):
            server.crash()
        server.close()


@pytest.fixture(scope="session")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> TLSFiles:
    """A certificate for 127.0.0.1 and localhost, its key, and the authority that signed it."""
    return _tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def other_tls_files(tmp_path_factory: pytest.TempPathFactory) -> TLSFiles:
    """The like, by another authority."""
    return _tls_files(tmp_path_factory.mktemp("other-tls"))


@pytest.fixture
def tls_server(start_server: Callable[..., LocalServer], tls_files: TLSFiles) -> LocalServer:
    """A server that speaks TLS only, with the certificate of `tls_files`."""
    return start_server(tls=tls_files, binary=server_versions.with_tls())


@pytest.fixture
def sentinel_set() -> Iterator[SentinelSet]:
    """A primary, its replica and a Sentinel, of the test's own."""
    with SentinelSet() as watched:
        yield watched


def _tls_files(folder: Path) -> TLSFiles:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    files = TLSFiles(cert=folder / "cert.pem", key=folder / "key.pem", ca=folder / "ca.pem")
    files.cert.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    files.key.write_bytes(issued.private_key_pem.bytes())
    files.ca.write_bytes(authority.cert_pem.bytes())
    return files
