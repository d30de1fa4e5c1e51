"""Decide which locks a request needs, and which answer it gets without them."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from aioredlock_ng import ConfigurationError, LockLost, QuorumUnreachable, Redlock
from aioredlock_ng._core.slots import checked_limit
from aioredlock_ng.options import positive_seconds

from ._template import Template, UnusableValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aioredlock_ng import LockNotAcquired
    from aioredlock_ng._core.templates import Placeholder

__all__ = ["UNAVAILABLE", "Answer", "Manager", "Policy", "checked_manager"]

L = TypeVar("L", covariant=True)

UNAVAILABLE: Final = 503
"""Service Unavailable: no quorum of nodes, or a lost lock."""

_SWITCHES = ("fail_fast", "fair")
"""Options that are True or False. The other options are times."""

_HELD: Final = (409, 423)
"""Possible values of `held_status` of a lock: 409 Conflict and 423 Locked.

423 Locked describes the case exactly and cannot be confused with a conflict of the application.
"""

_FULL: Final = (409, 423, 429)
"""Possible values of `held_status` of a semaphore: also 429 Too Many Requests.

Many HTTP clients repeat a request after 429 by themselves, at the time in Retry-After.
"""

_LONGEST: Final = 3600
"""Longest wait in seconds that an answer advises.

An operator may repair the nodes before a longer wait ends.
"""


def checked_manager(call: str, redlock: object) -> Redlock | None:
    """Return the manager that a user gave, or None.

    Raises:
        ConfigurationError: The object is no `Redlock`. The message does not contain its text,
            because a URL may contain a password.
    """
    if redlock is not None and not isinstance(redlock, Redlock):
        raise ConfigurationError(
            f"{call}() takes a Redlock, not {type(redlock).__name__}: write"
            f' {call}(Redlock(["redis://10.0.0.1"])), or {call}() for the nodes in'
            " AIOREDLOCK_NG_NODES"
        )
    return redlock


class Manager(Protocol[L]):
    """A manager of asyncio or of threads. L is its type of lock."""

    @property
    def lock(self) -> Callable[..., L]:
        """The method that describes a lock."""

    @property
    def semaphore(self) -> Callable[..., L]:
        """The method that describes a semaphore."""


class Answer(NamedTuple):
    """The answer to the client. It contains no lock name, node or holder."""

    status: int
    detail: str
    headers: dict[str, str]


class Policy:
    """The rules of one `lock_for`, `locked` or `semaphore_for`.

    Args:
        templates: Names of the locks, which are acquired together. A semaphore has one name.
        options: Arguments of `Redlock.lock`: times, `fail_fast` and `fair`.
        held_status: Status if other requests hold the lock or all slots: 409 or 423, and for a
            semaphore also 429.
        retry_after: Whole seconds for the Retry-After header. The header has a larger value if it
            is known that the lock cannot be granted before that time.
        limit: The number of slots of a semaphore; None for a lock.

    Raises:
        ConfigurationError: An argument is invalid.

    Attributes:
        held_when: The reason for `held_status`, for the reader of an API's description.
    """

    def __init__(
        self,
        templates: tuple[str, ...],
        options: dict[str, Any],
        held_status: int,
        retry_after: int,
        limit: int | None = None,
    ) -> None:
        if not templates:
            raise ConfigurationError("name at least one lock, like 'order:{order_id}'")
        statuses = _HELD if limit is None else _FULL
        if held_status not in statuses:
            *others, last = map(str, statuses)
            raise ConfigurationError(
                f"held_status must be {', '.join(others)} or {last}, got {held_status!r}"
            )
        if type(retry_after) is not int or retry_after < 0:
            raise ConfigurationError(
                f"retry_after must be whole seconds, 0 or more, got {retry_after!r}"
            )
        for name, value in options.items():
            if name in _SWITCHES:
                if not isinstance(value, bool):
                    raise ConfigurationError(
                        f"{name} must be True or False, not {type(value).__name__}"
                    )
            elif value is not None:
                positive_seconds(name, value, zero=name == "blocking_timeout")
        self._options = options
        self.templates = tuple(Template(text) for text in templates)
        self.held_status = held_status
        self.limit = limit
        self.held_when = "Another request holds the lock"
        self._held_detail = "locked by another request; try again"
        if limit is not None:
            self._options = {"limit": checked_limit(limit), **options}
            self.held_when = "Other requests hold all slots"
            self._held_detail = "too many requests at a time; try again"
        self._retry_after = retry_after

    @property
    def placeholders(self) -> list[Placeholder]:
        """Placeholders of the templates, in their order."""
        return [placeholder for template in self.templates for placeholder in template.placeholders]

    def check(self, redlock: Manager[object]) -> None:
        """Check that a manager, of either kind, accepts the options.

        Raises:
            ConfigurationError: A ttl is above the manager's `max_ttl`, or too small for its
                `node_timeout`.
        """
        self._described(redlock, ("a name",))

    def lock(self, redlock: Manager[L], values: Mapping[str, object]) -> L:
        """Describe the lock for a request's values. Equal names count once. No I/O.

        Args:
            redlock: The manager, of either kind.
            values: The value of each placeholder.

        Raises:
            UnusableValue: The request's values form no name.
            ConfigurationError: The template or an option is invalid for all values.
        """
        names = dict.fromkeys(template.fill(values) for template in self.templates)
        try:
            return self._described(redlock, names)
        except ConfigurationError as error:
            self.check(redlock)
            raise UnusableValue(f"not possible as a lock's name: {error}") from error

    def answer(self, error: LockNotAcquired | LockLost) -> Answer:
        """Return the answer for an error of the lock."""
        if isinstance(error, LockLost):
            return self._answer(
                UNAVAILABLE, "the lock was lost; the request may or may not have taken effect"
            )
        if isinstance(error, QuorumUnreachable):
            return self._answer(
                UNAVAILABLE, "locks are not available; try again", error.retry_after
            )
        return self._answer(self.held_status, self._held_detail, self._taken_for(error))

    def _taken_for(self, error: LockNotAcquired) -> float | None:
        """Return the seconds for which the lock is certainly taken, if they are known.

        A holder renews its keys until it releases them, so their remaining life says nothing about
        the end of its request. Keys that `min_hold` keeps after the release are not renewed.
        """
        left, min_hold = getattr(error, "retry_after", None), self._options.get("min_hold")
        return None if left is None or min_hold is None else min(left, min_hold)

    def _described(self, redlock: Manager[L], names: Iterable[str]) -> L:
        make = redlock.lock if self.limit is None else redlock.semaphore
        return make(*names, **self._options)

    def _answer(self, status: int, detail: str, after: float | None = None) -> Answer:
        seconds = max(self._retry_after, ceil(min(after or 0.0, _LONGEST)))
        return Answer(status, detail, {"Retry-After": str(seconds)})
