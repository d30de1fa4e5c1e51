"""Turn the arguments of a decorator or dependency into locks and into HTTP answers."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from aioredlock_ng import (
    ConfigurationError,
    LockLost,
    QuorumUnreachable,
    Redlock,
    UpgradeRefused,
)
from aioredlock_ng._core.request_labels import UnusableLabel, label_template
from aioredlock_ng._core.slots import checked_limit
from aioredlock_ng._manager.scan import checked_manager
from aioredlock_ng.guarded import described
from aioredlock_ng.options import check_shared, positive_seconds

from ._template import Template, UnusableValue

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aioredlock_ng import LockNotAcquired
    from aioredlock_ng._core.templates import Placeholder
    from aioredlock_ng.guarded import Manager

__all__ = ["UNAVAILABLE", "Answer", "Policy", "manager_or_none"]

L = TypeVar("L")

UNAVAILABLE: Final = 503
"""Status if no quorum of nodes can grant the lock, or if the lock was lost."""

_TIMES: Final = ("ttl", "blocking_timeout", "max_hold", "min_hold")
_SWITCHES: Final = ("fail_fast", "fair")
"""Options of `Redlock.lock` for the locks of requests.

The values of `_TIMES` are seconds or None. The values of `_SWITCHES` are True or False.
"""

_LOCKED: Final = 423
_TOO_MANY: Final = 429
_HELD: Final = (409, _LOCKED)
"""Possible values of `held_status` of a lock: 409 Conflict and 423 Locked.

The default is 423, because applications use 409 for conflicts of their own.
"""

_FULL: Final = (*_HELD, _TOO_MANY)
"""Possible values of `held_status` of a semaphore: 409, 423 and 429 Too Many Requests.

The default is 429, because many HTTP clients then repeat the request after Retry-After.
"""

_LONGEST: Final = 3600
"""Largest number of seconds that the Retry-After header takes from a lock's error.

