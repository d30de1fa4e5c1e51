"""The errors users catch; it never formats a client object, a whole token or a password."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Vote

__all__ = [
    "AcquireTimeout",
    "ConfigurationError",
    "LockHeld",
    "LockLost",
    "LockNotAcquired",
    "LockReleased",
    "QuorumUnreachable",
    "RedlockClosed",
    "RedlockError",
]


class RedlockError(Exception):
    """Base of every error raised by this library."""


class ConfigurationError(RedlockError, ValueError):
    """An argument is wrong; the message names it and the remedy. Raised before any I/O on behalf of the call.

    Two exceptions ask the nodes first and change nothing there: `open` where two nodes are the same
    server, and `force_release` where the key is no lock.
    """


class RedlockClosed(RedlockError):
    """The manager is not open: before `open()`, after `aclose()`, in another event loop or none, or after a fork."""


class LockReleased(RedlockError):
    """The lease was released or abandoned before; it cannot be checked, verified or extended any more."""


class _Asked(RedlockError):
    """An error that comes from asking nodes.

    Attributes:
        resource: The lock's name as given (several names are joined by ", ").
        votes: One `Vote` per node of the last round; empty when no node was asked.
        elapsed: Seconds from the call to the error.
    """

    def __init__(
        self,
        message: str,
        *,
        resource: str = "",
        votes: tuple[Vote, ...] = (),
        elapsed: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.resource = resource
        self.votes = votes
        self.elapsed = elapsed


class LockNotAcquired(_Asked):
    """The lock was not acquired, and nothing of the attempt is left behind beyond its ttl."""


class LockHeld(LockNotAcquired):
    """Another holder (or a contender in the same instant) has it, and the caller did not want to wait.

    Attributes:
        owner: The label of its holder, which the message shows too; None where no label was found. A holder writes it
            once its lease is a tenth of a second old.
    """

    owner: str | None = None


class AcquireTimeout(LockNotAcquired, TimeoutError):
    """`blocking_timeout` passed while another held it.

    Attributes:
        owner: As of `LockHeld`.
    """

    owner: str | None = None


class QuorumUnreachable(LockNotAcquired):
    """Too few nodes could be asked, or too many refused for reasons of their own, for any quorum to be possible.

    Attributes:
        retry_after: Seconds until a quorum may grant again, as far as known: what is left of
            quarantines, 0.0 where enough nodes could now; None where it is not known.
    """

    retry_after: float | None = None


class LockLost(_Asked):
    """The lease ended before it was released: unrenewed by its deadline, taken away, or held beyond `max_hold`.

    Attributes:
        elapsed: Seconds from the beginning of the attempt that acquired it to the loss, whenever this is raised.
    """
