"""Define the errors that users catch.

No message contains a client object, a whole token or a password.
"""

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
    "UpgradeRefused",
]


class RedlockError(Exception):
    """Base of every error raised by this library."""


class ConfigurationError(RedlockError, ValueError):
    """Report an invalid argument. The message names the argument and the remedy.

    The library raises this error before any I/O of the call, with two exceptions. `open` asks the
    nodes whether two of them are the same server, and `force_release` asks whether the key is a
    lock. Neither method changes a lock before it raises this error.
    """


class RedlockClosed(RedlockError):
    """Report that the manager cannot be used here.

    The manager was not opened, was closed, belongs to another event loop, or was opened before a
    fork. The error is also raised if no event loop runs. `open` also raises this error if the
    manager is already open.
    """


class LockReleased(RedlockError):
    """Report the use of a lease that was already released or abandoned."""


class _Asked(RedlockError):
    """Base of the errors that follow from the answers of the nodes.

    Attributes:
        resource: The lock's name as given. Several names are joined by ", ".
        votes: One `Vote` per node of the last round. Empty if no node was asked.
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
    """The lock was not acquired. Any key that the attempt left behind expires within the ttl."""


class LockHeld(LockNotAcquired):
    """Another client holds the lock, or contended for the lock at the same moment.

    The caller did not wait.

    Attributes:
        owner: The label of the holder, which the message contains as well. None if no label was
            found. A holder writes its label once its lease is a tenth of a second old.
        retry_after: The shortest of the remaining lives of the holder's keys, in seconds, as the
            nodes reported them. The holder may release the lock earlier, or renew it. None if no
            node reported a remaining life.
    """

    owner: str | None = None
    retry_after: float | None = None


class UpgradeRefused(LockHeld):
    """A task asks to write while it reads the same lock. The task would wait for itself.

    Two readers that both asked to write would wait for each other. Leave the block that reads, and
    acquire `write()`. Then read the data again before you change the data.
    """


class AcquireTimeout(LockNotAcquired, TimeoutError):
    """Another client held the lock until `blocking_timeout` was over.

    Attributes:
        owner: The label of the holder, as in `LockHeld`.
        retry_after: The shortest remaining life of the holder's keys, as in `LockHeld`.
    """

    owner: str | None = None
    retry_after: float | None = None


class QuorumUnreachable(LockNotAcquired):
    """No quorum was possible: too few nodes answered, or too many nodes could not grant any lock.

    Attributes:
        retry_after: Seconds until a quorum may grant again: the remaining time of quarantines, or
            0.0 if enough nodes may grant now. None if the time is not known.
    """

    retry_after: float | None = None


class LockLost(_Asked):
    """The lease ended before its release.

    The lease was not renewed before its deadline, a quorum of nodes lost its key, or the lease
    exceeded `max_hold`.

    Attributes:
        elapsed: Seconds from the start of the attempt that acquired the lease to the loss. A later
            raise of this error does not change the value.
    """
