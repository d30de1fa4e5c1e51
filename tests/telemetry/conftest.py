"""Registries and servers for sinks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

from tests.support.rig import Rig
from tests.telemetry.collector import Collector
from tests.telemetry.exposition import served
from tests.telemetry.listener import Listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_OF_THE_CHECKOUT = ["test_example.py", "test_files.py", "test_page.py", "test_promtool.py"]

# The built wheel is tested without its checkout.
collect_ignore = [] if (Path(__file__).parents[2] / "docs").exists() else _OF_THE_CHECKOUT


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """Three servers in memory; for tests on the virtual clock."""
    async with Rig() as rig:
        yield rig


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics_url(registry: CollectorRegistry) -> Iterator[str]:
    """Where prometheus_client's own server serves `registry`."""
    with served(registry) as url:
        yield url


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector for OTLP over HTTP."""
    collector = Collector()
    yield collector
    collector.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    """An SDK that keeps everything in memory, and a sink for it."""
    listener = Listener()
    yield listener
    listener.close()
