"""Collects every text in which an error may be shown."""

from __future__ import annotations

import traceback

__all__ = ["everything_said"]


def everything_said(error: BaseException) -> str:
    """Return all texts of an error and of the errors behind it: `str`, `repr` and traceback.

    Suppressed contexts are included.
    """
    said, seen, left = [], set(), [error]
    while left:
        error = left.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        said += [str(error), repr(error), repr(error.args), *traceback.format_exception(error)]
        left += [other for other in (error.__cause__, error.__context__) if other is not None]
        if isinstance(error, BaseExceptionGroup):
            left += error.exceptions
    return "\n".join(said)
