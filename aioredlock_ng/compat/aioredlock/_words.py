"""Translate this library's errors into aioredlock's classes and argument names."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioredlock_ng import (
    AcquireTimeout,
    ConfigurationError,
    LockHeld,
    LockLost,
    QuorumUnreachable,
    RedlockClosed,
)
from aioredlock_ng.compat.aioredlock.errors import LockAcquiringError, LockRuntimeError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["in_words_of_aioredlock", "naming"]


@contextmanager
def in_words_of_aioredlock() -> Iterator[None]:
    """Raise aioredlock's error instead of this library's error.

    A `ConfigurationError` keeps its class. Code for aioredlock can catch this error, because
    its base class is `ValueError`.
    """
    try:
        with naming(ttl="lock_timeout"):
            yield
    except (LockHeld, AcquireTimeout, LockLost) as error:
        raise LockAcquiringError(str(error)) from error
    except (QuorumUnreachable, RedlockClosed) as error:
        raise LockRuntimeError(str(error)) from error


@contextmanager
def naming(**arguments: str) -> Iterator[None]:
    """Replace this library's argument names in a `ConfigurationError` with the caller's names.

    Args:
        arguments: For each argument name of this library, the name that the caller used.
    """
    try:
        yield
    except ConfigurationError as error:
        told = str(error)
        for ours, theirs in arguments.items():
            told = re.sub(rf"\b{ours}\b", theirs, told)
        raise ConfigurationError(told) from None
