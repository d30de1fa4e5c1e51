"""The SQL pattern that is tested is that of the examples, which the package tested without its
checkout does not have.
"""

from __future__ import annotations

from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"

collect_ignore = (
    []
    if EXAMPLES.exists()
    else ["test_lost_updates.py", "test_page.py", "test_paused_holder.py", "test_sql.py"]
)
