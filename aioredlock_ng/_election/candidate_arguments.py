"""Turn the arguments of `Redlock.election` into a candidate."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.owners import checked_label, printable_label
from aioredlock_ng._election.leader_watch import Source
from aioredlock_ng._election.term import margins_of
from aioredlock_ng._forks import call_in_children
from aioredlock_ng.election import Election
from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from aioredlock_ng.lock import Lock
    from aioredlock_ng.options import Options

__all__ = ["Manager", "candidate"]


class Manager(Source, Protocol):
    """The methods of `Redlock` that a candidate needs."""

    def lock(
        self, name: str | bytes, *, ttl: float | None, max_hold: float | None, owner: str
    ) -> Lock: ...


def candidate(
    manager: Manager,
    options: Options,
    key: bytes,
    name: str | bytes,
    *,
    label: str | None = None,
    ttl: float | None = None,
    step_down: float | None = None,
    max_hold: float | None = None,
    rejoin: bool = True,
) -> Election:
    """Check the arguments of `Redlock.election`, and return the candidate.

    Raises:
        ConfigurationError: An argument is invalid, or the manager writes no labels.
    """
    if not isinstance(rejoin, bool):
        raise ConfigurationError(f"rejoin must be True or False, not {type(rejoin).__name__}")
    chosen = _chosen_label(label, options)

    def lock_and_label() -> tuple[Lock, str]:
        label = chosen or printable_label(f"{socket.gethostname()}:{os.getpid()}")
        return manager.lock(name, ttl=ttl, max_hold=max_hold, owner=label), label

    lock, label = lock_and_label()
    margins = margins_of(lock.ttl, step_down, max_hold, options)
    election = Election(manager, lock, key, label, margins, rejoin=rejoin)

    def in_child(election: Election) -> None:
        election.candidacy.lock, election.candidacy.label = lock_and_label()

    if chosen is None:
        # The label names the process, so a candidate in a forked child needs another label.
        call_in_children(election, in_child)
    return election


def _chosen_label(label: str | None, options: Options) -> str | None:
    """Return the label that the user chose for the candidate or for the manager, or None.

    Raises:
        ConfigurationError: The label is invalid, or the manager writes no labels.
    """
    if not options.labelled:
        raise ConfigurationError(
            "election() needs labels, and this Redlock writes none; leave out owner=False, and keep"
            " fencing or recovery_guard on"
        )
    if label is not None:
        try:
            return checked_label(label)
        except ConfigurationError as error:
            raise ConfigurationError(str(error).replace("owner must", "label must", 1)) from None
    return options.owner if isinstance(options.owner, str) else None
