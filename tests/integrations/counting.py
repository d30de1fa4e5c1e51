"""A program: one server that counts in a file, read and write apart, within a lock; many of them
must not lose a count.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

TTL = 5.0
"""Seconds; what a killed server blocks the others for."""


async def count(path: str) -> dict[str, int]:
    """Count one up, with a gap that another server would fall into."""
    file = Path(path)
    before = int(file.read_text())
    await asyncio.sleep(0.002)
    file.write_text(str(before + 1))
    return {"pid": os.getpid(), "count": before + 1}


def serve_fastapi(path: str, listening: socket.socket) -> None:
    import uvicorn
    from fastapi import Depends, FastAPI

    from aioredlock_ng.integrations.fastapi import lock_for, redlock_lifespan

    app = FastAPI(lifespan=redlock_lifespan())
    lock = Depends(lock_for("counter:{name}", blocking_timeout=30), scope="function")

    @app.post("/counters/{name}", dependencies=[lock])
    async def up(name: str) -> dict[str, int]:
        return await count(path)

    @app.post("/holders/{name}", dependencies=[Depends(lock_for("counter:{name}", ttl=TTL))])
    async def hold(name: str) -> None:
        await asyncio.sleep(60)

    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


def serve_aiohttp(path: str, listening: socket.socket) -> None:
    from aiohttp import web

    from aioredlock_ng.integrations.aiohttp import locked, redlock_ctx

    @locked("counter:{name}", blocking_timeout=30)
    async def up(request: web.Request) -> web.Response:
        return web.json_response(await count(path))

    @locked("counter:{name}", ttl=TTL)
    async def hold(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    app = web.Application()
    app.cleanup_ctx.append(redlock_ctx())
    app.add_routes([web.post("/counters/{name}", up), web.post("/holders/{name}", hold)])
    web.run_app(app, sock=listening, print=None)


if __name__ == "__main__":
    framework, path = sys.argv[1:]
    listening = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    {"fastapi": serve_fastapi, "aiohttp": serve_aiohttp}[framework](path, listening)
