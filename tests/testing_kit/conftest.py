"""The built wheel is tested without its checkout's pages."""

from pathlib import Path

collect_ignore = [] if (Path(__file__).parents[2] / "docs").exists() else ["test_page.py"]
