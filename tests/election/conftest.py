"""The rig of the engine's tests, and candidates in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.engine.conftest import rig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioredlock_ng.events import Event

__all__ = ["events", "rig"]


@pytest.fixture
def events() -> Iterator[list[Event]]:
    """A list whose `append` is a sink."""
    seen: list[Event] = []
    yield seen
    seen.clear()
