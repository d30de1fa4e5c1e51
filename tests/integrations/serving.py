"""Runs apps on loopback and a free port: on uvicorn, on aiohttp's own server, and on servers with a
thread per request.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import uvicorn
from aiohttp import web

from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from socketserver import TCPServer

    from tests.support.node_set import NodeSet

__all__ = ["PATIENCE", "aiohttp_client", "fastapi_client", "held", "threaded_client"]

PATIENCE = 20.0
"""Seconds for what takes milliseconds on an idle machine."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the process that the tests run in."""
        yield


@asynccontextmanager
async def fastapi_client(app: Any, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of the app, which uvicorn serves."""
    server = _Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, lifespan="on", log_config=None, **settings)
    )
    serving = asyncio.create_task(server.serve())
    await eventually(lambda: server.started or serving.done(), within=PATIENCE)
    assert server.started, "the app did not start"
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE
        ) as client:
            yield client
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def aiohttp_client(app: web.Application, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of the app, which aiohttp's own runner serves."""
    runner = web.AppRunner(app, shutdown_timeout=1.0, **settings)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=PATIENCE) as client:
            yield client
    finally:
        await runner.cleanup()


@contextmanager
def threaded_client(server: TCPServer) -> Iterator[httpx.Client]:
    """An HTTP client of a server with a thread per request, which runs until the block is left."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{server.server_address[1]}", timeout=PATIENCE
        ) as client:
            yield client
    finally:
        server.shutdown()
        thread.join(PATIENCE)
        server.server_close()


def held(nodes: NodeSet) -> set[str]:
    """The names of the locks that are on a majority of the nodes."""
    keys = nodes.keys()
    return {
        name for name in set().union(*keys) if sum(name in there for there in keys) > len(keys) // 2
    }
