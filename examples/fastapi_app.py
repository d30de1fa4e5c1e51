"""Seats of a concert: two buyers never get the same one, whichever of your server processes their requests reach.

Run it with as many processes as you like:

    AIOREDLOCK_NG_NODES=redis://127.0.0.1:6381,redis://127.0.0.1:6382,redis://127.0.0.1:6383 \
        uvicorn examples.fastapi_app:app
    curl -X POST 'http://127.0.0.1:8000/seats/12?buyer=ann'
"""

import asyncio
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Response

from aioredlock_ng import Lease, Redlock
from aioredlock_ng.integrations.fastapi import get_redlock, lock_for, redlock_lifespan

# Stands for your database: who has which seat. Looking and writing are two steps, and others come in between.
seats: dict[str, str] = {}

# Held until the endpoint has returned; free before the response is sent. Busy for two seconds: 423. No quorum, or lost: 503.
SeatLock = Annotated[Lease, Depends(lock_for("seat:{seat}", blocking_timeout=2), scope="function")]


def create_app() -> FastAPI:
    app = FastAPI(lifespan=redlock_lifespan())

    @app.post("/seats/{seat}")
    async def book(seat: str, buyer: str, lease: SeatLock) -> dict[str, str | int | None]:
        if seat in seats:
            raise HTTPException(409, f"seat {seat} is taken")
        await asyncio.sleep(0.02)  # the payment
        seats[seat] = buyer
        return {"seat": seat, "buyer": buyer, "fence": lease.fence}

    @app.get("/healthz")
    async def healthz(redlock: Annotated[Redlock, Depends(get_redlock)], response: Response) -> dict[str, bool]:
        """Answer the readiness probe: can a majority of the nodes grant? Asks no node."""
        response.status_code = 200 if redlock.ready else 503
        return {"ready": redlock.ready}

    return app


app = create_app()
