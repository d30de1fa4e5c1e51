"""The protocol between the workload and a lock library.

Other libraries run under the same faults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Body", "Client", "Hold", "How", "Kind", "NotGot", "Unfenced", "Wish", "seconds_to_ns"]

How = Literal["with", "flag", "try", "run"]
"""The body is cancelled on loss, is notified of it, or begins after a single attempt without
waiting.

"run" is `Election.run`, which cancels the body before another candidate can lead."""

Kind = Literal["lock", "semaphore", "election", "read", "write"]
"""Kind of object to acquire. "read" and "write" are the sides of a read-write lock."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Parameters of an acquisition.

    Attributes:
        names: Names to lock, all or nothing. A semaphore and an election have one name.
        how: How the body learns of a loss, and whether the acquisition waits.
        kind: Kind of object to acquire. Other libraries have only locks of one name.
        limit: Slots of a semaphore; 0 for the other kinds.
        min_hold: Seconds after the grant for which no other client may be granted; 0.0: none.
        fair: Keep the order of the tasks of all processes.
        rejoin: Let a candidate stand again after a term that it lost.
        downgrade: Let a writer become a reader in the middle of its hold.
        wait: Seconds to wait at most.
    """

    names: tuple[str, ...]
    how: How
    kind: Kind = "lock"
    limit: int = 0
    min_hold: float = 0.0
    fair: bool = False
    rejoin: bool = False
    downgrade: bool = False
    wait: float = 20.0

    def about(self) -> dict[str, Any]:
        """Return the fields of a history's line that describe this wish."""
        more = {"c": self.kind, "m": self.limit, "h": self.min_hold, "fair": self.fair}
        usual = {"c": "lock", "m": 0, "h": 0.0, "fair": False}
        changed = {key: value for key, value in more.items() if value != usual[key]}
        return {"n": self.names, "w": self.how, **changed}


class NotGot(Exception):
    """The lock was not acquired.

    Attributes:
        why: The error's name; "held" where a single attempt found another holder.
        votes: Answer of each node, one word each; empty if the library does not report it.
    """

    def __init__(self, why: str, votes: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.votes = votes


class Hold(Protocol):
    """A lock that is held, as its library reports it."""

    fence: int | None
    token: str
    slot: int | None
    """Slot of a semaphore; None for the other kinds."""
    since: int | None
    """Instant (ns) before the attempt that was granted; None if the library does not say."""

    @property
    def votes(self) -> str:
        """Number of nodes that hold it, such as "3/5"; "" if the library does not report it."""

    def deadline(self) -> int | None:
        """Return the deadline (ns), also after a loss, or None if the library reports none."""

    def lost(self) -> str:
        """Return the reason of its loss; "" if the library reports no loss."""

    def lost_at(self) -> int | None:
        """Return when (ns) the library declared the loss, or None if it reports no instant."""

    async def wait_lost(self) -> None:
        """Return once it is over; never, if the library does not report it."""


if TYPE_CHECKING:
    Body = Callable[[Hold], Awaitable[None]]


class Client(Protocol):
    """One manager with its connections."""

    async def open(self, task: dict[str, Any]) -> None:
        """Connect."""

    async def hold(self, wish: Wish, body: Body) -> bool:
        """Acquire, run the body, release.

        Args:
            wish: Parameters of the acquisition.
            body: Called during the hold. A candidate that stands again calls it once for each term.

        Returns:
            False if the release found that the lock was gone.

        Raises:
            NotGot: It was not acquired; the body did not run.
        """

    async def read(self, name: str, hold: Hold) -> int:
        """Read the fenced register of a name.

        Raises `StaleFence` or the like: any error but a cancellation is a refusal.
        """

    async def write(self, name: str, value: int, hold: Hold) -> None:
        """Write it."""

    def clashes(self, error: Exception) -> bool:
        """Whether an error says that the fence is out of date."""

    async def downgrade(self, hold: Hold) -> None:
        """Turn a writer's lease into one to read. Return also if the lease is over."""

    async def close(self) -> None:
        """Release what is held and disconnect."""


class Unfenced:
    """The part of `Client` that is about fences and readers, for libraries without both."""

    async def read(self, name: str, hold: Hold) -> int:
        """Never asked: there are no fences."""
        raise NotImplementedError

    async def write(self, name: str, value: int, hold: Hold) -> None:
        """Never asked: there are no fences."""
        raise NotImplementedError

    def clashes(self, error: Exception) -> bool:
        """There are no fences."""
        return False

    async def downgrade(self, hold: Hold) -> None:
        """Never asked: there are no readers."""
        raise NotImplementedError


def seconds_to_ns(seconds: float) -> int:
    """Instants of the library's clock, which are float seconds, on the clock of the histories."""
    return int(seconds * 1_000_000_000)
