"""Removal of secrets from texts that servers and libraries have written."""

from __future__ import annotations

import json
import re
from collections import deque
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_plus

from aioredlock_ng._core.refusals import DISTINCTIVE

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["HIDDEN", "Redaction"]

HIDDEN: Final = "***"
"""The replacement of a secret."""

_SEED = 8
"""Number of leading characters that are enough to recognise a secret. The rest of the secret may be
missing, because servers cut the long arguments that they quote."""

_WORD = 4
"""A secret with fewer characters is replaced only as a separate word.

Otherwise a secret "1" would remove this digit from every number."""

_ALONE = r"(?<!\w)|(?<=\\[abfnrtv])|(?<=\\x[0-9a-fA-F]{2})|(?<=%[0-9a-fA-F]{2})"
"""Pattern of the beginning of a separate word.

An escape before a word is not part of the word. For example, a proxy may quote the bytes
"\\r\\nsecret\\r\\n"."""

_REMEMBERED = 8
"""Largest number of secrets that are learned at run time and kept. Without a bound the number would
grow, because a credential provider may issue a new token every hour."""


class Redaction:
    """Replace secrets in a text, in their plain, percent-encoded, escaped and shortened forms.

    The words by which the library recognises a server's refusals stay in the text. A secret that
    has only letters is replaced only as a separate word, because a password "script" must not
    change a longer word.

    Args:
        secrets: Passwords. Empty secrets, and objects that are neither text nor bytes, are ignored.
    """

    def __init__(self, secrets: Iterable[object] = ()) -> None:
        self._fixed = _forms_of(secrets)
        self._learned: deque[str] = deque(maxlen=_REMEMBERED)
        self._prepare()

    def learn(self, secret: object) -> None:
        if isinstance(secret, (str, bytes)) and (text := _text(secret)) not in self._learned:
            self._learned.append(text)
            self._prepare()

    def __call__(self, text: str) -> str:
        kept, at = [], 0
        while self._forms and (found := self._begins.search(text, at)) is not None:
            kept.append(text[at : found.start()])
            at = found.end()
            if found[1] is None:
                at = max(at, *(_end_of(form, text, found.start()) for form in self._forms))
            kept.append(found[1] or HIDDEN)
        return "".join([*kept, text[at:]])

    def _prepare(self) -> None:
        self._forms = [*self._fixed, *_forms_of(self._learned)]
        self._begins = re.compile("|".join([f"({DISTINCTIVE})", *map(_begin_of, self._forms)]))


def _text(secret: str | bytes) -> str:
    return secret if isinstance(secret, str) else secret.decode("utf-8", "replace")


def _forms_of(secrets: Iterable[object]) -> list[str]:
    """Return all spellings of the secrets, the longest spelling first.

    A shorter spelling may be part of a longer spelling.
    """
    texts = {_text(secret) for secret in secrets if isinstance(secret, (str, bytes)) and secret}
    forms = set(texts)
    for text in texts:
        raw = text.encode("utf-8", "surrogateescape")
        for encoded in (quote(raw), quote(raw, safe=""), quote_plus(raw)):
            forms |= {encoded, re.sub("%..", lambda byte: byte[0].lower(), encoded)}
        forms |= {repr(text)[1:-1], repr(raw)[2:-1], json.dumps(text)[1:-1]}
    return sorted(forms, key=len, reverse=True)


def _begin_of(form: str) -> str:
    """Return a pattern that finds the beginning of one spelling of a secret."""
    begin = re.escape(form[:_SEED])
    if len(form) >= _WORD and not form.isalpha():
        return begin
    return rf"(?:{_ALONE}){begin}" + (r"(?!\w)" if len(form) <= _SEED else "")


def _end_of(form: str, text: str, start: int) -> int:
    """Return the index up to which the text matches a spelling that begins at `start`.

    A message may cut a secret short, so the text may have only the beginning of the spelling.
    """
    end = start
    for char in form:
        if text[end : end + 1] != char:
            break
        end += 1
    return end
