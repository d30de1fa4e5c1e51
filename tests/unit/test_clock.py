"""The clock of all deadlines.

It goes on during suspend, as the clocks of servers do, and no user can set it back.
"""

from __future__ import annotations

import inspect
import runpy
import sys
import time

import pytest

from aioredlock_ng import Redlock
from aioredlock_ng import _clock as clock


def test_the_clock_is_boot_time_where_the_system_has_that_clock() -> None:
    wanted = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    before, now, after = time.clock_gettime(wanted), clock.boottime(), time.clock_gettime(wanted)
    assert before <= now <= after


@pytest.mark.parametrize(
    ("platform", "clocks", "chosen"),
    [
        ("linux", {"CLOCK_BOOTTIME": 7, "CLOCK_MONOTONIC_RAW": 4}, 7),
        ("darwin", {"CLOCK_MONOTONIC_RAW": 4}, 4),
        ("darwin", {"CLOCK_BOOTTIME": 7, "CLOCK_MONOTONIC_RAW": 4}, 7),
        ("darwin", {}, None),
        ("freebsd14", {"CLOCK_MONOTONIC_RAW": 4}, None),
        ("win32", {}, None),
    ],
)
def test_the_clock_of_each_system_goes_on_while_the_machine_sleeps(
    platform: str, clocks: dict[str, int], chosen: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC_RAW"):
        monkeypatch.delattr(time, name, raising=False)
        if name in clocks:
            monkeypatch.setattr(time, name, clocks[name], raising=False)
    monkeypatch.setattr(time, "clock_gettime", float)
    monkeypatch.setattr(time, "monotonic", lambda: -1.0)
    now = runpy.run_path(clock.__file__)["boottime"]()
    monkeypatch.undo()
    assert now == (-1.0 if chosen is None else chosen)


def test_managers_use_the_boot_time_clock_by_default() -> None:
    assert inspect.signature(Redlock).parameters["clock"].default is clock.boottime
    assert Redlock(["redis://a"])._clock is clock.boottime
