"""The replies of scripts, as frozen records and enums.

`_scripts/decode_attempts.py` and `_scripts/decode_states.py` decode the replies into records.
"""

from aioredlock_ng._core.replies.keeping import (
    ForceReleased,
    KeyState,
    KeyStates,
    Released,
    Repaired,
    released,
)
from aioredlock_ng._core.replies.looking import (
    FREE,
    Free,
    Held,
    KeyLook,
    Looked,
    MarkerRead,
    NotALock,
    Reader,
    ReadLocked,
    UnknownCommands,
)
from aioredlock_ng._core.replies.taking import (
    BROKEN_COUNTER,
    GRANTED,
    LEFT,
    Acquired,
    BrokenCounter,
    Fenced,
    Granted,
    Left,
    Quarantined,
    Refused,
    Standing,
    Unacknowledged,
)
from aioredlock_ng._core.replies.together import (
    ALL_DONE,
    ALL_OURS,
    AcquiredEach,
    HandedOverEach,
    ReleasedEach,
    Whole,
)

__all__ = [
    "ALL_DONE",
    "ALL_OURS",
    "BROKEN_COUNTER",
    "FREE",
    "GRANTED",
    "LEFT",
    "Acquired",
    "AcquiredEach",
    "BrokenCounter",
    "Fenced",
    "ForceReleased",
    "Free",
    "Granted",
    "HandedOverEach",
    "Held",
    "KeyLook",
    "KeyState",
    "KeyStates",
    "Left",
    "Looked",
    "MarkerRead",
    "NotALock",
    "Quarantined",
    "ReadLocked",
    "Reader",
    "Record",
    "Refused",
    "Released",
    "ReleasedEach",
    "Repaired",
    "Standing",
    "Unacknowledged",
    "UnknownCommands",
    "Whole",
    "released",
]

Record = (
    Acquired
    | AcquiredEach
    | ForceReleased
    | HandedOverEach
    | KeyState
    | KeyStates
    | Left
    | Looked
    | MarkerRead
    | Released
    | ReleasedEach
    | Repaired
    | Standing
    | Unacknowledged
    | UnknownCommands
    | Whole
)
"""A decoded reply of a script."""
