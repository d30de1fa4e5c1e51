"""Where a run's nodes come from: given URLs, containers, or local processes; decided once, made
when first needed.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from aioredlock_ng.testing import LocalServer, find_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.containers import ContainerNode
    from tests.support.node_set import Node

__all__ = [
    "NODES_ENV",
    "Backend",
    "DockerBackend",
    "LocalBackend",
    "UrlBackend",
    "choose",
    "docker_answers",
    "given_urls",
    "version_of",
]

NODES_ENV = "AIOREDLOCK_NG_TEST_NODES"


class Backend(Protocol):
    """Makes nodes, up to `limit` at a time, that live for the whole run.

    Attributes:
        name: The word for `--nodes`.
        faults: Whether its nodes can be paused, crashed and restarted.
        limit: How many nodes there can be.
    """

    name: str
    faults: bool
    limit: int

    def headline(self) -> str:
        """Say in a line what the nodes will be, without starting anything."""

    def start(self, count: int) -> list[Node]:
        """Start so many nodes together."""

    def close(self) -> None:
        """Stop all of them."""


class LocalBackend:
    """Processes on loopback."""

    name = "local"
    faults = True
    limit = 16

    def __init__(self, binary: Path | None = None) -> None:
        self._binary = binary or find_server()
        self._servers: list[LocalServer] = []

    def headline(self) -> str:
        """Name the program."""
        return f"local processes, {version_of(self._binary)} ({self._binary})"

    def start(self, count: int) -> list[Node]:
        """Start processes together."""
        servers = [LocalServer(binary=self._binary) for _ in range(count)]
        self._servers += servers
        with ThreadPoolExecutor(count) as threads:
            return list(threads.map(LocalServer.start, servers))

    def close(self) -> None:
        """Stop the processes."""
        for server in self._servers:
            server.close()


class DockerBackend:
    """Containers, by testcontainers."""

    name = "docker"
    faults = True
    limit = 16

    def __init__(self) -> None:
        from tests.support.containers import image

        self._image = image()
        self._nodes: list[ContainerNode] = []

    def headline(self) -> str:
        """Name the image."""
        return f"containers, {self._image.told}"

    def start(self, count: int) -> list[Node]:
        """Start containers together: each takes half a second of waiting."""
        from tests.support.containers import ContainerNode

        nodes = [ContainerNode(self._image.name) for _ in range(count)]
        self._nodes += nodes
        with ThreadPoolExecutor(count) as threads:
            return list(threads.map(ContainerNode.start, nodes))

    def close(self) -> None:
        """Remove the containers."""
        from tests.support.containers import ContainerNode

        with ThreadPoolExecutor(len(self._nodes) or 1) as threads:
            list(threads.map(ContainerNode.close, self._nodes))


class UrlBackend:
    """Servers that somebody else runs: they are flushed, and nothing else is done to them."""

    name = "urls"
    faults = False

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self.limit = len(urls)

    def headline(self) -> str:
        """Name the addresses."""
        addresses = (urlsplit(url).netloc.rpartition("@")[2] for url in self._urls)
        return f"given by {NODES_ENV}: {', '.join(addresses)}"

    def start(self, count: int) -> list[Node]:
        """Hand out the next `count`."""
        from tests.support.url_node import UrlNode

        taken = [self._urls.pop(0) for _ in range(count)]
        return [UrlNode(url) for url in taken]

    def close(self) -> None:
        """Nothing of ours to stop."""


def choose(forced: str | None) -> Backend:
    """Return the back end by its name, or the first that is there: given URLs, containers, local
    processes.
    """
    if urls := given_urls(forced):
        return UrlBackend(urls)
    if forced == "urls":
        raise RuntimeError(f"--nodes=urls needs {NODES_ENV}, comma separated")
    if forced == "docker" or (forced is None and docker_answers()):
        if not docker_answers():
            raise RuntimeError("--nodes=docker, but no Docker engine answers")
        return DockerBackend()
    return LocalBackend()


def given_urls(forced: str | None) -> list[str]:
    """Return the URLs that `choose` would use, none when the nodes are to be anything else."""
    if forced not in {None, UrlBackend.name}:
        return []
    return [url.strip() for url in os.environ.get(NODES_ENV, "").split(",") if url.strip()]


def docker_answers() -> bool:
    """Ask the Docker engine for a sign of life: quick, and without importing its client."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    parts = urlsplit(host)
    if parts.scheme not in {"unix", "tcp", "http"}:
        return _client_answers()
    connection = http.client.HTTPConnection(
        parts.hostname or "localhost", parts.port or 2375, timeout=2
    )
    try:
        if parts.scheme == "unix":
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(2)
            connection.sock.connect(parts.path)
        connection.request("GET", "/_ping")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return _client_answers() if parts.scheme == "tcp" else False
    finally:
        connection.close()


def _client_answers() -> bool:
    import docker

    with contextlib.suppress(Exception):
        return bool(docker.from_env(timeout=2).ping())
    return False


def version_of(binary: Path) -> str:
    """Return a server program's name and version, such as "Redis 7.0.15" or "Valkey 9.1.2"."""
    words = subprocess.run(
        [binary, "--version"], capture_output=True, text=True, check=True
    ).stdout.split()
    return f"{words[0]} {words[2].removeprefix('v=')}"
