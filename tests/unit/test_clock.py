"""The clock that everything else rests on: it goes on during suspend, as the servers' does, and nobody can set it back."""

from __future__ import annotations

import inspect
import time

from aioredlock_ng import Redlock
from aioredlock_ng._engine import clock


def test_it_is_boot_time_where_there_is_such_a_clock() -> None:
    wanted = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    before, now, after = time.clock_gettime(wanted), clock.boottime(), time.clock_gettime(wanted)
    assert before <= now <= after


def test_managers_use_it_and_no_deadline_comes_from_the_wall_clock() -> None:
    assert inspect.signature(Redlock).parameters["clock"].default is clock.boottime
    assert Redlock(["redis://a"])._clock is clock.boottime
