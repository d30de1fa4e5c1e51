"""Define the errors of aioredlock 0.7.3."""

__all__ = ["AioredlockError", "LockAcquiringError", "LockError", "LockRuntimeError"]


class AioredlockError(Exception):
    """Base of the errors of a lock."""


class LockError(AioredlockError):
    """The lock was not acquired, extended or released.

    If the reason is an error of this library, `__cause__` is that error.
    """


class LockAcquiringError(LockError):
    """No majority is possible, because nodes hold another identifier or no key.

    The usual cause is another client that holds the lock.
    """


class LockRuntimeError(LockError):
    """No majority of the nodes answered, or the manager cannot be used.

    A manager cannot be used if it is destroyed, or belongs to another event loop or process.
    """
