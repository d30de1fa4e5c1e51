"""The web shop: FastAPI, one route, one item; what it sells goes by the guard that it is told to use.

uvicorn runs it by `--factory benchmarks.flash_sale.shop:create_app`, told by the environment
variable `FLASH_SALE`, a JSON object: `guard` (a module of `guards`), `settings`, `urls`, `stock`,
`folder`. Each worker leaves a file of its name in `folder` when it is ready, and writes into it
what it did when it ends; one that cannot open leaves the file `failed`.
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
"""The one lock of the sale: everybody wants the same thing."""

SOLD: Final = 201
SOLD_OUT: Final = 410
REFUSED: Final = 503
FAILED: Final = 500

_WARM: Final = 100


class Shop:
    """Sells: reads, checks, writes one less.

    It awaits between reading and writing; only the guard keeps others out.

    Args:
        guard: Entered before and left after each try.
        till: Where the stock is.
    """

    def __init__(self, guard: Guard, till: Till) -> None:
        self._guard = guard
        self._till = till
        self.answers: Counter[int] = Counter()
        self.first_error = ""

    async def buy(self) -> int:
        """Sell one; return the status of the answer."""
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
    """Return the shop as the environment wants it."""
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
            # Whole at once: whoever waits for it must never read half of it.
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
    """Take a lock that one other wants: what connects has connected before the sale, and what waits has waited."""
    with suppress(Refused):
        async with guard(name):
            await asyncio.sleep(0.01)


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Note why a worker cannot open: uvicorn would start another one, again and again."""
    try:
        yield
    except Exception as error:
        _write(folder / "failed", {"error": f"{type(error).__name__}: {error}"})
        raise


def _write(note: Path, what: dict[str, Any]) -> None:
    fresh = note.with_suffix(".new")
    fresh.write_text(json.dumps(what), encoding="utf-8")
    fresh.replace(note)
