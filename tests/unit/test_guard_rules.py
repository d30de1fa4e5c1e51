"""The step for each kind of marker as a full table, and the reading of markers."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._core.marker import (
    LONGEST_MS,
    NO_RUN_ID,
    Reading,
    Trust,
    process_name,
    read_marker,
)
from aioredlock_ng._core.recovery_guard import (
    FRESH,
    Memory,
    Step,
    all_forgot,
    new_set_words,
    next_steps,
    remembered,
)

MINE = b"a" * 40
OTHER = b"b" * 40
GUARD = 60_000
NOW = 100.0


def reading(
    trust: Trust, *, guard: int = GUARD, left: float = 30.0, at: float = NOW, run_id: bytes = MINE
) -> Reading:
    return Reading(trust, b"marker", run_id, guard, int(left * 1000), 0, at, at)


def step(node: Reading, *others: Reading | None, strict: bool = False) -> Step | None:
    return next_steps([node, *others], GUARD, NOW, strict=strict)[0]


@pytest.mark.parametrize(
    ("marker", "trust"),
    [
        (b"", Trust.NONE),
        (MINE + b":60000", Trust.TRUSTED),
        (MINE + b":60000:5000", Trust.WAITING),
        (MINE + b":60000:5000:n0nce", Trust.FOUNDING),
        (OTHER + b":60000", Trust.FOREIGN),
        (OTHER + b":60000:5000", Trust.FOREIGN),
        (OTHER + b":60000:5000:n0nce", Trust.FOREIGN),
        (b"rubbish", Trust.FOREIGN),
        (MINE + b":soon", Trust.FOREIGN),
        (MINE + b":1:2:3:4", Trust.FOREIGN),
        (MINE + b":" + b"9" * 5000, Trust.FOREIGN),
        (MINE + b":60000:" + b"9" * 5000, Trust.FOREIGN),
        (MINE + b":86401000", Trust.TRUSTED),
        (MINE + b":86401001", Trust.EXCESSIVE),
        (OTHER + b":86401001:5000", Trust.EXCESSIVE),
    ],
)
def test_a_marker_is_read_for_the_process_that_is_there(marker: bytes, trust: Trust) -> None:
    assert read_marker(marker, 4000, MINE + b":1", NOW, NOW).trust is trust


@pytest.mark.parametrize("named", [MINE, OTHER, NO_RUN_ID])
def test_a_client_that_may_not_read_the_run_id_adopts_the_run_id_of_the_marker(
    named: bytes,
) -> None:
    read = read_marker(named + b":60000", 4000, NO_RUN_ID + b":1", NOW, NOW)
    assert (read.trust, read.run_id) == (Trust.TRUSTED, named)
    assert (
        read_marker(named + b":60000:5000", 4000, NO_RUN_ID + b":1", NOW, NOW).trust
        is Trust.WAITING
    )
    assert read_marker(b"rubbish", 4000, NO_RUN_ID + b":1", NOW, NOW).run_id == NO_RUN_ID


def test_a_marker_without_a_run_id_is_foreign_to_a_client_that_knows_the_run_id() -> None:
    assert read_marker(NO_RUN_ID + b":60000", 4000, MINE + b":1", NOW, NOW).trust is Trust.FOREIGN


@given(st.binary(max_size=80))
def test_only_a_marker_of_this_process_is_ever_trusted(marker: bytes) -> None:
    read = read_marker(marker, 0, MINE + b":1", NOW, NOW)
    assert read.trust is not Trust.TRUSTED or marker.startswith(MINE + b":")


def test_the_rest_of_a_quarantine_follows_from_the_time_of_the_node_and_our_own_time() -> None:
    read = read_marker(MINE + b":60000:5000", 4000, MINE + b":1", NOW, NOW)
    assert read.left(NOW) == 1.0
    assert read.left(NOW + 0.4) == pytest.approx(0.6)
    assert read.left(NOW + 5) == 0.0


def test_a_late_answer_shortens_no_quarantine() -> None:
    read = read_marker(MINE + b":60000:6500", 4000, MINE + b":1", at=NOW, answered=NOW + 3)
    assert read.left(NOW + 3) == 2.5
    assert step(read) is None


ANY = [None, *(reading(trust) for trust in Trust)]


@pytest.mark.parametrize("strict", [False, True])
def test_a_foreign_marker_always_waits(strict: bool) -> None:
    for others in product(ANY, ANY):
        assert step(reading(Trust.FOREIGN), *others, strict=strict) == Step(Trust.WAITING, GUARD)


def test_a_missing_marker_founds_only_where_no_node_is_trusted() -> None:
    for others in product(ANY, ANY):
        knows = any(other is not None and other.trust is Trust.TRUSTED for other in others)
        assert step(reading(Trust.NONE), *others) == Step(
            Trust.WAITING if knows else Trust.FOUNDING, GUARD
        )
        assert step(reading(Trust.NONE), *others, strict=True) == Step(Trust.WAITING, GUARD)


def test_only_a_set_that_founds_as_a_whole_is_promoted() -> None:
    founding = reading(Trust.FOUNDING)
    for others in product(ANY, ANY):
        whole = all(other is not None and other.trust is Trust.FOUNDING for other in others)
        assert step(founding, *others) == (Step(Trust.TRUSTED, GUARD) if whole else None)
        assert step(founding, *others, strict=True) is None


def test_founding_must_have_been_read_within_a_second() -> None:
    fresh, stale = (
        reading(Trust.FOUNDING, at=NOW - FRESH),
        reading(Trust.FOUNDING, at=NOW - FRESH - 0.001),
    )
    assert step(fresh, fresh) == Step(Trust.TRUSTED, GUARD)
    assert step(fresh, stale) is None
    assert step(stale, fresh) is None


@pytest.mark.parametrize("trust", [Trust.WAITING, Trust.FOUNDING])
def test_a_node_that_has_waited_is_trusted(trust: Trust) -> None:
    assert step(reading(trust, left=0.0), None, reading(Trust.TRUSTED)) == Step(
        Trust.TRUSTED, GUARD
    )
    assert step(reading(trust, left=0.001), None, reading(Trust.TRUSTED)) is None


@pytest.mark.parametrize("trust", [Trust.WAITING, Trust.FOUNDING])
def test_a_node_waits_no_longer_than_the_guard_time_from_now(trust: Trust) -> None:
    """Its clock may have been set back since its marker was written."""
    for others in product([None, reading(Trust.TRUSTED)], repeat=2):
        assert step(reading(trust, left=GUARD / 1000 + 2.0), *others) is None
        assert step(reading(trust, left=GUARD / 1000 + 2.1), *others) == Step(Trust.WAITING, GUARD)


def test_a_shorter_guard_time_is_raised_before_we_vote() -> None:
    short = GUARD - 1
    assert step(reading(Trust.TRUSTED, guard=short)) == Step(Trust.TRUSTED, GUARD)
    assert step(reading(Trust.TRUSTED, guard=GUARD + 1)) is None
    assert step(reading(Trust.WAITING, guard=short)) == Step(Trust.WAITING, GUARD)
    assert step(reading(Trust.FOUNDING, guard=short), reading(Trust.TRUSTED)) is None, (
        "its promotion may be on its way"
    )
    assert step(reading(Trust.FOUNDING, guard=short, left=0.0), reading(Trust.TRUSTED)) == Step(
        Trust.WAITING, GUARD
    )
    assert step(reading(Trust.FOUNDING, guard=short), reading(Trust.FOUNDING)) == Step(
        Trust.TRUSTED, GUARD
    )


def test_the_longest_guard_time_that_any_node_names_holds() -> None:
    longer = reading(Trust.TRUSTED, guard=GUARD + 5)
    assert step(reading(Trust.NONE), longer) == Step(Trust.WAITING, GUARD + 5)
    assert step(reading(Trust.FOREIGN), longer) == Step(Trust.WAITING, GUARD + 5)


def test_a_process_is_named_by_forty_characters() -> None:
    assert process_name("a" * 40) == MINE
    assert process_name("") == NO_RUN_ID
    for odd in ("short", "x:" * 20, "a" * 64):
        assert len(process_name(odd)) == 40
        assert process_name(odd).isalnum()


def test_a_guard_time_above_a_day_is_never_copied_and_its_own_node_waits() -> None:
    damaged = read_marker(MINE + b":%d" % 10**15, 0, MINE + b":1", NOW, NOW)
    assert damaged.guard_ms == 0
    assert next_steps(
        [damaged, reading(Trust.NONE), reading(Trust.TRUSTED)], GUARD, NOW, strict=False
    ) == [
        Step(Trust.WAITING, GUARD),
        Step(Trust.WAITING, GUARD),
        None,
    ]
    assert LONGEST_MS == 86_401_000


RECENT = Memory(OTHER, NOW - GUARD / 1000)
"""Of a process before; it counts for the last time."""

OLD = Memory(OTHER, NOW - GUARD / 1000 - 0.001)


def steps(
    readings: list[Reading | None], memories: list[Memory | None], **given: int
) -> list[Step | None]:
    return next_steps(readings, GUARD, NOW, strict=False, memories=memories, **given)


WAIT = Step(Trust.WAITING, GUARD)


def test_a_witness_founds_nothing_and_promotes_nothing() -> None:
    for trust in (Trust.NONE, Trust.FOUNDING):
        lost = reading(trust)
        assert steps([lost], [RECENT]) == [WAIT]
        assert steps([lost] * 3, [RECENT] * 3) == [WAIT] * 3
        assert steps([lost] * 3, [RECENT, None, None]) == [WAIT] * 3, (
            "one node that it knew is enough"
        )


def test_a_witness_lets_nodes_wait_that_others_promoted_since() -> None:
    young = reading(Trust.TRUSTED)
    assert steps([young] * 3, [RECENT, RECENT, None]) == [WAIT, WAIT, None]


def test_a_witness_leaves_the_process_that_it_knew_alone() -> None:
    here = reading(Trust.TRUSTED)
    assert steps([here] * 3, [Memory(MINE, NOW)] * 3) == [None] * 3
    assert steps([here, None, here], [Memory(MINE, NOW - 1e6)] * 3) == [None] * 3


def test_a_client_with_too_old_a_memory_is_no_witness() -> None:
    assert steps([reading(Trust.NONE)], [OLD]) == [Step(Trust.FOUNDING, GUARD)]
    assert steps([reading(Trust.FOUNDING)], [OLD]) == [Step(Trust.TRUSTED, GUARD)]
    assert steps([reading(Trust.TRUSTED)], [OLD]) == [None]


def test_a_witness_remembers_for_the_longest_guard_time_that_it_knows() -> None:
    longer = GUARD + 1000
    assert steps([reading(Trust.NONE)], [OLD], known_ms=longer) == [Step(Trust.WAITING, longer)]
    assert steps([reading(Trust.FOUNDING, guard=longer)], [OLD]) == [Step(Trust.WAITING, longer)]


def test_a_founding_that_another_is_about_to_promote_is_left_to_it() -> None:
    """Its first promoted nodes are trusted for us, and their founding is no sign that anything was
    forgotten.
    """
    promoted, founding = reading(Trust.TRUSTED), reading(Trust.FOUNDING)
    assert steps([promoted, founding, founding], [Memory(MINE, NOW), None, None]) == [None] * 3


def test_nodes_founded_again_after_a_loss_wait_although_one_of_them_is_trusted_already() -> None:
    promoted, founding = reading(Trust.TRUSTED), reading(Trust.FOUNDING)
    assert steps([promoted, founding, founding], [RECENT, None, None]) == [WAIT] * 3


def test_a_lost_node_does_not_end_the_founding_beside_a_node_that_lost_nothing() -> None:
    kept, lost, founding = map(reading, (Trust.TRUSTED, Trust.NONE, Trust.FOUNDING))
    found = steps([kept, lost, founding], [Memory(MINE, NOW), RECENT, None])
    assert found == [None, WAIT, None]


def test_a_witness_does_not_begin_the_quarantine_of_a_waiting_node_again() -> None:
    assert steps([reading(Trust.WAITING)], [RECENT]) == [None]


def test_the_memory_of_a_marker_counts_from_when_it_was_found_to_be_gone() -> None:
    known = Memory(MINE, 1.0)
    here, gone = reading(Trust.TRUSTED), reading(Trust.NONE)
    for after in (gone, None, reading(Trust.FOUNDING), reading(Trust.TRUSTED, run_id=OTHER)):
        assert remembered(known, here, after, NOW, GUARD) == Memory(MINE, NOW, after)
        recent = Memory(MINE, NOW - 10, gone)
        assert remembered(recent, gone, after, NOW, GUARD) == Memory(
            MINE, NOW - 10, gone if after is None else after
        ), "it was found to be gone before"
    assert remembered(known, here, here, NOW, GUARD) == Memory(MINE, NOW)
    assert remembered(None, None, here, NOW, GUARD) == Memory(MINE, NOW)
    assert remembered(None, None, gone, NOW, GUARD) is None


def test_another_process_is_believed_once_the_memory_of_the_one_before_is_over() -> None:
    other = reading(Trust.TRUSTED, run_id=OTHER)
    assert remembered(Memory(MINE, NOW - 61), None, other, NOW, GUARD) == Memory(OTHER, NOW)
    assert remembered(Memory(MINE, NOW - 61), None, other, NOW, GUARD + 1000) == Memory(
        MINE, NOW - 61, other
    )


@pytest.mark.parametrize("lost", [Trust.NONE, Trust.FOREIGN, Trust.FOUNDING])
def test_a_manager_that_was_paused_believes_a_node_that_has_waited_by_its_own_clock(
    lost: Trust,
) -> None:
    """The paused manager takes the reading without the marker when the wait is over already."""
    gone = replace(reading(lost), node_ms=5_000)
    known = remembered(Memory(MINE, NOW - 90), reading(Trust.TRUSTED), gone, NOW, GUARD)
    assert known == Memory(MINE, NOW, gone)
    waited = replace(reading(Trust.TRUSTED), node_ms=5_000 + GUARD + 1000)
    assert remembered(known, gone, waited, NOW, GUARD) == Memory(MINE, NOW)
    early = replace(waited, node_ms=waited.node_ms - 1)
    assert remembered(known, gone, early, NOW, GUARD) == Memory(MINE, NOW, early)
    assert remembered(known, gone, waited, NOW, GUARD + 1) == Memory(MINE, NOW, waited)
    elsewhere = replace(waited, run_id=OTHER)
    assert remembered(known, gone, elsewhere, NOW, GUARD) == Memory(MINE, NOW, elsewhere)


@pytest.mark.parametrize("run_id", [OTHER, MINE], ids=["restarted", "flushed"])
def test_a_node_is_believed_once_it_has_waited_as_its_marker_says(run_id: bytes) -> None:
    """Its guard time may have been lowered meanwhile, and is shorter than that of the memory."""
    waiting = reading(Trust.WAITING, left=30.0)
    known = Memory(run_id, NOW - 1, waiting)
    trusted = replace(reading(Trust.TRUSTED), node_ms=30_000)
    for before in (waiting, None):
        assert remembered(known, before, trusted, NOW, GUARD) == Memory(MINE, NOW)
    early = replace(trusted, node_ms=29_999)
    assert remembered(known, waiting, early, NOW, GUARD) == Memory(run_id, NOW - 1, early)
    for lost in (
        reading(Trust.WAITING, run_id=b"c" * 40),
        reading(Trust.FOUNDING),
        reading(Trust.NONE),
    ):
        known = Memory(run_id, NOW - 1, lost)
        for before in (lost, None):
            found = remembered(known, before, trusted, NOW, GUARD)
            assert found == Memory(run_id, NOW - 1, trusted)
            assert found.contradicts(trusted)


def test_a_node_that_restarts_again_and_again_keeps_no_set_from_being_founded_for_ever() -> None:
    """A process that was never trusted granted nothing. Only the trusted process is remembered."""
    memory: Memory | None = Memory(OTHER, NOW)
    for second in range(61):
        memory = remembered(
            memory, reading(Trust.WAITING), reading(Trust.NONE), NOW + second, GUARD
        )
    found = next_steps([reading(Trust.NONE)], GUARD, NOW + 61, strict=False, memories=[memory])
    assert found == [Step(Trust.FOUNDING, GUARD)]


def test_all_forgot_needs_an_answer_of_every_node_and_no_node_that_kept_its_memory() -> None:
    lost, young, kept = (
        reading(Trust.WAITING),
        reading(Trust.TRUSTED),
        reading(Trust.TRUSTED, run_id=OTHER),
    )
    assert all_forgot([lost, lost, young], [RECENT, None, RECENT], NOW, GUARD)
    assert not all_forgot([lost, lost, lost], [None] * 3, NOW, GUARD), "a new set"
    assert not all_forgot([lost, lost, lost], [OLD] * 3, NOW, GUARD)
    assert not all_forgot([lost, lost, None], [RECENT] * 3, NOW, GUARD), (
        "the third may have kept its memory"
    )
    assert not all_forgot([lost, lost, kept], [RECENT] * 3, NOW, GUARD)
    assert not all_forgot([lost, lost, young], [RECENT, RECENT, None], NOW, GUARD), (
        "nobody knows that it forgot"
    )


def test_the_message_about_a_new_set_names_the_missing_nodes_and_no_lost_memory() -> None:
    words = new_set_words([("127.0.0.1:7203", "connection refused")], 61.0)
    assert (
        words
        == "new set: the nodes vote when 127.0.0.1:7203 is up too (connection refused), or in 61 s"
    )
    both = new_set_words([("a", "down"), ("b", "no answer")], 30.4)
    assert (
        both
        == "new set: the nodes vote when a is up too (down) and b is up too (no answer), or in 30 s"
    )
    assert (
        new_set_words([], 61.0)
        == "new set: the nodes vote once all answer within a second, or in 61 s"
    )
