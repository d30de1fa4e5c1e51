"""A call to an engine in a thread, interrupted at any instant on either side: the same as without a
thread.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.engine.test_cancellation import INTERRUPTIONS, MOST_STEPS, SCENARIOS, interrupt_once
from tests.support.same_loop import threads_on_the_same_loop
from tests.support.stepping import SteppedLoop

USUAL, *OTHERS = INTERRUPTIONS

CASES = [
    *((USUAL, scenario) for scenario in SCENARIOS),
    *((OTHERS[at % len(OTHERS)], scenario) for at, scenario in enumerate(SCENARIOS)),
]
"""Each scenario with a plain cancellation and with one other interruption.

The tests of the engine interrupt the main scenarios in every way.
"""


@pytest.mark.parametrize(("interruption", "scenario"), CASES)
def test_a_threaded_call_that_is_interrupted_at_any_instant_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, interruption: str, scenario: str
) -> None:
    threads_on_the_same_loop(monkeypatch)
    for step in range(1, 2 * MOST_STEPS):
        with asyncio.Runner(loop_factory=SteppedLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, SteppedLoop)
            try:
                in_time = runner.run(
                    interrupt_once(loop, interruption, scenario, step, thread=True)
                )
                assert loop.troubles == []
            except BaseException as error:
                error.add_note(f"interrupted at step {step}")
                raise
        if not in_time:
            assert step > 3, "the scenario suspends somewhere"
            return
    pytest.fail("the scenario never ends")
