"""Replies that do not fit their script: no reply of a server raises above the channel."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any, cast

import hiredis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import aioredlock_ng
from aioredlock_ng._core.fencing import LATEST_US
from aioredlock_ng._core.marker import read_marker
from aioredlock_ng._core.queue_formats import OFFER
from aioredlock_ng._core.readers import READERS
from aioredlock_ng._core.recovery_guard import next_steps
from aioredlock_ng._core.replies import (
    ALL_DONE,
    ALL_OURS,
    BROKEN_COUNTER,
    GRANTED,
    LEFT,
    AcquiredEach,
    BrokenCounter,
    Fenced,
    ForceReleased,
    Free,
    Granted,
    HandedOverEach,
    Held,
    KeyState,
    KeyStates,
    Left,
    Looked,
    MarkerRead,
    NotALock,
    Quarantined,
    Reader,
    ReadLocked,
    Refused,
    Released,
    ReleasedEach,
    Repaired,
    Standing,
    Unacknowledged,
    UnknownCommands,
    Whole,
    released,
)
from aioredlock_ng._core.tally import tally, with_second_round
from aioredlock_ng._core.tickets import LARGEST_TICKET
from aioredlock_ng._core.votes import (
    Dropped,
    Garbled,
    Outcome,
    Refusal,
    Unsent,
    acquire_vote,
    blocking_key,
    counter_of,
    is_granted,
    is_held,
    is_permanent,
    may_have_set,
)
from aioredlock_ng._nodes.channel import Channel, Outbox
from aioredlock_ng._nodes.channel.joint import Joint, joined
from aioredlock_ng._scripts import Command, Form, Script, catalogue
from aioredlock_ng._scripts.catalogue import SCRIPTS
from aioredlock_ng._scripts.decoding import garbled
from aioredlock_ng._scripts.exclusive_kinds import MUTEX, guarded_mutex
from aioredlock_ng._scripts.node_requests import (
    leaving,
    reading_marker,
    standing,
    standing_for_slot,
    standing_to_read,
)
from aioredlock_ng._scripts.reader_kind import read_side
from aioredlock_ng.compat.aioredlock._access import _PROLONG as PROLONG
from tests.support.liar import encoded

GUARDED = guarded_mutex(fencing=True, own_marker=b"f" * 40 + b":1000")
READING = read_side(GUARDED)
ONE, TWO = (b"a",), (b"a", b"b")
LABELS = ((b"la", b"lb"), (1000, b"x", 1000, b"y"))


def together(form: Form, script: Script | None, *calls: tuple[bytes, ...]) -> Command:
    """Return the command that stands for these calls."""
    assert script is not None
    return Command(script, *form.together(script, calls))


COMMANDS: dict[str, list[Command]] = {
    "acquire": [MUTEX.acquiring(keys, (b"1",), b"t", b"1000", 0) for keys in (ONE, TWO)],
    "acquire_guarded": [
        *(GUARDED.acquiring(keys, (b"1",), b"t", b"1000", 16) for keys in (ONE, TWO)),
        GUARDED.acquiring(ONE, (b"1",), b"t", b"1000", 16, tell_counter=True),
    ],
    "acquire_each": [
        together(MUTEX.acquire_one, MUTEX.acquire_one.each, (b"a", b"t", b"9"), (b"b", b"u", b"9")),
        together(
            GUARDED.acquire_one,
            GUARDED.acquire_one.each,
            (b"a", b"t", b"9", b"16", b"1"),
            (b"b", b"u", b"9", b"16", b"2"),
        ),
    ],
    "hand_over_each": [
        together(
            MUTEX.acquire_one,
            MUTEX.acquire_one.hand_over,
            *((b"a", b"r"), (b"a", b"t", b"9")),
            *((b"b", b"s"), (b"b", b"u", b"9")),
        ),
        together(
            GUARDED.acquire_one,
            GUARDED.acquire_one.hand_over,
            (b"a", b"r"),
            (b"a", b"t", b"9", b"16", b"1"),
        ),
    ],
    "release": [MUTEX.releasing(ONE, b"t", 1.0), MUTEX.releasing(TWO, b"t", 1.0, (b"la", b"lb"))],
    "release_each": [
        together(MUTEX.release_one, MUTEX.release_one.each, (b"a", b"t"), (b"b", b"u"))
    ],
    "retire": [MUTEX.retiring(keys, b"t", 1000, 1.0, b"label") for keys in (ONE, TWO)],
    "extend": [MUTEX.extending(TWO, (b"t", b"u"), 1000)],
    "watch": [MUTEX.watching(TWO, (b"t", b"u")), MUTEX.watching(TWO, (b"t", b"u"), LABELS)],
    "inspect": [
        MUTEX.inspecting(ONE),
        MUTEX.inspecting(ONE, (b"la",)),
        MUTEX.inspecting(ONE, queues=True),
    ],
    "confirm": [GUARDED.confirming(ONE, (b"1",), b"t", 32)],
    "repair": [GUARDED.repairing_of(ONE, (b"1",), b"t", 1000, 32)],
    "force_release": [GUARDED.force_releasing(ONE, (b"1",), 32, (b"t",))],
    "marker": [reading_marker(b"f" * 40 + b":1000")],
    "stand": [standing(keys, b"7:0123456789abcdef:1:100", 12_000, 2000) for keys in (ONE, TWO)],
    "stand_slots": [
        standing_for_slot(keys, b"7:0123456789abcdef:1:2#100", 12_000) for keys in (ONE, TWO)
    ],
    "leave": [leaving(keys, b"0123456789abcdef:1:100") for keys in (ONE, TWO)],
    "acquire_read": [
        kind.acquiring(ONE, (b"1",), b"t", b"1000", 0) for kind in (READING, read_side(MUTEX))
    ],
    "confirm_read": [READING.confirming(ONE, (b"1",), b"t", 31)],
    "extend_read": [READING.extending(TWO, (b"t", b"u"), 1000, ((31, b"1"), (0, b"")))],
    "watch_read": [
        READING.watching(TWO, (b"t", b"u")),
        READING.watching(TWO, (b"t", b"u"), LABELS),
    ],
    "release_read": [READING.releasing(ONE, b"t", 1.0, labels) for labels in ((), (b"la",))],
    "repair_read": [READING.repairing_of(ONE, (b"1",), b"t", 1000, 31)],
    "stand_read": [standing_to_read(ONE, b"7:0123456789abcdef:1:r#100", 12_000)],
    "commands": [catalogue.COMMANDS],
    "prolong": [Command(PROLONG, ONE, (b"t", 1000))],
}

RECORDS: dict[str, set[type]] = {
    "acquire": {Granted, Refused},
    "acquire_guarded": {Granted, Fenced, BrokenCounter, Refused, Quarantined},
    "acquire_each": {AcquiredEach},
    "hand_over_each": {HandedOverEach},
    "confirm": {Granted, Unacknowledged},
    "leave": {Left},
    "stand": {Standing},
    "stand_slots": {Standing},
    "release": {Released},
    "release_each": {ReleasedEach},
    "retire": {Released},
    "extend": {Whole, KeyStates},
    "watch": {Whole, KeyStates},
    "inspect": {Looked},
    "repair": {Repaired},
    "force_release": {ForceReleased},
    "marker": {MarkerRead},
    "acquire_read": {Granted, BrokenCounter, Refused, Quarantined},
    "confirm_read": {Granted, Unacknowledged},
    "extend_read": {Whole, KeyStates},
    "watch_read": {Whole, KeyStates},
    "release_read": {Released},
    "repair_read": {Repaired},
    "stand_read": {Standing},
    "commands": {UnknownCommands},
    "prolong": {KeyState},
}

plain = (
    st.none()
    | st.booleans()
    | st.integers(-3, 4)
    # hiredis reads a longer number as bytes.
    | st.integers(1 - 2**63, 2**63 - 1)
    | st.sampled_from([0.0, 1.0, 2.0, math.inf, -math.inf, math.nan])
    | st.floats()
    | st.binary(max_size=50)
)
errors = st.sampled_from(
    ["ERR no", "NOSCRIPT No matching script.", "READONLY no", "MOVED 1 a:1"]
).map(Refusal)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(inner, max_size=4)
        | st.dictionaries(plain, inner, max_size=3)
        | st.frozensets(plain | errors, max_size=4)
    )


# An error that is the whole reply never meets a decoder.
anything = plain | containers(st.recursive(plain | errors, containers, max_leaves=8))
# Nearly right is the dangerous kind: a number where a list of numbers is expected, and so on.
nearly = (
    st.lists(st.integers(-2, 3) | plain | errors, max_size=4)
    | st.tuples(st.lists(plain | errors, max_size=3)).map(list)
    | st.sampled_from([1, [0, 9, 1, 0], [1, 16], [-1, 1500]]).flatmap(
        lambda fit: st.tuples(st.just(fit), errors).map(list)
    )
)


def test_every_script_is_fuzzed() -> None:
    assert (
        set(COMMANDS)
        == set(RECORDS)
        == {script.name for script in (*SCRIPTS, catalogue.COMMANDS.script, PROLONG)}
    )
    root = Path(aioredlock_ng.__file__).parent
    # redis-py calls guard.lua, and reads its reply.
    assert set(COMMANDS) == {
        path.stem for path in root.rglob("*.lua") if path.parent.name != "parts"
    } - {"guard"}


OURS, GONE, THEIRS = KeyState.OURS, KeyState.MISSING, KeyState.FOREIGN
OWN_MARKER = b"f" * 40 + b":1000"


READ: list[tuple[str, int, Any, object]] = [
    ("acquire", 0, 1, GRANTED),
    ("acquire", 0, 0, None),
    ("acquire", 0, 2, None),
    ("acquire", 0, [0, 1500, 1, 7], Refused(1.5, 1, 7)),
    ("acquire", 0, [0, 0, 1, 0], Refused(0.0, 1, 0)),
    ("acquire", 0, [0, -1, 1, 0], Refused(None, 1, 0)),
    ("acquire", 0, [0, -2, 1, 0], Refused(None, 1, 0)),
    ("acquire", 0, [0, -3, 1, 0], None),
    ("acquire", 0, [0, 2**63, 1, 0], None),
    ("acquire", 1, [0, 9, 2, LARGEST_TICKET], Refused(0.009, 2, LARGEST_TICKET)),
    ("acquire", 0, [0, 9, 1, LARGEST_TICKET + 1], None),
    ("acquire", 0, [0, 9, 1, -1], None),
    ("acquire", 0, [0, 9, 0, 0], None),
    ("acquire", 0, [0, 9, -1, 0], None),
    ("acquire", 0, [0, 9, 2, 0], None),
    ("acquire", 1, [0, 9, 3, 0], None),
    ("acquire", 0, [0, 9, 1], None),
    ("acquire", 0, [0, 9, 1, 0, 0], None),
    ("acquire", 0, [False, 9, 1, 0], None),
    ("acquire", 0, [0, 9.0, 1, 0], None),
    ("acquire", 0, [0, b"9", 1, 0], None),
    ("acquire", 0, [1, 9, 1, 0], None),
    ("acquire", 0, [1, 16], None),
    ("acquire", 0, [-1, 5], None),
    ("acquire_guarded", 0, 1, GRANTED),
    ("acquire_guarded", 0, [0, 1500, 1, 7], Refused(1.5, 1, 7)),
    ("acquire_guarded", 0, [0, 9, 2, 0], None),
    ("acquire_guarded", 1, [0, 9, 2, 0], Refused(0.009, 2, 0)),
    ("acquire_guarded", 1, [0, 9, 3, 0], None),
    ("acquire_guarded", 0, [1, 16], Granted(16)),
    ("acquire_guarded", 0, [1, LATEST_US], Granted(LATEST_US)),
    ("acquire_guarded", 0, [1, LATEST_US + 1], BROKEN_COUNTER),
    ("acquire_guarded", 0, [1, 0], BROKEN_COUNTER),
    ("acquire_guarded", 0, [1, -(2**63)], BROKEN_COUNTER),
    ("acquire_guarded", 0, [1, -(2**63) - 1], None),
    ("acquire_guarded", 0, [1, 2**63], None),
    ("acquire_guarded", 0, [1, True], None),
    ("acquire_guarded", 0, [1], None),
    ("acquire_guarded", 0, [2, 16], None),
    ("acquire_guarded", 2, [2, 15], Fenced(15)),
    ("acquire_guarded", 2, [2, 0], Fenced(0)),
    ("acquire_guarded", 2, [2, -1], None),
    ("acquire_guarded", 2, [2, 16], None),
    ("acquire_guarded", 2, [2, LATEST_US], None),
    ("acquire_guarded", 2, [1, 16], Granted(16)),
    ("acquire_guarded", 0, [-1, 1500], Quarantined(1.5)),
    ("acquire_guarded", 0, [-1, -1], Quarantined(None)),
    ("acquire_guarded", 0, [-1, -2], None),
    ("acquire_guarded", 0, [-1], None),
    ("acquire_each", 0, 2, AcquiredEach((GRANTED, GRANTED))),
    ("acquire_each", 0, 1, None),
    ("acquire_each", 0, [1, [0, 9, 1, 0]], AcquiredEach((GRANTED, Refused(0.009, 1, 0)))),
    ("acquire_each", 0, [[0, 9, 1, 0]], AcquiredEach((Refused(0.009, 1, 0),))),
    ("acquire_each", 0, [1, [0, 9, 2, 0]], None),
    ("acquire_each", 0, [1, [1, 16]], None),
    ("acquire_each", 0, [1, 1, 1], None),
    ("acquire_each", 0, [1, True], None),
    ("acquire_each", 1, 2, AcquiredEach((GRANTED, GRANTED))),
    ("acquire_each", 1, [[1, 16], [-1, -1]], AcquiredEach((Granted(16), Quarantined(None)))),
    ("acquire_each", 1, [[1, 0], 1], AcquiredEach((BROKEN_COUNTER, GRANTED))),
    ("hand_over_each", 0, 4, HandedOverEach((Released(1), GRANTED) * 2)),
    ("hand_over_each", 0, 2, None),
    (
        "hand_over_each",
        0,
        [0, [0, 9, 1, 0]],
        HandedOverEach((Released(0), Refused(0.009, 1, 0))),
    ),
    ("hand_over_each", 0, [1, 1, 1], HandedOverEach((Released(1), GRANTED, Released(1)))),
    ("hand_over_each", 0, [1, 0], None),
    ("hand_over_each", 0, [2, 1], None),
    ("hand_over_each", 0, [1, [1, 16]], None),
    ("hand_over_each", 1, [1, [1, 16]], HandedOverEach((Released(1), Granted(16)))),
    ("hand_over_each", 1, [1, [-1, 9], 1], None),
    ("confirm", 0, 1, GRANTED),
    ("confirm", 0, 0, None),
    ("confirm", 0, [0, 48], Unacknowledged(48)),
    ("confirm", 0, [0, 0], Unacknowledged(0)),
    ("confirm", 0, [0, -5], Unacknowledged(-5)),
    ("confirm", 0, [1, 48], None),
    ("confirm", 0, [0, 2**63], None),
    ("confirm", 0, [0], None),
    ("stand", 0, [0, 1, 0], Standing(0.0, 0)),
    ("stand", 0, [1500, 1, 3], Standing(1.5, 3)),
    ("stand", 0, [-1, 1, -1], Standing(None, -1)),
    ("stand", 0, [-2, 1, 0], None),
    ("stand", 0, [0, 2, 0], None),
    ("stand", 1, [0, 2, 0], Standing(0.0, 0)),
    ("stand", 0, [0, 1, -2], None),
    ("stand", 0, [0, 1, 2**63], None),
    ("stand", 0, [0, 1, False], None),
    ("stand", 0, [0, 1], None),
    ("stand_slots", 1, [1500, 3, 2], Standing(1.5, 3, (2,))),
    ("stand_slots", 1, [0, 0, 1, 2], Standing(0.0, 0, (1, 2))),
    ("stand_slots", 1, [-1, 2], Standing(None, 2)),
    ("stand_slots", 1, [-1, 2, 1], None),
    ("stand_slots", 1, [0, 0], None),
    ("stand_slots", 1, [0, 0, 3], None),
    ("stand_slots", 1, [0, 0, 0], None),
    ("stand_slots", 1, [0, 0, 1, 1, 1], None),
    ("leave", 0, 1, LEFT),
    ("leave", 0, 0, None),
    ("leave", 0, True, None),
    ("release", 0, 1, Released(1)),
    ("release", 0, 0, Released(0)),
    ("release", 0, 2, None),
    ("release", 1, 2, Released(2)),
    ("release", 1, 3, None),
    ("release", 0, True, None),
    ("release", 0, -1, None),
    ("release_each", 0, 2, ReleasedEach((Released(1), Released(1)))),
    ("release_each", 0, [0, 1], ReleasedEach((Released(0), Released(1)))),
    ("release_each", 0, [1], ReleasedEach((Released(1),))),
    ("release_each", 0, [[1, 7], 0], ReleasedEach((Released(1, 7), Released(0)))),
    ("release_each", 0, [[1, -7], 0], None),
    ("release_each", 0, [[0, 7], 0], None),
    ("release_each", 0, [1, 1, 1], None),
    ("retire", 0, 1, Released(1)),
    ("retire", 0, 2, None),
    ("retire", 1, 2, Released(2)),
    ("retire", 1, True, None),
    ("extend", 0, 2, ALL_OURS),
    ("extend", 0, 1, None),
    ("extend", 0, [1, -1], KeyStates((OURS, THEIRS))),
    ("extend", 0, [0, 1], KeyStates((GONE, OURS))),
    ("extend", 0, [1, 1], ALL_OURS),
    ("extend", 0, [1], None),
    ("extend", 0, [1, True], None),
    ("watch", 0, 2, ALL_OURS),
    ("watch", 1, 2, ALL_OURS),
    ("watch", 1, 4, None),
    ("watch", 1, [0, -1], KeyStates((GONE, THEIRS))),
    ("inspect", 0, [[-2, b""]], Looked((Free(),))),
    ("inspect", 0, [[1500, b"t"]], Looked((Held(1.5, b"t"),))),
    ("inspect", 0, [[-1, b"t"]], Looked((Held(math.inf, b"t"),))),
    ("inspect", 0, [[1500, b"aioredlock_ng:over:t"]], Looked((Held(1.5, b"t", over=True),))),
    ("inspect", 1, [[1500, b"t", b"web-1"]], Looked((Held(1.5, b"t", b"web-1"),))),
    ("inspect", 1, [[1500, b"t"]], None),
    ("inspect", 0, [[-3, b"hash -1"]], Looked((NotALock("hash", math.inf),))),
    ("inspect", 0, [[-3, b" 2000"]], Looked((NotALock("other", 2.0),))),
    ("inspect", 0, [[-3, b"any words"]], None),
    ("inspect", 0, [], None),
    ("inspect", 0, [[1500, OFFER + b"1:m"]], Looked((Free(1.5),))),
    ("inspect", 2, [[1500, b"t", b"", 4]], Looked((Held(1.5, b"t", waiting=4),))),
    ("inspect", 2, [[1500, b"t", b"", -1]], Looked((Held(1.5, b"t"),))),
    ("inspect", 2, [[-2, b"", b"", 4]], Looked((Free(waiting=4),))),
    ("inspect", 2, [[1500, OFFER + b"1:m", b"", 4]], Looked((Free(1.5, 4),))),
    ("inspect", 2, [[-3, b"hash -1", b"", -1]], Looked((NotALock("hash", math.inf),))),
    ("inspect", 2, [[1500, b"t", b""]], None),
    ("inspect", 2, [[1500, b"t", b"", -2]], None),
    ("inspect", 2, [[1500, b"t", b"", True]], None),
    ("inspect", 2, [[1500, b"t", b"", b"4"]], None),
    ("inspect", 0, [[1500, READERS, b"", -1, []]], Looked((ReadLocked(1.5, ()),))),
    (
        "inspect",
        0,
        [[1500, READERS, b"", -1, [b"e", 900, b""]]],
        Looked((ReadLocked(1.5, (Reader(0.9, b"e"),)),)),
    ),
    (
        "inspect",
        1,
        [[9, READERS, b"", -1, [b"e", 0, b"web-1"]]],
        Looked((ReadLocked(0.009, (Reader(0.0, b"e", b"web-1"),)),)),
    ),
    ("inspect", 2, [[1500, READERS, b"", 4, []]], Looked((ReadLocked(1.5, (), 4),))),
    ("inspect", 0, [[1500, READERS, b"", -1, [b"e", 900]]], None),
    ("inspect", 0, [[1500, READERS, b"", -1, [b"e", -1, b""]]], None),
    ("inspect", 0, [[1500, READERS, b"", -1, [b"e", True, b""]]], None),
    ("inspect", 0, [[1500, READERS, b"", -1, [1, 900, b""]]], None),
    ("inspect", 0, [[1500, READERS, b"", -1, [b"e", 900, 1]]], None),
    ("inspect", 0, [[1500, READERS, b"", -1, b"e"]], None),
    ("inspect", 0, [[1500, READERS, b"", -2, []]], None),
    ("inspect", 0, [[1500, b"t", b"", -1, []]], None),
    ("inspect", 0, [[-1, READERS, b"", -1, []]], None),
    ("acquire_read", 0, [1, 15], Granted(15)),
    ("acquire_read", 0, 1, None),
    ("acquire_read", 0, [1, 0], BROKEN_COUNTER),
    ("acquire_read", 0, [1, LATEST_US + 1], BROKEN_COUNTER),
    ("acquire_read", 0, [2, 15], None),
    ("acquire_read", 0, [-1, 1500], Quarantined(1.5)),
    ("acquire_read", 0, [0, 1500, 1, 7], Refused(1.5, 1, 7)),
    ("acquire_read", 0, [0, 1500, 2, 7], None),
    ("acquire_read", 1, 1, GRANTED),
    ("acquire_read", 1, [1, 15], None),
    ("extend_read", 0, 2, ALL_OURS),
    ("extend_read", 0, 3, None),
    ("extend_read", 0, [1, 0], KeyStates((OURS, GONE))),
    ("extend_read", 0, [1, 0, 0], None),
    ("watch_read", 1, 2, ALL_OURS),
    ("watch_read", 1, [0, -1], KeyStates((GONE, THEIRS))),
    ("release_read", 1, 1, Released(1)),
    ("release_read", 1, 2, None),
    ("release_read", 0, True, None),
    ("stand_read", 0, [-1, 1, 3], Standing(None, 3)),
    ("stand_read", 0, [0, 2, 0], None),
    ("repair", 0, 1, Repaired.DONE),
    ("repair", 0, 0, Repaired.OUTRUN),
    ("repair", 0, -1, Repaired.UNTRUSTED),
    ("repair", 0, True, None),
    ("force_release", 0, 1, ForceReleased(1)),
    ("marker", 0, [b"m", 5, OWN_MARKER], MarkerRead(b"m", 5, OWN_MARKER)),
    ("marker", 0, [b"m", 5, OWN_MARKER[1:]], None),
]
"""A script, the number of its command in `COMMANDS`, a reply, and the record of the reply.

