"""Whatever a body raises reaches the caller, and a body that waits for its loss is woken."""

# ruff: noqa: PT012 - what is raised at the end of a body is the subject
from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import RedlockError
from aioredlock_ng.sync import Redlock
from aioredlock_ng.testing import MemoryNodes
from tests.sync.test_closing import thread_of
from tests.sync.test_locks import PATIENCE, wait_until

if TYPE_CHECKING:
    from aioredlock_ng.sync import Lease


@dataclass
class Unhashable(Exception):
    code: int


@dataclass(frozen=True)
class Frozen(Exception):
    """An exception that takes no notes."""

    code: int


@pytest.mark.parametrize("kind", [Unhashable, Frozen])
@pytest.mark.parametrize("how", ["run", "with", "closed", "lock"])
def test_after_a_loss_the_own_error_of_a_body_is_raised(
    kind: type[Unhashable | Frozen], how: str
) -> None:
    with Redlock(MemoryNodes(3)) as redlock:
        election = redlock.election("scheduler", ttl=2.0, rejoin=False)

        def work(lease: Lease) -> None:
            if how == "closed":
                redlock.close()
            else:
                lease.granted.lose("by hand")
            assert lease.wait_lost(PATIENCE)
            raise kind(7)

        with pytest.raises(kind):
            if how == "lock":
                with redlock.lock("order") as lease:
                    work(lease)
            elif how == "with":
                with election as lease:
                    work(lease)
            else:
                election.run(work)


def die() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("how", ["closed", "dead"])
@pytest.mark.parametrize("what", ["lease", "term"])
def test_a_wait_for_the_loss_ends_with_the_engine(how: str, what: str) -> None:
    redlock, told = Redlock(MemoryNodes(3)), list[bool]()

    def work(lease: Lease) -> None:
        waiting = threading.Thread(target=lambda: told.append(lease.wait_lost(PATIENCE)))
        waiting.start()
        wait_until(lambda: bool(thread_of(redlock).pending))
        if how == "closed":
            redlock.close()
        else:
            thread_of(redlock).post(die)
        waiting.join(PATIENCE)

    if what == "lease":
        work(redlock.lock("order").acquire())
    else:
        with suppress(RedlockError):
            redlock.election("scheduler", rejoin=False).run(work)
    redlock.close()
    assert told == [True]
