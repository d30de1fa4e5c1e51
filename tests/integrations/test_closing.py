"""The ends of workers: handlers of signals are kept, and each manager is closed."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from aioredlock_ng.integrations import celery
from aioredlock_ng.integrations._sigterm import ending_by_sigterm

if TYPE_CHECKING:
    import pytest


def test_a_handler_of_sigterm_that_the_body_has_set_stays() -> None:
    def handle(*_: object) -> None: ...

    before = signal.getsignal(signal.SIGTERM)
    try:
        with ending_by_sigterm():
            signal.signal(signal.SIGTERM, handle)
        assert signal.getsignal(signal.SIGTERM) is handle
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_manager_that_cannot_be_closed_does_not_keep_the_others_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = []

    class Manager:
        def close(self) -> None:
            closed.append(self)
            raise RuntimeError

    managers = [Manager(), Manager()]
    monkeypatch.setattr(celery, "_managers", managers)
    celery._close()
    assert closed == managers
