"""Distance between a client and its nodes: proxies that deliver the answers of nodes late."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

__all__ = ["distant"]

_PROXY: Final = Path(__file__).parent / "drivers" / "slow_proxy.py"


@contextlib.contextmanager
def distant(
    urls: Sequence[str], milliseconds: float, indexes: Collection[int]
) -> Iterator[list[str]]:
    """Put a proxy before some of the nodes, and yield the URLs of all nodes.

    Args:
        urls: The nodes.
        milliseconds: Time by which each proxy delays the answers of its node.
        indexes: The nodes that get a proxy.
    """
    through = list(urls)
    with contextlib.ExitStack() as stack:
        for index in indexes:
            parts = urlsplit(urls[index])
            command = [
                sys.executable,
                str(_PROXY),
                str(parts.hostname),
                str(parts.port),
                str(milliseconds),
            ]
            proxy = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            assert proxy.stdout is not None
            through[index] = f"redis://127.0.0.1:{int(proxy.stdout.readline())}"
        yield through
