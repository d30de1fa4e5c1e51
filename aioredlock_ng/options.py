"""Hold all settings in one frozen, validated record. Every time is in float seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from aioredlock_ng._core.keys import KeyFormat
from aioredlock_ng._core.owners import checked_owner
from aioredlock_ng._core.validity import MIN_VALIDITY_SHARE, drift_of, least_ttl, ttl_ms
from aioredlock_ng.errors import ConfigurationError

__all__ = ["LONGEST_MAX_TTL", "Options", "positive_seconds", "whole_number"]

LONGEST_MAX_TTL = 86_400.0
"""Longest `max_ttl` in seconds with the recovery guard.

The nodes store `max_ttl` for all managers. A larger value is almost certainly in milliseconds.
"""


def positive_seconds(
    name: str, value: object, *, zero: bool = False, unit: str = " of seconds"
) -> float:
    """Return a time or another number given by a user. `unit` is its unit in errors.

    Raises:
        ConfigurationError: `value` is not a finite number above zero. With `zero`, the number zero
            is valid, too.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigurationError(f"{name} must be a number{unit}, not {type(value).__name__}")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and not zero):
        kind = f"finite number{unit}, zero or more" if zero else f"finite positive number{unit}"
        raise ConfigurationError(f"{name} must be a {kind}, got {value!r}")
    return seconds


def whole_number(name: str, value: object, least: int, most: int | None = None) -> int:
    """Return a whole number given by a user.

    Raises:
        ConfigurationError: `value` is no int, or not between `least` and `most`.
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
        node_timeout: Seconds after which a round goes on without a node that has not answered.
        drift_factor: Share of the ttl subtracted for clocks with different rates, 0 to 0.5. The
            Redlock text uses 0.01.
        min_validity: Seconds that must remain for a grant to count. None: a twentieth of the ttl.
        key_format: Redis key of a name. It contains `{name}` once.
        max_ttl: Longest ttl in seconds that a lock may ask for. At most 86,400 (a day) with a
            recovery guard. The nodes store the longest value of all managers, and a node that lost
            its memory waits that long (docs/operations.md, "To lower max_ttl").
        connect_timeout: Seconds for the connection and the handshake with one node.
        close_timeout: Seconds that `aclose()` waits for releases.
        fencing: Give every lease a fencing token. False: plain `SET NX PX` without repair of lost
            keys.
        recovery_guard: "auto": a node that lost its memory (restart, flush, failover) grants
            nothing for `max_ttl` plus a second. A wholly new set of nodes may vote at once.
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
    recovery_guard: str | None = "auto"
    owner: str | bool = True

    def __post_init__(self) -> None:
        """Check everything that needs no I/O."""
        for name in ("ttl", "node_timeout", "max_ttl", "connect_timeout", "close_timeout"):
            positive_seconds(name, getattr(self, name))
        if self.max_ttl > LONGEST_MAX_TTL and self.recovery_guard is not None:
            raise ConfigurationError(
                f"max_ttl={self.max_ttl:g} is more than {LONGEST_MAX_TTL:,.0f} seconds: a"
                " node that lost its memory would grant nothing for that time; give seconds"
                f" (if milliseconds were meant: max_ttl={self.max_ttl / 1000:g})"
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
            ConfigurationError: The ttl is no finite positive number, is above `max_ttl`, or is too
                small for `node_timeout`.
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
                f"ttl={ttl:g} is too small for node_timeout={self.node_timeout:g}: needed is"
                f" ttl - ttl * drift_factor - 0.002 - node_timeout >= {share}, that is ttl >="
                f" {least:.4g}; raise ttl or lower node_timeout"
            )
        return ttl

    def check_min_hold(self, value: object, max_hold: float | None) -> float:
        """Return a `min_hold` given by a user, checked against `max_ttl` and `max_hold`.

        Raises:
            ConfigurationError: It is no finite positive number, above `max_ttl`, or above
                `max_hold`.
        """
        min_hold = positive_seconds("min_hold", value)
        if min_hold > self.max_ttl:
            raise ConfigurationError(
                f"min_hold={min_hold:g} is above max_ttl={self.max_ttl:g} seconds; lower min_hold"
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
        """True if labels are written. They need the option and own keys of the library on nodes."""
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
        """Return the seconds of `ttl` that are subtracted for clock drift."""
        return drift_of(ttl, self.drift_factor)

    def least_validity(self, ttl: float) -> float:
        """Return the seconds of `ttl` that must remain for a grant to count."""
        return ttl * MIN_VALIDITY_SHARE if self.min_validity is None else self.min_validity
