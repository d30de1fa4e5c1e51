"""The pages are tested where they are, and the site where what builds it is installed: in the
surroundings of `make test`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"

collect_ignore_glob = [] if DOCS.exists() else ["test_*.py"]
collect_ignore = (
    []
    if find_spec("sphinx")
    else ["test_diagrams.py", "test_links.py", "test_manifest.py", "test_site.py"]
)
