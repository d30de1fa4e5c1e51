"""The rules of what a holder reports of its grant: the token, the nodes that granted, the fence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .judgement import Finding
from .record import who

if TYPE_CHECKING:
    from .judgement import Judgement
    from .record import Hold, Intervals, Record

__all__ = ["judge_grants"]


def judge_grants(judgement: Judgement, record: Record, machine: Intervals) -> None:
    """Apply the rules of grants.

    Args:
        judgement: Gets the findings.
        record: The run.
        machine: The times in which the machine stood still.
    """
    tokens(judgement, record)
    majorities(judgement, record, machine)
    fenced(judgement, record)


def tokens(judgement: Judgement, record: Record) -> None:
    """Each grant has a token of its own. A process may pass a grant on for the same names."""
    owners: dict[str, Hold] = {}
    for hold in sorted(record.holds, key=lambda hold: hold.got):
        owner = owners.setdefault(hold.token, hold)
        if (owner.process, set(owner.names)) != (hold.process, set(hold.names)):
            words = f"{', '.join(hold.names)}: {who(hold)} has the token of {who(owner)}"
            judgement.violations.append(Finding("token of another grant", hold.got, words))


def majorities(judgement: Judgement, record: Record, machine: Intervals) -> None:
    """A majority of nodes holds a lock when its holder has it.

    Libraries that report no votes are left out. So are holders that stood still after the grant.
    Nodes may have forgotten the lock meanwhile.
    """
    for hold in record.holds:
        if hold.granted is None or hold.granted > record.minority:
            continue
        if record.body_stood_still(hold.process, hold.since, hold.got) or machine.touch(
            hold.since, hold.got
        ):
            continue
        words = f"{', '.join(hold.names)}: {who(hold)}, {hold.granted} of {record.nodes} nodes"
        judgement.violations.append(Finding("granted by a minority", hold.got, words))


def fenced(judgement: Judgement, record: Record) -> None:
    """Each lease of our library has a fence, also after a downgrade."""
    for hold in record.holds:
        if hold.process in record.ours and (
            hold.fence is None or (hold.read and hold.read_fence is None)
        ):
            words = f"{', '.join(hold.names)}: {who(hold)}"
            judgement.violations.append(Finding("no fence", hold.got, words))
