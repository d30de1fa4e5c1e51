"""The guards of the shop's till, one module per kind of lock.

Each module has `opened(urls, **settings)`, an async context manager that yields a `Guard`. The shop
calls the guard once per buyer with the name to lock. It enters the returned context manager before
it reads the stock, and leaves it after it has written the stock. This package imports none of the
modules.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

__all__ = ["LIFE", "Guard", "Refused"]

LIFE: Final = 10.0
"""The ttl of every contestant's lock in seconds."""

Guard = Callable[[str], AbstractAsyncContextManager[object]]


class Refused(Exception):
    """The lock refused this buyer, for instance after its last retry."""