The record of a reply that does not fit is None.
"""


@pytest.mark.parametrize("script", sorted({name for name, *_ in READ}))
def test_a_reply_is_decoded_into_the_record_of_its_script(script: str) -> None:
    for name, at, reply, record in READ:
        if name == script:
            read = COMMANDS[name][at].read(reply)
            fits = type(read) is Garbled if record is None else read == record
            assert fits, (at, reply, read)


def test_no_record_is_allocated_for_a_successful_reply() -> None:
    """Most replies report success: each lease is released, and each long lease is renewed."""
    release, extend = COMMANDS["release"][0], COMMANDS["extend"][0]
    for name in ("acquire", "acquire_guarded", "confirm"):
        assert COMMANDS[name][0].read(1) is GRANTED
    assert release.read(1) is release.read(1)
    assert extend.read(2) is extend.read(2)
    (joint,) = joined(askers := [Asker(MUTEX.releasing((key,), b"t", 1.0)) for key in (b"a", b"b")])
    joint.deliver(0, joint.command.read(2))
    assert all(asker.heard[0] is release.read(1) for asker in askers)


def test_each_of_several_calls_sent_as_one_gets_its_own_record() -> None:
    async def told(reply: Any) -> list[Any]:
        line = Line()
        askers = line.ask(
            MUTEX.releasing((b"a",), b"t", 1.0), MUTEX.acquiring((b"a",), (b"1",), b"u", b"1000", 0)
        )
        line.say(encoded(reply))
        return [asker.heard for asker in askers]

    assert asyncio.run(told(2)) == [[Released(1)], [GRANTED]]
    assert asyncio.run(told([0, [0, 9, 1, 0]])) == [[Released(0)], [Refused(0.009, 1, 0)]]


def test_states_of_keys_are_asked_for_by_the_keys_of_one_lease() -> None:
    states = KeyStates((OURS, OURS, GONE, OURS, GONE, THEIRS))
    assert [states.are_ours(0, 2), states.are_ours(1, 2), states.are_ours(3, 1)] == [
        True,
        False,
        True,
    ]
    assert [states.are_missing(2, 2), states.are_missing(0, 2), states.are_missing(4, 2)] == [
        True,
        False,
        False,
    ]
    assert [states.some_ours, KeyStates((GONE, THEIRS)).some_ours] == [True, False]


class Asker:
    """Sends one command and keeps its replies."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.started = 0.0
        self.heard: list[Any] = []

    def stands(self) -> bool:
        return False

    def deliver(self, index: int, reply: Any) -> None:
        self.heard.append(reply)


