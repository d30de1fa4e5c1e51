"""Runs the command line in processes of its own; never in this one."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.support.node_set import NodeSet

__all__ = [
    "NODE_TIMEOUT",
    "OFFERED",
    "PATIENCE",
    "Cli",
    "connected",
    "line",
    "python",
    "with_programs",
]

OFFERED = "aioredlock_ng:offer:5:0123456789abcdef:1:60000"
"""The value of a key that is kept for a waiter."""

PATIENCE = 120.0
"""Seconds for what takes one on an idle machine."""

NODE_TIMEOUT = 3.0
"""Seconds for an answer of a node. A busy machine may pause a server for two seconds.

With a longer timeout, an election with the default ttl would be refused.
"""


def python(code: str) -> list[str]:
    """A command that runs a few lines of Python, started as quickly as can be."""
    return [sys.executable, "-I", "-S", "-c", code]


class Cli:
    """The command line, with the nodes in its environment."""

    def __init__(self, urls: Sequence[str]) -> None:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("AIOREDLOCK_NG_")
        }
        # Some test runners set it for their workers.
        inherited.pop("COLUMNS", None)
        self.env = {
            **inherited,
            "AIOREDLOCK_NG_NODES": ",".join(urls),
            "AIOREDLOCK_NG_NODE_TIMEOUT": str(NODE_TIMEOUT),
        }

    def words(self, *arguments: str) -> list[str]:
        """The whole command line."""
        return [sys.executable, "-m", "aioredlock_ng", *arguments]

    def __call__(self, *arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        settings = {"text": True, "timeout": PATIENCE, "capture_output": True, **settings}
        return subprocess.run(self.words(*arguments), env=self.env, check=False, **settings)

    @contextmanager
    def started(self, *arguments: str, **settings: Any) -> Iterator[subprocess.Popen[str]]:
        """Start it, with pipes; it is killed at the end, if it is still there."""
        pipes = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
        }
        with subprocess.Popen(
            self.words(*arguments), env=self.env, **{**pipes, **settings}
        ) as process:
            try:
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                process.kill()

    @contextmanager
    def holding(self, name: str, *options: str) -> Iterator[subprocess.Popen[str]]:
        """Hold a lock until the block ends or a line is written to it."""
        with self.started(
            "run", *options, name, "--", "sh", "-c", "echo ready; read line; exit 0"
        ) as process:
            assert line(process) == "ready"
            yield process
            if process.poll() is None:
                process.communicate("\n", timeout=PATIENCE)
                assert process.returncode == 0


def line(process: subprocess.Popen[str]) -> str:
    """The next line of its output; "" when it has ended instead.

    The test's own time limit bounds it.
    """
    output: IO[str] | None = process.stdout
    assert output is not None
    return output.readline().rstrip("\n")


def connected(nodes: NodeSet) -> int:
    """How many clients have every node tell them about changed keys: managers that are open."""
    return min(int(node.info()["tracking_clients"]) for node in nodes)


def with_programs(cli: Cli, folder: Path, bodies: Mapping[str, str]) -> Cli:
    """Let shells of `cli` find `aioredlock-ng` and more programs in `folder/bin`; the bodies are
    shell code by path.
    """
    (folder / "bin").mkdir()
    command = {"bin/aioredlock-ng": f'exec {shlex.quote(sys.executable)} -m aioredlock_ng "$@"'}
    for name, body in (command | dict(bodies)).items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    cli.env["PATH"] = f"{folder / 'bin'}:{cli.env['PATH']}"
    return cli
