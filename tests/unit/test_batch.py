"""How leases are divided among commands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._engine.keeping.batch import BATCH, parts


@given(st.lists(st.sampled_from([1, 2, 100, BATCH - 1, BATCH, BATCH + 1]), max_size=8))
def test_no_command_has_more_keys_than_a_batch_unless_one_lease_has_more(widths: list[int]) -> None:
    leases: list[Any] = [SimpleNamespace(spec=SimpleNamespace(keys=range(n))) for n in widths]
    groups = list(parts(leases))
    assert [lease for group in groups for lease in group] == leases
    for group in groups:
        assert len(group) == 1 or 0 < sum(len(lease.spec.keys) for lease in group) <= BATCH
