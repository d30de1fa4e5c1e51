"""Define the range of a fence, and the error for an outdated fence."""

from __future__ import annotations

from typing import Any, Final

from aioredlock_ng.errors import ConfigurationError, RedlockError

__all__ = ["MAX_FENCE", "StaleFence", "usable_fence"]

MAX_FENCE: Final = 2**53 - 1
"""The largest fence.

Redis scripts compute with doubles, which are exact up to this number. The number of microseconds
since 1970 reaches this limit in the year 2255.
"""


class StaleFence(RedlockError):
    """The resource has seen a newer fence and refused the operation, which had no effect.

    Usually the lease of the refused fence has ended, even if its holder has not noticed it yet.
    A `FenceGuard` can also refuse a current holder. In both cases, acquire the lock again before
    any further work.

    Attributes:
        resource: The resource that was to be read or written, as named by the caller.
        fence: The fence that was refused.
        seen: The lowest fence that the resource still accepts.
    """

    def __init__(self, resource: str | bytes, fence: int, seen: int) -> None:
        super().__init__(
            f"the fence {fence} of {resource!r} is outdated: the resource has seen {seen}"
        )
        self.resource = resource
        self.fence = fence
        self.seen = seen

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.resource, self.fence, self.seen), self.__dict__)


def usable_fence(fence: object, name: str = "fence") -> int:
    """Return the fence if it is valid.

    Args:
        fence: The fence, or any other object.
        name: Name of the argument in error messages.

    Raises:
        ConfigurationError: The fence is not an int, is negative or is above `MAX_FENCE`. A lock
            without fencing has the fence None.
    """
    if not isinstance(fence, int) or isinstance(fence, bool):
        raise ConfigurationError(
            f"{name} must be an int, like lease.fence of a lock with fencing,"
            f" not {type(fence).__name__}"
        )
    if not 0 <= fence <= MAX_FENCE:
        raise ConfigurationError(f"{name} must be from 0 to 2**53 - 1, not {fence}")
    return fence
