"""Refuse processes in which gevent or eventlet has replaced threads by greenlets."""

from __future__ import annotations

import sys
from typing import Final

from aioredlock_ng.errors import ConfigurationError

__all__ = ["refuse_greenlets"]

_PACKAGES: Final = (
    (
        "gevent",
        "gevent.monkey",
        "is_module_patched",
        # asyncio waits for sockets with `select`. Its threads for DNS look-ups use `queue`.
        ("threading", "select", "queue"),
        "patch_all(thread=False, select=False, queue=False)",
    ),
    (
        "eventlet",
        "eventlet.patcher",
        "is_monkey_patched",
        ("thread",),
        "monkey_patch(thread=False)",
    ),
)


def refuse_greenlets() -> None:
    """Raise an error if gevent or eventlet has replaced threads by greenlets.

    Raises:
        ConfigurationError: gevent or eventlet has replaced threads, or gevent has replaced `select`
            or `queue`. In such a process, the engine's event loop would block all greenlets, or
            would stop.
    """
    for package, module, question, parts, remedy in _PACKAGES:
        # While another thread imports the module, the function may not exist yet.
        is_patched = getattr(sys.modules.get(module), question, None)
        if is_patched is None:
            continue
        for part in parts:
            if is_patched(part):
                raise ConfigurationError(
                    f"{package} has replaced `{part}` by greenlets, and the locks need a thread;"
                    f" use them in a process without {package}, or patch with {remedy}"
                )
