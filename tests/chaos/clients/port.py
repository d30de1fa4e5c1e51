"""What the workload needs of a lock library: one small protocol, so that others run under the same faults as ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Body", "Client", "Hold", "How", "NotGot", "Unfenced", "seconds_to_ns"]

How = Literal["with", "flag", "try"]
"""Cancelled on loss, only told of it, or one attempt without waiting."""


class NotGot(Exception):
    """The lock was not acquired.

    Attributes:
        why: The error's name; "held" where a single attempt found another holder.
        votes: What each node said, as a word each; empty where the library does not say.
    """

    def __init__(self, why: str, votes: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.votes = votes


class Hold(Protocol):
    """A lock that is held, as far as its library tells."""

    fence: int | None
    token: str

    @property
    def votes(self) -> str:
        """How many nodes hold it, "3/5"; "" where the library does not say."""

    def deadline(self) -> int | None:
        """Instant (ns) up to which the library vouches for it, also after its loss; None: it never says."""

    def lost(self) -> str:
        """Why it was lost; "" as long as the library does not say that it is."""

    async def wait_lost(self) -> None:
        """Return when it is over; never, where the library does not tell."""


if TYPE_CHECKING:
    Body = Callable[[Hold], Awaitable[None]]


class Client(Protocol):
    """One manager with its connections."""

    async def open(self, task: dict[str, Any]) -> None:
        """Connect."""

    async def hold(self, names: list[str], how: How, wait: float, body: Body) -> bool:
        """Acquire, run the body, release.

        Args:
            names: What to lock, all or nothing.
            how: See `How`.
            wait: Seconds to wait at most.
            body: Run while it is held.

        Returns:
            Whether the release found it still held.

        Raises:
            NotGot: It was not acquired; the body did not run.
        """

    async def read(self, name: str, hold: Hold) -> int:
        """Read the fenced register of a name. Raises `StaleFence` or the like: any error but a cancellation is a refusal."""

    async def write(self, name: str, value: int, hold: Hold) -> None:
        """Write it."""

    def clashes(self, error: Exception) -> bool:
        """Whether an error says that the fence is out of date."""

    async def close(self) -> None:
        """Release what is held and disconnect."""


class Unfenced:
    """What a library without fences says to the part of `Client` that is about them."""

    async def read(self, name: str, hold: Hold) -> int:
        """Never asked: there are no fences."""
        raise NotImplementedError

    async def write(self, name: str, value: int, hold: Hold) -> None:
        """Never asked: there are no fences."""
        raise NotImplementedError

    def clashes(self, error: Exception) -> bool:
        """There are no fences."""
        return False


def seconds_to_ns(seconds: float) -> int:
    """Instants of the library's clock, which are float seconds, on the clock of the histories."""
    return int(seconds * 1_000_000_000)
