"""Time limits around a FastAPI app that expire when the test says so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
from fastapi.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["AnyioLimit", "AsyncioLimit", "Hasty"]


class AsyncioLimit:
    """A time limit by asyncio that expires when the test says so."""

    async def __aenter__(self) -> None:
        self.timeout = await asyncio.timeout(None).__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self.timeout.__aexit__(*error)

    def expire(self) -> None:
        self.timeout.reschedule(asyncio.get_running_loop().time())


class AnyioLimit:
    """The like by anyio, whose cancellation comes again at every await."""

    async def __aenter__(self) -> None:
        self.scope = anyio.CancelScope().__enter__()

    async def __aexit__(self, *error: Any) -> None:
        self.scope.__exit__(*error)
        if self.scope.cancelled_caught:
            raise TimeoutError

    def expire(self) -> None:
        self.scope.cancel()


class Hasty:
    """A plain ASGI middleware with a time limit."""

    def __init__(self, app: ASGIApp, limit: AsyncioLimit | AnyioLimit) -> None:
        self.app, self.limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            async with self.limit:
                await self.app(scope, receive, send)
                return
        except TimeoutError:
            pass
        await JSONResponse("too slow", status_code=504)(scope, receive, send)
