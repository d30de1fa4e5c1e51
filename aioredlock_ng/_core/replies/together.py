"""One answer for several keys, or for several calls that were sent as one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aioredlock_ng._core.replies.keeping import Released
    from aioredlock_ng._core.replies.taking import Acquired

__all__ = [
    "ALL_DONE",
    "ALL_OURS",
    "AcquiredEach",
    "HandedOverEach",
    "ReleasedEach",
    "Whole",
]


class Whole(Enum):
    """The reply to a command about several keys if the command succeeded for each key."""

    ALL_OURS = auto()
    ALL_DONE = auto()


ALL_OURS: Final = Whole.ALL_OURS
"""The answer to a renewal or a watch if every key holds its token."""

ALL_DONE: Final = Whole.ALL_DONE
"""The answer to several calls that were sent as one, if each call succeeded."""


@dataclass(frozen=True, slots=True)
class ReleasedEach:
    """Several releases were executed by one script.

    Attributes:
        calls: One record per call. If the server refused a call, the records from that call on are
            missing.
    """

    calls: tuple[Released, ...]


@dataclass(frozen=True, slots=True)
class AcquiredEach:
    """Several acquires were executed by one script.

    Attributes:
        calls: One record per call. Empty if the server refused a call or the node is not trusted.
            In both cases the script sets no key.
    """

    calls: tuple[Acquired, ...]


@dataclass(frozen=True, slots=True)
class HandedOverEach:
    """Several releases, each followed by an acquire, were executed by one script.

    Attributes:
        calls: For each hand-over, a record of the release and a record of the acquire. If the
            server refused a call, the records from that call on are missing. Empty if the node is
            not trusted.
    """

    calls: tuple[Released | Acquired, ...]