class Transport:
    """Discards all writes."""

    def set_protocol(self, _protocol: object) -> None: ...

    def write(self, _data: bytes) -> None: ...

    def abort(self) -> None: ...


class Line:
    """A channel whose server gives the replies of a test."""

    def __init__(self) -> None:
        outbox = Outbox(cast("Any", _Loop()), lambda: 0.0)
        self.garbled: list[str] = []
        self.owed: list[Any] = []
        self.closed: list[str] = []
        self.pushed: list[Any] = []
        self.messages: list[bytes] = []
        self.channel = Channel(
            0,
            outbox,
            1.0,
            self.pushed.append,
            self.messages.append,
            lambda reason, _releases: self.closed.append(reason),
            lambda _silent: None,
            lambda command, _words: self.owed.append(command),
            self.garbled.append,
            lambda _words: None,
        )
        self.channel.attach(cast("Any", Transport()), b"", keep=None)

    def ask(self, *commands: Command) -> list[Asker]:
        askers = [Asker(command) for command in commands]
        for sink in joined(list(askers)):
            self.channel.ask(sink)
        return askers

    def say(self, data: bytes) -> None:
        view = self.channel.get_buffer(-1)
        view[: len(data)] = data
        self.channel.buffer_updated(len(data))


class _Loop:
    def call_soon(self, *_: object) -> None: ...


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_answer_of_a_server_to_a_script_is_read_or_counts_as_unknown(name: str) -> None:
    @given(reply=nearly | anything)
    def fuzz(reply: Any) -> None:
        for command in COMMANDS[name]:
            heard, read = runner.run(_told(command, reply)), command.read(as_parsed(reply))
            assert type(heard) is type(read)
            # Another parser may deliver sets.
            assert type(command.read(reply)) in {Garbled} | RECORDS[name]
            if type(heard) is Garbled:
                vote = acquire_vote("node", heard)
                assert vote.outcome is Outcome.UNKNOWN
                assert may_have_set(heard)
            else:
                assert heard == read
                assert type(heard) in RECORDS[name]

    # A new event loop for each example would cost more than the example.
    with asyncio.Runner() as runner:
        fuzz()


