from __future__ import annotations

import pytest

from aioredlock_ng._engine import waker


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not woken by the servers sleeps until long after the test has failed."""
    monkeypatch.setattr(waker, "TRACKED_POLL", 300.0)
