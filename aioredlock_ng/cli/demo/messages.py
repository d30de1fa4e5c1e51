"""The words between the demo and its worker processes, one JSON line each; never anything but data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

__all__ = [
    "Begin",
    "Drained",
    "End",
    "Hold",
    "Holding",
    "Kept",
    "Lost",
    "Message",
    "Progress",
    "Ready",
    "Refused",
    "Rival",
    "Setup",
    "decode",
    "encode",
]


@dataclass(frozen=True, slots=True)
class Setup:
    """To a worker, first: where everything is. URLs come this way and not as arguments, which every user could read."""

    nodes: list[str]
    counters: str
    count: int
    prefix: str
    coroutines: int
    ttl: float


@dataclass(frozen=True, slots=True)
class Begin:
    """To a worker: start incrementing, with or without the lock."""

    phase: int
    locked: bool


@dataclass(frozen=True, slots=True)
class End:
    """To a worker: finish the increments under way and report `Drained`."""


@dataclass(frozen=True, slots=True)
class Rival:
    """To a worker, within a phase: let one more coroutine increment this counter only."""

    counter: int
    ttl: float


@dataclass(frozen=True, slots=True)
class Hold:
    """To a worker: take this counter's lock, read, work for a long time, and only then write back."""

    counter: int
    ttl: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Ready:
    """From a worker: connected to the nodes."""


@dataclass(frozen=True, slots=True)
class Progress:
    """From a worker: what it did since its last report. `waits_us`: microseconds from asking to holding."""

    phase: int
    acknowledged: int
    in_doubt: int
    refused: int
    leases_lost: int
    waits_us: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Drained:
    """From a worker: the phase has ended here, and everything was reported."""

    phase: int


@dataclass(frozen=True, slots=True)
class Holding:
    """From a holder: it has the lock and has read the counter."""

    value: int


@dataclass(frozen=True, slots=True)
class Lost:
    """From a holder: its lease is gone. `at`: when it was told, by the clock `time.monotonic` of this machine."""

    at: float
    cancelled: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """From a holder: it was never told of a loss, and has written."""


@dataclass(frozen=True, slots=True)
class Refused:
    """From a holder: it could not get the lock at all."""

    why: str


Message = (
    Setup
    | Begin
    | End
    | Rival
    | Hold
    | Ready
    | Progress
    | Drained
    | Holding
    | Lost
    | Kept
    | Refused
)

_KINDS: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        Setup,
        Begin,
        End,
        Rival,
        Hold,
        Ready,
        Progress,
        Drained,
        Holding,
        Lost,
        Kept,
        Refused,
    )
}


def encode(message: Message) -> bytes:
    """Return the message as one line."""
    return (
        json.dumps([type(message).__name__, asdict(message)], separators=(",", ":")).encode()
        + b"\n"
    )


def decode(line: bytes) -> Message:
    """Return the message of one line.

    Raises:
        ValueError: The line holds no message; a worker that prints something else is broken.
    """
    try:
        name, fields = json.loads(line)
        return _KINDS[name](**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not a message of the demo: {line[:80]!r}") from error