async def _told(command: Command, reply: Any) -> Any:
    line = Line()
    (asker,) = line.ask(command)
    line.say(b"+OK\r\n" * command.tracked + encoded(reply))
    assert line.closed == []
    (heard,) = asker.heard
    garbled = type(heard) is Garbled
    assert len(line.garbled) == garbled
    assert len(line.owed) == (garbled and command.owed_until is not None)
    return heard


@given(replies=st.lists(nearly | anything, min_size=3, max_size=3))
def test_every_acquire_reply_that_fits_can_be_counted(replies: list[Any]) -> None:
    for command in (*COMMANDS["acquire"], *COMMANDS["acquire_guarded"]):
        read = [command.read(reply) for reply in replies]
        counted = tally(read, 2, lambda _index: "")
        assert counted.granted == sum(map(is_granted, read))
        keys = command.keys[: len(command.keys) - 2 * (command.script.name == "acquire_guarded")]
        assert blocking_key(read, keys) in keys
        for held in filter(is_held, read):
            assert 1 <= held.place <= len(keys)
            assert 0 <= held.ticket <= LARGEST_TICKET
        for reply in read:
            assert str(acquire_vote("node", reply))
            assert (reply is GRANTED) is (is_granted(reply) and counter_of(reply) == 0)
            assert is_permanent(reply) is (reply is BROKEN_COUNTER)


