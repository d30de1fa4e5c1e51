"""Runs Redis in containers, with testcontainers.

The image is pulled. If it cannot be pulled, it is built from the server program of this machine.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import subprocess
import tarfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import docker.errors

from aioredlock_ng.testing import find_server, free_port
from tests.support.backends import version_of
from tests.support.url_node import UrlNode

if TYPE_CHECKING:
    from typing import Self

    from testcontainers.community.redis import RedisContainer

__all__ = [
    "IMAGE_ENV",
    "LABEL",
    "REQUIRE_IMAGE",
    "ContainerNode",
    "Image",
    "image",
    "remove_leftovers",
]

IMAGE_ENV = "AIOREDLOCK_NG_TEST_IMAGE"
REQUIRE_IMAGE = "AIOREDLOCK_NG_REQUIRE_IMAGE"
"""If this variable is 1, an image that cannot be pulled is an error. No image is built in its
place.
"""

LABEL = "aioredlock-ng-tests"

_BUILT = "aioredlock-ng-test-redis"
_SERVER = [
    "redis-server",
    "--bind",
    "0.0.0.0",
    "--protected-mode",
    "no",
    "--save",
    "",
    "--appendonly",
    "no",
]
# A pull fails if the registry sends nothing for so long.
_PULL_STALL_SECONDS = 20


@dataclass(frozen=True)
class Image:
    """The image of the containers, with its description for the headline."""

    name: str
    description: str


@cache
def image() -> Image:
    """Return the configured image, which is pulled if it is missing.

    If it cannot be pulled, return an image that is built from the server program of this machine.

    Raises:
        RuntimeError: The image cannot be pulled, and `REQUIRE_IMAGE` is set.
    """
    wanted = os.environ.get(IMAGE_ENV, "redis:7")
    client = docker.from_env(timeout=_PULL_STALL_SECONDS)
    try:
        try:
            client.images.get(wanted)
        except docker.errors.ImageNotFound:
            try:
                for _ in client.api.pull(wanted, stream=True, decode=True):
                    pass
                client.images.get(wanted)
            except (docker.errors.DockerException, OSError) as error:
                if os.environ.get(REQUIRE_IMAGE) == "1":
                    raise RuntimeError(
                        f"{REQUIRE_IMAGE}=1, but {wanted} cannot be pulled: {error}"
                    ) from error
                built, version = _build(client)
                # Child processes use the built image at once, and do not wait for the registry
                # again.
                os.environ[IMAGE_ENV] = built
                return Image(
                    built,
                    f"image {built}, built from the host's {version}"
                    f" because {wanted} cannot be pulled",
                )
    finally:
        client.close()
    return Image(wanted, f"image {wanted}")


def _build(client: docker.DockerClient) -> tuple[str, str]:
    server = find_server()
    version = version_of(server)
    name = f"{_BUILT}:{version.lower().replace(' ', '-')}"
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        programs = {"redis-server": server}
        if (cli := server.with_name(server.name.replace("-server", "-cli"))).exists():
            programs["redis-cli"] = cli
        for alias, program in programs.items():
            tar.add(program.resolve(), f"root/usr/bin/{alias}")
            for library in _libraries(program):
                tar.add(library.resolve(), f"root{library}")
        lines = "\n".join(
            [
                "FROM scratch",
                "COPY root /",
                "ENV PATH=/usr/bin",
                "WORKDIR /data",
                "EXPOSE 6379",
                f"CMD {json.dumps(_SERVER)}",
            ]
        )
        dockerfile = tarfile.TarInfo("Dockerfile")
        dockerfile.size = len(lines)
        tar.addfile(dockerfile, io.BytesIO(lines.encode()))
    context.seek(0)
    client.images.build(fileobj=context, custom_context=True, tag=name, rm=True)
    return name, version


def _libraries(program: Path) -> set[Path]:
    """Return the loader and the shared libraries of a program, as `ldd` lists them."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return {Path(word) for word in listed.split() if word.startswith("/")}


