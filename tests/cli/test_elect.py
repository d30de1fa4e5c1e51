"""`aioredlock-ng elect` runs its command on one host at a time and stands again after a loss."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock
from tests.cli.commands import PATIENCE, Cli, line, python
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.support.node_set import Node, NodeSet

pytestmark = pytest.mark.once

# Reads its configuration anew at each SIGHUP, as daemons do.
RELOADS = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
print("ready", flush=True)
while signal.sigwait({signal.SIGHUP}):
    print("reloaded", flush=True)
"""

# Says when it gets SIGTERM, and ends at a further signal.
SLOW = """
import signal
wanted = {signal.SIGTERM, signal.SIGHUP}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
print("ready", flush=True)
print(signal.Signals(signal.sigwait({signal.SIGTERM})).name, flush=True)
signal.sigwait(wanted)
"""

# Says when it gets SIGTERM. All processes of a machine read the same monotonic clock.
TIMED = """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("ready", flush=True)
signal.sigwait({signal.SIGTERM})
print(time.monotonic(), flush=True)
"""

READY = "import signal; print('ready', flush=True); signal.pause()"


def test_elect_ends_with_the_exit_status_of_its_command(cli: Cli) -> None:
    assert cli("elect", "x", "--", *python("raise SystemExit(7)")).returncode == 7


async def test_elect_stands_again_after_a_lost_term(cli: Cli, three_nodes: NodeSet) -> None:
    with cli.started("elect", "--label", "ann", "x", "--", *python(READY)) as process:
        async with Redlock(three_nodes.urls, node_timeout=1.0) as redlock:
            for _ in range(3):
                assert line(process) == "ready"
                await eventually(lambda: _labelled(redlock))
                await redlock.force_release("x")
        assert line(process) == "ready"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM


MASK = """
import signal
print(signal.SIGCHLD in signal.pthread_sigmask(0, ()), flush=True)
signal.pause()
"""


def _block_sigchld() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})


async def test_the_command_of_each_term_inherits_the_same_signal_mask(
    cli: Cli, three_nodes: NodeSet
) -> None:
    with cli.started("elect", "x", "--", *python(MASK), preexec_fn=_block_sigchld) as process:
        async with Redlock(three_nodes.urls, node_timeout=1.0) as redlock:
            for _ in range(2):
                assert line(process) == "True"
                await redlock.force_release("x")
        assert line(process) == "True"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM


# Control-C before the child of the second term exists.
INTERRUPTED = """
import os, signal, sys
from aioredlock_ng import cli
from aioredlock_ng.cli import electing

class Child(electing.Child):
    terms = 0

    def __init__(self, *arguments):
        Child.terms += 1
        if Child.terms == 2:
            os.kill(os.getpid(), signal.SIGINT)
        super().__init__(*arguments)

electing.Child = Child
cli.main(sys.argv[1:])
"""


async def test_elect_ends_by_the_signal_at_control_c_between_two_terms(
    cli: Cli, three_nodes: NodeSet
) -> None:
    words = [sys.executable, "-c", INTERRUPTED, "elect", "x", "--", *python(READY)]
    with subprocess.Popen(words, env=cli.env, stdout=subprocess.PIPE, text=True) as process:
        assert line(process) == "ready"
        async with Redlock(three_nodes.urls, node_timeout=1.0) as redlock:
            await redlock.force_release("x")
        assert process.wait(PATIENCE) == -signal.SIGINT


async def test_elect_stands_again_although_its_command_was_told_to_reload(
    cli: Cli, three_nodes: NodeSet
) -> None:
    with cli.started("elect", "x", "--", *python(RELOADS)) as process:
        assert line(process) == "ready"
        process.send_signal(signal.SIGHUP)
        assert line(process) == "reloaded"
        async with Redlock(three_nodes.urls, node_timeout=1.0) as redlock:
            await redlock.force_release("x")
        assert line(process) == "ready"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_elect_does_not_stand_again_after_a_signal_while_the_command_is_ended(
    cli: Cli, three_nodes: NodeSet, number: signal.Signals
) -> None:
    with cli.started("elect", "--ttl", "60", "x", "--", *python(SLOW)) as process:
        assert line(process) == "ready"
        async with Redlock(three_nodes.urls, node_timeout=1.0) as redlock:
            await redlock.force_release("x")
        assert line(process) == "SIGTERM"
        process.send_signal(number)
        assert process.wait(PATIENCE) == 75


async def _labelled(redlock: Redlock) -> bool:
    info = await redlock.inspect("x")
    return info.owner is not None and info.owner.label == "ann"


async def test_a_lost_term_without_rejoin_is_an_exit_status(cli: Cli, three_nodes: NodeSet) -> None:
    with cli.started("elect", "--no-rejoin", "x", "--", *python(READY)) as process:
        assert line(process) == "ready"
        async with Redlock(three_nodes.urls, node_timeout=1.0) as redlock:
            await redlock.force_release("x")
        assert process.wait(PATIENCE) == 75


def _end_after_renewal(node: Node) -> float:
    """Wait for the next renewal of `x`, and return when the key of this node expires."""
    left = int(node.command("PTTL", "x"))
    while True:
        before, asked = left, time.monotonic()
        left = int(node.command("PTTL", "x"))
        if left > before:
            return asked + left / 1000
        time.sleep(0.02)


def test_the_command_ends_before_its_lock_does(cli: Cli, three_nodes: NodeSet) -> None:
    """Two of three nodes hang, so the lock cannot be renewed."""
    with cli.started("elect", "--no-rejoin", "x", "--", *python(TIMED)) as process:
        assert line(process) == "ready"
        end = _end_after_renewal(three_nodes[0])
        three_nodes.pause(0)
        three_nodes.pause(1)
        try:
            # The margin is a third of the ttl of ten seconds. Without a margin, the signal would
            # come when only the drift of 0.1 s is left.
            assert float(line(process)) < end - 1
        finally:
            three_nodes.resume(0)
            three_nodes.resume(1)
        assert process.wait(PATIENCE) == 75


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--step-down", "9", "x", "--", "true"], "step_down=9 is too long"),
        (["--grace", "9", "x", "--", "true"], "--grace 9 is longer than --step-down"),
        (["x"], "no command is given"),
    ],
)
def test_the_error_for_a_wrong_command_line_names_the_mistake(
    cli: Cli, options: list[str], words: str
) -> None:
    done = cli("elect", *options)
    assert done.returncode == 2
    assert words in done.stderr
