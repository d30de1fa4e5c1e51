"""The loss of a majority of real nodes, and its return, are each told once, whatever became of the
nodes meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import QuorumUnreachable, Redlock
from aioredlock_ng.events import Event, NodeQuarantined, QuorumLost, QuorumRegained
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.faults

WITHIN = 30.0
"""Seconds for a few node timeouts, or a quarantine of four."""


def kinds(heard: list[Event]) -> list[type[Event]]:
    return [type(event) for event in heard if isinstance(event, QuorumLost | QuorumRegained)]


@pytest.mark.slow
async def test_a_hung_majority_loses_the_quorum_and_an_answering_node_regains_it(
    three_nodes: NodeSet,
) -> None:
    heard: list[Event] = []
    async with Redlock(three_nodes.urls, sinks=[heard.append], node_timeout=1.0) as redlock:
        await redlock.wait_ready(WITHIN)
        three_nodes.pause(0)
        three_nodes.pause(1)
        with pytest.raises(QuorumUnreachable):
            # A hung node is known to be missing after four node timeouts.
            async with asyncio.timeout(WITHIN):
                await redlock.lock("a", blocking_timeout=2 * WITHIN, fail_fast=True).acquire()
        assert not redlock.ready
        three_nodes.resume(0)
        await redlock.wait_ready(WITHIN)
        three_nodes.resume(1)
        async with redlock.lock("a", blocking_timeout=WITHIN):
            assert kinds(heard) == [QuorumLost, QuorumRegained]


@pytest.mark.slow
async def test_a_majority_that_comes_back_empty_is_not_back_before_its_quarantine_is_over(
    three_nodes: NodeSet,
) -> None:
    heard: list[Event] = []
    settings = {"ttl": 3.0, "max_ttl": 3.0, "node_timeout": 2.0}
    async with Redlock(
        three_nodes.urls,
        sinks=[heard.append],
        **settings,  # type: ignore[arg-type]
    ) as redlock:
        await redlock.wait_ready(WITHIN)
        three_nodes.crash(0)
        three_nodes.crash(1)
        await eventually(lambda: not redlock.ready, within=WITHIN)
        three_nodes.restart(0)
        three_nodes.restart(1)
        await redlock.wait_ready(WITHIN)
        assert any(isinstance(event, NodeQuarantined) for event in heard)
        assert kinds(heard) == [QuorumLost, QuorumRegained]
        async with redlock.lock("a", blocking_timeout=0):
            pass


async def test_one_node_that_goes_and_comes_back_is_no_loss_of_the_majority(
    three_nodes: NodeSet,
) -> None:
    heard: list[Event] = []
    async with Redlock(three_nodes.urls, sinks=[heard.append], node_timeout=5.0) as redlock:
        await redlock.wait_ready(WITHIN)
        three_nodes.crash(2)
        await eventually(lambda: redlock.nodes[2].state == "down", within=WITHIN)
        assert redlock.ready
        three_nodes.restart(2)
        await eventually(lambda: redlock.nodes[2].state == "quarantined", within=WITHIN)
        assert redlock.ready
        assert kinds(heard) == []


async def test_the_error_of_wait_ready_names_the_nodes_that_are_down(three_nodes: NodeSet) -> None:
    three_nodes.crash(0)
    three_nodes.crash(1)
    async with Redlock(three_nodes.urls) as redlock:
        with pytest.raises(QuorumUnreachable, match=r"down \(") as error:
            await redlock.wait_ready(0.5)
        assert three_nodes.urls[0].removeprefix("redis://") in str(error.value)
        assert not redlock.ready
