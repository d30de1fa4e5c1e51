"""aioredlock's errors, and which of them stands for which of ours; it decides nothing else."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioredlock_ng import AcquireTimeout, LockHeld, LockLost, QuorumUnreachable, RedlockClosed

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "AioredlockError",
    "LockAcquiringError",
    "LockError",
    "LockRuntimeError",
    "SentinelConfigError",
    "in_words_of_aioredlock",
]


class AioredlockError(Exception):
    """Base of the errors of a lock."""


class LockError(AioredlockError):
    """The lock could not be acquired, extended or released; `__cause__` is our own error, with every node's vote."""


class LockAcquiringError(LockError):
    """The ordinary case: another has it."""


class LockRuntimeError(LockError):
    """The other case: no majority of the nodes could be asked, or the manager cannot be used here."""


class SentinelConfigError(Exception):
    """What was given to `Sentinel` names no Sentinel or no service."""


@contextmanager
def in_words_of_aioredlock() -> Iterator[None]:
    """Raise aioredlock's error in place of ours; a `ConfigurationError` is a `ValueError` in both and stays."""
    try:
        yield
    except (LockHeld, AcquireTimeout, LockLost) as error:
        raise LockAcquiringError(str(error)) from error
    except (QuorumUnreachable, RedlockClosed) as error:
        raise LockRuntimeError(str(error)) from error
