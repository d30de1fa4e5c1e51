"""Declare the arguments of `Redlock.election`, and find the label of a candidate."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, TypedDict

from aioredlock_ng._core.owners import checked_label, printable_label
from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from aioredlock_ng.options import Options

__all__ = ["ElectionOptions", "label_of"]


class ElectionOptions(TypedDict, total=False):
    """Arguments of `Redlock.election` besides the name.

    Attributes:
        label: The text that names this candidate to all others: one printable line of at most 200
            bytes. None: the manager's `owner`, or host and process.
        ttl: Seconds after which another candidate leads if the leader dies, at most `max_ttl`.
            None: the manager's.
        step_down: Seconds that a leader has to end if its lease cannot be renewed. More than zero,
            and less than `ttl * 2 / 3 - drift - node_timeout`, because one slow renewal must not
            end a term. None: a third of the ttl.
        max_hold: Seconds that a term lasts at most. The leader is cancelled `step_down` seconds
            earlier. None: no limit.
        rejoin: True: `run` stands again after a term that was lost. False: it raises `LockLost`.
    """

    label: str | None
    ttl: float | None
    step_down: float | None
    max_hold: float | None
    rejoin: bool


def label_of(label: str | None, options: Options) -> str:
    """Return the label of a candidate: the given one, the manager's, or host and process.

    Raises:
        ConfigurationError: The label is unusable, or the manager writes no labels.
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
    if isinstance(options.owner, str):
        return options.owner
    return printable_label(f"{socket.gethostname()}:{os.getpid()}")
