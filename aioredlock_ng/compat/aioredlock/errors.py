"""The errors of aioredlock 0.7.3."""

__all__ = ["AioredlockError", "LockAcquiringError", "LockError", "LockRuntimeError"]


class AioredlockError(Exception):
    """Base of the errors of a lock."""


class LockError(AioredlockError):
    """The lock was not acquired, extended or released; `__cause__` is this library's error, with every node's vote."""


class LockAcquiringError(LockError):
    """The ordinary case: nodes hold another identifier, or none any more, and no majority is left."""


class LockRuntimeError(LockError):
    """No majority of the nodes answered, or the manager cannot be used here."""
