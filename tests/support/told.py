"""Collects the texts of the library about locks, and searches them for tokens and stored values."""

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
    """All texts of the library, in every form in which they may reach a log or another process.

    Attributes:
        texts: All texts so far.
        kinds: The class of each event, record and error.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.kinds: set[type] = set()

    def __call__(self, thing: object) -> None:
        """Add the texts of an event, a record or an error."""
        self.kinds.add(type(thing))
        self.texts += [str(thing), repr(thing), pickle.dumps(thing).decode("latin-1")]
        if isinstance(thing, BaseException):
            self.texts += traceback.format_exception(thing)
            self.texts += [repr(vars(thing)), *map(str, getattr(thing, "votes", ()))]

    async def by(self, call: Awaitable[object]) -> None:
        """Add the text of the result of a call, or of the error of the library that the call
        raises.
        """
        try:
            self.texts.append(repr(await call))
        except (RedlockError, AioredlockError, RuntimeError) as error:
            self(error)

    def assert_harmless(self, *tokens: str) -> None:
        """Assert that the texts show at most six characters of each token and of the stored value.

        No text may have a part that looks like a whole token.
        """
        text = "\n".join(self.texts)
        for secret in (TOKEN, VALUE, *tokens):
            assert secret[:7] not in text
        assert not re.search(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", text)
