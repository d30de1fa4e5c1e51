"""The times of waiting that the pages state follow from the constants of the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aioredlock_ng._core.validity import COVERED_FOR, COVERED_SHARE
from aioredlock_ng._core.waking import MOST_AHEAD
from aioredlock_ng._engine.waiting.passing_on import RUN, RUN_TRIPS
from aioredlock_ng._engine.waiting.place import POLL_EVERY, REFRESH_AFTER, REFRESH_EVERY
from aioredlock_ng._engine.waiting.queue_entry import KEPT_FOR, QUEUE_LIFE

DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    """Return the text of a page in one line."""
    return " ".join((DOCS / f"{name}.md").read_text(encoding="utf-8").split())


def interval(longest: float) -> str:
    """Return the random interval between two refreshes as a page states it, in whole seconds."""
    return f"{0.75 * longest:.3g} to {longest:.3g} s"


def test_the_times_in_the_conditions_for_passing_a_grant_on_are_those_of_the_code() -> None:
    text = (DOCS / "how-it-works.md").read_text(encoding="utf-8")
    _, _, after = text.partition("A grant is passed on only under these conditions:\n\n")
    items, _, _ = after.partition("\n\n")
    conditions = [" ".join(item.split()) for item in items.removeprefix("* ").split("\n* ")]
    recent = conditions[2]
    assert f"less than {COVERED_FOR * 1000:g} ms ago" in recent
    assert COVERED_SHARE == 0.1
    assert "less than a tenth of the ttl ago" in recent


@pytest.mark.parametrize("name", ["glossary", "semaphore", "rwlock"])
def test_a_run_has_the_length_that_the_page_states(name: str) -> None:
    assert RUN_TRIPS == 10
    assert f"{RUN * 1000:g} ms, or ten round trips" in page(name)
    assert f"{COVERED_FOR * 1000:g} ms" in page(name)


def test_the_intervals_between_two_refreshes_are_those_of_the_code() -> None:
    how, guarantees = page("how-it-works"), page("guarantees")
    far = (REFRESH_EVERY + MOST_AHEAD * QUEUE_LIFE) / 2
    assert f"at random intervals of {interval(REFRESH_EVERY)}" in how
    assert f"every {interval(REFRESH_EVERY)}" in guarantees
    assert f"plus {interval(QUEUE_LIFE)} for each waiter before the sender" in how
    assert f"For the second waiter, the interval is {interval(REFRESH_EVERY + QUEUE_LIFE)}" in (
        guarantees
    )
    for text in (how, guarantees):
        assert f"{interval(far)}" in text
    assert re.search(rf"every 0\.075 to {POLL_EVERY:g} s", how)


def test_the_life_of_a_queue_and_of_reserved_names_is_that_of_the_code() -> None:
    how, keys = page("how-it-works"), page("keys")
    life = f"{QUEUE_LIFE:g} s, plus {2 * QUEUE_LIFE:g} s for each waiter before the sender"
    assert life in how
    assert f"the queue lives for at least {QUEUE_LIFE:g} s" in keys
    assert f"{2 * QUEUE_LIFE:g} s are added to these {QUEUE_LIFE:g} s for each waiter" in keys
    assert how.count(f"At most {MOST_AHEAD} waiters count") == 2
    assert f"end {KEPT_FOR:g} s after the attempt" in how
    assert f"for {KEPT_FOR:g} s, the free names" in keys


def test_the_delays_before_a_refresh_are_those_of_the_code() -> None:
    how = page("how-it-works")
    delay = f"{REFRESH_AFTER * 1000:g} ms"
    for words in (
        f"sends no attempt, but a refresh {delay} later",
        f"still waits {delay} after that message",
        f"follows {delay} after the first one",
        f"sends a refresh {delay} after the offer",
    ):
        assert words in how, words
