"""Collects what the library says about locks, and searches it for tokens and stored values."""

from __future__ import annotations

import pickle
import re
import traceback
from typing import TYPE_CHECKING

from aioredlock_ng import RedlockError
from aioredlock_ng.compat.aioredlock import AioredlockError

if TYPE_CHECKING:
    from collections.abc import Awaitable

__all__ = ["TOKEN", "VALUE", "Told"]

TOKEN = "5ec2e7" + "0123456789abcdef0123456789"
"""The token of another client."""

VALUE = "classified: what the kitchen plans"
"""A value of another program."""


class Told:
    """All that the library says, in every form in which it may reach a log or another process.

    `kinds` has the class of each event, record and error.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.kinds: set[type] = set()

    def __call__(self, thing: object) -> None:
        """An event, a record or an error."""
        self.kinds.add(type(thing))
        self.texts += [str(thing), repr(thing), pickle.dumps(thing).decode("latin-1")]
        if isinstance(thing, BaseException):
            self.texts += traceback.format_exception(thing)
            self.texts += [repr(vars(thing)), *map(str, getattr(thing, "votes", ()))]

    async def by(self, call: Awaitable[object]) -> None:
        """Add the text of the result of a call, or the error of the library that it raises."""
        try:
            self.texts.append(repr(await call))
        except (RedlockError, AioredlockError, RuntimeError) as error:
            self(error)

    def assert_harmless(self, *tokens: str) -> None:
        """Nothing beyond the beginning of a token, nothing of a value, and nothing that looks like
        a whole token.
        """
        text = "\n".join(self.texts)
        for secret in (TOKEN, VALUE, *tokens):
            assert secret[:7] not in text
        assert not re.search(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", text)
