"""What stands before the shop's till: one module per kind of lock, alike from outside; importing this imports none of them.

Each module has `opened(urls, **settings)`, an async context manager that gives a `Guard`. A guard
is called once per buyer, with the name to lock; what it returns is entered before the stock is read
and left after it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

__all__ = ["LIFE", "Guard", "Refused"]

LIFE: Final = 10.0
"""Seconds that every contestant's lock lives."""

Guard = Callable[[str], AbstractAsyncContextManager[object]]


class Refused(Exception):
    """The lock gave up on this buyer, by its own rules."""
