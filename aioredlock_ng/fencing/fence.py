"""What a fence may be, and the error for one that is out of date; it keeps no record of fences itself."""

from __future__ import annotations

from typing import Any, Final

from aioredlock_ng.errors import ConfigurationError, RedlockError

__all__ = ["MAX_FENCE", "StaleFence", "usable_fence"]

MAX_FENCE: Final = 2**53 - 1
"""The largest fence. Redis scripts compare doubles, which are exact up to here; microseconds since 1970 get there in 2255."""


class StaleFence(RedlockError):
    """The resource has been shown a newer fence: another holds the lock now, or did. The operation was not carried out.

    The lease that the fence came from is over, whether or not its holder knows it yet. Start again from acquiring the lock.

    Attributes:
        resource: What was to be read or written, as named by the caller.
        fence: The fence that was refused.
        seen: The newest fence that the resource knows of.
    """

    def __init__(self, resource: str | bytes, fence: int, seen: int) -> None:
        super().__init__(
            f"the fence {fence} of {resource!r} is out of date: {seen} was seen already"
        )
        self.resource = resource
        self.fence = fence
        self.seen = seen

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.resource, self.fence, self.seen), self.__dict__)


def usable_fence(fence: object, name: str = "fence") -> int:
    """Return the fence if it can be one; `name` is what the errors call it.

    Raises:
        ConfigurationError: It is no int (the fence of a lock without fencing is None), negative, or above `MAX_FENCE`.
    """
    if not isinstance(fence, int) or isinstance(fence, bool):
        raise ConfigurationError(
            f"{name} must be an int, like lease.fence of a lock with fencing, not {type(fence).__name__}"
        )
    if not 0 <= fence <= MAX_FENCE:
        raise ConfigurationError(f"{name} must be from 0 to 2**53 - 1, not {fence}")
    return fence
