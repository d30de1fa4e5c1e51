"""Requests in a row that one script can do together: sent as one, answered as one. The order of what is asked stays."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from aioredlock_ng._scripts import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.port import Sink

__all__ = ["Joint", "joined"]

LEAST = 2
"""Calls in one: a single one would be asked again wherever anything is out of the ordinary."""

MOST = 32
"""Calls in one: a server serves nobody else meanwhile, some 0.1 ms."""

_form = attrgetter("command.form")


class Joint:
    """Who asked what is sent as one; a `Sink`.

    Args:
        sinks: In the order in which they asked; their commands have one form.
    """

    __slots__ = ("command", "sinks", "started")

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.sinks = sinks
        self.started = sinks[0].started
        form = sinks[0].command.form
        assert form is not None
        self.command = Request(form.fill_each([sink.command.blanks for sink in sinks]))

    def stands(self) -> bool:
        """See `Sink.stands`."""
        return any(sink.stands() for sink in self.sinks)

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`. All of it: a number is that of the calls, each of which did what it was to do."""
        each = 1 if type(reply) is int else reply
        for sink in self.sinks:
            sink.deliver(index, each)


def joined(sinks: list[Sink]) -> list[Sink]:
    """The same requests in the same order, as few as possible."""
    if len(sinks) < LEAST:
        return sinks
    requests: list[Sink] = []
    for form, group in groupby(sinks, _form):
        row = list(group)
        if form is None or len(row) < LEAST:
            requests += row
        else:
            requests += [Joint(row[first : first + MOST]) for first in range(0, len(row), MOST)]
    return requests