@given(first=st.sampled_from([1, [1, 16]]), second=nearly | anything)
def test_a_refused_second_fence_never_reads_as_a_lock_of_another(first: Any, second: Any) -> None:
    granted = COMMANDS["acquire_guarded"][0].read(first)
    answer = COMMANDS["confirm"][0].read(second)
    (latest,) = with_second_round([granted], [answer], 32, expired=True)
    assert may_have_set(latest)
    assert is_granted(latest) is (type(answer) is not Garbled)
    assert tally([latest], 1, lambda _index: "").held == []


def test_the_commands_that_a_server_does_not_know_are_read_by_name() -> None:
    assert catalogue.COMMANDS.read([b"ZADD"]) == UnknownCommands((b"ZADD",))
    assert catalogue.COMMANDS.read([]) == UnknownCommands(())
    for reply in (None, 1, b"ZADD", [b"ZADD", 1], [[b"ZADD"]]):
        assert type(catalogue.COMMANDS.read(reply)) is Garbled


JOINT: dict[str, list[Command]] = {
    "releases": [MUTEX.releasing((key,), b"t", 1.0) for key in (b"a", b"b", b"c")],
    "acquires": [MUTEX.acquiring((key,), (b"1",), b"t", b"1000", 0) for key in (b"a", b"b", b"c")],
    "guarded acquires": [
        GUARDED.acquiring((key,), (b"1",), b"t", b"1000", 16) for key in (b"a", b"b", b"c")
    ],
    "hand-overs": [
        command
        for key in (b"a", b"b")
        for command in (
            GUARDED.releasing((key,), b"t", 1.0),
            GUARDED.acquiring((key,), (b"1",), b"u", b"1000", 16),
        )
    ],
}
own_parts = st.lists(
    st.sampled_from([0, 1, [0, 9, 1, 0], [1, 16], [-1, 1500]]) | errors | anything, max_size=5
)


