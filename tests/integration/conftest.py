from __future__ import annotations

import pytest

from aioredlock_ng._engine.waiting import place


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not woken by the servers sleeps until long after the test has failed."""
    monkeypatch.setattr(place, "LOOK_EVERY", 300.0)
