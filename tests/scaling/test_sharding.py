"""The sharding of docs/scaling.md, on real servers in place of the addresses that it names."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import QuorumUnreachable
from aioredlock_ng.testing import LocalNodes

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.once

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
NAMES = [f"order:{number}" for number in range(3_000)]


def example() -> Any:
    """The class that the page shows."""
    source = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )[0]
    names: dict[str, Any] = {}
    exec(compile(source, str(PAGE), "exec"), names)
    return names["ShardedRedlock"]


@pytest.fixture
def servers() -> Iterator[LocalNodes]:
    with LocalNodes(6) as nodes:
        yield nodes


def sets_of(servers: LocalNodes) -> dict[str, list[str]]:
    return {"a": servers.urls[:3], "b": servers.urls[3:]}


async def test_a_name_has_one_set_and_excludes_there(servers: LocalNodes) -> None:
    sharded = example()
    async with sharded(sets_of(servers)) as one, sharded(sets_of(servers)) as other:
        for name in NAMES[:20]:
            async with one.lock(name):
                assert await other.lock(name).try_acquire() is None
                assert [await redlock.locked(name) for redlock in one.sets.values()].count(
                    True
                ) == 1


async def test_several_names_go_together_by_their_tag_or_are_refused(servers: LocalNodes) -> None:
    async with example()(sets_of(servers)) as redlock:
        async with redlock.lock("{customer:7}:order:1", "{customer:7}:order:2") as lease:
            assert lease.nodes[1] == 3
        apart = next(name for name in NAMES if redlock.home(name) != redlock.home(NAMES[0]))
        with pytest.raises(ValueError, match="tag"):
            redlock.lock(NAMES[0], apart)


async def test_without_one_set_its_names_stand_still_and_the_others_go_on(
    servers: LocalNodes,
) -> None:
    async with example()(sets_of(servers)) as redlock:
        mine = {redlock.home(name): name for name in NAMES[:50]}
        for name in mine.values():
            async with redlock.lock(name):
                pass
        servers.crash(0)
        servers.crash(1)
        async with redlock.lock(mine["b"]):
            pass
        with pytest.raises(QuorumUnreachable):
            await redlock.lock(mine["a"]).try_acquire()


def test_names_spread_evenly_and_a_new_set_takes_its_share_from_all() -> None:
    sharded = example()
    urls = {label: [f"redis://10.0.{number}.1"] for number, label in enumerate("abcd")}
    before, after = sharded({label: urls[label] for label in "abc"}), sharded(urls)
    counted = Counter(before.home(name) for name in NAMES)
    assert all(900 < count < 1_100 for count in counted.values()), counted
    moved = [name for name in NAMES if before.home(name) != after.home(name)]
    assert {after.home(name) for name in moved} == {"d"}
    assert 650 < len(moved) < 850
