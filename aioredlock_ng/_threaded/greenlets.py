"""Refuse processes in which gevent or eventlet has replaced threads."""

from __future__ import annotations

import sys

from aioredlock_ng.errors import ConfigurationError

__all__ = ["refuse_greenlets"]


def refuse_greenlets() -> None:
    """Raise an error if gevent or eventlet has replaced threads by greenlets.

    Raises:
        ConfigurationError: gevent or eventlet has replaced `threading`. The event loop would run as
            a greenlet in the thread of its callers, and block all of them.
    """
    for name, module, question, threads in (
        ("gevent", "gevent.monkey", "is_module_patched", "threading"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched", "thread"),
    ):
        loaded = sys.modules.get(module)
        if loaded is not None and getattr(loaded, question)(threads):
            raise ConfigurationError(
                f"{name} has replaced threads by greenlets, and the locks need a thread; use them"
                f" in a process without {name}, or leave `threading` unpatched"
            )
