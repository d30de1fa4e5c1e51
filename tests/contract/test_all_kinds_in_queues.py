"""Random steps of all kinds of locks on the same keys, on every server and in memory."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.queue_formats import claim_of, member_of, message_of
from aioredlock_ng._core.replies import GRANTED
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from aioredlock_ng._scripts.node_requests import leaving, standing, standing_for_slot
from aioredlock_ng._scripts.node_requests import standing_to_read as standing_as_reader
from aioredlock_ng._scripts.reader_kind import read_side
from tests.contract.test_sets_in_queues import TTL, Both, both
from tests.support.spread import spread

if TYPE_CHECKING:
    from aioredlock_ng._scripts import Command
    from tests.contract.test_sets_in_queues import Listening

__all__ = ["both"]

READ = read_side(MUTEX)
KEYS = (b"a b\n", *(b"gpu:#%d" % number for number in (1, 2, 3)))
LIFE = 20_000
GRACE = 20.0

# The test is connected as the manager `d`. No client is connected as `7`. The others poll.
WAITERS = [
    (member_of(manager * 16, line, GRACE, limit, notified=notified, reader=reader), limit, reader)
    for line, (manager, notified) in enumerate(
        [(b"a", False), (b"b", False), (b"d", True), (b"7", True)], 1
    )
    for limit, reader in ((0, False), (0, True), (3, False), (line % 3, False))
]


class Steps:
    """Draws the steps. Each step is one command.

    Attributes:
        held: The keys and the token of each grant, and True for a reader.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.tickets = {who: self.draw.randint(1, 6) for who, _, _ in WAITERS}
        self.held: list[tuple[tuple[bytes, ...], bytes, bool]] = []
        self.count = 0

    def step(self) -> tuple[Command, tuple[tuple[bytes, ...], bytes, bool] | None]:
        """Return a command, and the grant that it may give."""
        draw = self.draw
        who, limit, reader = draw.choice(WAITERS)
        claim = claim_of(self.tickets[who], who)
        if limit:
            keys = KEYS[1 : limit + 1]
        elif reader or draw.random() < 0.6:
            keys = (draw.choice(KEYS),)
        else:
            keys = tuple(sorted(draw.sample(KEYS, 2)))
        match draw.choice(("stand", "stand", "acquire", "acquire", "end", "end", "end", "leave")):
            case "stand" if limit:
                return standing_for_slot(keys, claim, LIFE), None
            case "stand" if reader:
                return standing_as_reader(keys, claim, LIFE), None
            case "stand":
                return standing(keys, claim, LIFE, draw.choice((0, LIFE))), None
            case "leave":
                return leaving(keys, who), None
            case "end" if self.held:
                return self.end(*draw.choice(self.held[-6:])), None
        self.count += 1
        keys = (draw.choice(keys),) if limit else keys
        claim = draw.choice((claim, b""))
        kind = READ if reader else MUTEX
        token = kind.token(b"%032x" % self.count, b"d" * 16)
        return kind.acquiring(keys, (b"1",), token, TTL, 0, claim), (keys, token, reader)

    def end(self, keys: tuple[bytes, ...], token: bytes, reader: bool) -> Command:
        """Return a command that ends a grant, or changes it."""
        kind = READ if reader else MUTEX
        labels = tuple(kind.label_key(key, token) for key in keys)
        match self.draw.choice(("release", "release", "label", "watch", "retire", "force", "down")):
            case "watch":
                return kind.extending(keys, (token,) * len(keys), int(TTL))
            case "label":
                texts = (LIFE, token[:16] + b" test") * len(keys)
                return kind.watching(keys, (token,) * len(keys), (labels, texts))
            case "retire" if len(keys) == 1 and not reader:
                return MUTEX.retiring(keys, token, LIFE, None)
            case "force":
                return MUTEX.force_releasing(KEYS, (), 0, (token,))
            case "down" if len(keys) == 1:
                return READ.extending(keys, (token,), int(TTL))
        return kind.releasing(keys, token, None, self.draw.choice((labels, ())))


@spread("seed", range(40))
async def test_random_steps_of_all_kinds_have_the_same_effect_on_a_server_and_in_memory(
    both: Both, seed: int
) -> None:
    steps = Steps(seed)
    for _ in range(100):
        command, grant = steps.step()
        if await both.ask(command) is GRANTED and grant is not None:
            steps.held.append(grant)
        await both.ask(MUTEX.inspecting(KEYS, queues=True))
    # A server may send a message right behind the reply to the call that published it.
    await both.ask(MUTEX.inspecting(KEYS))
    real, memory = both.listeners
    assert said(real) == said(memory)


def said(listener: Listening) -> list[Any]:
    """Return the messages to the manager. Remaining times differ, so only their signs count."""
    found = [message_of(payload) for payload in listener.messages]
    return [
        (message.member, message.key, message.second, message.highest, message.left and 1.0)
        for message in found
        if message is not None
    ]
