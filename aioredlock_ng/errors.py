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
    """Base of all errors in this module.

    The class itself is raised for a call at a wrong time, or in a wrong task or thread. An example
    is a second `run` of a candidate that already leads.
    """


class ConfigurationError(RedlockError, ValueError):
    """Report an invalid argument. The message names the argument and the remedy.

    Most methods raise this error before any I/O. Two methods of a manager may raise it after
    requests to the nodes: `open`, if two nodes are the same server, and `force_release`, if the key
    is not a lock. In both cases, no lock was changed.
    """


class RedlockClosed(RedlockError):
    """Report that the manager cannot be used here.

    The manager was not opened, was closed, belongs to another event loop, or was opened before a
    fork. The error is also raised if no event loop runs. `open` also raises this error if the
    manager is already open.
    """


class LockReleased(RedlockError):
    """Report the use of a lease that was already released or abandoned.

    The end of an `async with` of an election also raises this error, if `resign` ended the term.
    """


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
    """The lock was not acquired. Keys that the attempt left on nodes are released or expire.

    The class itself is raised by a candidate of an election that resigned while it waited.
    """


class LockHeld(LockNotAcquired):
    """Another client holds the lock, or contended for the lock at the same moment.

    The error is also raised if the caller itself holds the lock, because the caller would wait for
    itself for ever.

    Attributes:
        owner: The label of the holder, which the message contains as well. None if no label was
            found. A holder writes its label once its lease is a tenth of a second old.
        retry_after: Seconds until the first of the holder's keys expires, as the nodes reported.
            The holder may release the lock earlier, or renew it. None if no node reported a time.
    """

    owner: str | None = None
    retry_after: float | None = None


class UpgradeRefused(LockHeld):
    """A task requests `write()` while it holds `read()` of the same lock.

    The task would wait for itself. Leave the block of `read()`, and acquire `write()`. Then read
    the data again before you change the data.
    """


class AcquireTimeout(LockNotAcquired, TimeoutError):
    """Another client held the lock until `blocking_timeout` was over.

    Attributes:
        owner: The label of the holder, as in `LockHeld`.
        retry_after: Seconds until the first of the holder's keys expires, as in `LockHeld`.
    """

    owner: str | None = None
    retry_after: float | None = None


class QuorumUnreachable(LockNotAcquired):
    """Too few nodes answered in time, or too many nodes cannot grant any lock at present.

    Attributes:
        retry_after: Seconds until a quorum may grant again: the remaining time of quarantines, or
            0.0 if enough nodes may grant now. None if the time is not known.
    """

    retry_after: float | None = None


class LockLost(_Asked):
    """The lease ended before its release, or a leader had to step down.

    For example, no renewal succeeded before the deadline, a quorum of nodes lost the key, or
    `max_hold` was over.

    Attributes:
        elapsed: Seconds from the start of the lease to the loss, even if the error is raised later.
    """
