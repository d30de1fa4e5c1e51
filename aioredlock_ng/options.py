"""Hold all settings in one frozen, validated record. Times are seconds, as floats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aioredlock_ng._core.keys import KeyFormat
from aioredlock_ng._core.owners import checked_owner
from aioredlock_ng._core.validity import MIN_VALIDITY_SHARE, drift_of, least_ttl, ttl_ms
from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "LONGEST_MAX_TTL",
    "LONGEST_WITHOUT_GUARD",
    "Options",
    "check_shared",
    "positive_seconds",
    "whole_number",
]

LONGEST_MAX_TTL = 86_400.0
"""Longest `max_ttl` in seconds with the recovery guard.

A larger value is almost certainly in milliseconds. A node that lost its memory would then grant
nothing for more than a day.
"""

LONGEST_WITHOUT_GUARD = 31_536_000.0
"""Longest `max_ttl` in seconds without the recovery guard: a year.

A message of a node to a waiter has room for three years, and servers refuse a very late expiry.
"""


def check_shared(options: Mapping[str, object], names: int = 1, limit: object = None) -> None:
    """Check the options of a lock that readers share.

    Args:
        options: Options of `Redlock.lock`.
        names: The number of the lock's names.
        limit: The number of slots; None if there are no slots.

    Raises:
        ConfigurationError: `fair`, `min_hold`, `limit` or more than one name is given.
    """
    for option in ("fair", "min_hold"):
        if options.get(option):
            raise ConfigurationError(
                f"{option} is not possible for a read-write lock; leave {option} out"
            )
    if limit is not None:
        raise ConfigurationError(
            "shared and limit exclude each other: readers have no limit; leave one of them out"
        )
    if names > 1:
        raise ConfigurationError(
            f"a read-write lock has one name, got {names}; shared=True is not possible for several"
            " locks together"
        )


def positive_seconds(
    name: str, value: object, *, zero: bool = False, unit: str = " of seconds"
) -> float:
    """Return a user's number, for example a time, as a float. Error messages contain `unit`.

    Raises:
        ConfigurationError: `value` is not a finite number above zero. With `zero`, the number zero
            is valid, too.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigurationError(f"{name} must be a number{unit}, not {type(value).__name__}")
    try:
        seconds = float(value)
    except OverflowError:
        # The error shows "inf", because Python refuses to print an int of more than 4,300 digits.
        seconds = value = math.inf if value > 0 else -math.inf
    if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and not zero):
        kind = f"finite number{unit}, zero or more" if zero else f"finite positive number{unit}"
        raise ConfigurationError(f"{name} must be a {kind}, got {value!r}")
    return seconds


