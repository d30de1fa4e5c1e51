"""Run the shop's processes: uvicorn with several workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.testing import free_port

from .field import variables
from .shop import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from .field import Contestant

__all__ = ["ShopFailed", "Web"]

_START_SECONDS: Final = 60.0
_GRACE_SECONDS: Final = 3
_HEALTH_SECONDS: Final = 60
_STOP_SECONDS: Final = 20.0


# The kernel ends the shop and its workers when the parent process ends for any reason.
_TIED: Final = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execv(sys.argv[1], sys.argv[1:])"
)


class ShopFailed(RuntimeError):
    """The shop did not open, or closed early. The message ends with the end of its log."""


class Web:
    """A running shop, usable with `with`.

    Args:
        contestant: The contestant, which has the guard.
        urls: The lock servers.
        stock: The URL of the server with the stock.
        workers: Number of processes.
        python: The interpreter of the contestant's environment.
    """

    def __init__(
        self, contestant: Contestant, urls: Sequence[str], stock: str, workers: int, python: Path
    ) -> None:
        self._workers = workers
        self._python = python
        self._folder = tempfile.TemporaryDirectory(prefix="flash-sale-")
        self._log = Path(self._folder.name) / "log"
        self._notes = Path(self._folder.name) / "notes"
        self._notes.mkdir()
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = {
            "guard": contestant.guard,
            "settings": contestant.settings,
            "urls": list(urls),
            "stock": stock,
            "folder": str(self._notes),
        }
        self.port = free_port()

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all workers since their start. Only Linux has them."""
        return sum(_cpu_seconds(int(note.name)) for note in self._noted())

    def stop(self) -> list[dict[str, Any]]:
        """End the shop, and return the notes of its workers."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                for note in self._noted():
                    _kill(int(note.name))
                process.kill()
                process.wait()
        return [json.loads(note.read_text(encoding="utf-8")) for note in self._noted()]

    def __enter__(self) -> Self:
        try:
            self._process = process = self._started()
            end = time.monotonic() + _START_SECONDS
            while len(self._noted()) < self._workers:
                if (why := self._notes / "failed").exists():
                    raise ShopFailed(
                        "the shop cannot open: "
                        f"{json.loads(why.read_text(encoding='utf-8'))['error']}"
                    )
                if process.poll() is not None or time.monotonic() > end:
                    raise ShopFailed(
                        "the shop did not open: "
                        f"{self._log.read_text(errors='replace').strip()[-1500:]}"
                    )
                time.sleep(0.02)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._folder.cleanup()

    def _started(self) -> subprocess.Popen[bytes]:
        options = {
            "--workers": self._workers,
            "--port": self.port,
            "--lifespan": "on",
            "--log-level": "warning",
            "--timeout-graceful-shutdown": _GRACE_SECONDS,
            # A worker that is busy with a lock must not count as dead.
            "--timeout-worker-healthcheck": _HEALTH_SECONDS,
        }
        words = [str(word) for pair in options.items() for word in pair]
        shop = [
            "-m",
            "uvicorn",
            "--factory",
            "benchmarks.flash_sale.shop:create_app",
            "--no-access-log",
        ]
        tied = ["-c", _TIED, str(self._python)] if sys.platform == "linux" else []
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [str(self._python), *tied, *shop, *words],
                env=variables() | {SETTINGS: json.dumps(self._wanted)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _noted(self) -> list[Path]:
        return sorted(note for note in self._notes.iterdir() if note.name.isdigit())


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, 9)


def _cpu_seconds(pid: int) -> float:
    try:
        # The name of the process is in brackets, and may contain any characters.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
