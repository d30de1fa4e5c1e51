"""An exception of a signal handler at each line of a call: nothing stays behind, and the manager
goes on.
"""

from __future__ import annotations

import dis
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aioredlock_ng
from aioredlock_ng import RedlockClosed
from aioredlock_ng.sync import Lock, Redlock
from tests.sync.interrupted import Interrupted
from tests.sync.test_locks import keys_of, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

    from tests.support.node_set import NodeSet

PACKAGE = str(Path(aioredlock_ng.__file__).parent)


_ENTERED: dict[CodeType, dict[int, int]] = {}
"""For each function: its lines that enter a `with`, and the offset of the instruction that does so.
"""


def leaves_a_with(frame: FrameType) -> bool:
    """Return whether the line is a `with` that is about to be left.

    A trace function is called there, but a signal handler is not: Python leaves the `with` first.
    """
    code = frame.f_code
    if code not in _ENTERED:
        offsets = {}
        for instruction in dis.get_instructions(code):
            if instruction.opname == "BEFORE_WITH":
                assert instruction.positions is not None
                offsets[instruction.positions.lineno or 0] = instruction.offset
        _ENTERED[code] = offsets
    return frame.f_lasti > _ENTERED[code].get(frame.f_lineno, frame.f_lasti)


class Interrupt:
    """Runs a signal handler at the n-th line that this thread runs.

    Python calls signal handlers between two lines, too. A trace function hits each of them.

    Args:
        at: The number of the line.
        everywhere: Count the lines of Python's own library, too, and not only those of the package.
        spared: Tells which lines do not count.
        handler: The signal handler. By default it raises an exception.

    Attributes:
        raised: Whether the handler has run.
    """

    def __init__(
        self,
        at: int,
        *,
        everywhere: bool = False,
        spared: Callable[[FrameType], bool] = lambda frame: False,
        handler: Callable[[], object] | None = None,
    ) -> None:
        self._handler = handler
        self._left = at
        self._everywhere = everywhere
        self._spared = spared
        self.raised = False

    def __enter__(self) -> Interrupt:
        # The tracer of coverage must go on afterwards.
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *error: object) -> bool:
        sys.settrace(self._before)
        return error[0] is Interrupted

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) and not self._everywhere:
            return None
        # Python ignores an exception in the callback of a weak reference.
        return None if code.co_filename == __file__ or code.co_name == "_remove" else self._line

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if (
            event == "line"
            and not self.raised
            and not leaves_a_with(frame)
            and not self._spared(frame)
        ):
            self._left -= 1
            if self._left == 0:
                self.raised = True
                if self._handler is None:
                    raise Interrupted
                self._handler()
        return self._line


def interrupts(**settings: Any) -> Iterator[Interrupt]:
    """Yield an interrupt at each line, until a call has ended without one."""
    for line in range(1, 1000):
        interrupt = Interrupt(line, **settings)
        yield interrupt
        if not interrupt.raised:
            assert line > 10
            return
    raise AssertionError("the call has no end")


def all_is_over(redlock: Redlock, nodes: NodeSet) -> bool:
    return not redlock.leases and not any(keys_of(nodes, "order"))


def test_a_manager_serves_calls_after_an_interrupt_at_any_line_of_acquire(
    redlock: Redlock, three_nodes: NodeSet
) -> None:
    for interrupt in interrupts(everywhere=True):
        with interrupt:
            lease = redlock.lock("order").acquire()
        if not interrupt.raised:
            lease.release()
        wait_until(lambda: all_is_over(redlock, three_nodes))
        assert redlock.lock("other", blocking_timeout=10).acquire().release()


