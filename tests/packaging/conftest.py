"""These tests read the files of a checkout. A source distribution does not have them."""

from __future__ import annotations

from pathlib import Path

collect_ignore_glob = [] if (Path(__file__).parents[2] / ".github").exists() else ["test_*.py"]
