"""Run a function at the end of a child process of `multiprocessing`.

A child that was forked does not run the `atexit` functions of its parent.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["at_end_of_child"]

_AFTER_ALL_OTHERS: Final = -1000
"""The priority that makes the function run after the exit functions of the program.

The exit functions may still use locks."""


def at_end_of_child(function: Callable[[], object]) -> None:
    """Call `function` when this process ends, if the process is a child of `multiprocessing`.

    Before Python 3.13, other non-daemon threads may still run at this moment, and may hold locks.
    So `function` is not called if another non-daemon thread runs.
    """
    # A child of `multiprocessing` has already imported these modules. Other processes need not
    # import them.
    process = sys.modules.get("multiprocessing.process")
    util = sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, _if_alone, (function,), exitpriority=_AFTER_ALL_OTHERS)


def _if_alone(function: Callable[[], object]) -> None:
    here = threading.current_thread()
    if all(thread.daemon or thread is here for thread in threading.enumerate()):
        function()