@pytest.mark.parametrize("kind", JOINT)
def test_each_of_several_commands_sent_as_one_gets_a_fitting_reply_or_none(kind: str) -> None:
    @given(reply=own_parts | nearly | anything)
    def fuzz(reply: Any) -> None:
        runner.run(told(reply))

    async def told(reply: Any) -> None:
        line = Line()
        askers = line.ask(*JOINT[kind])
        assert len(line.channel._waiting) == 1
        line.say(encoded(reply))
        assert line.closed == []
        for asker in askers:
            records = RECORDS[asker.command.script.name]
            assert len(asker.heard) <= 1
            assert all(type(said) in {Garbled, Unsent} | records for said in asker.heard)
        # A part that does not fit leaves the outcome of every call unknown.
        unknown = [type(said) is Garbled for asker in askers for said in asker.heard]
        assert unknown in ([False] * len(unknown), [True] * len(askers))
        owed = [command for command in JOINT[kind] if command.owed_until is not None]
        assert line.owed == (owed if any(unknown) else [])

    # A new event loop for each example would cost more than the example.
    with asyncio.Runner() as runner:
        fuzz()


def test_an_error_within_the_reply_to_several_calls_leaves_all_of_them_unknown() -> None:
    async def told() -> None:
        line = Line()
        askers = line.ask(*JOINT["releases"])
        line.say(encoded([1, Refusal("ERR no"), 1]))
        assert [type(asker.heard[0]) for asker in askers] == [Garbled] * 3
        assert line.owed == JOINT["releases"]

    asyncio.run(told())


