"""The web shop, a FastAPI application that sells one item under a guard.

uvicorn runs it by `--factory benchmarks.flash_sale.shop:create_app`. The environment variable
`FLASH_SALE` holds a JSON object with `guard` (a module of `guards`), `settings`, `urls`, `stock`
and `folder`. Each worker writes a file into `folder` when it is ready. The name of the file is the
process id. At its end the worker writes the number of its answers into the file. A worker that
cannot open writes the file `failed`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Response

from .guards import Refused
from .till import Till

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from .guards import Guard

__all__ = ["FAILED", "NAME", "REFUSED", "SETTINGS", "SOLD", "SOLD_OUT", "Shop", "create_app"]

SETTINGS: Final = "FLASH_SALE"
NAME: Final = "item"
"""The name of the only lock of the sale. All buyers want the same item."""

SOLD: Final = 201
SOLD_OUT: Final = 410
REFUSED: Final = 503
FAILED: Final = 500

_WARM: Final = 100


class Shop:
    """Sell items: read the stock, check it, write one less.

    The shop awaits between the read and the write. Only the guard keeps other buyers out.

    Args:
        guard: The lock, which each buyer acquires.
        till: The stock.
    """

    def __init__(self, guard: Guard, till: Till) -> None:
        self._guard = guard
        self._till = till
        self.answers: Counter[int] = Counter()
        self.first_error = ""

    async def buy(self) -> int:
        """Sell one item, and return the status of the answer."""
        try:
            async with self._guard(NAME):
                left = await self._till.left()
                if left <= 0:
                    status = SOLD_OUT
                else:
                    await self._till.put(left - 1)
                    status = SOLD
        except Refused:
            status = REFUSED
        except Exception as error:
            self.first_error = self.first_error or f"{type(error).__name__}: {error}"[:300]
            status = FAILED
        self.answers[status] += 1
        return status


def create_app() -> FastAPI:
    """Return the shop that the environment variable describes."""
    wanted: dict[str, Any] = json.loads(os.environ[SETTINGS])
    folder = Path(wanted["folder"])
    with _told(folder):
        module = importlib.import_module(f"{__package__}.guards.{wanted['guard']}")
    shops: list[Shop] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        note = folder / str(os.getpid())
        till = await Till.connect(wanted["stock"])
        async with AsyncExitStack() as stack:
            with _told(folder):
                guard = await stack.enter_async_context(
                    module.opened(wanted["urls"], **wanted["settings"])
                )
                await asyncio.gather(
                    *(_used(guard, f"warm:{os.getpid()}:{number // 2}") for number in range(_WARM))
                )
            shops.append(Shop(guard, till))
            # The file is replaced atomically, because its reader must not read half of it.
            _write(note, {})
            yield
            _write(note, {"answers": shops[0].answers, "first_error": shops[0].first_error})
        till.close()

    app = FastAPI(lifespan=lifespan)

    @app.post("/buy")
    async def buy() -> Response:
        return Response(status_code=await shops[0].buy())

    @app.post("/nothing")
    async def nothing() -> Response:
        return Response(status_code=SOLD, headers={"X-Worker": str(os.getpid())})

    return app


async def _used(guard: Guard, name: str) -> None:
    """Acquire a lock that one other task wants.

    So all connections exist before the sale, and the code of waiters has run.
    """
    with suppress(Refused):
        async with guard(name):
            await asyncio.sleep(0.01)


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Record the reason why a worker cannot open.

    Without the record uvicorn would restart the worker for ever.
    """
    try:
        yield
    except Exception as error:
        _write(folder / "failed", {"error": f"{type(error).__name__}: {error}"})
        raise


def _write(note: Path, what: dict[str, Any]) -> None:
    fresh = note.with_suffix(".new")
    fresh.write_text(json.dumps(what), encoding="utf-8")
    fresh.replace(note)
