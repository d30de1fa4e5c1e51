"""The command line on nodes of the test's own."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import Cli

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.node_set import NodeSet


@pytest.fixture(autouse=True)
def nothing_is_ignored() -> Iterator[None]:
    """Signals that the suite's own parent has told it to ignore (`nohup`, a job in the background)
    are not in the tests.
    """
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    }
    for number, handler in before.items():
        if handler is signal.SIG_IGN:
            signal.signal(
                number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
            )
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def cli(three_nodes: NodeSet) -> Cli:
    """The command line on three nodes."""
    three_nodes.found()
    return Cli(three_nodes.urls)