@pytest.mark.parametrize("name", ["acquire", "stand"])
def test_an_answer_nested_too_deeply_ends_the_connection_and_nothing_else(name: str) -> None:
    async def told() -> None:
        line = Line()
        (asker,) = line.ask(COMMANDS[name][0])
        line.say(b"+OK\r\n" * COMMANDS[name][0].tracked + b"*1\r\n" * 10_000 + b":1\r\n")
        assert [reason.partition(":")[0] for reason in line.closed] == ["not the Redis protocol"]
        assert [type(said) for said in asker.heard] == [Dropped]

    asyncio.run(told())


def test_a_true_or_a_one_point_zero_is_no_grant() -> None:
    for command in (*COMMANDS["acquire"], *COMMANDS["acquire_guarded"]):
        assert command.read(1) is GRANTED
        assert type(command.read(True)) is Garbled
        assert type(command.read(1.0)) is Garbled


def test_a_reply_with_more_parts_than_commands_is_garbled_for_all_of_them() -> None:
    async def told() -> None:
        line = Line()
        askers = line.ask(*(MUTEX.releasing((key,), b"t", 1.0) for key in (b"a", b"b")))
        line.say(encoded([1, 1, 1]))
        assert [type(asker.heard[0]) for asker in askers] == [Garbled, Garbled]
        assert [command.keys for command in line.owed] == [(b"a",), (b"b",)]

    asyncio.run(told())


