"""A command whose answers are passed to a function."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._scripts import Command

__all__ = ["Errand"]


class Errand:
    """A `Sink` that passes each answer to a function.

    Args:
        started: Instant at which the command is sent, by the engine's clock.
        answered: Called with the index of a node and its answer. None ignores all answers.
        wanted: Called before the command is sent again to a server that did not have the script.
            Returns False if the command must not be sent any more. With None, the command is always
            sent again.
    """

    __slots__ = ("_answered", "_wanted", "command", "started")

    def __init__(
        self,
        command: Command,
        started: float,
        answered: Callable[[int, Reply], None] | None = None,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        self.command = command
        self.started = started
        self._answered = answered
        self._wanted = wanted

    def stands(self) -> bool:
        return self._wanted is None or self._wanted()

    def deliver(self, index: int, reply: Reply) -> None:
        if self._answered is not None:
            self._answered(index, reply)
