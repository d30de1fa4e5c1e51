from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng._engine.waiting import place
from tests.support.told import Told

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make refreshes so rare that only a message from a server wakes a waiter in time."""
    monkeypatch.setattr(place, "REFRESH_EVERY", 300.0)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Told]:
    """Collect texts, and check them for secrets at the end, together with all log lines."""
    caplog.set_level(logging.DEBUG, logger="aioredlock_ng")
    told = Told()
    yield told
    told.texts.append(caplog.text)
    told.assert_harmless()
