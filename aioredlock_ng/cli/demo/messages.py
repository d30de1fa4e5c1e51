"""Define the messages between the demo and its workers, each a line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

__all__ = [
    "Begin",
    "Drained",
    "End",
    "Hold",
    "Kept",
    "Lost",
    "Message",
    "Progress",
    "Ready",
    "Refused",
    "Rival",
    "Setup",
    "Taken",
    "decode",
    "encode",
]


@dataclass(frozen=True, slots=True)
class Setup:
    """Give a worker its nodes, its counters and its settings, as the first message.

    The URLs are not arguments of the process, because every user of the machine can read arguments.
    """

    nodes: list[str]
    counters: str
    count: int
    prefix: str
    coroutines: int
    ttl: float


@dataclass(frozen=True, slots=True)
class Begin:
    """Tell a worker to start incrementing counters, with or without their locks."""

    phase: int
    locked: bool


@dataclass(frozen=True, slots=True)
class End:
    """Tell a worker to finish the increments in progress and to report `Drained`."""


@dataclass(frozen=True, slots=True)
class Rival:
    """Tell a worker, within a phase, to add a coroutine that increments only this counter."""

    counter: int
    ttl: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Tell a worker to acquire this counter's lock, read, work for `seconds`, and then write."""

    counter: int
    ttl: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Ready:
    """Report that the worker is connected to the nodes."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Report the work since the worker's last report.

    `waits_us` has the microseconds from the request of each lock to its grant, except for the locks
    of `Rival` and `Hold`.
    """

    phase: int
    acknowledged: int
    in_doubt: int
    refused: int
    leases_lost: int
    waits_us: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Drained:
    """Report that this worker has finished the phase, and has reported all its work."""

    phase: int


@dataclass(frozen=True, slots=True)
class Taken:
    """Report that the holder has the lock and has read the counter."""

    value: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Report that the holder lost its lease.

    `cancelled` is True if the work under the lock was cancelled. The field `at` has the value of
    `time.monotonic` at the cancellation. Without a cancellation, `at` is the time of the report.
    """

    at: float
    cancelled: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """Report that the holder has written the counter, and was never notified of a loss."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Report why the holder did not acquire the lock that `Hold` asked for."""

    why: str


Message = (
    Setup | Begin | End | Rival | Hold | Ready | Progress | Drained | Taken | Lost | Kept | Refused
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
        Taken,
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
        ValueError: The line contains no message.
    """
    try:
        name, fields = json.loads(line)
        return _KINDS[name](**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not a message of the demo: {line[:80]!r}") from error
