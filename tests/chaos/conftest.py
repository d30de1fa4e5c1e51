"""The fixture of the tests of the checker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.story import Story

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """Return histories of two processes, in which nothing is wrong until a test says so."""
    made = Story(tmp_path)
    made.process("one", 1)
    made.process("two", 2)
    return made
