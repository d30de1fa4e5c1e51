"""Joined requests: each is sent once, in order."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._nodes.channel.joint import LEAST, MOST, Joint, joined
from aioredlock_ng._scripts import Request
from aioredlock_ng._scripts.exclusive_kinds import MUTEX, guarded_mutex

KINDS = [MUTEX, guarded_mutex(fencing=True, own_marker=b"a:1")]


class Asker:
    def __init__(self, command: Request, heard_by: list[Asker] | None = None) -> None:
        self.command = command
        self.started = 0.0
        self.heard: list[object] = []
        self._heard_by = [] if heard_by is None else heard_by

    def stands(self) -> bool:
        return True

    def deliver(self, index: int, reply: object) -> None:
        self.heard.append(reply)
        self._heard_by.append(self)


def command(what: int, key: bytes, kind: int) -> Request:
    match what:
        case 0 | 1:
            return KINDS[kind].acquiring((key,), (key,), b"token", b"1000", 1)
        case 2 | 3:
            return KINDS[kind].releasing((key,), b"token", 1.0)
        case 4:
            return KINDS[kind].releasing((key, b"other"), b"token", 1.0)
    return Request(b"*1\r\n$4\r\nPING\r\n")


asked = st.builds(command, st.integers(0, 5), st.sampled_from([b"a", b"b"]), st.integers(0, 1))


@given(st.lists(asked, max_size=3 * MOST))
def test_every_joined_request_is_sent_once_and_in_its_order(commands: list[Request]) -> None:
    askers = [Asker(command) for command in commands]
    requests = joined(list(askers))
    flat = [
        asker
        for request in requests
        for asker in (request.sinks if isinstance(request, Joint) else [request])
    ]
    assert flat == askers
    for request in requests:
        assert request.command.packed.startswith(b"*")
        if isinstance(request, Joint):
            assert LEAST <= len(request.sinks) <= MOST
        reply = len(request.sinks) if isinstance(request, Joint) else 1
        request.deliver(0, request.command.read(reply))
    assert all(asker.heard == [asker.command.read(1)] for asker in askers)
    # A release with the acquire of its key behind it never leaves as two commands.
    for one, other in pairwise(requests):
        first = one.sinks[-1] if isinstance(one, Joint) else one
        then = other.sinks[0] if isinstance(other, Joint) else other
        gives = first.command.form is not None and first.command.owed_until is not None
        takes = then.command.form is not None and then.command.owed_until is None
        assert not (gives and takes and first.command.blanks[0] == then.command.blanks[0])


@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=40), st.integers(0, 1))
def test_one_hand_over_is_packed_as_several_hand_overs_are(
    key: bytes, given_up: bytes, token: bytes, kind: int
) -> None:
    release = KINDS[kind].releasing((key,), given_up, 1.0)
    acquire = KINDS[kind].acquiring((key,), (b"7",), token, b"1000", 1)
    form = acquire.form
    assert form is not None
    assert form.hand_over is not None
    several = form.fill_all(form.hand_over, [release.blanks, acquire.blanks])
    assert form.fill_hand_over(release.blanks, acquire.blanks) == several


def test_the_acquire_of_a_hand_over_is_answered_before_its_release() -> None:
    order: list[Asker] = []
    giving, taking = Asker(command(2, b"a", 0), order), Asker(command(0, b"a", 0), order)
    (request,) = joined([giving, taking])
    request.deliver(0, request.command.read(2))
    assert order == [taking, giving]


def test_a_call_left_over_from_full_joints_is_sent_alone() -> None:
    acquires = [Asker(command(0, b"%d" % index, 0)) for index in range(MOST + 1)]
    requests = joined(list(acquires))
    assert [isinstance(request, Joint) for request in requests] == [True, False]
    handed = [
        Asker(command(what, b"%d" % index, 0)) for index in range(MOST // 2 + 1) for what in (2, 0)
    ]
    requests = joined(list(handed))
    assert [len(request.sinks) for request in requests if isinstance(request, Joint)] == [MOST, 2]
