"""The pages are tested where they are, and the site where what builds it is installed: in the
surroundings of `make test`.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.building import build

DOCS = Path(__file__).parents[2] / "docs"

collect_ignore_glob = [] if DOCS.exists() else ["test_*.py"]
collect_ignore = (
    []
    if find_spec("sphinx")
    else [
        "test_diagrams.py",
        "test_links.py",
        "test_manifest.py",
        "test_rendering.py",
        "test_site.py",
    ]
)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    folder.mkdir(exist_ok=True)
    return build("html", folder)
