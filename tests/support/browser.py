"""Control an installed Chromium without a window, to measure pages as a reader sees them."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["Browser", "program"]

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Chromium reads requests from descriptor 3, and writes answers to descriptor 4.
_PIPES = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
_OPTIONS = (
    "--headless",
    # The sandbox of Chromium does not run as root. The pages are local files of this project.
    "--no-sandbox",
    "--disable-gpu",
    # Containers often have only 64 MB of shared memory.
    "--disable-dev-shm-usage",
    "--allow-file-access-from-files",
    "--remote-debugging-pipe",
)


def program() -> str | None:
    """Return the path of an installed Chromium or Chrome, or None."""
    return next((found for name in _PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """One tab, controlled by the DevTools protocol over two pipes."""

    def __init__(self, profile: Path) -> None:
        """Start the browser.

        Args:
            profile: Empty folder for the files that the browser writes.

        Raises:
            FileNotFoundError: No browser is installed.
        """
        path = program()
        if path is None:
            raise FileNotFoundError("no Chromium or Chrome is installed: see .ci/install")
        self._process = subprocess.Popen(
            ["sh", "-c", _PIPES, "sh", path, *_OPTIONS, f"--user-data-dir={profile}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._number = 0
        self._unread = b""
        self._session: str | None = None

    def __enter__(self) -> Self:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one request of the protocol, and return the result.

        Raises:
            RuntimeError: The browser refused the request.
            EOFError: The browser has ended.
        """
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\0")
        self._process.stdin.flush()
        while (answer := self._read()).get("id") != self._number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def look(self, width: int, *, dark: bool = False) -> None:
        """Set the width of the window in pixels, and the colour scheme that the reader prefers."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, page: Path) -> None:
        """Load a file, and wait until the load event."""
        self.call("Page.navigate", url=page.as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression on the current page.

        Raises:
            RuntimeError: The expression raised an exception.
        """
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while b"\0" not in self._unread:
            part = self._process.stdout.read1(65536)  # type: ignore[attr-defined]
            if not part:
                raise EOFError("the browser has ended")
            self._unread += part
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))