def test_an_interrupt_at_any_line_of_a_with_leaves_no_lease(
    redlock: Redlock, three_nodes: NodeSet
) -> None:
    def spared(frame: FrameType) -> bool:
        """Return whether `__exit__` has not reached its `try`.

        Python cannot protect the beginning of a function.
        """
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code is Lock.__exit__.__code__:
                return "released" not in caller.f_locals
            caller = caller.f_back
        return False

    for interrupt in interrupts(spared=spared):
        with interrupt, redlock.lock("order"):
            pass
        wait_until(lambda: all_is_over(redlock, three_nodes))
        assert not redlock.inside
        assert redlock.lock("other", blocking_timeout=10).acquire().release()


@pytest.mark.parametrize("decorator", ["guard", "once"])
def test_an_interrupt_at_any_line_of_a_decorated_call_leaves_no_lease(
    redlock: Redlock, decorator: str
) -> None:
    """Celery interrupts a task by its soft time limit, and the worker goes on."""
    decorate: Any = redlock.guard("{name}")
    if decorator == "once":
        decorate = redlock.once("{name}", within=60)

    def function(name: int) -> None:
        pass

    work = decorate(function)

    for number, interrupt in enumerate(interrupts()):
        with interrupt:
            work(number)
        wait_until(lambda: not redlock.leases)
        assert not redlock.inside


def test_a_lease_whose_release_was_interrupted_is_released_or_can_be_released_again(
    redlock: Redlock, three_nodes: NodeSet
) -> None:
    for interrupt in interrupts(everywhere=True):
        lease = redlock.lock("order", blocking_timeout=10).acquire()
        with interrupt:
            lease.release()
        lease.release()
        wait_until(lambda: all_is_over(redlock, three_nodes))


def test_a_release_that_is_interrupted_before_it_waits_is_sent_nevertheless(
    redlock: Redlock, three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = redlock.lock("order").acquire()

    def interrupt() -> None:
        monkeypatch.undo()
        raise Interrupted

    monkeypatch.setattr("aioredlock_ng._threaded.engine_thread.refuse_greenlets", interrupt)
    with pytest.raises(Interrupted):
        lease.release()
    wait_until(lambda: all_is_over(redlock, three_nodes))


def engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("aioredlock_ng:")]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_manager_whose_opening_was_interrupted_at_any_line_can_be_opened_and_closed(
    three_nodes: NodeSet,
) -> None:
    def spared(frame: FrameType) -> bool:
        """Return whether the line makes the manager that is opened later, or starts a thread of
        Python.
        """
        return f"{PACKAGE}/_threaded" not in frame.f_code.co_filename

    for interrupt in interrupts(spared=spared):
        redlock = Redlock(three_nodes.urls, node_timeout=2.5)
        with interrupt:
            redlock.open()
        assert redlock.open().lock("other", blocking_timeout=10).acquire().release()
        redlock.close()
        wait_until(lambda: not engine_threads())


@pytest.mark.slow
def test_a_handler_that_closes_a_manager_at_any_line_of_its_first_use_leaves_it_closed(
    three_nodes: NodeSet,
) -> None:
    def spared(frame: FrameType) -> bool:
        return f"{PACKAGE}/_threaded" not in frame.f_code.co_filename

    def close() -> None:
        redlock.close()

    for interrupt in interrupts(spared=spared, handler=close):
        redlock = Redlock(three_nodes.urls, node_timeout=2.5)
        with interrupt, suppress(RedlockClosed):
            redlock.lock("order", blocking_timeout=10).acquire()
        if not interrupt.raised:
            redlock.close()
        with pytest.raises(RedlockClosed):
            redlock.lock("other").acquire()
        wait_until(lambda: not engine_threads())
        assert not any(keys_of(three_nodes, "order"))


@pytest.mark.slow
def test_a_manager_whose_closing_was_interrupted_at_any_line_can_be_closed_again(
    three_nodes: NodeSet,
) -> None:
    for interrupt in interrupts(everywhere=True):
        redlock = Redlock(three_nodes.urls, node_timeout=2.5)
        redlock.lock("order", blocking_timeout=10).acquire()
        with interrupt:
            redlock.close()
        redlock.close()
        wait_until(lambda: not engine_threads())
        assert not any(keys_of(three_nodes, "order"))
