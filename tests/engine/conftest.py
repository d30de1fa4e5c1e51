"""A test with a `rig` fails if a callback of the event loop raised."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.rig import Rig
from tests.support.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """As many servers as the test is parametrised with (indirectly), else three."""
    assert isinstance(asyncio.get_running_loop(), VirtualLoop), (
        "mark the module: pytestmark = pytest.mark.virtual_time"
    )
    troubles: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
    async with Rig(getattr(request, "param", 3)) as rig:
        yield rig
    assert troubles == []
