"""Merge neighbouring requests into one call of a script that does the work of all of them."""

from __future__ import annotations

from itertools import groupby, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.replies import ALL_DONE
from aioredlock_ng._scripts import Request
from aioredlock_ng._scripts.decoding import garbled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.port import Sink
    from aioredlock_ng._scripts import Form, Script

__all__ = ["Joint", "joined"]

LEAST = 2
"""Smallest number of calls in a merged request.

Merging a single call would save nothing, and after an error the call would be sent once more."""

MOST = 32
"""Largest number of calls in a merged request.

A request of this size blocks a server for some 0.1 ms.
"""

_SUCCESS = 1
"""The reply to a successful call for one key, from any script that has a `Form`."""

_form = attrgetter("command.form")


class _Together(Request):
    """The merged request of a `Joint`. If every call succeeds, the reply is the number of calls.

    Otherwise the reply is an error, or a list with the reply to each call before the first error.
    """

    __slots__ = ("_calls",)

    def __init__(self, packed: bytes, calls: int) -> None:
        super().__init__(packed)
        self._calls = calls

    def read(self, reply: Any) -> Reply:
        return ALL_DONE if type(reply) is int and reply == self._calls else garbled(self, reply)

    @property
    def step(self) -> str:
        return "a script for several calls"


class Joint:
    """The sinks of several calls that are sent as one request. A `Joint` is also a `Sink`.

    Args:
        sinks: The sinks of the calls, in order. Empty if the reply is ignored.
        script: The script that replaces these calls.
        packed: The call of `script`, as bytes for the wire.
        started: Instant at which the first of the calls began.
    """

    __slots__ = ("command", "script", "sinks", "started")

    def __init__(
        self, sinks: Sequence[Sink], script: Script, packed: bytes, started: float
    ) -> None:
        self.sinks = sinks
        self.script = script
        self.started = started
        self.command = _Together(packed, len(sinks))

    def stands(self) -> bool:
        return any(sink.stands() for sink in self.sinks)

    def deliver(self, index: int, reply: Reply) -> None:
        """Tell each sink that its own call succeeded, or tell all sinks the same failure.

        The replies are delivered in reverse order. So in a hand-over, the reply to the acquire
        comes before the reply to the release.
        """
        sinks = self.sinks
        if reply is ALL_DONE and sinks:
            # All calls are of one script, or the calls of two scripts alternate. So each call has
            # the result of the first call or of the last call.
            first, last = sinks[0].command.read(_SUCCESS), sinks[-1].command.read(_SUCCESS)
            if first is last:
                for sink in reversed(sinks):
                    sink.deliver(index, first)
            else:
                for at in reversed(range(len(sinks))):
                    sinks[at].deliver(index, last if at % 2 else first)
        else:
            for sink in reversed(sinks):
                sink.deliver(index, reply)


def joined(sinks: list[Sink]) -> list[Sink]:
    """Return the same requests in the same order, merged into as few requests as possible."""
    if len(sinks) < LEAST:
        return sinks
    if len(sinks) == 2 and _hands_over(*sinks):
        # If many tasks want one lock, a tick usually has only a release and an acquire. `_rows`
        # would take longer to merge the two.
        given, taking = sinks[0].command, sinks[1].command
        if taking.form is not None and taking.form.hand_over is not None:
            packed = taking.form.fill_hand_over(given.blanks, taking.blanks)
            return [Joint(sinks, taking.form.hand_over, packed, sinks[0].started)]
    requests: list[Sink] = []
    for form, script, row in _rows(sinks):
        if form is None or script is None:
            requests += row
            continue
        for first in range(0, len(row), MOST):
            part = row[first : first + MOST]
            if len(part) < LEAST:
                requests += part
                continue
            packed = form.fill_all(script, [sink.command.blanks for sink in part])
            requests.append(Joint(part, script, packed, part[0].started))
    return requests


def _rows(sinks: list[Sink]) -> Iterator[tuple[Form | None, Script | None, list[Sink]]]:
    """Yield rows of neighbouring requests. Each row comes with the form and script that merge it.

    Form and script are None for requests that cannot be merged.
    """
    rows = [(form, list(group)) for form, group in groupby(sinks, _form)]
    rows.append((None, []))
    handed: list[Sink] = []
    taking: Form | None = None
    for (form, row), (following, behind) in pairwise(rows):
        over = (
            [row.pop(), behind.pop(0)] if row and behind and _hands_over(row[-1], behind[0]) else []
        )
        # Any other request, or a hand-over with another form, ends a row of hand-overs.
        if taking is not None and (row or (over and following is not taking)):
            yield taking, taking.hand_over, handed
            handed, taking = [], None
        if row:
            yield form, form and form.each, row
        if over:
            handed += over
            taking = following
    if taking is not None:
        yield taking, taking.hand_over, handed


def _hands_over(release: Sink, acquire: Sink) -> bool:
    """True if the acquire wants the key that the release frees, so that one script can do both."""
    first, then = release.command, acquire.command
    return (
        first.owed_until is not None
        and first.form is not None
        and then.form is not None
        and then.form.hand_over is not None
        and first.blanks[0] == then.blanks[0]
    )