@pytest.mark.parametrize("reply", [[b"a"], [1, b"2"], [0, [0, b"x"]]])
def test_a_hand_over_whose_reply_is_garbled_in_part_is_garbled_for_both_its_calls(
    reply: Any,
) -> None:
    """A call missing in a correct reply was not executed. A garbled reply leaves that open."""

    async def told() -> None:
        line = Line()
        release = MUTEX.releasing((b"a",), b"t", 1.0)
        askers = line.ask(release, MUTEX.acquiring((b"a",), (b"1",), b"u", b"1000", 0))
        line.say(encoded(reply))
        assert [type(asker.heard[0]) for asker in askers] == [Garbled, Garbled]
        assert line.owed == [release]

    asyncio.run(told())


def test_an_answer_that_the_parser_cannot_build_ends_the_connection_and_nothing_else() -> None:
    async def told() -> None:
        line = Line()
        (asker,) = line.ask(*COMMANDS["inspect"][:1])
        line.say(b"%1\r\n*0\r\n:1\r\n")
        assert line.closed == ["not the Redis protocol: a map whose key is not a plain value"]
        assert len(asker.heard) == 1

    asyncio.run(told())


def as_parsed(value: Any) -> Any:
    """Return a reply as the parser delivers it: sets as lists, and a number of more than 64 bits as
    text.
    """
    reader = hiredis.Reader(replyError=Refusal)
    reader.feed(encoded(value))
    return reader.gets()


@example(message=[2**63])
@given(message=nearly | anything)
def test_a_push_that_cannot_be_read_means_that_any_key_may_have_changed(message: Any) -> None:
    async def told() -> None:
        line = Line()
        line.say(b">2\r\n$10\r\ninvalidate\r\n" + encoded(message))
        (keys,) = line.pushed
        read = as_parsed(message)
        well = type(read) is list and all(type(key) is bytes for key in read)
        assert keys == (read if well else None)

    asyncio.run(told())


@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_push_of_another_length_does_no_harm(length: int) -> None:
    async def told() -> None:
        line = Line()
        line.say(b">%d\r\n" % length + b"$10\r\ninvalidate\r\n" * length)
        assert line.pushed == ([None] if length else [])
        assert line.closed == []

    asyncio.run(told())


@given(reply=anything)
def test_the_message_about_a_garbled_reply_shows_nothing_of_its_content(reply: Any) -> None:
    for command in COMMANDS["inspect"]:
        assert "s3cr3t" not in str(garbled(command, [reply, b"s3cr3t"]))
        assert "s3cr3t" not in str(garbled(command, b"s3cr3t"))


@given(
    marker=st.binary(max_size=80)
    | st.lists(
        st.binary(max_size=20) | st.integers(0, 10**20).map(lambda n: b"%d" % n), max_size=5
    ).map(b":".join)
)
def test_a_marker_of_any_bytes_can_be_read(marker: bytes) -> None:
    reading = read_marker(marker, 0, b"f" * 40 + b":1000", 0.0, 0.0)
    assert reading.left(0.0) >= 0.0
    assert next_steps([reading], 1000, 0.0, strict=False) is not None


def test_a_joint_is_answered_by_the_number_of_its_calls_and_by_no_other() -> None:
    (joint,) = joined([Asker(MUTEX.releasing((key,), b"t", 1.0)) for key in (b"a", b"b")])
    assert isinstance(joint, Joint)
    read = [joint.command.read(count) for count in (1, 2, 3, 2.0)]
    assert [said is ALL_DONE for said in read] == [False, True, False, False]
    assert [type(said) is Garbled for said in read] == [True, False, True, True]


def test_a_release_reports_any_number_of_keys() -> None:
    for count in range(100):
        assert released(count) == Released(count)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (NotALock("hash", math.inf), "a hash without expiry"),
        (NotALock("hash", 2.5), "a hash, 2.5 s left"),
        (NotALock("other", 2.5), "a key of another type, 2.5 s left"),
    ],
)
def test_a_key_that_is_no_lock_is_described_by_its_type_and_its_remaining_life(
    found: NotALock, text: str
) -> None:
    assert str(found) == text