A client should not wait longer, because an operator may have repaired the nodes by then.
"""


def manager_or_none(call: str, redlock: object) -> Redlock | None:
    """Return `redlock`, if it is a manager or None.

    Raises:
        ConfigurationError: `redlock` is neither a `Redlock` nor None.
    """
    if redlock is None:
        return None
    remedy = (
        f': write {call}(Redlock(["redis://10.0.0.1"])), or {call}() for the nodes in'
        " AIOREDLOCK_NG_NODES"
    )
    return checked_manager(call, redlock, remedy)


class Answer(NamedTuple):
    """The HTTP answer to the client. It does not contain the name of a node or a holder."""

    status: int
    detail: str
    headers: dict[str, str]


class Policy:
    """The locks and the answers that one call of `lock_for`, `locked` or `semaphore_for` defines.

    Args:
        templates: Names of the locks. The locks are acquired together. A semaphore has one name.
        options: Arguments of `Redlock.lock`, such as `ttl`, `fail_fast` and `fair`.
        held_status: HTTP status if other requests hold the lock or all slots: 409 or 423, and for a
            semaphore also 429. None: 423 for a lock, 429 for a semaphore.
        retry_after: Whole seconds for the Retry-After header. The header has a larger value if a
            longer wait is likely.
        limit: The number of slots of a semaphore. None for a lock.
        shared: True if the requests are readers of a read-write lock, which has one name.
        owner: The label, as a text with placeholders or as a function. None: the manager's label.

    Raises:
        ConfigurationError: An argument is invalid.

    Attributes:
        held_when: The meaning of `held_status`, for the description in OpenAPI.
    """

    def __init__(
        self,
        templates: tuple[str, ...],
        options: dict[str, Any],
        held_status: int | None,
        retry_after: int,
        limit: int | None = None,
        *,
        shared: bool = False,
        owner: object = None,
    ) -> None:
        if not templates:
            raise ConfigurationError("name at least one lock, like 'order:{order_id}'")
        if not isinstance(shared, bool):
            raise ConfigurationError(f"shared must be True or False, not {type(shared).__name__}")
        if shared:
            check_shared(options, len(templates), limit)
        if limit is not None and len(templates) > 1:
            raise ConfigurationError(
                f"a semaphore has one name, got {len(templates)}; limit= is not possible for"
                " several locks together"
            )
        statuses, usual = (_HELD, _LOCKED) if limit is None else (_FULL, _TOO_MANY)
        held_status = usual if held_status is None else held_status
        if held_status not in statuses:
            *others, last = map(str, statuses)
            only = "; 429 is for a semaphore" if held_status == _TOO_MANY else ""
            raise ConfigurationError(
                f"held_status must be {', '.join(others)} or {last}, got {held_status!r}{only}"
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
        self._owner = label_template(owner)
        self.templates = tuple(Template(text) for text in templates)
        self.held_status = held_status
        self.limit = None if limit is None else checked_limit(limit)
        self.shared = shared
        self.held_when = "Another request holds the lock"
        self._held_detail = "locked by another request; try again"
        if shared:
            self.held_when = "Another request holds the write lock, or waits for it"
        if limit is not None:
            self.held_when = "Other requests hold all slots"
            self._held_detail = "too many requests at a time; try again"
        self._retry_after = retry_after

    @classmethod
    def of(cls, templates: tuple[str, ...], given: Mapping[str, Any]) -> Self:
        """Return the policy for the arguments of `lock_for`, `locked` or `semaphore_for`.

        Args:
            templates: Names of the locks.
            given: All arguments of the call, by name. Arguments that a policy does not use are
                ignored.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        options = {name: given[name] for name in (*_TIMES, *_SWITCHES)}
        limit, shared = given.get("limit"), given.get("shared", False)
        return cls(
            templates,
            options,
            given["held_status"],
            given["retry_after"],
            limit,
            shared=shared,
            owner=given["owner"],
        )

    @property
    def placeholders(self) -> list[Placeholder]:
        return [placeholder for template in self.templates for placeholder in template.placeholders]

    def labelled(self, provided: Collection[str] = ()) -> list[Placeholder]:
        """Return the placeholders of the label whose names are not in `provided`."""
        found = [] if self._owner is None else self._owner.placeholders
        return [placeholder for placeholder in found if placeholder.name not in provided]

    def check(self, redlock: Manager[object]) -> None:
        """Check that a manager, for asyncio or for threads, accepts the options.

        Raises:
            ConfigurationError: The manager refuses an option, for example a ttl above its
                `max_ttl`.
        """
        self._described(redlock, ("a name",))

    def lock(
        self,
        redlock: Manager[L],
        values: Mapping[str, object],
        provided: Mapping[str, object] | None = None,
    ) -> L:
        """Return the lock for a request's values, without acquiring it.

        If several templates result in the same name, the lock contains this name once.

        Args:
            redlock: The manager, for asyncio or for threads.
            values: The objects that the templates use, by name.
            provided: Values for the label only. In the label, they replace `values` of the same
                name.

        Raises:
            UnusableValue: The request's values cannot form a name of a lock, or a label.
            ConfigurationError: The manager refuses an option, or a value lacks an attribute or has
                an unsupported type.
        """
        names = dict.fromkeys(template.fill(values) for template in self.templates)
        label = None
        if self._owner is not None:
            try:
                label = self._owner.label({**values, **(provided or {})})
            except UnusableLabel as error:
                raise UnusableValue(f"not possible as a lock's owner: {error}") from error
        try:
            return self._described(redlock, names, label)
        except ConfigurationError as error:
            # If an option caused the error, this call raises it again. Otherwise the name is
            # invalid.
            self.check(redlock)
            raise UnusableValue(f"not possible as a lock's name: {error}") from error

    def answer(self, error: LockNotAcquired | LockLost) -> Answer:
        """Return the answer to a request that did not get its lock, or lost it.

        Raises:
            UpgradeRefused: Raised if `error` is this error. The error is a mistake of the program,
                and a client that repeats its request would get it again.
        """
        if isinstance(error, UpgradeRefused):
            raise error
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
        """Return the longest time for which `min_hold` may keep the lock, or None if unknown.

        The result is at most `min_hold`, because the keys may live longer: a holder that still
        works renews them. Without `min_hold` the result is None, because the holder may release the
        lock long before the keys expire.
        """
        left, min_hold = getattr(error, "retry_after", None), self._options.get("min_hold")
        return None if left is None or min_hold is None else min(left, min_hold)

    def _described(
        self, redlock: Manager[L], names: Collection[str], label: str | None = None
    ) -> L:
        return described(redlock, names, self._options, self.limit, shared=self.shared, owner=label)

    def _answer(self, status: int, detail: str, after: float | None = None) -> Answer:
        seconds = max(self._retry_after, ceil(min(after or 0.0, _LONGEST)))
        return Answer(status, detail, {"Retry-After": str(seconds)})
