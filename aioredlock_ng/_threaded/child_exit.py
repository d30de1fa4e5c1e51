"""Run a function at the end of a child process of `multiprocessing`.

The child does not run `atexit` functions, unless its start method is "spawn".
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["at_end_of_child"]

_AFTER_ALL_OTHERS: Final = -1000
"""The priority that makes the function run after the exit functions of the program.

The exit functions may still use locks."""


def at_end_of_child(function: Callable[[], object]) -> None:
    """Call `function` at the end of this process, if `atexit` functions do not run there.

    Before Python 3.13, other non-daemon threads may still run at this moment, and may hold locks.
    So `function` is not called if another non-daemon thread runs.
    """
    # A child of `multiprocessing` has already imported these modules. Other processes need not
    # import them.
    process = sys.modules.get("multiprocessing.process")
    util = sys.modules.get("multiprocessing.util")
    if process is None or util is None or process.parent_process() is None:
        return
    # The functions of `Finalize` run before those of `atexit`. A spawned child needs no `Finalize`,
    # and a lock must stay usable in the program's own `atexit` functions.
    if not _is_spawned(process.current_process()):
        util.Finalize(None, _if_alone, (function,), exitpriority=_AFTER_ALL_OTHERS)


def _is_spawned(child: Any) -> bool:
    """Return True if the start method of this child is "spawn"."""
    # The method is that of the child's class, or the default of the program. The child itself may
    # have changed the default since, but only the command line of a spawned child has this option.
    own = getattr(child, "_start_method", None)
    method = own or sys.modules["multiprocessing"].get_start_method()
    return method == "spawn" and "--multiprocessing-fork" in sys.orig_argv


def _if_alone(function: Callable[[], object]) -> None:
    here = threading.current_thread()
    if all(thread.daemon or thread is here for thread in threading.enumerate()):
        function()
