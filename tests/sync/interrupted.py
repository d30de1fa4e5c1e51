"""The exception that signal handlers raise in the tests of this folder."""

from __future__ import annotations

__all__ = ["Interrupted"]


class Interrupted(BaseException):
    """Raised by a signal handler, or as if by one. Like KeyboardInterrupt, it is no Exception."""
