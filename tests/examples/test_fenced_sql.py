"""The SQL example: processes that deposit into one account, and a deposit whose lock is lost in the
middle.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from examples import fenced_sql
from tests.support.coverage import untraced

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.node_set import NodeSet


@pytest.mark.slow
async def test_processes_deposit_and_nothing_is_missing(nodes: NodeSet, tmp_path: Path) -> None:
    script, bank = EXAMPLES / "fenced_sql.py", tmp_path / "bank.sqlite"
    clerks = [
        await asyncio.create_subprocess_exec(
            sys.executable, script, bank, env=untraced(), stdout=asyncio.subprocess.PIPE
        )
        for _ in range(3)
    ]
    told = [(await clerk.communicate())[0].decode().strip() for clerk in clerks]
    assert told == ["20 deposited"] * 3
    with closing(fenced_sql.connect(bank)) as db:
        (last,) = db.execute("SELECT fence FROM account").fetchone()
        assert fenced_sql.read_for_update(db, "ann", last) == 60


async def test_a_deposit_that_another_overtook_is_refused_and_made_again(
    nodes: NodeSet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bank, write, overtaken = tmp_path / "bank.sqlite", fenced_sql.write, []

    def late(db: fenced_sql.sqlite3.Connection, account: str, balance: int, fence: int) -> None:
        if not overtaken:
            overtaken.append(fence)
            with closing(fenced_sql.connect(bank)) as other:
                write(
                    other,
                    account,
                    fenced_sql.read_for_update(other, account, fence + 1) + 100,
                    fence + 1,
                )
        write(db, account, balance, fence)

    monkeypatch.setattr(fenced_sql, "write", late)
    await fenced_sql.main(bank, times=2)
    assert len(overtaken) == 1
    told = capsys.readouterr().out
    assert f"once more: the fence {overtaken[0]} of 'ann' is outdated" in told
    with closing(fenced_sql.connect(bank)) as db:
        assert db.execute("SELECT balance FROM account").fetchone() == (102,)


async def test_a_deposit_whose_lock_is_lost_after_the_write_counts_once(
    nodes: NodeSet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bank, write, lost = tmp_path / "bank.sqlite", fenced_sql.write, []

    def last(db: fenced_sql.sqlite3.Connection, account: str, balance: int, fence: int) -> None:
        write(db, account, balance, fence)
        if not lost:
            lost.append(fence)
            nodes.wipe()

    monkeypatch.setattr(fenced_sql, "write", last)
    monkeypatch.setenv("AIOREDLOCK_NG_RECOVERY_GUARD", "none")
    await fenced_sql.main(bank, times=2)
    assert capsys.readouterr().out == "2 deposited\n"
    with closing(fenced_sql.connect(bank)) as db:
        assert db.execute("SELECT balance FROM account").fetchone() == (2,)
