"""Sort the signals to `run` and `elect` by the processes that get them."""

from __future__ import annotations

import signal
from typing import Final

__all__ = ["STOPPING", "TO_THE_CHILD", "TO_THE_GROUP"]

STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end the wait for the lock.

While the child runs, every process in the child's group gets these signals too. If only the child
received them, a child that is a shell could end while its commands live on.
"""

TO_THE_GROUP: Final = (*STOPPING, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
TO_THE_CHILD: Final = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
"""Signals that only the child gets.

A process without handlers for these signals would be killed, so the rest of the group does not
receive them.
"""
