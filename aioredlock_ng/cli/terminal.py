"""Put this process's group or the child's group in the foreground of the terminal."""

from __future__ import annotations

import contextlib
import os
import signal

__all__ = ["Terminal"]


class Terminal:
    """The controlling terminal, if there is one.

    Attributes:
        given: True after a successful call of `give`, until `take` is called.
    """

    def __init__(self) -> None:
        self._fd = -1
        self.given = False
        if any(map(os.isatty, (0, 1, 2))):
            with contextlib.suppress(OSError):
                self._fd = os.open(os.ctermid(), os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)

    @property
    def ours(self) -> bool:
        """True while this process's group is in the foreground."""
        if self._fd < 0:
            return False
        with contextlib.suppress(OSError):
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        return False

    def give(self, group: int) -> bool:
        """Put another group in the foreground, if this process's group is in the foreground.

        Return the new value of `given`.
        """
        if self.ours:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self._fd, group)
                self.given = True
        return self.given

    def take(self) -> None:
        """Put this process's group in the foreground again, if the terminal was given away."""
        if self.given:
            self.given = False
            # This group is in the background. If SIGTTOU were not ignored, the request for the
            # foreground would suspend this group.
            former = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self._fd, os.getpgrp())
            signal.signal(signal.SIGTTOU, former)

    def close(self) -> None:
        """Take the terminal back if it was given away, and close its descriptor."""
        self.take()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
