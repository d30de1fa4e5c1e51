"""The SQL pattern: the statements of docs/fencing.md, as they stand there, on SQLite; and the
example's use of theirs.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng.fencing import MAX_FENCE, StaleFence
from examples import fenced_sql

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "fencing.md"

NOW = 1_800_000_000_000_000


class Documented:
    """The statements of the page; `$1` and the like are names of parameters to SQLite as well."""

    def __init__(self, db: sqlite3.Connection) -> None:
        schema, self.read_for_update, self.write, self.create_or_read = re.findall(
            r"^```sql\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        )
        if sqlite3.sqlite_version_info < (3, 35):
            self.read_for_update = self.read_for_update.replace(" RETURNING balance", "")
            self.create_or_read = self.create_or_read.replace(" RETURNING balance", "")
        self._db = db
        db.execute(schema)

    def changes(self, statement: str, fence: int, balance: int | None = None) -> bool:
        """Run one statement on account "ann" in a transaction of its own; tell whether it found its
        row.
        """
        with self._db:
            before = self._db.total_changes
            values = (
                {"1": "ann", "2": fence}
                if balance is None
                else {"1": "ann", "2": fence, "3": balance}
            )
            self._db.execute(statement, values).fetchall()
            return self._db.total_changes > before

    def row(self) -> tuple[int, int]:
        (row,) = self._db.execute("SELECT balance, fence FROM account WHERE id = 'ann'").fetchall()
        return row


@pytest.fixture
def sql() -> Iterator[Documented]:
    with closing(sqlite3.connect(":memory:")) as db:
        yield Documented(db)


def test_the_documented_statements_refuse_a_fence_older_than_the_last_read_or_write(
    sql: Documented,
) -> None:
    assert not sql.changes(sql.read_for_update, NOW), "there is no such row"
    assert sql.changes(sql.create_or_read, NOW)
    assert sql.changes(sql.write, NOW, 100)
    assert sql.changes(sql.read_for_update, NOW)
    assert sql.changes(sql.write, NOW, 110)
    assert sql.row() == (110, NOW)
    assert sql.changes(sql.read_for_update, NOW + 1)
    assert not sql.changes(sql.write, NOW, 111)
    for late in (sql.read_for_update, sql.create_or_read):
        assert not sql.changes(late, NOW)
    assert sql.row() == (110, NOW + 1)
    assert sql.changes(sql.create_or_read, NOW + 2)
    assert sql.row() == (110, NOW + 2)
    assert sql.changes(sql.write, NOW + 2, 120)
    assert sql.row() == (120, NOW + 2)
    assert sql.changes(sql.write, MAX_FENCE, 130)
    assert not sql.changes(sql.write, MAX_FENCE - 1, 131)


def test_a_reader_that_finds_no_row_stores_its_fence_too(sql: Documented) -> None:
    """Two clients find no row, and each writes a value that assumes this.

    The write of the older client must fail.
    """
    late, current = NOW, NOW + 1
    for fence in (late, current):
        assert sql.changes(sql.create_or_read, fence)
        assert sql.row() == (0, fence)
    assert not sql.changes(sql.write, late, 100)
    assert sql.changes(sql.write, current, 10)
    assert sql.row() == (10, current)


def test_the_example_distinguishes_a_stale_fence_from_a_missing_row(tmp_path: Path) -> None:
    with (
        closing(fenced_sql.connect(tmp_path / "bank.sqlite")) as db,
        closing(fenced_sql.connect(tmp_path / "bank.sqlite")) as other,
    ):
        assert fenced_sql.read_for_update(db, "ann", NOW) == 0
        assert fenced_sql.read_for_update(other, "ann", NOW + 1) == 0
        with pytest.raises(StaleFence) as caught:
            fenced_sql.write(db, "ann", 5, NOW)
        assert (caught.value.resource, caught.value.fence, caught.value.seen) == (
            "ann",
            NOW,
            NOW + 1,
        )
        with pytest.raises(StaleFence):
            fenced_sql.read_for_update(db, "ann", NOW)
        with pytest.raises(KeyError, match="bob"):
            fenced_sql.read_for_update(db, "bob", NOW)
        fenced_sql.write(other, "ann", 7, NOW + 1)
        assert fenced_sql.read_for_update(db, "ann", NOW + 2) == 7
