"""Deliberate defects, switched on by name: what a fault run that finds nothing must be able to
find.
"""

from __future__ import annotations

import importlib
import os
import random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from aioredlock_ng import Redlock

__all__ = ["KINDS", "break_it"]

KINDS: Final = {
    "quorum": "one node's word is enough",
    "deadline": "the deadline is ignored",
    "guard": "nodes that forgot vote at once",
    "fence": "fences fall",
    "unfenced": "leases have no fence",
    "tokens": "all processes draw the same tokens",
    "release": "a release deletes nothing",
    "reader": "a reader takes a refusal for a grant",
    "slots": "each process has the slots of a semaphore for itself",
    "terms": "a leader releases its lease and works on",
    "losses": "a holder is not notified of its loss and works on",
    "min_hold": "a release deletes keys before the end of min_hold",
}
"""Description of each defect, by name."""


_MARK: Final = 15
"""A counter, as a node answers it to a reader."""


def break_it(kind: str, redlock: Redlock) -> None:
    """Break an open manager of this process; "" and "guard" (an option of the manager) change
    nothing here.
    """
    record: Any = importlib.import_module("aioredlock_ng._engine.keeping.lease_record")
    renewals: Any = importlib.import_module("aioredlock_ng._engine.keeping.renewals")
    cleanup: Any = importlib.import_module("aioredlock_ng._engine.attempt.releases")
    if kind == "quorum":
        redlock.engine().context.quorum = 1
    elif kind == "deadline":
        record.deadline_of = renewals.deadline_of = lambda started, ttl, drift: (
            started + ttl - drift + 1000.0
        )
    elif kind in ("fence", "unfenced"):
        init = record.LeaseRecord.__init__

        def wrong_fence(
            self: Any,
            spec: Any,
            token: bytes,
            started: float,
            ballot: Any,
            granted: Any,
            fence: int,
            *more: Any,
        ) -> None:
            wrong = 2**53 - fence if kind == "fence" else None
            init(self, spec, token, started, ballot, granted, wrong, *more)

        record.LeaseRecord.__init__ = wrong_fence
    elif kind == "tokens":
        same = random.Random(0)
        redlock.engine().context.new_token = lambda: b"%032x" % same.getrandbits(128)
    elif kind == "reader":
        script: Any = importlib.import_module("aioredlock_ng._scripts.catalogue").ACQUIRE_READ
        replies: Any = importlib.import_module("aioredlock_ng._core.replies")
        decode = script.read

        def blind(reply: Any, call: Any) -> Any:
            outcome = decode(reply, call)
            return replies.Granted(_MARK) if isinstance(outcome, replies.Refused) else outcome

        script.read = blind
    elif kind == "release":
        send = cleanup.Releases.send

        def forgetful(self: Any, spec: Any, token: bytes, *more: Any) -> Any:
            return send(self, spec, token[::-1], *more)

        cleanup.Releases.send = forgetful
    elif kind == "slots":
        specs: Any = importlib.import_module("aioredlock_ng._manager.specs")
        slot_key = specs.slot_key
        specs.slot_key = lambda key, number: b"%b of %d" % (slot_key(key, number), os.getpid())
    elif kind == "terms":
        term: Any = importlib.import_module("aioredlock_ng._election.term")
        term.Term.begin = lambda self: self.lease._engine.extender.release(self.lease._record)
    elif kind == "losses":
        leases: Any = importlib.import_module("aioredlock_ng.lease")
        leases.Lease.lost = property(lambda self: False)
        leases.Lease.entered = lambda *_: None
    elif kind == "min_hold":
        keeping: Any = importlib.import_module("aioredlock_ng._engine.keeping.min_hold")
        keeping.begin = lambda *_: None
