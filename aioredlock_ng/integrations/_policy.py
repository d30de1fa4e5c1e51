"""Decide which locks a request needs, and which answer it gets without them."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from aioredlock_ng import ConfigurationError, LockLost, QuorumUnreachable, Redlock
from aioredlock_ng.options import positive_seconds

from ._template import Template, UnusableValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioredlock_ng import LockNotAcquired
    from aioredlock_ng._core.templates import Placeholder

__all__ = ["UNAVAILABLE", "Answer", "Policy", "checked_manager"]

L = TypeVar("L")

UNAVAILABLE: Final = 503
"""Service Unavailable: no quorum of nodes, or a lost lock."""

_SWITCHES = ("fail_fast", "fair")
"""Options that are True or False. The other options are times."""

_HELD: Final = (409, 423)
"""Possible values of `held_status`: 409 Conflict and 423 Locked.

423 Locked describes the case exactly and cannot be confused with a conflict of the application.
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


class Answer(NamedTuple):
    """The answer to the client. It contains no lock name, node or holder."""

    status: int
    detail: str
    headers: dict[str, str]


class Policy:
    """The rules of one `lock_for` or `locked`.

    Args:
        templates: Names of the locks, which are acquired together.
        options: Arguments of `Redlock.lock`: times, `fail_fast` and `fair`.
        held_status: Status if another request holds the lock: 409 or 423.
        retry_after: Whole seconds for the Retry-After header. The header has a larger value if it
            is known that no quorum of nodes can grant before that time.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(
        self,
        templates: tuple[str, ...],
        options: dict[str, Any],
        held_status: int,
        retry_after: int,
    ) -> None:
        if not templates:
            raise ConfigurationError("name at least one lock, like 'order:{order_id}'")
        if held_status not in _HELD:
            raise ConfigurationError(f"held_status must be 409 or 423, got {held_status!r}")
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
        self.templates = tuple(Template(text) for text in templates)
        self.held_status = held_status
        self._retry_after = retry_after
        self._options = options

    @property
    def placeholders(self) -> list[Placeholder]:
        """Placeholders of the templates, in their order."""
        return [placeholder for template in self.templates for placeholder in template.placeholders]

    def check(self, describe: Callable[..., object]) -> None:
        """Check that a manager accepts the options.

        Args:
            describe: The method `lock` of the manager.

        Raises:
            ConfigurationError: A ttl is above the manager's `max_ttl`, or too small for its
                `node_timeout`.
        """
        describe("a name", **self._options)

    def lock(self, describe: Callable[..., L], values: Mapping[str, object]) -> L:
        """Describe the lock for a request's values. Equal names count once. No I/O.

        Args:
            describe: The method `lock` of the manager, of either kind.
            values: The value of each placeholder.

        Raises:
            UnusableValue: The request's values form no name.
            ConfigurationError: The template or an option is invalid for all values.
        """
        names = dict.fromkeys(template.fill(values) for template in self.templates)
        try:
            return describe(*names, **self._options)
        except ConfigurationError as error:
            self.check(describe)
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
        return self._answer(self.held_status, "locked by another request; try again")

    def _answer(self, status: int, detail: str, after: float | None = None) -> Answer:
        seconds = max(self._retry_after, ceil(min(after or 0.0, _LONGEST)))
        return Answer(status, detail, {"Retry-After": str(seconds)})
