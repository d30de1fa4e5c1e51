"""A test with a `rig` fails when anything went wrong in a callback that nobody awaits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.same_loop import ThreadedRig, threads_on_the_same_loop
from tests.support.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.rig import Rig


@pytest.fixture
async def rig(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Rig]:
    """As many servers as the test is parametrised with (indirectly), else three."""
    assert isinstance(asyncio.get_running_loop(), VirtualLoop), (
        "mark the module: pytestmark = pytest.mark.virtual_time"
    )
    troubles: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
    threads_on_the_same_loop(monkeypatch)
    async with ThreadedRig(getattr(request, "param", 3)) as rig:
        yield rig
    assert troubles == []
