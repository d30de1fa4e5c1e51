"""Seats of a concert. Two buyers never get the same seat, with any number of processes.

Run it with as many processes as you like:

    AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
        uvicorn examples.fastapi_app:app
    curl -X POST 'http://127.0.0.1:8000/seats/12?buyer=ann'
"""

import asyncio
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Response

from aioredlock_ng import Lease, Redlock
from aioredlock_ng.integrations.fastapi import get_redlock, lock_for, redlock_lifespan

# Stands for your database: the buyer of each seat. Looking and writing are two steps,
# and other requests run in between.
seats: dict[str, str] = {}

# The lock is held until the endpoint has returned, and free before the response is
# sent. The answer is 423 if it stays locked for two seconds. It is 503 without a
# quorum, and after a loss.
seat_lock = lock_for("seat:{seat}", blocking_timeout=2)
SeatLock = Annotated[Lease, Depends(seat_lock, scope="function")]
Manager = Annotated[Redlock, Depends(get_redlock)]


def create_app() -> FastAPI:
    app = FastAPI(lifespan=redlock_lifespan())

    @app.post("/seats/{seat}")
    async def book(
        seat: str, buyer: str, lease: SeatLock
    ) -> dict[str, str | int | None]:
        if seat in seats:
            raise HTTPException(409, f"seat {seat} is taken")
        # The payment.
        await asyncio.sleep(0.02)
        seats[seat] = buyer
        return {"seat": seat, "buyer": buyer, "fence": lease.fence}

    @app.get("/healthz")
    async def healthz(redlock: Manager, response: Response) -> dict[str, bool]:
        """Answer the readiness probe: can a majority of the nodes grant?"""
        response.status_code = 200 if redlock.ready else 503
        return {"ready": redlock.ready}

    return app


app = create_app()
