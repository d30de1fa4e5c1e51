"""The backends that make the nodes of a run: given URLs, containers, or local processes.

A run has one backend, which makes nodes when a test first needs them.
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
    """Makes nodes that live for the whole run.

    Attributes:
        name: The value of `--nodes` that chooses this backend.
        faults: True if its nodes can be paused, crashed and restarted.
        limit: Largest number of nodes.
    """

    name: str
    faults: bool
    limit: int

    def headline(self) -> str:
        """Describe the nodes in one line, without starting any."""

    def start(self, count: int) -> list[Node]:
        """Start this number of nodes at the same time."""

    def close(self) -> None:
        """Stop all nodes."""


class LocalBackend:
    """Makes server processes on loopback."""

    name = "local"
    faults = True
    limit = 16

    def __init__(self, binary: Path | None = None) -> None:
        self._binary = binary or find_server()
        self._servers: list[LocalServer] = []

    def headline(self) -> str:
        """Return a line with the version and the path of the server program."""
        return f"local processes, {version_of(self._binary)} ({self._binary})"

    def start(self, count: int) -> list[Node]:
        """Start this number of processes at the same time."""
        servers = [LocalServer(binary=self._binary) for _ in range(count)]
        self._servers += servers
        with ThreadPoolExecutor(count) as threads:
            return list(threads.map(LocalServer.start, servers))

    def close(self) -> None:
        """Stop the processes."""
        for server in self._servers:
            server.close()


class DockerBackend:
    """Makes containers with testcontainers."""

    name = "docker"
    faults = True
    limit = 16

    def __init__(self) -> None:
        from tests.support.containers import image

        self._image = image()
        self._nodes: list[ContainerNode] = []

    def headline(self) -> str:
        """Return a line about the image."""
        return f"containers, {self._image.description}"

    def start(self, count: int) -> list[Node]:
        """Start this number of containers at the same time. Each start waits for half a second."""
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
    """Hands out servers that are given by URL. Tests flush these servers, and do nothing else to
    them.
    """

    name = "urls"
    faults = False

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self.limit = len(urls)

    def headline(self) -> str:
        """Return a line with the addresses."""
        addresses = (urlsplit(url).netloc.rpartition("@")[2] for url in self._urls)
        return f"given by {NODES_ENV}: {', '.join(addresses)}"

    def start(self, count: int) -> list[Node]:
        """Return the next servers of the list as nodes."""
        from tests.support.url_node import UrlNode

        taken = [self._urls.pop(0) for _ in range(count)]
        return [UrlNode(url) for url in taken]

    def close(self) -> None:
        """Do nothing, because this process started no server."""


def choose(forced: str | None) -> Backend:
    """Return the backend with this name. Without a name, return the first available one.

    The order is given URLs, containers, local processes.

    Raises:
        RuntimeError: The named backend is not available.
    """
    if urls := given_urls(forced):
        return UrlBackend(urls)
    if forced == "urls":
        raise RuntimeError(f"--nodes=urls needs {NODES_ENV} with comma-separated URLs")
    if forced == "docker" or (forced is None and docker_answers()):
        if not docker_answers():
            raise RuntimeError("--nodes=docker needs a Docker engine, and none answers")
        return DockerBackend()
    return LocalBackend()


def given_urls(forced: str | None) -> list[str]:
    """Return the URLs that `choose` would use, or none if it would return another backend."""
    if forced not in {None, UrlBackend.name}:
        return []
    return [url.strip() for url in os.environ.get(NODES_ENV, "").split(",") if url.strip()]


def docker_answers() -> bool:
    """Return True if a Docker engine answers.

    For most values of DOCKER_HOST, the check does not import the slow client of Docker.
    """
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
