"""The processes that the case `killed` kills or stops wait for the lock, and do not hold it."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng._core.queue_formats import OFFER
from benchmarks.scenarios import crowd

if TYPE_CHECKING:
    from collections.abc import Iterator


def nodes(*values: Iterator[bytes]) -> Any:
    """Return nodes that answer with these values of the lock's key."""

    def node(own: Iterator[bytes]) -> SimpleNamespace:
        return SimpleNamespace(command=lambda *_words: next(own))

    return [node(own) for own in values]


@pytest.mark.parametrize(
    ("values", "granted"),
    [
        pytest.param([b"one"] * 5, True, id="all nodes"),
        pytest.param([b"one"] * 3 + [b"two"] * 2, True, id="a majority"),
        pytest.param([b"one"] * 2 + [b"two"] * 2 + [b""], False, id="split votes"),
        pytest.param([b""] * 5, False, id="free"),
        pytest.param([OFFER + b"3:one"] * 5, False, id="offered"),
    ],
)
def test_a_lock_counts_as_granted_if_a_majority_keeps_one_token(
    values: list[bytes], granted: bool
) -> None:
    assert crowd._is_granted(nodes(*map(itertools.repeat, values))) is granted


def test_a_lock_that_a_running_process_releases_does_not_count_as_granted() -> None:
    def own() -> Iterator[bytes]:
        return itertools.chain([b"one"], itertools.repeat(b"two"))

    assert crowd._is_granted(nodes(*(own() for _ in range(5)))) is False
