"""Makes states one that differ only by names: which client is A, and which node is x, changes
nothing in what can go wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.model.explore import State

NODES = 3


@dataclass(frozen=True, slots=True)
class Alike:
    """Clients, attempts or promoters of which none is special.

    Attributes:
        count: How many.
        heads: The first cell of the first one's head; the heads follow each other.
        head: Cells of a head.
        rows: The first cell of the first one's rows, of one cell per node each; the rows of the
            next one follow.
        size: Cells of the rows of one.
    """

    count: int
    heads: int
    head: int
    rows: int
    size: int


class Symmetry:
    """Orders those that are alike by what they are at, then the nodes by what is on them.

    Args:
        rows: Where the rows begin; from there to the end of the state every cell belongs to a node,
            in turn.
        alike: The kinds of clients; empty where each is its own.
    """

    def __init__(self, rows: int, alike: Sequence[Alike]) -> None:
        self._rows = rows
        self._kinds = [
            (
                [slice(a.heads + i * a.head, a.heads + (i + 1) * a.head) for i in range(a.count)],
                [slice(a.rows + i * a.size, a.rows + (i + 1) * a.size) for i in range(a.count)],
                slice(0, a.heads),
                slice(a.heads + a.count * a.head, a.rows),
                slice(a.rows + a.count * a.size, None),
            )
            for a in alike
        ]

    def canonical(self, state: State) -> State:
        """A state that differs from this one by names only; almost always the same one for all such
        states.
        """
        for heads, rows, before, between, behind in self._kinds:
            at = [state[head] for head in heads]
            if any(one <= other for one, other in pairwise(at)):
                ordered = sorted(
                    zip(at, [state[row] for row in rows], strict=True),
                    key=_regardless_of_nodes,
                    reverse=True,
                )
                now_at, on_nodes = zip(*ordered, strict=True)
                state = b"".join((state[before], *now_at, state[between], *on_nodes, state[behind]))
        start = self._rows
        columns = [state[start::NODES], state[start + 1 :: NODES], state[start + 2 :: NODES]]
        if columns[0] >= columns[1] >= columns[2]:
            return state
        columns.sort(reverse=True)
        after = bytearray(state)
        after[start::NODES], after[start + 1 :: NODES], after[start + 2 :: NODES] = columns
        return bytes(after)


def _regardless_of_nodes(part: tuple[bytes, bytes]) -> tuple[bytes, list[int], bytes]:
    return part[0], sorted(part[1]), part[1]