def whole_number(name: str, value: object, least: int, most: int | None = None) -> int:
    """Return a whole number given by a user.

    Raises:
        ConfigurationError: `value` is not an int, or not between `least` and `most`.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(f"{name} must be a whole number, not {type(value).__name__}")
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ConfigurationError(f"{name} must be {bounds}, not {value}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of a `Redlock`.

    Attributes:
        ttl: Seconds until a lock expires without renewal. Default of every `lock()`.
        node_timeout: Longest time in seconds for which a round waits for the answer of a node.
        drift_factor: Share of the ttl, 0 to 0.5, that is subtracted because clocks run at different
            rates. The published description of Redlock uses 0.01.
        min_validity: A grant counts only if at least this many seconds of the ttl remain. None: a
            twentieth of the ttl.
        key_format: Format of the Redis keys of locks, with `{name}` exactly once.
        max_ttl: Longest ttl in seconds that a lock may have. At most 86,400 (a day) with a recovery
            guard, and 31,536,000 (a year) without one. The nodes store the longest value of all
            managers. A node that lost its memory waits for this time before it grants again; see
            "To lower max_ttl" in docs/operations.md.
        connect_timeout: Longest time in seconds for the connection and the handshake with one node.
        close_timeout: Longest time in seconds that `aclose()` waits for releases.
        fencing: Give every lease a fencing token. False: no fencing tokens, and no repair of lost
            keys.
        recovery_guard: "auto": a node that lost its memory (restart, flush, failover) grants
            nothing for `max_ttl` plus a second. A wholly new set of nodes may vote immediately.
            "strict": a new set waits as well. None: no guard.
        owner: Label of the holder, which `inspect` shows. The label is stored beside the keys of
            leases that are older than a tenth of a second. True: host, process and task. A text:
            one printable line of at most 200 bytes. False: no label.

    Raises:
        ConfigurationError: A setting is invalid. The message names the setting, the reason and the
            remedy.
    """

    ttl: float = 10.0
    node_timeout: float = 0.1
    drift_factor: float = 0.01
    min_validity: float | None = None
    key_format: str = "{name}"
    max_ttl: float = 60.0
    connect_timeout: float = 2.0
    close_timeout: float = 1.0
    fencing: bool = True
    recovery_guard: Literal["auto", "strict"] | None = "auto"
    owner: str | bool = True

    def __post_init__(self) -> None:
        """Check all settings, as far as possible without I/O."""
        for name in ("ttl", "node_timeout", "max_ttl", "connect_timeout", "close_timeout"):
            positive_seconds(name, getattr(self, name))
        if self.max_ttl > LONGEST_MAX_TTL and self.recovery_guard is not None:
            raise ConfigurationError(
                f"max_ttl={self.max_ttl:g} is more than {LONGEST_MAX_TTL:,.0f} seconds: a"
                " node that lost its memory would grant nothing for that time; give seconds"
                f" (if milliseconds were meant: max_ttl={self.max_ttl / 1000:g})"
            )
        if self.max_ttl > LONGEST_WITHOUT_GUARD:
            raise ConfigurationError(
                f"max_ttl={self.max_ttl:g} is more than {LONGEST_WITHOUT_GUARD:,.0f} seconds, a"
                f" year; give seconds (if milliseconds were meant: max_ttl={self.max_ttl / 1000:g})"
            )
        positive_seconds("drift_factor", self.drift_factor, zero=True, unit="")
        if self.drift_factor > 0.5:
            raise ConfigurationError(
                f"drift_factor must be a share between 0 and 0.5, got {self.drift_factor!r}"
            )
        if self.min_validity is not None:
            positive_seconds("min_validity", self.min_validity, zero=True)
        if not isinstance(self.key_format, str):
            raise ConfigurationError(
                f"key_format must be a str, not {type(self.key_format).__name__}"
            )
        KeyFormat(self.key_format)
        if not isinstance(self.fencing, bool):
            raise ConfigurationError(
                f"fencing must be True or False, not {type(self.fencing).__name__}"
            )
        if self.recovery_guard not in ("auto", "strict", None):
            raise ConfigurationError(
                f"recovery_guard must be 'auto', 'strict' or None, got {self.recovery_guard!r}"
            )
        checked_owner(self.owner)
        self.check_ttl(self.ttl)

    def check_ttl(self, value: object) -> float:
        """Return a ttl given by a user, checked against `max_ttl` and `node_timeout`.

        Raises:
            ConfigurationError: The ttl is not a finite positive number, is above `max_ttl`, or is
                too small for `node_timeout`.
        """
        ttl = positive_seconds("ttl", value)
        if ttl > self.max_ttl:
            hint = f" (if milliseconds were meant: ttl={ttl / 1000:g})" if ttl >= 1000 else ""
            raise ConfigurationError(
                f"ttl={ttl:g} is above max_ttl={self.max_ttl:g} seconds; lower the ttl or"
                f" raise max_ttl{hint}"
            )
        least = least_ttl(self.node_timeout, self.drift_factor, self.min_validity)
        if ttl < least:
            share = (
                "5 % of ttl" if self.min_validity is None else f"min_validity={self.min_validity:g}"
            )
            raise ConfigurationError(
                f"ttl={ttl:g} is too small for node_timeout={self.node_timeout:g}: the rule is"
                f" ttl - ttl * drift_factor - 0.002 - node_timeout >= {share}, that is ttl >="
                f" {least:.4g}; raise ttl or lower node_timeout"
            )
        return ttl

    def check_min_hold(
        self, value: object, max_hold: float | None, name: str = "min_hold"
    ) -> float:
        """Return a `min_hold` given by a user, checked against `max_ttl` and `max_hold`.

        Error messages use `name` as the name of the argument.

        Raises:
            ConfigurationError: The value is not a finite positive number, or it is above `max_ttl`
                or `max_hold`.
        """
        min_hold = positive_seconds(name, value)
        if min_hold > self.max_ttl:
            raise ConfigurationError(
                f"{name}={min_hold:g} is above max_ttl={self.max_ttl:g} seconds; lower {name}"
                " or raise max_ttl"
            )
        if max_hold is not None and min_hold > max_hold:
            raise ConfigurationError(
                f"min_hold={min_hold:g} is above max_hold={max_hold:g}; lower min_hold or raise"
                " max_hold"
            )
        return min_hold

    @property
    def labelled(self) -> bool:
        """True if labels are written: `owner` is not False, and the library stores its own keys."""
        return self.owner is not False and self.own_keys

    @property
    def own_keys(self) -> bool:
        """True if the library stores keys of its own on every node."""
        return self.fencing or self.recovery_guard is not None

    @property
    def guard_ms(self) -> int:
        """Milliseconds for which a client may still hold a lock that a node forgot."""
        return ttl_ms(self.max_ttl)

    def drift(self, ttl: float) -> float:
        """Return the part of `ttl`, in seconds, that is subtracted for clock drift."""
        return drift_of(ttl, self.drift_factor)

    def least_validity(self, ttl: float) -> float:
        """Return the least remaining time, in seconds, that a grant must have to count."""
        return ttl * MIN_VALIDITY_SHARE if self.min_validity is None else self.min_validity
