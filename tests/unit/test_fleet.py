"""Requests to all nodes together and to single nodes.

The order on each connection is tested with the outbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from aioredlock_ng._nodes.fleet import Fleet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._nodes.channel import Outbox
    from aioredlock_ng._nodes.port import Node, Sink

SINK = cast("Sink", object())


class Asked:
    """An outbox and five nodes that record joint and single requests."""

    def __init__(self, present: Sequence[int]) -> None:
        self.together = 0
        self.alone: list[int] = []
        self.fleet = Fleet([cast("Node", self)] * 5, cast("Outbox", self))
        for index in present:
            self.fleet.present(index, True)

    def ask_all(self, _sink: Sink) -> None:
        self.together += 1

    def hurry(self) -> None:
        """Not called by a fleet."""

    def ask(self, _sink: Any, index: int) -> None:
        self.alone.append(index)


@pytest.mark.parametrize("present", [[0, 1, 2, 3, 4], [4, 2, 0, 1], [3]])
def test_a_request_to_exactly_the_connected_nodes_is_sent_to_all_together(
    present: list[int],
) -> None:
    asked = Asked(present)
    asked.fleet.ask_some(SINK, sorted(present))
    assert (asked.together, asked.alone) == (1, [])


@pytest.mark.parametrize(
    ("indexes", "why"),
    [
        ([0, 1, 2], "one that is there is not to be asked"),
        ([0, 1, 2, 3, 4], "one is asked that is not there: what it is owed"),
        ([0, 1, 2, 4], "both"),
        ([], "nobody"),
    ],
)
def test_a_request_to_other_nodes_is_sent_one_by_one(indexes: list[int], why: str) -> None:
    asked = Asked([0, 1, 2, 3])
    asked.fleet.ask_some(SINK, indexes)
    assert (asked.together, asked.alone) == (0, indexes), why


def test_the_connected_nodes_are_known_after_a_node_has_left_and_come_back() -> None:
    asked = Asked([0, 1, 2, 3, 4])
    asked.fleet.present(2, False)
    asked.fleet.ask_some(SINK, [0, 1, 3, 4])
    asked.fleet.present(2, True)
    asked.fleet.ask_some(SINK, [0, 1, 3, 4])
    asked.fleet.ask_some(SINK, [0, 1, 2, 3, 4])
    assert (asked.together, asked.alone) == (2, [0, 1, 3, 4])
