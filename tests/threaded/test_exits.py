"""The end of a `multiprocessing` child, in which `atexit` functions of the parent do not run."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

PATIENCE = 60.0

KINDS = ("sync", "thread=True")


def said_by(nodes: NodeSet, work: str, method: str, kind: str) -> str:
    command = [
        sys.executable,
        "-m",
        "tests.threaded.leaving",
        work,
        method,
        kind,
        ",".join(nodes.urls),
    ]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=root
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    ("method", "work", "kind"),
    [
        case
        for at, method in enumerate(multiprocessing.get_all_start_methods())
        for case in (
            (method, "leave", KINDS[at % 2]),
            pytest.param(method, "pool", KINDS[(at + 1) % 2], marks=pytest.mark.full),
        )
    ],
)
def test_a_child_of_multiprocessing_releases_its_locks_when_it_ends(
    method: str, work: str, kind: str, three_nodes: NodeSet
) -> None:
    assert said_by(three_nodes, work, method, kind) == "held\n"
    assert three_nodes.left() == [set()] * 3


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_a_thread_that_goes_on_after_the_main_function_of_a_child_keeps_its_lock(
    method: str, three_nodes: NodeSet
) -> None:
    assert said_by(three_nodes, "leave_a_thread", method, "sync") == "held to the end\n"
    assert three_nodes.left() == [set()] * 3


def test_a_spawned_child_can_use_its_locks_in_its_exit_functions(three_nodes: NodeSet) -> None:
    assert said_by(three_nodes, "leave_to_atexit", "spawn", "sync") == "held in atexit\n"
    assert three_nodes.left() == [set()] * 3


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_a_child_that_changes_the_start_method_of_its_own_children_releases_its_locks(
    method: str, three_nodes: NodeSet
) -> None:
    assert said_by(three_nodes, "leave_with_another_default", method, "sync") == "held\n"
    assert three_nodes.left() == [set()] * 3
