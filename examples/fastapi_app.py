"""Seats of a concert: two buyers never get the same one, whichever of your server processes their requests reach.

Run it with as many processes as you like:

    AIOREDLOCK_NG_NODES=redis://127.0.0.1:6381,redis://127.0.0.1:6382,redis://127.0.0.1:6383 \
        uvicorn examples.fastapi_app:app
    curl -X POST 'http://127.0.0.1:8000/seats/12?buyer=ann'
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

from aioredlock_ng import LockLost, LockNotAcquired, Redlock

# Stands for your database: who has which seat. Looking and writing are two steps, and others come in between.
seats: dict[str, str] = {}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with Redlock.from_env() as redlock:
        app.state.redlock = redlock
        yield


async def try_again(request: Request, error: Exception) -> JSONResponse:
    """Answer for a lock that was busy for too long, could not be had from a majority of nodes, or was lost."""
    return JSONResponse({"detail": "busy, try again"}, status_code=503, headers={"Retry-After": "1"})


def create_app() -> FastAPI:
    app = FastAPI(lifespan=lifespan)
    app.add_exception_handler(LockNotAcquired, try_again)
    app.add_exception_handler(LockLost, try_again)

    @app.post("/seats/{seat}")
    async def book(seat: str, buyer: str, request: Request) -> dict[str, str]:
        # Inside the handler and not as a dependency: a dependency would give the lock back only after the response.
        async with request.app.state.redlock.lock(f"seat:{seat}", blocking_timeout=2):
            if seat in seats:
                raise HTTPException(409, f"seat {seat} is taken")
            await asyncio.sleep(0.02)  # the payment
            seats[seat] = buyer
        return {"seat": seat, "buyer": buyer}

    return app


app = create_app()
