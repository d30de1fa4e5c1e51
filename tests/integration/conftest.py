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
    """Who is not woken by the servers sleeps until long after the test has failed."""
    monkeypatch.setattr(place, "REFRESH_EVERY", 300.0)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Told]:
    """It has all log lines too, when the test is over."""
    caplog.set_level(logging.DEBUG, logger="aioredlock_ng")
    told = Told()
    yield told
    told.texts.append(caplog.text)
    told.assert_harmless()
