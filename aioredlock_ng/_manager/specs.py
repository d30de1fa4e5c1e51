"""Turn the arguments of `Redlock.lock` into the settings with which the engine works."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypedDict

from aioredlock_ng._core.fencing import slot_of
from aioredlock_ng._core.keys import MAX_NAMES, KeyFormat, resource_name, slot_key
from aioredlock_ng._core.owners import checked_label
from aioredlock_ng._core.slots import checked_limit
from aioredlock_ng._core.validity import keys_life, ttl_ms, watch_after
from aioredlock_ng._engine.spec import Life, LockSpec, Numbered
from aioredlock_ng._scripts.exclusive_kinds import MUTEX, guarded_mutex
from aioredlock_ng._scripts.reader_kind import read_side
from aioredlock_ng.errors import ConfigurationError
from aioredlock_ng.options import check_shared, positive_seconds

if TYPE_CHECKING:
    from aioredlock_ng._scripts.exclusive_kinds import LockKind
    from aioredlock_ng.options import Options

__all__ = ["SpecOptions", "Specs"]

_GRANT_SLACK: Final = 0.1
"""Seconds by which the event loop may delay a grant with `min_hold`.

The keys outlast `min_hold` even if the grant takes two node timeouts plus this time.
"""

_MOST_SPECS: Final = 4096
"""Largest number of names whose settings a manager keeps, in about 2 MB."""


_MOST_SLOTS: Final = 65_536
"""Largest number of slots whose settings a manager keeps, in about 20 MB."""


class SpecOptions(TypedDict, total=False):
    """The options of `Redlock.lock` that the engine needs."""

    ttl: float | None
    auto_extend: bool
    max_hold: float | None
    min_hold: float | None
    owner: str | None
    fail_fast: bool
    fair: bool


class Specs:
    """The settings of the locks of one manager.

    Args:
        options: The manager's options.
        run_id: Placeholder in commands. Each connection replaces the placeholder by the run id of
            its server.

    Attributes:
        keys: Converts names to Redis keys.
        kind: The `LockKind` of locks, semaphores and writers.
        reading: The `LockKind` of readers.
        usual: Maps the name of a lock to its settings, for locks that have only the manager's own
            options. Making these settings anew would cost a microsecond per call of `lock`.
    """

    def __init__(self, options: Options, run_id: bytes) -> None:
        self._options = options
        self.keys = KeyFormat(options.key_format)
        self.kind = _kind_of(options, run_id)
        self.reading = read_side(self.kind)
        self.usual: dict[str, LockSpec] = {}
        self._life = self._life_of(options.ttl)
        self._semaphores: dict[tuple[str, int], LockSpec] = {}
        self._slots = 0

    def usual_spec(self, name: str) -> LockSpec:
        """Return the settings of a lock with the manager's own options. Keep them in `usual`."""
        if len(self.usual) >= _MOST_SPECS:
            self.usual.clear()
        self.usual[name] = spec = self.spec((name,))
        return spec

    def spec(
        self,
        names: tuple[str | bytes, ...],
        ttl: float | None = None,
        auto_extend: bool = True,
        max_hold: float | None = None,
        min_hold: float | None = None,
        owner: str | None = None,
        *,
        fail_fast: bool = False,
        fair: bool = False,
    ) -> LockSpec:
        """Check the arguments of `lock`, and return the settings that follow from them."""
        if len(names) > MAX_NAMES:
            raise ConfigurationError(
                f"a lock takes at most {MAX_NAMES:,} names at once, got {len(names):,}; lock"
                " one name that stands for all of them"
            )
        # All clients acquire keys in the same order. Otherwise two clients that want the same two
        # names could wait for each other.
        keys = tuple(sorted(map(self.keys.key, names)))
        if len(set(keys)) != len(keys):
            raise ConfigurationError(
                f"lock names {resource_name(names)!r} contain one name twice; name each once"
            )
        slots = tuple(dict.fromkeys(map(slot_of, keys)))
        if max_hold is not None:
            max_hold = positive_seconds("max_hold", max_hold)
        if not isinstance(auto_extend, bool):
            raise ConfigurationError(
                f"auto_extend must be True or False, not {type(auto_extend).__name__}"
            )
        if not isinstance(fail_fast, bool):
            raise ConfigurationError(
                f"fail_fast must be True or False, not {type(fail_fast).__name__}"
            )
        if not isinstance(fair, bool):
            raise ConfigurationError(f"fair must be True or False, not {type(fair).__name__}")
        if owner is not None:
            owner = checked_label(owner)
        if min_hold is not None:
            min_hold = self._options.check_min_hold(min_hold, max_hold)
        if ttl is None and min_hold is None:
            life = self._life
        else:
            ttl = self._options.ttl if ttl is None else self._options.check_ttl(ttl)
            life = self._life_of(ttl, min_hold or 0.0)
        resource = resource_name(names)
        return LockSpec(
            self.kind,
            resource,
            names,
            keys,
            slots,
            life,
            auto_extend,
            max_hold,
            owner,
            fail_fast,
            fair,
        )

    def semaphore(self, name: str | bytes, limit: int, options: SpecOptions) -> LockSpec:
        """Check the arguments of `semaphore`, and return the settings that follow from them."""
        checked_limit(limit)
        usual = (name, limit) if not options and type(name) is str else None
        if usual is not None and (spec := self._semaphores.get(usual)) is not None:
            return spec
        whole = self.spec((name,), **options)
        (key,) = whole.keys

        def slot(number: int) -> LockSpec:
            keys = (slot_key(key, number),)
            return replace(whole, keys=keys, counters=(slot_of(keys[0]),), number=number)

        keys = tuple(slot_key(key, number) for number in range(1, limit + 1))
        spec = replace(whole, keys=keys, counters=(), slots=Numbered(key, limit, slot))
        if usual is not None:
            self._slots += limit
            if self._slots > _MOST_SLOTS:
                self._semaphores.clear()
                self._slots = limit
            self._semaphores[usual] = spec
        return spec

    def rwlock(self, name: str | bytes, options: SpecOptions) -> LockSpec:
        """Check the arguments of `rwlock`, and return the settings of its writers."""
        check_shared(options)
        whole = self.spec((name,), **options)
        return replace(whole, reading=replace(whole, kind=self.reading))

    def _life_of(self, ttl: float, min_hold: float = 0.0) -> Life:
        options = self._options
        life, drift, least = ttl, options.drift(ttl), options.least_validity(ttl)
        if min_hold:
            # A node that lost its memory votes again `max_ttl` plus a second after the loss.
            # So `within` plus `min_hold` must not be longer than that.
            within = min(2 * options.node_timeout + _GRANT_SLACK, options.max_ttl + 1.0 - min_hold)
            life = keys_life(ttl, min_hold, within, options.drift_factor)
            # If a grant took longer than `latest` seconds, its keys could expire before the end of
            # `min_hold`. The raised `least` excludes such a grant.
            latest = life - options.drift(life) - min_hold
            least = max(least, ttl - drift - latest)
        return Life(ttl, b"%d" % ttl_ms(life), drift, least, watch_after(ttl), min_hold)


def _kind_of(options: Options, run_id: bytes) -> LockKind:
    own_marker = b"" if options.recovery_guard is None else b"%b:%d" % (run_id, options.guard_ms)
    return (
        guarded_mutex(fencing=options.fencing, own_marker=own_marker)
        if options.fencing or own_marker
        else MUTEX
    )
