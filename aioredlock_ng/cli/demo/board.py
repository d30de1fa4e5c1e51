"""Hold the state of the demo, which the views show."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from .ledger import Loss, PhaseLedger

__all__ = ["Board", "NodeState", "NodeView", "View"]

_EVENTS_KEPT = 50


class NodeState(Enum):
    """State of a node in the demo."""

    UP = "up"
    HUNG = "hung"
    KILLED = "killed"
    STARTING = "starting"
    DOWN = "down"


@dataclass(slots=True)
class NodeView:
    """One node: its address, without user and password, and its state."""

    address: str
    state: NodeState = NodeState.UP


@dataclass(slots=True)
class Board:
    """The state of the demo.

    Attributes:
        where: The number and the origin of the nodes, in words.
        workload: The numbers of processes and counters, in words.
        phases: The phases that have begun, the present one last.
        losses: The leases that the demo took from their holders.
        events: For each of the last events, the seconds since the start and a description.
        elapsed: Seconds since the start of the demo.
        planned: Number of phases that the demo will play.
        rate: Updates per second, measured over about the last second.
    """

    nodes: Sequence[NodeView]
    where: str
    workload: str
    phases: list[PhaseLedger] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    events: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=_EVENTS_KEPT))
    elapsed: float = 0.0
    planned: int = 0
    rate: float = 0.0


class View(Protocol):
    """A display of a board: a live picture or a log.

    A view is a context manager. The demo leaves this context before it prints the summary.
    """

    def event(self, words: str) -> None:
        """Show an event that is already on the board."""

    def refresh(self) -> None:
        """Update the view. The demo calls this method several times a second."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