def _redis_container() -> type[RedisContainer]:
    """Import testcontainers, which reads its environment variables during the import.

    Its reaper, Ryuk, would need an image of its own. These tests remove their containers by label
    instead. If the tests themselves run in a container, testcontainers would return the address of
    the bridge. But the ports are open on loopback only.
    """
    for name, value in {
        "TESTCONTAINERS_RYUK_DISABLED": "true",
        "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
        "TC_HOST": "127.0.0.1",
        "TC_POOLING_INTERVAL": "0.02",
    }.items():
        os.environ.setdefault(name, value)
    from testcontainers.community.redis import RedisContainer

    return RedisContainer


class ContainerNode:
    """One server in a container, on a loopback port that stays the same over restarts."""

    def __init__(self, image_name: str) -> None:
        self._image = image_name
        self._container: RedisContainer | None = None
        self._port = 0
        self._paused = False
        self._down = False

    @property
    def url(self) -> str:
        """The URL for a client."""
        return f"redis://{os.environ['TC_HOST']}:{self._port}"

    @property
    def running(self) -> bool:
        """True if the container runs, paused or not."""
        return self._container is not None and not self._down

    def start(self) -> Self:
        """Start a new container, or start the same container again, and wait until the server
        answers.
        """
        if self._container is not None:
            self._inner().start()
            self._down = False
            self._ready()
            return self
        RedisContainer = _redis_container()  # noqa: N806
        for _ in range(10):
            self._port = free_port()
            container = RedisContainer(self._image, labels={LABEL: _owner()}).with_command(_SERVER)
            # `with_bind_ports` would open a server without a password to the whole network.
            container.ports["6379"] = ("127.0.0.1", self._port)  # type: ignore[assignment]
            try:
                container.start()
            except docker.errors.APIError as error:
                container.stop()
                if "port is already allocated" in str(error) or "address already in use" in str(
                    error
                ):
                    continue
                raise
            self._container = container
            return self
        raise RuntimeError("no free port for a container after 10 attempts")

    def pause(self) -> None:
        """Freeze every process of the container."""
        self._inner().pause()
        self._paused = True

    def resume(self) -> None:
        """Let the container run on. Do nothing if it is not paused."""
        if self._paused:
            self._inner().unpause()
            self._paused = False

    def crash(self) -> None:
        """Kill the container (SIGKILL), and wait until it has ended."""
        self._inner().kill()
        self._inner().wait()
        self._paused, self._down = False, True

    def restart(self) -> Self:
        """Start the container again on the same port, with an empty server."""
        self.resume()
        if not self._down:
            self.crash()
        return self.start()

    def wipe(self) -> None:
        """Delete every key."""
        self._raw().wipe()

    def info(self) -> dict[str, str]:
        """Return the server's INFO."""
        return self._raw().info()

    def command(self, *args: str) -> bytes:
        """Send one command over a connection of its own, and return the payload of the reply."""
        return self._raw().command(*args)

    def close(self) -> None:
        """Remove the container."""
        if self._container is not None:
            self._container.stop()
            self._container = None

    def _raw(self) -> UrlNode:
        return UrlNode(self.url)

    def _ready(self) -> None:
        import redis

        end = time.monotonic() + 10
        while True:
            try:
                assert self.command("PING") == b"PONG"
            except (redis.RedisError, OSError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
            else:
                return

    def _inner(self) -> Any:
        assert self._container is not None, "the container was never started"
        return self._container.get_wrapped_container()


def remove_leftovers() -> int:
    """Remove the containers of earlier test processes of this machine that no longer run.

    Returns:
        The number of removed containers.
    """
    client = docker.from_env()
    removed = 0
    try:
        for container in client.containers.list(
            all=True, filters={"label": LABEL}, ignore_removed=True
        ):
            host, _, process = container.labels[LABEL].rpartition("/")
            if host == socket.gethostname() and not Path(f"/proc/{process}").exists():
                # Another test process may remove the same container at the same time.
                with contextlib.suppress(docker.errors.APIError):
                    container.remove(force=True, v=True)
                    removed += 1
    finally:
        client.close()
    return removed


def _owner() -> str:
    # The label has the host too, because processes with one Docker engine may have several process
    # tables.
    return f"{socket.gethostname()}/{os.getpid()}"
